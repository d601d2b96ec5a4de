/*
 * Work that runs asynchronously: operations in timelines, taken by worker threads. An operation begins when
 * those before it in its timeline are done and all that it depends on is reached.
 */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

enum { WORKERS_MAX = 64 };

uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- timelines and stamps */

struct timeline *timeline_new(struct context *context, bool blocking)
{
    struct timeline *timeline = calloc(1, sizeof(*timeline));

    if (!timeline)
        return NULL;
    timeline->refs = 1;
    timeline->blocking = blocking;
    timeline->context = context;
    list_init(&timeline->ops);
    list_init(&timeline->active);
    list_insert(&context->timelines, &timeline->node);
    return timeline;
}

void timeline_put(struct timeline *timeline)
{
    if (--timeline->refs)
        return;
    list_remove(&timeline->node);
    free(timeline);
}

void timeline_wait(struct timeline *timeline, uint64_t count)
{
    timeline->refs++;
    while (timeline->completed < count)
        pthread_cond_wait(&fake.done_cond, &fake.lock);
    timeline_put(timeline);
}

struct stamp *stamp_new(struct timeline *timeline)
{
    struct stamp *stamp;

    if (!list_empty(&fake.free_stamps)) {
        struct list *node = fake.free_stamps.next;

        list_remove(node);
        stamp = (struct stamp *)node;
    } else {
        stamp = malloc(sizeof(*stamp));
        if (!stamp)
            return NULL;
    }
    *stamp = (struct stamp){.refs = 1, .timeline = timeline};
    timeline->refs++;
    return stamp;
}

/* Those given back are kept: they come and go with every record of an event. */
void stamp_put(struct stamp *stamp)
{
    struct list *node = (struct list *)stamp;

    if (!stamp || --stamp->refs)
        return;
    timeline_put(stamp->timeline);
    list_insert(&fake.free_stamps, node);
}

bool stamp_reached(const struct stamp *stamp)
{
    return stamp->timeline->completed >= stamp->count;
}

/* ---- operations */

static struct op *op_new(void)
{
    struct op *op;

    if (!list_empty(&fake.free_ops)) {
        op = container_of(fake.free_ops.next, struct op, node);
        list_remove(&op->node);
    } else {
        op = malloc(sizeof(*op));
    }
    if (op)
        memset(op, 0, sizeof(*op));
    return op;
}

static void op_free(struct op *op)
{
    for (size_t i = 0; i < op->dependency_count; i++)
        timeline_put(op->dependencies[i].timeline);
    if (op->dependencies != op->inline_dependencies)
        free(op->dependencies);
    work_drop(&op->work);
    list_insert(&fake.free_ops, &op->node);
}

static bool op_is_ready(const struct op *op)
{
    for (size_t i = 0; i < op->dependency_count; i++) {
        if (op->dependencies[i].timeline->completed < op->dependencies[i].count)
            return false;
    }
    return true;
}

/* The first operation that can begin. Priorities change nothing: every timeline gets a worker. */
static struct op *op_next(void)
{
    list_each(node, &fake.active)
    {
        struct timeline *timeline = container_of(node, struct timeline, active);
        struct op *op;

        if (timeline->running || list_empty(&timeline->ops))
            continue;
        op = container_of(timeline->ops.next, struct op, node);
        if (op_is_ready(op))
            return op;
    }
    return NULL;
}

static void op_run(struct op *op, struct thread *thread)
{
    struct timeline *timeline = op->timeline;
    struct context *context = timeline->context;
    CUresult result = CUDA_SUCCESS;

    list_remove(&op->node);
    timeline->running = true;
    timeline->running_sequence = op->sequence;
    /* Callbacks are called even when the context is broken; they may be what the program waits for. */
    if (context->error == CUDA_SUCCESS || op->work.kind == WORK_CALLBACK) {
        pthread_mutex_unlock(&fake.lock);
        result = work_run(context, &op->work, thread);
        pthread_mutex_lock(&fake.lock);
    }
    if (op->work.kind == WORK_EVENT)
        op->work.event.stamp->time = now_ns();
    if (result != CUDA_SUCCESS && context->error == CUDA_SUCCESS)
        context->error = result;
    timeline->completed = op->ticket;
    timeline->running = false;
    if (list_empty(&timeline->ops))
        list_remove(&timeline->active);
    op_free(op);
    timeline_put(timeline);
    pthread_cond_broadcast(&fake.done_cond);
    pthread_cond_broadcast(&fake.work_cond);
}

static void worker_cancelled(void *argument)
{
    pthread_mutex_unlock(&fake.lock);
}

static void worker_wait(void)
{
    int state;

    fake.idle_workers++;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    pthread_cond_wait(&fake.work_cond, &fake.lock);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    fake.idle_workers--;
}

/*
 * A worker can be cancelled while it waits for work. It then has the lock again and must let it go, or those
 * that are cancelled after it can't end.
 */
