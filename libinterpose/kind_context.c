/* Contexts: primary ones, created ones, and each thread's stack of them. */
#include "kinds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"
#include "driver_api.h"
#include "stream_memory.h"
#include "kind_code.h"
#include "tracked.h"
#include "unsaveable.h"

struct context {
    struct record record;
    enum { PRIMARY, ON_DEMAND, CREATED, CREATED_V3, CREATED_V4 } how;
    CUdevice device;
    unsigned flags;
    unsigned count;           /* cuDevicePrimaryCtxRetain or cuCtxAttach calls that are not undone yet */
    CUexecAffinityParam *affinity; /* CREATED_V3 */
    int affinity_count;
    CUresult (*make)(CUcontext *, CUdevice); /* ON_DEMAND */
    unsigned long long id;    /* told to the program; 0: not asked for */
};

static struct context *context_of(struct record *record)
{
    return container_of(record, struct context, record);
}

/* ---- each thread's stack: kept beside the driver's, which is gone after a restart */

static void stack_push(CUcontext context)
{
    struct gate_thread *self = gate_thread_self();

    /* deeper ones are only counted: the driver is asked then */
    if (self->context_depth < GATE_STACK_DEPTH)
        self->context_stack[self->context_depth] = context;
    else
        unsaveable_note("a thread has pushed more than %d contexts", GATE_STACK_DEPTH);
    self->context_depth++;
}

static void stack_pop(void)
{
    struct gate_thread *self = gate_thread_self();

    if (self->context_depth > 0)
        self->context_depth--;
}

static void stack_set(CUcontext context)
{
    struct gate_thread *self = gate_thread_self();

    /* cuCtxSetCurrent(NULL) pops; on an empty stack it does nothing */
    if (!context)
        stack_pop();
    else if (self->context_depth == 0)
        stack_push(context);
    else if (self->context_depth <= GATE_STACK_DEPTH)
        self->context_stack[self->context_depth - 1] = context;
}

CUcontext context_current(void)
{
    const struct gate_thread *self = gate_thread_self();
    CUcontext current = NULL;

    if (self->context_depth > GATE_STACK_DEPTH)
        driver.cuCtxGetCurrent(&current);
    else if (self->context_depth > 0)
        current = self->context_stack[self->context_depth - 1];
    return current;
}

struct record *context_owner(void)
{
    CUcontext current = context_current();

    return current ? journal_find(&context_kind, (uint64_t)current) : NULL;
}

/* A context that another thread destroyed can't be put back; the thread then finds the one below it. */
void context_restore_thread(struct gate_thread *self)
{
    uint32_t depth = 0;

    for (uint32_t i = 0; i < self->context_depth && i < GATE_STACK_DEPTH; i++)
        if (driver.cuCtxPushCurrent_v2(self->context_stack[i]) == CUDA_SUCCESS)
            self->context_stack[depth++] = self->context_stack[i];
    self->context_depth = depth;
}

/* ---- replay */

static CUresult replay_created(struct context *context, CUcontext *made)
{
    CUctxCreateParams parameters = {0};
    CUcontext popped;
    CUresult result;

    if (context->how == CREATED_V3)
        result = driver.cuCtxCreate_v3(made, context->affinity, context->affinity_count, context->flags,
                                       context->device);
    else if (context->how == CREATED_V4)
        result = driver.cuCtxCreate_v4(made, &parameters, context->flags, context->device);
    else
        result = driver.cuCtxCreate_v2(made, context->flags, context->device);
    if (result == CUDA_SUCCESS) /* creating pushes it on the control thread's stack */
        driver.cuCtxPopCurrent_v2(&popped);
    return result;
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct context *context = context_of(record);
    CUcontext made = NULL;
    CUresult result = CUDA_SUCCESS;

    switch (context->how) {
    case ON_DEMAND:
        result = context->make(&made, context->device);
        break;
    case PRIMARY:
        break;
    default:
        result = replay_created(context, &made);
    }
    for (unsigned i = 0; i < context->count && result == CUDA_SUCCESS; i++)
        if (context->how == PRIMARY || context->how == ON_DEMAND) {
            result = driver.cuDevicePrimaryCtxRetain(&made, context->device);
        } else {
            driver.cuCtxSetCurrent(made);
            result = driver.cuCtxAttach(&made, 0);
        }
    *handle = (uint64_t)made;
    return result;
}

