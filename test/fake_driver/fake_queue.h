#ifndef FAKE_QUEUE_H
#define FAKE_QUEUE_H
/* Work that runs asynchronously. */

#include "fake_base.h"

/* Work in the order of submission; outlives its stream until the work is done. */
struct timeline {
    uint32_t refs;
    uint64_t submitted, completed;
    bool blocking; /* waits for the null stream and it for this one */
    bool running;
    uint64_t running_sequence;
    struct context *context;
    struct list ops;    /* not yet begun */
    struct list active; /* in fake.active while there is something to do */
    struct list node;   /* in context->timelines */
};

/* A point of a timeline. */
struct stamp {
    uint32_t refs;
    struct timeline *timeline;
    uint64_t count;
    uint64_t time; /* when it was reached, ns */
};

enum { PARAMETERS_INLINE = 160, DEPENDENCIES_INLINE = 3 };

/* What an operation does, also as a node of a graph. */
struct work {
    enum work_kind {
        WORK_EMPTY,
        WORK_KERNEL,
        WORK_COPY,
        WORK_SET,
        WORK_HOST,
        WORK_CALLBACK,
        WORK_EVENT,
        WORK_WAIT_VALUE,
        WORK_WRITE_VALUE,
        WORK_GRAPH,
        WORK_FREE,
    } kind;
    union {
        struct kernel_work {
            struct function *function;
            CUfunction handle; /* as the program gave it: a function or a kernel */
            uint32_t grid[3], block[3], shared;
            bool cooperative;
            size_t parameters_size;
            uint8_t *parameters; /* malloc'd */
        } kernel;
        struct copy_work {
            uint64_t source, target;
            bool source_device, target_device; /* checked before it is touched */
            uint64_t source_pitch, source_slice, target_pitch, target_slice;
            uint64_t width, height, depth;
            void *staged; /* malloc'd copy of the source, NULL: none */
        } copy;
        struct set_work {
            uint64_t target, pitch, width, height; /* width in elements */
            uint32_t element, value;
        } set;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            void *argument;
            CUstream stream;
        } host;
        struct {
            struct stamp *stamp;
        } event;
        struct {
            uint64_t address, value;
            uint32_t size, flags;
        } value;
        struct {
            struct graph_body *body;
        } graph;
        struct {
            uint64_t address;
        } free;
    };
};

/* Copies what work points to, so that both can be dropped. */
CUresult work_copy(struct work *target, const struct work *source);
void work_drop(struct work *work);
/* Without the lock, on a thread of the driver's. */
CUresult work_run(struct context *context, struct work *work, struct thread *thread);

struct dependency {
    struct timeline *timeline;
    uint64_t count;
};

struct op {
    struct list node;
    struct timeline *timeline;
    uint64_t ticket;   /* place in the timeline */
    uint64_t sequence; /* place among all operations */
    struct dependency *dependencies;
    size_t dependency_count;
    struct dependency inline_dependencies[DEPENDENCIES_INLINE];
    struct work work;
};

struct timeline *timeline_new(struct context *context, bool blocking);
void timeline_put(struct timeline *timeline);
void timeline_wait(struct timeline *timeline, uint64_t count);
static inline bool timeline_idle(const struct timeline *timeline)
{
    return timeline->submitted == timeline->completed;
}

/*
 * Takes work over (drops it on failure). after: more to wait for; may be NULL. In a stream that captures it
 * becomes a node of the graph.
 */
CUresult stream_submit(struct stream *stream, struct work *work);
CUresult stream_wait_for(struct stream *stream, struct timeline *timeline, uint64_t count);
/* submits, then waits; returns the context's error. */
CUresult stream_submit_wait(struct stream *stream, struct work *work);

struct stamp *stamp_new(struct timeline *timeline);
void stamp_put(struct stamp *stamp);
bool stamp_reached(const struct stamp *stamp);

/* Waits for everything submitted so far to the context, the device. */
void context_wait(struct context *context);
void device_wait(struct device *device);

uint64_t now_ns(void);

#endif