static void *worker_run(void *argument)
{
    struct thread *self;
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&fake.lock);
    pthread_cleanup_push(worker_cancelled, NULL);
    self = thread_self();
    for (;;) {
        struct op *op = op_next();

        if (op)
            op_run(op, self);
        else
            worker_wait();
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* As many workers as there are timelines with something to do: each of them may block. */
static CUresult workers_provide(void)
{
    pthread_t thread;
    int wanted = 0;

    list_each(node, &fake.active) wanted++;
    while (fake.workers < wanted && fake.workers < WORKERS_MAX) {
        if (pthread_create(&thread, NULL, worker_run, NULL))
            return fake.workers ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
        fake.workers++;
    }
    return CUDA_SUCCESS;
}

static int op_depend(struct op *op, struct timeline *timeline, uint64_t count)
{
    size_t room = op->dependencies == op->inline_dependencies ? DEPENDENCIES_INLINE : 0;
    struct dependency *larger;

    if (timeline->completed >= count)
        return 0;
    if (op->dependency_count >= DEPENDENCIES_INLINE || !room) {
        larger = malloc((op->dependency_count + 1) * sizeof(*larger));
        if (!larger)
            return -1;
        memcpy(larger, op->dependencies, op->dependency_count * sizeof(*larger));
        if (op->dependencies != op->inline_dependencies)
            free(op->dependencies);
        op->dependencies = larger;
    }
    timeline->refs++;
    op->dependencies[op->dependency_count++] = (struct dependency){timeline, count};
    return 0;
}

/* The null stream and blocking streams wait for each other. */
static int op_depend_legacy(struct op *op, struct stream *stream)
{
    struct context *context = stream->context;

    if (stream->timeline != context->null_stream.timeline) {
        struct timeline *null = context->null_stream.timeline;

        return stream->timeline->blocking ? op_depend(op, null, null->submitted) : 0;
    }
    list_each(node, &context->timelines)
    {
        struct timeline *timeline = container_of(node, struct timeline, node);

        if (timeline != stream->timeline && timeline->blocking &&
            op_depend(op, timeline, timeline->submitted))
            return -1;
    }
    return 0;
}

static CUresult op_submit(struct stream *stream, struct op *op)
{
    struct timeline *timeline = stream->timeline;

    op->timeline = timeline;
    op->ticket = timeline->submitted + 1;
    op->sequence = fake.next_sequence++;
    if (op_depend_legacy(op, stream)) {
        op_free(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    timeline->refs++;
    timeline->submitted++;
    list_insert(&timeline->ops, &op->node);
    if (list_empty(&timeline->active))
        list_insert(&fake.active, &timeline->active);
    if (op->work.kind == WORK_EVENT)
        op->work.event.stamp->count = op->ticket;
    pthread_cond_signal(&fake.work_cond);
    return workers_provide();
}

CUresult stream_submit(struct stream *stream, struct work *work)
{
    CUresult result;
    struct op *op;

    if (stream->capture)
        return capture_add(stream, work);
    result = capture_check_null(stream == &stream->context->null_stream ? stream->context : NULL);
    op = result == CUDA_SUCCESS ? op_new() : NULL;
    if (!op) {
        work_drop(work);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->dependencies = op->inline_dependencies;
    op->work = *work;
    return op_submit(stream, op);
}

CUresult stream_wait_for(struct stream *stream, struct timeline *timeline, uint64_t count)
{
    struct op *op;

    if (timeline == stream->timeline || timeline->completed >= count)
        return CUDA_SUCCESS;
    op = op_new();
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->dependencies = op->inline_dependencies;
    if (op_depend(op, timeline, count)) {
        op_free(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return op_submit(stream, op);
}

CUresult stream_submit_wait(struct stream *stream, struct work *work)
{
    struct context *context = stream->context;
    CUresult result = stream_submit(stream, work);

    if (result != CUDA_SUCCESS)
        return result;
    timeline_wait(stream->timeline, stream->timeline->submitted);
    return context->error;
}

/* ---- waiting for more than one */

static bool timeline_busy(const struct timeline *timeline, uint64_t before)
{
    if (timeline->running)
        return timeline->running_sequence < before;
    return !list_empty(&timeline->ops) &&
           container_of(timeline->ops.next, struct op, node)->sequence < before;
}

static bool context_busy(struct context *context, uint64_t before)
{
    list_each(node, &context->timelines)
    {
        if (timeline_busy(container_of(node, struct timeline, node), before))
            return true;
    }
    return false;
}

/* What others submit meanwhile does not count: they may never stop. */
void context_wait(struct context *context)
{
    const uint64_t before = fake.next_sequence;

    while (context_busy(context, before))
        pthread_cond_wait(&fake.done_cond, &fake.lock);
}

static bool device_busy(const struct device *device, uint64_t before)
{
    list_each(node, &fake.contexts)
    {
        struct context *context = container_of(node, struct context, node);

        if (context->device == device && context_busy(context, before))
            return true;
    }
    return false;
}

void device_wait(struct device *device)
{
    const uint64_t before = fake.next_sequence;

    while (device_busy(device, before))
        pthread_cond_wait(&fake.done_cond, &fake.lock);
}
