/* What operations do when their time has come. Runs on a worker, without the lock. */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

CUresult work_copy(struct work *target, const struct work *source)
{
    *target = *source;
    if (source->kind == WORK_KERNEL) {
        target->kernel.parameters = malloc(source->kernel.parameters_size + 1);
        if (!target->kernel.parameters)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(target->kernel.parameters, source->kernel.parameters, source->kernel.parameters_size);
    } else if (source->kind == WORK_COPY) {
        target->copy.staged = NULL; /* work that is kept reads its source when it runs */
    } else if (source->kind == WORK_GRAPH) {
        graph_body_get(source->graph.body);
    } else if (source->kind == WORK_EVENT) {
        source->event.stamp->refs++;
    }
    return CUDA_SUCCESS;
}

void work_drop(struct work *work)
{
    if (work->kind == WORK_KERNEL)
        free(work->kernel.parameters);
    else if (work->kind == WORK_COPY)
        free(work->copy.staged);
    else if (work->kind == WORK_GRAPH)
        graph_body_put(work->graph.body);
    else if (work->kind == WORK_EVENT)
        stamp_put(work->event.stamp);
    work->kind = WORK_EMPTY;
}

static bool accessible(struct context *context, bool device, uint64_t address, uint64_t size)
{
    bool yes;

    if (!device || !size)
        return true;
    pthread_mutex_lock(&fake.lock);
    /* From any device: copies between devices go through here as well. */
    yes = pages_accessible(context, address, size) || pages_accessible(NULL, address, size);
    pthread_mutex_unlock(&fake.lock);
    return yes;
}

static uint64_t extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice)
{
    return width + (height - 1) * pitch + (depth - 1) * slice;
}

static CUresult copy_run(struct context *context, const struct copy_work *copy)
{
    uint64_t source_size, target_size;

    if (!copy->width || !copy->height || !copy->depth)
        return CUDA_SUCCESS;
    source_size = extent(copy->width, copy->height, copy->depth, copy->source_pitch, copy->source_slice);
    target_size = extent(copy->width, copy->height, copy->depth, copy->target_pitch, copy->target_slice);
    if (!accessible(context, copy->source_device, copy->source, source_size) ||
        !accessible(context, copy->target_device, copy->target, target_size))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t z = 0; z < copy->depth; z++) {
        for (uint64_t y = 0; y < copy->height; y++)
            memmove((void *)(uintptr_t)(copy->target + z * copy->target_slice + y * copy->target_pitch),
                    (const void *)(uintptr_t)(copy->source + z * copy->source_slice + y * copy->source_pitch),
                    copy->width);
    }
    return CUDA_SUCCESS;
}

static CUresult set_run(struct context *context, const struct set_work *set)
{
    uint64_t row = set->width * set->element;

    if (!row || !set->height)
        return CUDA_SUCCESS;
    if (!accessible(context, true, set->target, extent(row, set->height, 1, set->pitch, 0)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t y = 0; y < set->height; y++) {
        void *target = (void *)(uintptr_t)(set->target + y * set->pitch);

        if (set->element == 1) {
            memset(target, (int)set->value, row);
        } else if (set->element == 2) {
            for (uint64_t x = 0; x < set->width; x++)
                ((uint16_t *)target)[x] = (uint16_t)set->value;
        } else {
            for (uint64_t x = 0; x < set->width; x++)
                ((uint32_t *)target)[x] = set->value;
        }
    }
    return CUDA_SUCCESS;
}

static uint64_t value_read(const struct work *work)
{
    const void *place = (const void *)(uintptr_t)work->value.address;

    return work->value.size == 4 ? __atomic_load_n((const uint32_t *)place, __ATOMIC_ACQUIRE)
                                 : __atomic_load_n((const uint64_t *)place, __ATOMIC_ACQUIRE);
}

static bool value_reached(const struct work *work)
{
    uint64_t now = value_read(work), value = work->value.value;

    switch (work->value.flags & 3) {
    case 0: /* at or past it, as a cyclic number */
        return work->value.size == 4 ? (int32_t)((uint32_t)now - (uint32_t)value) >= 0
                                     : (int64_t)(now - value) >= 0;
    case 1:
        return now == value;
    case 2:
        return (now & value) != 0;
    default:
        return ~(now | value) != 0;
    }
}

static CUresult value_wait_run(struct context *context, const struct work *work)
{
    const struct timespec pause = {0, 20000};

    if (!accessible(context, true, work->value.address, work->value.size))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    while (!value_reached(work))
        nanosleep(&pause, NULL);
    return CUDA_SUCCESS;
}

static CUresult value_write_run(struct context *context, const struct work *work)
{
    void *place = (void *)(uintptr_t)work->value.address;

    if (!accessible(context, true, work->value.address, work->value.size))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (work->value.size == 4)
        __atomic_store_n((uint32_t *)place, (uint32_t)work->value.value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)place, work->value.value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static CUresult kernel_run(struct context *context, const struct kernel_work *kernel)
{
    struct kernel_call call = {
        .context = context,
        .function = kernel->function,
        .grid = kernel->grid,
        .block = kernel->block,
        .shared = kernel->shared,
        .cooperative = kernel->cooperative,
        .parameters = kernel->parameters,
        .image = kernel->function->image,
    };

    kernel_twin_find(call.image->name)(&call);
    return call.error;
}

static void host_run(struct work *work, CUresult status, struct thread *thread)
{
    if (thread)
        thread->in_callback = true;
    if (work->kind == WORK_HOST)
        work->host.function(work->host.argument);
    else
        work->host.callback(work->host.stream, status, work->host.argument);
    if (thread)
        thread->in_callback = false;
}

static void free_run(uint64_t address)
{
    struct block *block;

    pthread_mutex_lock(&fake.lock);
    block = block_find(address);
    if (block)
        block_delete(block);
    pthread_mutex_unlock(&fake.lock);
}

CUresult work_run(struct context *context, struct work *work, struct thread *thread)
{
    switch (work->kind) {
    case WORK_EMPTY:
    case WORK_EVENT:
        return CUDA_SUCCESS;
    case WORK_KERNEL:
        return kernel_run(context, &work->kernel);
    case WORK_COPY:
        return copy_run(context, &work->copy);
    case WORK_SET:
        return set_run(context, &work->set);
    case WORK_HOST:
    case WORK_CALLBACK:
        host_run(work, context->error, thread);
        return CUDA_SUCCESS;
    case WORK_WAIT_VALUE:
        return value_wait_run(context, work);
    case WORK_WRITE_VALUE:
        return value_write_run(context, work);
    case WORK_GRAPH:
        return graph_body_run(context, work->graph.body, thread);
    case WORK_FREE:
        free_run(work->free.address);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_UNKNOWN;
}