static void release(struct record *record)
{
    free(context_of(record)->affinity);
}

const struct record_kind context_kind = {.name = "context", .replay = replay, .release = release};

/* ---- primary contexts */

static struct context *new_context(int how, CUdevice device, unsigned flags)
{
    struct context *context = journal_record_new(&context_kind, sizeof *context);

    if (context) {
        context->how = how;
        context->device = device;
        context->flags = flags;
    }
    return context;
}

static struct record *commit(struct context *context, CUcontext handle)
{
    return journal_commit(context ? &context->record : NULL, (uint64_t)handle, NULL);
}

/*
 * Held across the driver's call and the counting of it: which retain makes a context and which release ends it is decided
 * in there. The driver has a lock of its own around the same.
 */
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

void context_after_fork_in_child(void)
{
    pthread_mutex_init(&count_lock, NULL);
}

static CUresult unlocked(CUresult result)
{
    pthread_mutex_unlock(&count_lock);
    return result;
}

CUresult track_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct record *record;
    CUresult result;

    pthread_mutex_lock(&count_lock);
    journal_note();
    result = driver.cuDevicePrimaryCtxRetain(pctx, dev);
    if (result != CUDA_SUCCESS)
        return unlocked(journal_discard(result));
    record = journal_find(&context_kind, (uint64_t)*pctx);
    if (record)
        journal_merge(record);
    else
        record = commit(new_context(PRIMARY, dev, 0), *pctx);
    if (record)
        context_of(record)->count++;
    return unlocked(result);
}

CUresult context_on_demand(CUcontext *context, CUdevice device, CUresult (*make)(CUcontext *, CUdevice))
{
    struct record *record;
    struct context *made;
    CUresult result;

    pthread_mutex_lock(&count_lock);
    journal_note();
    result = make(context, device);
    if (result != CUDA_SUCCESS || !context)
        return unlocked(journal_discard(result));
    record = journal_find(&context_kind, (uint64_t)*context);
    if (record) {
        journal_merge(record);
        return unlocked(result);
    }
    made = new_context(ON_DEMAND, device, 0);
    if (made)
        made->make = make;
    commit(made, *context);
    return unlocked(result);
}

struct search {
    CUdevice device;
    struct record *found;
};

static int match_primary(struct record *record, void *arg)
{
    struct search *search = arg;
    struct context *context = context_of(record);

    if (context->device != search->device || (context->how != PRIMARY && context->how != ON_DEMAND))
        return 0;
    search->found = record;
    return 1;
}

static struct record *find_primary(CUdevice device)
{
    struct search search = {device, NULL};

    journal_each(&context_kind, match_primary, &search);
    return search.found;
}

/*
 * A library belongs to no context, but what was made of it in one goes with that: the records that it owns and that were
 * made in the context. It and its kernels stay, and are made again with no context current.
 */
static int leave_context(struct record *record, void *context)
{
    if (record->context != context || !record->owner || record->owner->kind == &context_kind) {
        if (record->context == context && record->kind == &library_kind)
            record->context = NULL;
        return 0;
    }
    if (record->kind == &kernel_kind) {
        record->context = NULL;
    } else if (record->owner->kind == &library_kind || record->owner->kind == &kernel_kind) {
        function_forget_owned(record);
        journal_drop(record);
    }
    return 0;
}

/* What the context held is gone: memory that we served from the virtual-memory API is not the driver's to free. */
static void drop_context(struct record *record)
{
    if (!record)
        return;
    stream_memory_context_ended((CUcontext)record->handle);
    device_memory_free_context((CUcontext)record->handle);
    setting_forget_peer((CUcontext)record->handle);
    journal_each(NULL, leave_context, (void *)record->handle);
    function_forget_owned(record);
    journal_drop(record);
}

CUresult track_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct record *record;
    CUresult result;
    bool last;

    pthread_mutex_lock(&count_lock);
    record = find_primary(dev);
    last = record && context_of(record)->count <= 1;
    if (last) {
        stream_memory_context_ending((CUcontext)record->handle);
        journal_detach(&context_kind, record->handle);
    }
    result = driver.cuDevicePrimaryCtxRelease_v2(dev);
    if (result == CUDA_SUCCESS && last)
        drop_context(record);
    else if (last)
        journal_attach(record);
    else if (result == CUDA_SUCCESS && record)
        context_of(record)->count--;
    return unlocked(result);
}

