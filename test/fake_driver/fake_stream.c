/* Streams. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"

enum { PRIORITY_GREATEST = -5 };

CUresult stream_init(struct stream *stream, struct context *context, unsigned int flags, int priority)
{
    memset(stream, 0, sizeof(*stream));
    list_init(&stream->thread_node);
    stream->timeline = timeline_new(context, !(flags & CU_STREAM_NON_BLOCKING));
    if (!stream->timeline)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->kind = OBJECT_STREAM;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = fake.next_stream_id++;
    stream->attributes[CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY].syncPolicy = CU_SYNC_POLICY_AUTO;
    stream->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = priority;
    list_insert(&context->streams, &stream->node);
    return CUDA_SUCCESS;
}

void stream_fini(struct stream *stream)
{
    if (stream->capture) {
        stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        capture_leave(stream);
    }
    list_remove(&stream->node);
    timeline_put(stream->timeline);
}

static struct stream *stream_of_thread(struct thread *self, struct context *context)
{
    struct stream *stream;

    list_each(node, &self->streams)
    {
        stream = container_of(node, struct stream, thread_node);
        if (stream->context == context)
            return stream;
    }
    stream = malloc(sizeof(*stream));
    if (!stream || stream_init(stream, context, 0, 0) != CUDA_SUCCESS) {
        free(stream);
        return NULL;
    }
    list_insert(&self->streams, &stream->thread_node);
    return stream;
}

struct stream *stream_find(struct thread *self, struct context *context, CUstream handle)
{
    if (!handle || handle == CU_STREAM_LEGACY)
        return context ? &context->null_stream : NULL;
    if (handle == CU_STREAM_PER_THREAD)
        return context ? stream_of_thread(self, context) : NULL;
    return object_find(handle, OBJECT_STREAM);
}

static CUresult create(struct thread *self, struct context *context, CUstream *handle, unsigned int flags,
                       int priority)
{
    struct stream *stream;
    CUresult result;

    if (!handle || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context->had_stream) {
        result = context_first_use(context, &context->had_stream, sizeof(*stream));
        if (result != CUDA_SUCCESS)
            return result;
    }
    stream = handle_alloc(self, sizeof(*stream));
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    priority = priority > 0 ? 0 : priority;
    priority = priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    if (stream_init(stream, context, flags, priority) != CUDA_SUCCESS) {
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (object_add(stream, OBJECT_STREAM)) {
        stream_fini(stream);
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *handle, unsigned int flags)
{
    CALL(cuStreamCreate, NEEDS_CONTEXT);
    return create(self, context, handle, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority)
{
    CALL(cuStreamCreateWithPriority, NEEDS_CONTEXT);
    return create(self, context, handle, flags, priority);
}

/* Work that was submitted goes on: it holds the timeline. */
static CUresult destroy(CUstream handle)
{
    struct stream *stream = object_find(handle, OBJECT_STREAM);

    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(stream);
    stream_fini(stream);
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle)
{
    CALL(cuStreamDestroy, NEEDS_INIT);
    return destroy(handle);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    CALL(cuStreamDestroy_v2, NEEDS_INIT);
    return destroy(handle);
}

static CUresult synchronize(struct stream *stream)
{
    CUresult result = capture_check_stream(stream);

    if (result != CUDA_SUCCESS)
        return result;
    timeline_wait(stream->timeline, stream->timeline->submitted);
    return stream->context->error;
}

/* The null stream is done when all blocking streams are that began before. */
static CUresult synchronize_any(struct stream *stream)
{
    if (stream == &stream->context->null_stream) {
        list_each(node, &stream->context->timelines)
        {
            struct timeline *other = container_of(node, struct timeline, node);
            struct work work = {.kind = WORK_EMPTY};

            if (other->blocking && !timeline_idle(other))
                return stream_submit_wait(stream, &work);
        }
    }
    return synchronize(stream);
}
BOTH(cuStreamSynchronize, synchronize_any, (CUstream handle), (stream))

