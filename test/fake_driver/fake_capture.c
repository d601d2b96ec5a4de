/* Stream capture: work becomes nodes of a graph instead of being done. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"

CUresult capture_nodes_copy(struct graph_node ***target, size_t *target_count, struct graph_node **source,
                            size_t count)
{
    struct graph_node **copy = malloc((count + 1) * sizeof(*copy));

    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count)
        memcpy(copy, source, count * sizeof(*copy));
    free(*target);
    *target = copy;
    *target_count = count;
    return CUDA_SUCCESS;
}

void capture_put(struct capture *capture)
{
    if (--capture->refs)
        return;
    list_remove(&capture->node);
    if (capture->graph)
        graph_delete(capture->graph);
    free(capture);
}

void capture_leave(struct stream *stream)
{
    free(stream->capture_nodes);
    stream->capture_nodes = NULL;
    stream->capture_count = 0;
    capture_put(stream->capture);
    stream->capture = NULL;
}

static CUgraphNodeType node_type(enum work_kind kind)
{
    switch (kind) {
    case WORK_KERNEL:
        return 0;
    case WORK_COPY:
        return 1;
    case WORK_SET:
        return 2;
    case WORK_HOST:
        return 3;
    case WORK_GRAPH:
        return 4;
    default:
        return 5;
    }
}

CUresult capture_add(struct stream *stream, struct work *work)
{
    struct capture *capture = stream->capture;
    struct graph_node *node;

    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        work_drop(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    node =
        graph_add(capture->graph, node_type(work->kind), work, stream->capture_nodes, stream->capture_count);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (work->kind == WORK_GRAPH) {
        node->child = graph_of_body(capture->thread, work->graph.body);
        if (!node->child)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->child->embedded = true;
    }
    return capture_nodes_copy(&stream->capture_nodes, &stream->capture_count, &node, 1);
}

/* A global capture forbids everybody, unless the thread said otherwise; a thread's own forbids that thread.
 */
static bool forbids(const struct capture *capture, const struct thread *self)
{
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        self->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == self)
        return true;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           self->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check(struct thread *self)
{
    CUresult result = CUDA_SUCCESS;

    list_each(node, &fake.captures)
    {
        struct capture *capture = container_of(node, struct capture, node);

        if (capture->status == CU_STREAM_CAPTURE_STATUS_NONE || !forbids(capture, self))
            continue;
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult capture_check_stream(struct stream *stream)
{
    if (!stream->capture)
        return capture_check_null(stream == &stream->context->null_stream ? stream->context : NULL);
    stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_check_null(struct context *context)
{
    if (!context || list_empty(&fake.captures))
        return CUDA_SUCCESS;
    list_each(node, &context->streams)
    {
        struct stream *stream = container_of(node, struct stream, node);

        if (stream->capture && stream->timeline->blocking) {
            stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return CUDA_SUCCESS;
}

CUresult capture_join(struct stream *stream, const struct event *event)
{
    struct graph_node **merged;

    if (!stream->capture) {
        if (stream == &stream->context->null_stream)
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        stream->capture = event->capture;
        stream->capture->refs++;
        return capture_nodes_copy(&stream->capture_nodes, &stream->capture_count, event->capture_nodes,
                                  event->capture_count);
    }
    if (stream->capture != event->capture) {
        stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    merged =
        realloc(stream->capture_nodes, (stream->capture_count + event->capture_count + 1) * sizeof(*merged));
    if (!merged)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture_nodes = merged;
    for (size_t i = 0; i < event->capture_count; i++) {
        size_t j = 0;

        while (j < stream->capture_count && merged[j] != event->capture_nodes[i])
            j++;
        if (j == stream->capture_count)
            merged[stream->capture_count++] = event->capture_nodes[i];
    }
    return CUDA_SUCCESS;
}

/* ---- entry points */

static CUresult begin(struct thread *self, struct stream *stream, CUstreamCaptureMode mode)
{
    struct capture *capture;

    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == &stream->context->null_stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture = calloc(1, sizeof(*capture));
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph = graph_new(self);
    if (!capture->graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->refs = 1;
    capture->id = fake.next_capture_id++;
    capture->mode = mode;
    capture->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    capture->thread = self;
    capture->origin = stream;
    list_insert(&fake.captures, &capture->node);
    stream->capture = capture;
    return CUDA_SUCCESS;
}
BOTH(cuStreamBeginCapture, begin, (CUstream handle), (self, stream, CU_STREAM_CAPTURE_MODE_GLOBAL))
BOTH(cuStreamBeginCapture_v2, begin, (CUstream handle, CUstreamCaptureMode mode), (self, stream, mode))

static CUresult end(struct thread *self, struct stream *stream, CUgraph *graph)
{
    struct capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->thread != self && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        *graph = (CUgraph)capture->graph;
        capture->graph = NULL;
    } else {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    capture->status = CU_STREAM_CAPTURE_STATUS_NONE;
    list_each(node, &stream->context->streams)
    {
        struct stream *other = container_of(node, struct stream, node);

        if (other->capture == capture)
            capture_leave(other);
    }
    return result;
}
BOTH(cuStreamEndCapture, end, (CUstream handle, CUgraph *graph), (self, stream, graph))

static CUstreamCaptureStatus status_of(const struct stream *stream)
{
    return stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult is_capturing(struct stream *stream, CUstreamCaptureStatus *status)
{
    CUresult result;

    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(stream);
    result = capture_check_null(stream == &stream->context->null_stream ? stream->context : NULL);
    return result;
}
BOTH(cuStreamIsCapturing, is_capturing, (CUstream handle, CUstreamCaptureStatus *status), (stream, status))

static CUresult get_info(const struct stream *stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                         CUgraph *graph, const CUgraphNode **nodes, const CUgraphEdgeData **edges,
                         size_t *count)
{
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(stream);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = (CUgraph)stream->capture->graph;
    if (nodes)
        *nodes = (const CUgraphNode *)stream->capture_nodes;
    if (edges)
        *edges = NULL;
    if (count)
        *count = stream->capture_count;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetCaptureInfo, get_info, (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id),
     (stream, status, id, NULL, NULL, NULL, NULL))
BOTH(cuStreamGetCaptureInfo_v2, get_info,
     (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **nodes, size_t *count),
     (stream, status, id, graph, nodes, NULL, count))
BOTH(cuStreamGetCaptureInfo_v3, get_info,
     (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),
     (stream, status, id, graph, nodes, edges, count))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CALL(cuThreadExchangeStreamCaptureMode, NEEDS_INIT);
    CUstreamCaptureMode before = self->capture_mode;

    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    self->capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