CUresult track_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return track_cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult track_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    struct record *record;
    CUresult result;

    pthread_mutex_lock(&count_lock);
    record = find_primary(dev);
    if (record) {
        stream_memory_context_ending((CUcontext)record->handle);
        journal_detach(&context_kind, record->handle);
    }
    result = driver.cuDevicePrimaryCtxReset_v2(dev);
    if (result == CUDA_SUCCESS)
        drop_context(record);
    else
        journal_attach(record);
    return unlocked(result);
}

CUresult track_cuDevicePrimaryCtxReset(CUdevice dev)
{
    return track_cuDevicePrimaryCtxReset_v2(dev);
}

CUresult track_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    return setting(SETTING_PRIMARY_FLAGS, NULL, (uint64_t)dev, flags);
}

CUresult track_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    return track_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

/* ---- created contexts */

/* The driver has made a context and pushed it. */
static CUresult created(struct context *context, CUcontext handle)
{
    commit(context, handle);
    stack_push(handle);
    return CUDA_SUCCESS;
}

CUresult track_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    CUresult result;

    journal_note();
    result = driver.cuCtxCreate_v2(pctx, flags, dev);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    return created(new_context(CREATED, dev, flags), *pctx);
}

CUresult track_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return track_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult track_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                              CUdevice dev)
{
    struct context *context;
    CUresult result;

    journal_note();
    result = driver.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    context = new_context(CREATED_V3, dev, flags);
    if (context && numParams > 0) {
        context->affinity = malloc((size_t)numParams * sizeof *paramsArray);
        if (context->affinity) {
            memcpy(context->affinity, paramsArray, (size_t)numParams * sizeof *paramsArray);
            context->affinity_count = numParams;
        } else {
            unsaveable_note("no memory to note the parameters of a context");
        }
    }
    return created(context, *pctx);
}

CUresult track_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    CUresult result;

    /* With execution affinity it is what cuCtxCreate_v3 makes; with CIG parameters it shares a graphics context. */
    journal_note();
    result = driver.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    if (ctxCreateParams &&
        (ctxCreateParams->numExecAffinityParams > 0 || ctxCreateParams->cigParams))
        unsaveable_note("cuCtxCreate_v4: a context with affinity or graphics parameters");
    return created(new_context(CREATED_V4, dev, flags), *pctx);
}

CUresult track_cuCtxDestroy_v2(CUcontext ctx)
{
    struct record *record = journal_detach(&context_kind, (uint64_t)ctx);
    bool current = ctx && ctx == context_current();
    CUresult result;

    if (record)
        stream_memory_context_ending(ctx);
    result = driver.cuCtxDestroy_v2(ctx);
    if (result != CUDA_SUCCESS) {
        journal_attach(record);
        return result;
    }
    if (current)
        stack_pop();
    drop_context(record);
    return result;
}

CUresult track_cuCtxDestroy(CUcontext ctx)
{
    return track_cuCtxDestroy_v2(ctx);
}

CUresult track_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    CUresult result = driver.cuCtxAttach(pctx, flags);
    struct record *record = result == CUDA_SUCCESS ? journal_find(&context_kind, (uint64_t)*pctx) : NULL;

    if (record)
        __atomic_fetch_add(&context_of(record)->count, 1, __ATOMIC_RELAXED);
    return result;
}

CUresult track_cuCtxDetach(CUcontext ctx)
{
    struct record *record = journal_find(&context_kind, (uint64_t)ctx);
    CUresult result;

    if (record && context_of(record)->how >= CREATED && context_of(record)->count == 0)
        return track_cuCtxDestroy_v2(ctx); /* the last one destroys it */
    result = driver.cuCtxDetach(ctx);
    if (result == CUDA_SUCCESS && record)
        __atomic_fetch_sub(&context_of(record)->count, 1, __ATOMIC_RELAXED);
    return result;
}

/* ---- the stack */

CUresult track_cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult result = driver.cuCtxPushCurrent_v2(ctx);

    if (result == CUDA_SUCCESS)
        stack_push(ctx);
    return result;
}

