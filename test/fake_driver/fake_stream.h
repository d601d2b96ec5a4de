#ifndef FAKE_STREAM_H
#define FAKE_STREAM_H
/* Streams, events, captures. */

#include "fake_queue.h"

/* ---- streams and events */

struct stream {
    enum object_kind kind;
    unsigned int flags;
    int priority;
    uint64_t id;
    struct context *context;
    struct timeline *timeline;
    struct capture *capture;
    struct graph_node **capture_nodes; /* what the next captured work depends on */
    size_t capture_count;
    struct list node;        /* in context->streams */
    struct list thread_node; /* in thread->streams */
    CUlaunchAttributeValue attributes[18];
};

struct event {
    enum object_kind kind;
    unsigned int flags;
    struct context *context;
    struct stamp *stamp; /* NULL: never recorded */
    struct capture *capture;
    struct graph_node **capture_nodes;
    size_t capture_count;
    struct list node;
};

/* The stream that a handle means to this thread in this context; NULL: no such stream. */
struct stream *stream_find(struct thread *self, struct context *context, CUstream handle);
CUresult stream_init(struct stream *stream, struct context *context, unsigned int flags, int priority);
void stream_fini(struct stream *stream);
void event_forget_capture(struct event *event);
CUresult event_record(struct stream *stream, CUevent handle);
CUresult event_wait(struct stream *stream, CUevent handle);
/* Allocates what the first stream or event of a context needs. */
CUresult context_first_use(struct context *context, bool *done, size_t handle_size);

/* ---- captures (fake_capture.c) */

struct capture {
    uint32_t refs; /* streams and events that are part of it */
    uint64_t id;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status;
    struct thread *thread; /* that began it */
    struct stream *origin;
    struct graph *graph;
    struct list node; /* in fake.captures */
};

/* Work that is captured: a node after the stream's last ones. */
CUresult capture_add(struct stream *stream, struct work *work);
/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a capture forbids this thread calls that may do anything. */
CUresult capture_check(struct thread *self);
/* The same for a wait for one stream: only its own capture counts. */
CUresult capture_check_stream(struct stream *stream);
/* Work in the null stream while a blocking stream captures. */
CUresult capture_check_null(struct context *context);
CUresult capture_nodes_copy(struct graph_node ***target, size_t *target_count, struct graph_node **source,
                            size_t count);
void capture_leave(struct stream *stream);
void capture_put(struct capture *capture);
CUresult capture_join(struct stream *stream, const struct event *event);

#endif
