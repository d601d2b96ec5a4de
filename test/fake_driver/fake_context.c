/* Contexts: made, destroyed, and which one is current. */

#include <stdlib.h>

#include "fake.h"

enum { CONTEXT_OVERHEAD = 3 << 20 };

struct context *context_find(CUcontext handle)
{
    struct context *context = object_find(handle, OBJECT_CONTEXT);

    return context && context->active ? context : NULL;
}

CUresult context_first_use(struct context *context, bool *done, size_t handle_size)
{
    const size_t sizes[] = {4096, handle_size, 96};
    struct list *extra;

    /* One of them has the size of the handle that is about to be made, and comes before it. */
    for (int i = 0; i < 3 && !*done; i++) {
        extra = malloc(sizes[i]);
        if (!extra)
            return CUDA_ERROR_OUT_OF_MEMORY;
        list_insert(&context->extras, extra);
    }
    *done = true;
    return CUDA_SUCCESS;
}

static void limits_start(struct context *context)
{
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

CUresult context_open(struct context *context, struct device *device, unsigned int flags, bool primary)
{
    struct context values = {
        .kind = OBJECT_CONTEXT,
        .primary = primary,
        .device = device,
        .flags = flags,
        .internal = {.device = device},
        .small = {.device = device},
        .shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE,
    };
    uint64_t overhead;
    CUresult result = vidmem_open(device);

    if (result != CUDA_SUCCESS)
        return result;
    *context = values;
    list_init(&context->streams);
    list_init(&context->events);
    list_init(&context->timelines);
    list_init(&context->modules);
    list_init(&context->local_values);
    list_init(&context->arrays);
    list_init(&context->extras);
    limits_start(context);
    result = arena_alloc(&context->internal, CONTEXT_OVERHEAD, 256, &overhead);
    if (result == CUDA_SUCCESS)
        result = stream_init(&context->null_stream, context, 0, 0);
    if (result == CUDA_SUCCESS && object_add(context, OBJECT_CONTEXT)) {
        stream_fini(&context->null_stream);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        arena_release(&context->internal);
        return result;
    }
    context->id = fake.next_context_id++;
    context->active = true;
    list_insert(&fake.contexts, &context->node);
    return CUDA_SUCCESS;
}

/* The values' owner may call back: the lock is let go. */
static void local_values_drop(struct context *context)
{
    while (!list_empty(&context->local_values)) {
        struct local_value *value = container_of(context->local_values.next, struct local_value, node);

        list_remove(&value->node);
        if (value->destructor) {
            pthread_mutex_unlock(&fake.lock);
            value->destructor((CUcontext)context, (void *)(uintptr_t)value->key, value->value);
            pthread_mutex_lock(&fake.lock);
        }
        free(value);
    }
}

static void streams_drop(struct context *context)
{
    list_each(node, &context->events)
    {
        struct event *event = container_of(node, struct event, node);

        object_remove(event);
        event_forget_capture(event);
        stamp_put(event->stamp);
        free(event);
    }
    list_each(node, &context->streams)
    {
        struct stream *stream = container_of(node, struct stream, node);

        if (stream == &context->null_stream)
            continue;
        object_remove(stream);
        list_remove(&stream->thread_node);
        stream_fini(stream);
        free(stream);
    }
    stream_fini(&context->null_stream);
    /* Waits of other contexts may still hold some; they must not look for this list later. */
    list_each(node, &context->timelines) list_remove(node);
}

void context_close(struct context *context)
{
    context_wait(context);
    local_values_drop(context);
    context->active = false;
    object_remove(context);
    list_remove(&context->node);
    streams_drop(context);
    list_each(node, &context->modules) module_delete(container_of(node, struct module, node));
    arrays_delete_all(context);
    blocks_delete_all(context, NULL);
    arena_release(&context->small);
    arena_release(&context->internal);
    list_each(node, &context->extras) free(node);
}

/* ---- entry points */

static CUresult create(struct thread *self, CUcontext *handle, unsigned int flags, CUdevice ordinal)
{
    struct device *device = device_find(ordinal);
    struct context *context;
    CUresult result;

    if (!handle || flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (self->depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context = handle_alloc(self, sizeof(*context));
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = context_open(context, device, flags, false);
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    *handle = self->stack[self->depth++] = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *handle, unsigned int flags, CUdevice device)
{
    CALL(cuCtxCreate_v2, NEEDS_INIT);
    return create(self, handle, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *handle, CUexecAffinityParam *parameters, int count, unsigned int flags,
                        CUdevice device)
{
    CALL(cuCtxCreate_v3, NEEDS_INIT);
    return create(self, handle, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *handle, CUctxCreateParams *parameters, unsigned int flags, CUdevice device)
{
    CALL(cuCtxCreate_v4, NEEDS_INIT);
    return create(self, handle, flags, device);
}

static CUresult destroy(struct thread *self, CUcontext handle)
{
    struct context *context = context_find(handle);

    if (!context || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (self->in_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    context_close(context);
    free(context);
    if (self->depth && self->stack[self->depth - 1] == handle)
        self->depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext handle)
{
    CALL(cuCtxDestroy, NEEDS_INIT);
    return destroy(self, handle);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
    CALL(cuCtxDestroy_v2, NEEDS_INIT);
    return destroy(self, handle);
}

static CUresult push(struct thread *self, CUcontext handle)
{
    if (!context_find(handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (self->depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->stack[self->depth++] = handle;
    return CUDA_SUCCESS;
}

static CUresult pop(struct thread *self, CUcontext *handle)
{
    if (!self->depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    self->depth--;
    if (handle)
        *handle = self->stack[self->depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext handle)
{
    CALL(cuCtxPushCurrent, NEEDS_INIT);
    return push(self, handle);
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    CALL(cuCtxPushCurrent_v2, NEEDS_INIT);
    return push(self, handle);
}

CUresult cuCtxPopCurrent(CUcontext *handle)
{
    CALL(cuCtxPopCurrent, NEEDS_INIT);
    return pop(self, handle);
}

CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
    CALL(cuCtxPopCurrent_v2, NEEDS_INIT);
    return pop(self, handle);
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    CALL(cuCtxSetCurrent, NEEDS_INIT);
    if (!handle) {
        if (self->depth)
            self->depth--;
        return CUDA_SUCCESS;
    }
    if (!context_find(handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!self->depth)
        self->depth = 1;
    self->stack[self->depth - 1] = handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *handle)
{
    CALL(cuCtxGetCurrent, NEEDS_INIT);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = self->depth ? self->stack[self->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CALL(cuCtxGetDevice, NEEDS_CONTEXT);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    CALL(cuCtxGetDevice_v2, NEEDS_INIT);
    struct context *asked = handle ? context_find(handle) : context;

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!asked)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = asked->device->ordinal;
    return CUDA_SUCCESS;
}

static CUresult synchronize(struct thread *self, struct context *context)
{
    CUresult result = capture_check(self);

    if (result != CUDA_SUCCESS)
        return result;
    context_wait(context);
    return context->error;
}

CUresult cuCtxSynchronize(void)
{
    CALL(cuCtxSynchronize, NEEDS_CONTEXT);
    return synchronize(self, context);
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    CALL(cuCtxSynchronize_v2, NEEDS_INIT);
    struct context *asked = handle ? context_find(handle) : context;

    return asked ? synchronize(self, asked) : CUDA_ERROR_INVALID_CONTEXT;
}
