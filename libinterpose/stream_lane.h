#ifndef CUDACKPT_STREAM_LANE_H
#define CUDACKPT_STREAM_LANE_H
/*
 * Lanes: the freed blocks of one pool that were freed in one stream. stream_memory_lock is held in all
 * functions but lane_mark.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "list.h"

#define LANE_CLASSES 128

struct stream_pool {
    struct list node; /* in stream_pools */
    CUmemoryPool handle;
    CUdevice device;
    uint64_t max_size, threshold;
    bool foreign, reuse, ended;
    uint64_t reserved, reserved_most; /* bytes of all blocks */
    uint64_t used, used_most;         /* bytes of those that the program has */
    uint64_t blocks;
    struct list lanes;
};

struct stream_block {
    struct stream_block *hash_next;
    CUdeviceptr address;
    uint64_t size;    /* as asked for */
    uint64_t backing; /* what there is */
    uint64_t id;
    struct stream_pool *pool;
    CUcontext context; /* that its memory belongs to (device_memory.h) */
    bool freed;
    struct lane *lane;      /* NULL: not in one */
    struct list class_node; /* in its lane, the oldest first */
    struct list age_node;
    struct stream_block *chain; /* of those to be given back */
};

struct lane {
    struct list node; /* in its pool */
    CUcontext context;
    CUstream stream;
    uint64_t thread; /* of a per-thread default stream, else 0 */
    bool ended;      /* the stream was destroyed, or its handle may be another's */
    CUevent event;   /* recorded in the stream after each free */
    pthread_mutex_t order;
    unsigned users; /* threads that are between lane_get and lane_add */
    struct list classes[LANE_CLASSES], ages;
};

/* What a block of that size needs: all blocks of a size have the same, so that they can be used again. */
uint64_t lane_backing(uint64_t size);

/* NULL if there is none. */
struct lane *lane_find(struct stream_pool *pool, CUcontext context, CUstream stream);
/* Found or made; NULL if that fails. A user more. */
struct lane *lane_get(struct stream_pool *pool, CUcontext context, CUstream stream);
void lane_leave(struct lane *lane);
/*
 * Marks the end of the stream's work so far. The event must not go back in the stream when two threads free
 * in it at the same time. The lock is not held: the driver waits when a stream's queue is full.
 */
CUresult lane_mark(struct lane *lane, CUstream stream);
void lane_add(struct lane *lane, struct stream_block *block);
/* A block for that need, at most a quarter larger, taken out; NULL if there is none. */
struct stream_block *lane_take(struct lane *lane, uint64_t backing, CUcontext context);
void lane_remove(struct stream_block *block);
/* Everything that was freed in it can be used by anybody. */
bool lane_is_done(const struct lane *lane);
bool lane_is_empty(const struct lane *lane);
/* Nobody can use an empty lane any more, or nobody will. */
bool lane_is_useless(const struct lane *lane);
void lane_delete(struct lane *lane);

#endif