CUresult track_cuCtxPushCurrent(CUcontext ctx)
{
    return track_cuCtxPushCurrent_v2(ctx);
}

CUresult track_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    CUresult result = driver.cuCtxPopCurrent_v2(pctx);

    if (result == CUDA_SUCCESS)
        stack_pop();
    return result;
}

CUresult track_cuCtxPopCurrent(CUcontext *pctx)
{
    return track_cuCtxPopCurrent_v2(pctx);
}

CUresult track_cuCtxSetCurrent(CUcontext ctx)
{
    CUresult result = driver.cuCtxSetCurrent(ctx);

    if (result == CUDA_SUCCESS)
        stack_set(ctx);
    return result;
}

/* ---- ids */

static unsigned long long id_highest, id_floor;

unsigned long long id_keep(unsigned long long *kept, unsigned long long of_driver)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned long long id;

    pthread_mutex_lock(&lock);
    if (!*kept) {
        /* what a restarted driver counts may have been told for another object already */
        *kept = of_driver <= id_floor ? id_highest + 1 : of_driver;
        if (*kept > id_highest)
            id_highest = *kept;
    }
    id = *kept;
    pthread_mutex_unlock(&lock);
    return id;
}

void id_restarted(void)
{
    id_floor = id_highest;
}

CUresult track_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    CUresult result = driver.cuCtxGetId(ctx, ctxId);
    struct record *record = ctx ? journal_find(&context_kind, (uint64_t)ctx) : context_owner();

    if (result == CUDA_SUCCESS && record)
        *ctxId = id_keep(&context_of(record)->id, *ctxId);
    return result;
}

/* ---- settings of the current context */

CUresult track_cuCtxSetLimit(CUlimit limit, size_t value)
{
    return setting(SETTING_CONTEXT_LIMIT, context_owner(), (uint64_t)limit, value);
}

CUresult track_cuCtxSetCacheConfig(CUfunc_cache config)
{
    return setting(SETTING_CONTEXT_CACHE, context_owner(), (uint64_t)config);
}

CUresult track_cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    return setting(SETTING_CONTEXT_SHARED_MEMORY, context_owner(), (uint64_t)config);
}

CUresult track_cuCtxSetFlags(unsigned int flags)
{
    return setting(SETTING_CONTEXT_FLAGS, context_owner(), flags);
}

CUresult track_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    return setting(SETTING_PEER_ACCESS, context_owner(), (uint64_t)peerContext, Flags);
}

CUresult track_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    CUresult result = driver.cuCtxDisablePeerAccess(peerContext);

    if (result == CUDA_SUCCESS)
        setting_forget(SETTING_PEER_ACCESS, (uint64_t)peerContext);
    return result;
}

/* ---- for the steps of suspend and resume */

struct context_list {
    CUcontext *contexts;
    size_t count, capacity;
};

static int list_context(struct record *record, void *arg)
{
    struct context_list *list = arg;

    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 8;
        CUcontext *grown = realloc(list->contexts, capacity * sizeof *grown);

        if (!grown)
            return 1;
        list->contexts = grown;
        list->capacity = capacity;
    }
    list->contexts[list->count++] = (CUcontext)record->handle;
    return 0;
}

static int visit(CUcontext context, int (*f)(CUcontext, void *, struct error *), void *arg, struct error *err)
{
    CUresult result = driver.cuCtxPushCurrent_v2(context);
    CUcontext popped;
    int failed;

    if (result != CUDA_SUCCESS) {
        error_set(err, ERROR_REFUSED, "context %p can't be made current: error %d", (void *)context, (int)result);
        return -1;
    }
    failed = f(context, arg, err);
    driver.cuCtxPopCurrent_v2(&popped);
    return failed;
}

/* f may wait long (the drain): the journal's lock is not held then, which a fork would wait for. */
int context_each(int (*f)(CUcontext context, void *arg, struct error *err), void *arg, struct error *err)
{
    struct context_list list = {0};
    size_t all = journal_count(&context_kind);
    int failed = 0;

    journal_each(&context_kind, list_context, &list);
    if (list.count < all) {
        error_set(err, ERROR_MEMORY, "no memory to list the contexts");
        failed = -1;
    }
    for (size_t i = 0; i < list.count && !failed; i++)
        failed = visit(list.contexts[i], f, arg, err);
    free(list.contexts);
    return failed;
}
