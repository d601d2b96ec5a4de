#ifndef CUDACKPT_COPY_INTERNAL_H
#define CUDACKPT_COPY_INTERNAL_H
/* What the files of the copy engine share: copy.c plans and watches a copy, copy_worker.c moves the bytes. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"

#define COPY_SLOT        (4ull << 20) /* a piece is at most this large */
#define COPY_THREADS_MAX 16
#define COPY_SLOTS       2 /* per thread */

/* Part of a range. */
struct copy_piece {
    CUdeviceptr device;
    char *host;
    size_t size;
};

/* The ranges of one context, and how far their pieces have been given out. */
struct copy_group {
    CUcontext context;
    const struct copy_range **ranges;
    size_t count;
    size_t next;     /* range */
    uint64_t offset; /* in it */
};

struct copy {
    enum copy_direction direction;
    uint64_t total;
    uint64_t done; /* atomic */
    bool stop;     /* atomic: an error, or nobody wants it any more */
    struct copy_group *groups;
    size_t group_count;
    pthread_mutex_t lock;    /* of the groups' positions and of what follows */
    pthread_cond_t finished; /* a worker ended */
    unsigned int running;    /* workers */
    struct error error;      /* the first one */
};

struct copy_worker {
    struct copy *copy;
    size_t number;
    char *slots; /* COPY_SLOTS pinned pieces */
    pthread_t thread;
};

/* Gives the next piece of a group out; false when there is none or the copy was stopped. Any worker. */
bool copy_take_piece(struct copy *copy, struct copy_group *group, struct copy_piece *piece);

/* Notes what a driver call returned and stops the copy, unless it is CUDA_SUCCESS. Returns whether that is
 * so. */
bool copy_check(struct copy *copy, CUresult result, const char *call, CUdeviceptr device);

/* A worker's thread; argument: struct copy_worker. */
void *copy_work(void *argument);

/* copy_host_alloc without its fault point. */
void *copy_host_map(size_t size, struct error *err);

#endif
