#ifndef FAKE_H
#define FAKE_H
/*
 * A driver without a GPU: libcuda.so.1 for tests. Device memory is a file, streams are threads, kernels are C
 * functions (kernels.c). It takes from the system what the real driver takes, so that it can be restarted in
 * place like it: all of its state lies in its .data and .bss, in malloc'd blocks, and in what it got through
 * imported libc functions.
 *
 * One lock (fake.lock) guards everything. An entry point holds it from CALL to its return; whoever waits or
 * runs something long (a kernel, a copy, a callback) lets it go meanwhile. Functions here are called with the
 * lock held unless they say otherwise.
 */

#include <pthread.h>

#include "fake_base.h"
#include "fake_context.h"
#include "fake_graph.h"
#include "fake_memory.h"
#include "fake_module.h"
#include "fake_queue.h"
#include "fake_stream.h"
#include "fake_system.h"

struct fake {
    bool initialised, forked, exiting;
    pthread_mutex_t lock;
    pthread_cond_t work_cond, done_cond;
    pthread_key_t thread_key, spare_keys[2];
    int driver_version;
    char directory[200];
    int control, uvm, socket, events[4], pipe[2]; /* descriptors */
    pthread_t helpers[2];
    struct device *devices;
    int device_count;
    struct object_table objects;
    struct range_map blocks, pages, reservations;
    uint64_t next_context_id, next_stream_id, next_block_id, next_capture_id, next_sequence;
    struct list contexts, threads, libraries, graphs, captures, noise;
    struct list active; /* timelines with something to do */
    int workers, idle_workers;
    struct list free_ops, free_stamps;
    struct faults faults;
    struct texture *textures[256]; /* an object's number is its index here + 1 */
    void *registered[64];          /* through a private table */
    int registered_count;
};

extern struct fake fake;

#endif
