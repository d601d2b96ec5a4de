/* Events. */

#include <stdlib.h>

#include "fake.h"
#include "fake_both.h"

void event_forget_capture(struct event *event)
{
    if (event->capture)
        capture_put(event->capture);
    free(event->capture_nodes);
    event->capture = NULL;
    event->capture_nodes = NULL;
    event->capture_count = 0;
}

CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    CALL(cuEventCreate, NEEDS_CONTEXT);
    struct event *event;
    CUresult result;

    if (!handle || flags & ~7u || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!context->had_event) {
        result = context_first_use(context, &context->had_event, sizeof(*event));
        if (result != CUDA_SUCCESS)
            return result;
    }
    event = handle_alloc(self, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (object_add(event, OBJECT_EVENT)) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->kind = OBJECT_EVENT;
    event->flags = flags;
    event->context = context;
    list_insert(&context->events, &event->node);
    *handle = (CUevent)event;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent handle)
{
    struct event *event = object_find(handle, OBJECT_EVENT);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(event);
    list_remove(&event->node);
    event_forget_capture(event);
    stamp_put(event->stamp);
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle)
{
    CALL(cuEventDestroy, NEEDS_INIT);
    return destroy(handle);
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    CALL(cuEventDestroy_v2, NEEDS_INIT);
    return destroy(handle);
}

CUresult event_record(struct stream *stream, CUevent handle)
{
    struct event *event = object_find(handle, OBJECT_EVENT);
    struct work work = {.kind = WORK_EVENT};

    if (!event || event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        event_forget_capture(event);
        event->capture = stream->capture;
        event->capture->refs++;
        return capture_nodes_copy(&event->capture_nodes, &event->capture_count, stream->capture_nodes,
                                  stream->capture_count);
    }
    work.event.stamp = stamp_new(stream->timeline);
    if (!work.event.stamp)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event_forget_capture(event);
    stamp_put(event->stamp);
    event->stamp = work.event.stamp;
    event->stamp->refs++;
    return stream_submit(stream, &work);
}
BOTH(cuEventRecord, event_record, (CUevent event, CUstream handle), (stream, event))
BOTH(cuEventRecordWithFlags, event_record, (CUevent event, CUstream handle, unsigned int flags), (stream, event))

CUresult event_wait(struct stream *stream, CUevent handle)
{
    struct event *event = object_find(handle, OBJECT_EVENT);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return capture_join(stream, event);
    if (stream->capture)
        return event->stamp ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_SUCCESS;
    if (!event->stamp)
        return CUDA_SUCCESS;
    return stream_wait_for(stream, event->stamp->timeline, event->stamp->count);
}
BOTH(cuStreamWaitEvent, event_wait, (CUstream handle, CUevent event, unsigned int flags), (stream, event))

CUresult cuEventQuery(CUevent handle)
{
    CALL(cuEventQuery, NEEDS_INIT);
    struct event *event = object_find(handle, OBJECT_EVENT);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) {
        event->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (event->stamp && !stamp_reached(event->stamp))
        return CUDA_ERROR_NOT_READY;
    return event->context->error;
}

CUresult cuEventSynchronize(CUevent handle)
{
    CALL(cuEventSynchronize, NEEDS_INIT);
    struct event *event = object_find(handle, OBJECT_EVENT);
    struct context *owner;

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) {
        event->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    owner = event->context;
    if (event->stamp)
        timeline_wait(event->stamp->timeline, event->stamp->count);
    return owner->error;
}

static CUresult elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    const struct event *start = object_find(start_handle, OBJECT_EVENT);
    const struct event *end = object_find(end_handle, OBJECT_EVENT);

    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || !start->stamp || !end->stamp ||
        (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!stamp_reached(start->stamp) || !stamp_reached(end->stamp))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->stamp->time - start->stamp->time) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    CALL(cuEventElapsedTime, NEEDS_INIT);
    return elapsed(milliseconds, start, end);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    CALL(cuEventElapsedTime_v2, NEEDS_INIT);
    return elapsed(milliseconds, start, end);
}
