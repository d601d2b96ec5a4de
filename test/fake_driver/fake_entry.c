/* What happens on the way into every entry point, and what the driver keeps for each thread. */

#include <stdlib.h>

#include "fake.h"

struct fake fake;

struct thread *thread_self(void)
{
    struct thread *self = pthread_getspecific(fake.thread_key);

    if (self)
        return self;
    self = calloc(1, sizeof(*self));
    if (!self)
        return NULL;
    list_init(&self->streams);
    if (pthread_setspecific(fake.thread_key, self)) {
        free(self);
        return NULL;
    }
    list_insert(&fake.threads, &self->node);
    return self;
}

struct context *thread_context(const struct thread *thread)
{
    return thread->depth ? context_find(thread->stack[thread->depth - 1]) : NULL;
}

static CUresult check_context(struct call *call)
{
    struct thread *self = call->self;

    if (self->in_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!self->depth || !self->stack[self->depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    call->context = thread_context(self);
    if (!call->context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return call->context->error;
}

CUresult call_begin(struct call *call, enum fake_row row, enum call_needs needs)
{
    bool move = false;
    CUresult result;

    if (needs != NEEDS_NOTHING) {
        if (fake.exiting)
            return CUDA_ERROR_DEINITIALIZED;
        if (fake.forked || !__atomic_load_n(&fake.initialised, __ATOMIC_ACQUIRE))
            return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (fake.faults.active) {
        result = faults_call(row, &move);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (needs == NEEDS_NOTHING)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&fake.lock);
    call->locked = true;
    call->self = thread_self();
    if (!call->self)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        result = needs == NEEDS_CONTEXT ? check_context(call) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    call->self->move = move;
    if (needs == NEEDS_INIT)
        call->context = thread_context(call->self);
    return CUDA_SUCCESS;
}

void call_end(struct call *call)
{
    if (call->locked)
        pthread_mutex_unlock(&fake.lock);
}

void *handle_alloc(struct thread *self, size_t size)
{
    struct list *noise;

    /* Takes the place that the handle would have had. */
    if (self->move) {
        noise = malloc(size);
        if (noise)
            list_insert(&fake.noise, noise);
        self->move = false;
    }
    return calloc(1, size);
}
