#include "copy.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "copy_internal.h"
#include "driver_api.h"
#include "fault.h"
#define LOG_PREFIX "copy"
#include "log.h"

#define TICK_NS 10000000

/* Less than this goes without a ring: it is done before one would be pinned. */
#define PLAIN_MAX (4ull << 20)

/*
 * A thread more shares the work, but its slots must be made and pinned first: 1 to 2 ms. One moves about 3
 * GB/s, so t threads take about t * 2 ms + total / (t * 3 GB/s), which is least where t * t * 6 MB is the
 * total.
 */
#define BYTES_PER_SQUARE (6ull << 20)

/* ---- what the workers call */

bool copy_take_piece(struct copy *copy, struct copy_group *group, struct copy_piece *piece)
{
    bool taken = false;

    if (__atomic_load_n(&copy->stop, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&copy->lock);
    if (group->next < group->count) {
        const struct copy_range *range = group->ranges[group->next];
        uint64_t left = range->size - group->offset;

        piece->device = range->device + group->offset;
        piece->host = (char *)range->host + group->offset;
        piece->size = left < COPY_SLOT ? left : COPY_SLOT;
        group->offset += piece->size;
        if (group->offset == range->size) {
            group->next++;
            group->offset = 0;
        }
        taken = true;
    }
    pthread_mutex_unlock(&copy->lock);
    return taken;
}

bool copy_check(struct copy *copy, CUresult result, const char *call, CUdeviceptr device)
{
    if (result == CUDA_SUCCESS)
        return true;
    pthread_mutex_lock(&copy->lock);
    error_set(&copy->error, result == CUDA_ERROR_OUT_OF_MEMORY ? ERROR_MEMORY : ERROR_REFUSED,
              "%s: error %d at device address 0x%llx", call, (int)result, (unsigned long long)device);
    pthread_mutex_unlock(&copy->lock);
    __atomic_store_n(&copy->stop, true, __ATOMIC_RELAXED);
    return false;
}

/* ---- planning */

static int range_compare(const void *left, const void *right)
{
    const struct copy_range *a = *(const struct copy_range *const *)left;
    const struct copy_range *b = *(const struct copy_range *const *)right;

    if (a->context != b->context)
        return (uintptr_t)a->context < (uintptr_t)b->context ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

/* Sorts the ranges into *order and one group per context. */
static int copy_plan(struct copy *copy, const struct copy_range *ranges, size_t count,
                     const struct copy_range ***order, struct error *err)
{
    size_t used = 0;

    *order = calloc(count, sizeof(**order));
    copy->groups = calloc(count, sizeof(*copy->groups));
    if (!*order || !copy->groups) {
        error_set(err, ERROR_MEMORY, "no memory to plan the copy of %zu ranges; free some and try again",
                  count);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (!ranges[i].size)
            continue;
        (*order)[used++] = &ranges[i];
        copy->total += ranges[i].size;
    }
    qsort(*order, used, sizeof(**order), range_compare);
    for (size_t i = 0; i < used; i++) {
        struct copy_group *group = &copy->groups[copy->group_count];

        if (!i || (*order)[i]->context != (*order)[i - 1]->context) {
            group = &copy->groups[copy->group_count++];
            group->context = (*order)[i]->context;
            group->ranges = &(*order)[i];
        } else {
            group--;
        }
        group->count++;
    }
    return 0;
}

static size_t processors(void)
{
    cpu_set_t set;
    long online;

    if (!sched_getaffinity(0, sizeof(set), &set))
        return (size_t)CPU_COUNT(&set);
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

static size_t thread_count(const struct copy *copy)
{
    size_t limit = processors(), count = 1;

    if (limit > COPY_THREADS_MAX)
        limit = COPY_THREADS_MAX;
    while (count < limit && (count < copy->group_count || count * count * BYTES_PER_SQUARE < copy->total))
        count++;
    return count;
}

/* ---- the ring */

/* Pinned, in the given context's driver; NULL if that can't be. */
static char *ring_make(size_t size, CUcontext context)
{
    struct error error = {0};
    char *ring = copy_host_map(size, &error);
    CUcontext popped;
    CUresult result;

    if (!ring) {
        log_warn("%s", error.text);
        return NULL;
    }
    /* Pages that are there already are pinned ten times as fast. */
    for (size_t i = 0; i < size; i += 4096)
        ((volatile char *)ring)[i] = 0;
    result = driver.cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemHostRegister_v2(ring, size, CU_MEMHOSTREGISTER_PORTABLE);
        driver.cuCtxPopCurrent_v2(&popped);
    }
    if (result == CUDA_SUCCESS)
        return ring;
    log_warn("%zu bytes can't be pinned (error %d): copying without", size, (int)result);
    copy_host_free(ring, size);
    return NULL;
}

static void ring_free(char *ring, size_t size, CUcontext context)
{
    CUcontext popped;

    if (driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        driver.cuMemHostUnregister(ring);
        driver.cuCtxPopCurrent_v2(&popped);
    }
    copy_host_free(ring, size);
}

/* ---- running */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void tick(struct copy *copy, const struct copy_progress *progress)
{
    if (!progress || !progress->tick)
        return;
    if (!progress->tick(__atomic_load_n(&copy->done, __ATOMIC_RELAXED), copy->total, progress->arg))
        return;
    pthread_mutex_lock(&copy->lock);
    error_set(&copy->error, ERROR_REFUSED, "the copy was stopped before its end");
    pthread_mutex_unlock(&copy->lock);
    __atomic_store_n(&copy->stop, true, __ATOMIC_RELAXED);
}

/* Starts as many of the workers as can be had; returns how many. */
static size_t workers_start(struct copy *copy, struct copy_worker *workers, size_t count, char *ring)
{
    sigset_t all, before;
    size_t started = 0;

    /* The program's signal handlers must not run on a thread that it does not know of. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&copy->lock);
    for (; started < count; started++) {
        workers[started].copy = copy;
        workers[started].number = started;
        workers[started].slots = ring + started * COPY_SLOTS * COPY_SLOT;
        if (pthread_create(&workers[started].thread, NULL, copy_work, &workers[started]))
            break;
        copy->running++;
    }
    pthread_mutex_unlock(&copy->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void workers_wait(struct copy *copy, const struct copy_progress *progress)
{
    uint64_t next = now_ns() + TICK_NS;

    pthread_mutex_lock(&copy->lock);
    while (copy->running) {
        struct timespec until = {.tv_sec = (time_t)(next / 1000000000), .tv_nsec = (long)(next % 1000000000)};

        if (pthread_cond_timedwait(&copy->finished, &copy->lock, &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&copy->lock);
        tick(copy, progress);
        next = now_ns() + TICK_NS;
        pthread_mutex_lock(&copy->lock);
    }
    pthread_mutex_unlock(&copy->lock);
}

/* False if there is no ring or no thread to be had; nothing was copied then. */
static bool copy_by_ring(struct copy *copy, const struct copy_progress *progress)
{
    struct copy_worker workers[COPY_THREADS_MAX];
    size_t count = thread_count(copy), started, size = count * COPY_SLOTS * COPY_SLOT;
    CUcontext context = copy->groups[0].context;
    char *ring = ring_make(size, context);

    if (!ring)
        return false;
    started = workers_start(copy, workers, count, ring);
    workers_wait(copy, progress);
    for (size_t i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    ring_free(ring, size, context);
    return started > 0;
}

static bool piece_copy(struct copy *copy, const struct copy_piece *piece)
{
    if (copy->direction == COPY_OUT)
        return copy_check(copy, driver.cuMemcpyDtoH_v2(piece->host, piece->device, piece->size),
                          "cuMemcpyDtoH", piece->device);
    return copy_check(copy, driver.cuMemcpyHtoD_v2(piece->device, piece->host, piece->size), "cuMemcpyHtoD",
                      piece->device);
}

/* On the calling thread, through the driver's own staging. */
static void copy_plainly(struct copy *copy, const struct copy_progress *progress)
{
    uint64_t next = now_ns() + TICK_NS;
    struct copy_piece piece;
    CUcontext popped;

    for (size_t i = 0; i < copy->group_count; i++) {
        struct copy_group *group = &copy->groups[i];

        if (!copy_check(copy, driver.cuCtxPushCurrent_v2(group->context), "cuCtxPushCurrent",
                        group->ranges[0]->device))
            return;
        while (copy_take_piece(copy, group, &piece)) {
            if (!piece_copy(copy, &piece))
                break;
            copy->done += piece.size;
            if (now_ns() >= next) {
                tick(copy, progress);
                next = now_ns() + TICK_NS;
            }
        }
        /* cuMemcpyHtoD may return when the bytes are staged, before they are where they belong. */
        if (copy->direction == COPY_IN)
            copy_check(copy, driver.cuCtxSynchronize(), "cuCtxSynchronize", group->ranges[0]->device);
        driver.cuCtxPopCurrent_v2(&popped);
        if (copy->stop)
            return;
    }
}

int copy_ranges(enum copy_direction direction, const struct copy_range *ranges, size_t count,
                const struct copy_progress *progress, struct error *err)
{
    cleanup_free const struct copy_range **order = NULL;
    struct copy copy = {.direction = direction, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attributes;

    if (fault_here(direction == COPY_OUT ? FAULT_copy_out : FAULT_copy_in, err))
        return -1;
    if (!count)
        return 0;
    if (copy_plan(&copy, ranges, count, &order, err)) {
        free(copy.groups);
        return -1;
    }
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&copy.finished, &attributes);
    pthread_condattr_destroy(&attributes);

    if (copy.total < PLAIN_MAX || !copy_by_ring(&copy, progress))
        copy_plainly(&copy, progress);
    if (!copy.error.code && progress && progress->tick)
        progress->tick(copy.done, copy.total, progress->arg); /* too late to stop */

    pthread_cond_destroy(&copy.finished);
    pthread_mutex_destroy(&copy.lock);
    free(copy.groups);
    if (copy.error.code) {
        error_set(err, copy.error.code, "%s", copy.error.text);
        return -1;
    }
    return 0;
}