static CUresult query(struct stream *stream)
{
    CUresult result = capture_check_stream(stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (stream == &stream->context->null_stream) {
        list_each(node, &stream->context->timelines)
        {
            struct timeline *timeline = container_of(node, struct timeline, node);

            if (timeline->blocking && !timeline_idle(timeline))
                return CUDA_ERROR_NOT_READY;
        }
    }
    return timeline_idle(stream->timeline) ? stream->context->error : CUDA_ERROR_NOT_READY;
}
BOTH(cuStreamQuery, query, (CUstream handle), (stream))

static CUresult get_flags(const struct stream *stream, unsigned int *flags)
{
    *flags = stream->flags;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetFlags, get_flags, (CUstream handle, unsigned int *flags), (stream, flags))

static CUresult get_priority(const struct stream *stream, int *priority)
{
    *priority = stream->priority;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetPriority, get_priority, (CUstream handle, int *priority), (stream, priority))

static CUresult get_id(const struct stream *stream, unsigned long long *id)
{
    *id = stream->id;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetId, get_id, (CUstream handle, unsigned long long *id), (stream, id))

static CUresult get_context(const struct stream *stream, CUcontext *owner)
{
    *owner = (CUcontext)stream->context;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetCtx, get_context, (CUstream handle, CUcontext *owner), (stream, owner))

static CUresult get_context_green(const struct stream *stream, CUcontext *owner, CUgreenCtx *green)
{
    *owner = (CUcontext)stream->context;
    if (green)
        *green = NULL;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetCtx_v2, get_context_green, (CUstream handle, CUcontext *owner, CUgreenCtx *green),
     (stream, owner, green))

static CUresult get_device(const struct stream *stream, CUdevice *device)
{
    *device = stream->context->device->ordinal;
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetDevice, get_device, (CUstream handle, CUdevice *device), (stream, device))

static bool has_attribute(CUstreamAttrID attribute)
{
    return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
           attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
           attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
           attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
           attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

static CUresult get_attribute(const struct stream *stream, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    if (!value || !has_attribute(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    *value = stream->attributes[attribute];
    return CUDA_SUCCESS;
}
BOTH(cuStreamGetAttribute, get_attribute,
     (CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value), (stream, attribute, value))

static CUresult set_attribute(struct stream *stream, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    if (!value || !has_attribute(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    stream->attributes[attribute] = *value;
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        stream->priority = value->priority;
    return CUDA_SUCCESS;
}
BOTH(cuStreamSetAttribute, set_attribute,
     (CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value), (stream, attribute, value))

static CUresult copy_attributes(struct stream *stream, struct stream *source)
{
    if (!source)
        return CUDA_ERROR_INVALID_HANDLE;
    memcpy(stream->attributes, source->attributes, sizeof(stream->attributes));
    stream->priority = source->priority;
    return CUDA_SUCCESS;
}
BOTH(cuStreamCopyAttributes, copy_attributes, (CUstream handle, CUstream source),
     (stream, stream_find(self, context, source)))

static CUresult launch_host(struct stream *stream, CUhostFn function, void *argument)
{
    struct work work = {.kind = WORK_HOST, .host = {.function = function, .argument = argument}};

    return function ? stream_submit(stream, &work) : CUDA_ERROR_INVALID_VALUE;
}
BOTH(cuLaunchHostFunc, launch_host, (CUstream handle, CUhostFn function, void *argument),
     (stream, function, argument))

static CUresult add_callback(struct stream *stream, CUstream handle, CUstreamCallback callback,
                             void *argument, unsigned int flags)
{
    struct work work = {.kind = WORK_CALLBACK,
                        .host = {.callback = callback, .argument = argument, .stream = handle}};

    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream_submit(stream, &work);
}
BOTH(cuStreamAddCallback, add_callback,
     (CUstream handle, CUstreamCallback callback, void *argument, unsigned int flags),
     (stream, handle, callback, argument, flags))

static CUresult attach_memory(struct stream *stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    struct work work = {.kind = WORK_EMPTY};
    const struct block *block = block_find(address);

    if (!block || block->kind != BLOCK_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    return stream_submit(stream, &work);
}
BOTH(cuStreamAttachMemAsync, attach_memory,
     (CUstream handle, CUdeviceptr address, size_t length, unsigned int flags),
     (stream, address, length, flags))

static CUresult value_operation(struct stream *stream, enum work_kind kind, CUdeviceptr address,
                                uint64_t value, uint32_t size, unsigned int flags)
{
    struct work work = {.kind = kind, .value = {address, value, size, flags}};

    if (address % size)
        return CUDA_ERROR_INVALID_VALUE;
    return stream_submit(stream, &work);
}
BOTH(cuStreamWaitValue32, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned int flags),
     (stream, WORK_WAIT_VALUE, address, value, 4, flags))
BOTH(cuStreamWaitValue32_v2, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned int flags),
     (stream, WORK_WAIT_VALUE, address, value, 4, flags))
BOTH(cuStreamWaitValue64, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags),
     (stream, WORK_WAIT_VALUE, address, value, 8, flags))
BOTH(cuStreamWaitValue64_v2, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags),
     (stream, WORK_WAIT_VALUE, address, value, 8, flags))
BOTH(cuStreamWriteValue32, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned int flags),
     (stream, WORK_WRITE_VALUE, address, value, 4, flags))
BOTH(cuStreamWriteValue32_v2, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned int flags),
     (stream, WORK_WRITE_VALUE, address, value, 4, flags))
BOTH(cuStreamWriteValue64, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags),
     (stream, WORK_WRITE_VALUE, address, value, 8, flags))
BOTH(cuStreamWriteValue64_v2, value_operation,
     (CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags),
     (stream, WORK_WRITE_VALUE, address, value, 8, flags))
