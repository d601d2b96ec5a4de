#ifndef FAKE_BASE_H
#define FAKE_BASE_H
/* Entry points, and the objects that handles stand for. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "list.h"

struct arena;
struct block;
struct capture;
struct context;
struct device;
struct event;
struct function;
struct graph;
struct graph_body;
struct graph_node;
struct image_function;
struct kernel;
struct library;
struct module;
struct physical;
struct pool;
struct stream;
struct texture;
struct timeline;

/* ---- entry points */

enum fake_row {
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) ROW_##symbol,
#include "driver_api.inc"
#undef ENTRY
    ROW_COUNT
};

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    __attribute__((visibility("default"))) CUresult symbol parameters;
#include "driver_api.inc"
#undef ENTRY

enum { PAGE_SIZE_2M = 2 << 20, MAX_DEVICES = 16, STACK_DEPTH = 64 };

struct thread {
    CUcontext stack[STACK_DEPTH]; /* the last one is current */
    int depth;
    CUstreamCaptureMode capture_mode;
    struct list streams; /* this thread's per-thread default streams, one per context */
    struct list node;
    bool in_callback; /* of a stream: most calls are refused */
    bool move;        /* the call under way must give another handle than it would (fake_faults.c) */
};

struct call {
    struct thread *self;
    struct context *context;
    bool locked;
};

enum call_needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };

/* Takes the lock unless nothing is needed. */
CUresult call_begin(struct call *call, enum fake_row row, enum call_needs needs);
void call_end(struct call *call);

/* Opens every entry point: checks what it needs, holds the lock until it returns. */
#define CALL(symbol, needs)                                                                                  \
    __attribute__((cleanup(call_end))) struct call call_ = {0};                                              \
    const CUresult begun_ = call_begin(&call_, ROW_##symbol, needs);                                         \
    if (begun_ != CUDA_SUCCESS)                                                                              \
        return begun_;                                                                                       \
    struct thread *const self __attribute__((unused)) = call_.self;                                          \
    struct context *const context __attribute__((unused)) = call_.context

/* What the null stream means to an entry point that ends in _ptds or _ptsz. */
static inline CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* ---- objects: everything that a handle stands for */

enum object_kind {
    OBJECT_NONE,
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_FUNCTION,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_GRAPH_EXEC,
    OBJECT_ARRAY,
    OBJECT_POOL,
    OBJECT_PHYSICAL,
};

struct object_table {
    struct object_slot {
        const void *handle;
        enum object_kind kind;
    } * slots;
    size_t used, size;
};

/* handle itself if it is a live object of that kind, else NULL: handles of the program may be anything. */
void *object_find(const void *handle, enum object_kind kind);
int object_add(const void *handle, enum object_kind kind); /* -1 without memory */
void object_remove(const void *handle);

/* Zeroed memory for an object that becomes a handle. NULL without memory. */
void *handle_alloc(struct thread *self, size_t size);

#endif
