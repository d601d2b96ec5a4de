#include "stream_lane.h"

#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"

/* A block of another size is looked for among so many. */
#define LOOK_AT 16

/*
 * The handle of the per-thread default stream is the same in all threads. Threads are numbered, since what
 * the system tells apart (ids, stacks) is used again for a new thread.
 */
static uint64_t thread_number(void)
{
    static __thread uint64_t number __attribute__((tls_model("initial-exec")));
    static uint64_t last;

    if (!number)
        number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return number;
}

uint64_t lane_backing(uint64_t size)
{
    uint64_t unit = size > DEVICE_MEMORY_SMALL ? DEVICE_MEMORY_CHUNK : DEVICE_MEMORY_ALIGNMENT;

    return (size + unit - 1) & ~(unit - 1);
}

/* Four to a power of two. */
static unsigned class_of(uint64_t backing)
{
    uint64_t units = backing / DEVICE_MEMORY_ALIGNMENT;
    unsigned magnitude = 63 - (unsigned)__builtin_clzll(units);

    return magnitude * 4 +
           (unsigned)(magnitude >= 2 ? units >> (magnitude - 2) & 3 : units << (2 - magnitude) & 3);
}

/* ---- lanes */

struct lane *lane_find(struct stream_pool *pool, CUcontext context, CUstream stream)
{
    uint64_t thread = stream == CU_STREAM_PER_THREAD ? thread_number() : 0;

    list_each (node, &pool->lanes) {
        struct lane *lane = container_of(node, struct lane, node);

        if (lane->stream == stream && lane->context == context && lane->thread == thread && !lane->ended)
            return lane;
    }
    return NULL;
}

static CUresult make_event(CUcontext context, CUevent *event)
{
    CUcontext current = NULL, popped;
    CUresult result = driver.cuCtxGetCurrent(&current);

    if (result == CUDA_SUCCESS && current == context)
        return driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    result = driver.cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    driver.cuCtxPopCurrent_v2(&popped);
    return result;
}

static struct lane *lane_new(struct stream_pool *pool, CUcontext context, CUstream stream)
{
    struct lane *lane = calloc(1, sizeof *lane);

    if (!lane)
        return NULL;
    if (make_event(context, &lane->event) != CUDA_SUCCESS) {
        free(lane);
        return NULL;
    }
    pthread_mutex_init(&lane->order, NULL);
    lane->context = context;
    lane->stream = stream;
    lane->thread = stream == CU_STREAM_PER_THREAD ? thread_number() : 0;
    list_init(&lane->ages);
    for (int i = 0; i < LANE_CLASSES; i++)
        list_init(&lane->classes[i]);
    list_insert(&pool->lanes, &lane->node);
    return lane;
}

struct lane *lane_get(struct stream_pool *pool, CUcontext context, CUstream stream)
{
    struct lane *lane = lane_find(pool, context, stream);

    if (!lane)
        lane = lane_new(pool, context, stream);
    if (lane)
        lane->users++;
    return lane;
}

void lane_leave(struct lane *lane)
{
    lane->users--;
}

CUresult lane_mark(struct lane *lane, CUstream stream)
{
    CUresult result;

    pthread_mutex_lock(&lane->order);
    result = driver.cuEventRecord(lane->event, stream);
    pthread_mutex_unlock(&lane->order);
    return result;
}

bool lane_is_done(const struct lane *lane)
{
    return driver.cuEventQuery(lane->event) == CUDA_SUCCESS;
}

bool lane_is_empty(const struct lane *lane)
{
    return list_empty(&lane->ages) && !lane->users;
}

bool lane_is_useless(const struct lane *lane)
{
    /* a thread may be gone, and says nothing when it goes */
    return lane_is_empty(lane) && (lane->ended || lane->thread);
}

void lane_delete(struct lane *lane)
{
    list_remove(&lane->node);
    driver.cuEventDestroy_v2(lane->event);
    pthread_mutex_destroy(&lane->order);
    free(lane);
}

/* ---- blocks */

void lane_add(struct lane *lane, struct stream_block *block)
{
    block->lane = lane;
    list_insert(&lane->ages, &block->age_node);
    list_insert(&lane->classes[class_of(block->backing)], &block->class_node);
}

void lane_remove(struct stream_block *block)
{
    block->lane = NULL;
    list_remove(&block->age_node);
    list_remove(&block->class_node);
}

struct stream_block *lane_take(struct lane *lane, uint64_t backing, CUcontext context)
{
    unsigned class = class_of(backing), looked = 0;

    for (unsigned i = class; i <= class + 1 && i < LANE_CLASSES; i++)
        list_each (node, &lane->classes[i]) {
            struct stream_block *block = container_of(node, struct stream_block, class_node);

            if (looked++ == LOOK_AT)
                return NULL;
            if (block->backing < backing || block->backing - backing > backing / 4 ||
                block->context != context)
                continue;
            lane_remove(block);
            return block;
        }
    return NULL;
}
