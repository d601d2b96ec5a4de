/* Giving freed stream-ordered memory back: at synchronisations, when memory is short, and with what it
 * belongs to. */
#include "stream_internal.h"

#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"
#include "kinds.h"
#include "stream_memory.h"

struct list stream_pools = LIST_INIT(stream_pools);
uint64_t stream_free_blocks;

void stream_pool_delete_if_over(struct stream_pool *pool)
{
    if (!pool->ended || pool->blocks)
        return;
    list_each (node, &pool->lanes)
        if (!lane_is_empty(container_of(node, struct lane, node)))
            return;
    list_each (node, &pool->lanes)
        lane_delete(container_of(node, struct lane, node));
    list_remove(&pool->node);
    free(pool);
}

static void take_from_lane(struct stream_block *block)
{
    lane_remove(block);
    __atomic_fetch_sub(&stream_free_blocks, 1, __ATOMIC_RELAXED);
}

static void block_chain(struct stream_block *block, struct stream_block **chain)
{
    take_from_lane(block);
    stream_block_remove(block);
    block->chain = *chain;
    *chain = block;
}

/* The oldest first, until the pool has no more than keep bytes. */
static void chain_lane(struct lane *lane, struct stream_pool *pool, uint64_t keep,
                       struct stream_block **chain)
{
    list_each (node, &lane->ages) {
        if (pool->reserved <= keep)
            break;
        block_chain(container_of(node, struct stream_block, age_node), chain);
    }
}

void stream_pool_chain(struct stream_pool *pool, uint64_t keep, struct stream_block **chain)
{
    list_each (node, &pool->lanes) {
        struct lane *lane = container_of(node, struct lane, node);

        if (pool->reserved > keep && !list_empty(&lane->ages) && lane_is_done(lane))
            chain_lane(lane, pool, keep, chain);
        if (lane_is_useless(lane))
            lane_delete(lane);
    }
}

void stream_chain_free(struct stream_block *chain)
{
    for (struct stream_block *next; chain; chain = next) {
        next = chain->chain;
        device_memory_free(chain->address);
        free(chain);
    }
}

void stream_pool_trim(struct stream_pool *pool, uint64_t keep)
{
    struct stream_block *chain = NULL;

    pthread_mutex_lock(&stream_memory_lock);
    stream_pool_chain(pool, keep, &chain);
    pthread_mutex_unlock(&stream_memory_lock);
    stream_chain_free(chain);
}

void stream_memory_synchronised(void)
{
    struct stream_block *chain = NULL;

    /* During a capture the driver forbids to ask for events. */
    if (!__atomic_load_n(&stream_free_blocks, __ATOMIC_RELAXED) || capture_in_progress())
        return;
    pthread_mutex_lock(&stream_memory_lock);
    list_each (node, &stream_pools) {
        struct stream_pool *pool = container_of(node, struct stream_pool, node);

        if (pool->reserved > pool->threshold)
            stream_pool_chain(pool, pool->threshold, &chain);
        stream_pool_delete_if_over(pool);
    }
    pthread_mutex_unlock(&stream_memory_lock);
    stream_chain_free(chain);
}

/* A lane with freed blocks of the device that is not done, with a user more; NULL if there is none. */
static struct lane *find_busy_lane(CUdevice device)
{
    list_each (node, &stream_pools) {
        struct stream_pool *pool = container_of(node, struct stream_pool, node);

        if (pool->device != device)
            continue;
        list_each (lane_node, &pool->lanes) {
            struct lane *lane = container_of(lane_node, struct lane, node);

            if (list_empty(&lane->ages) || lane_is_done(lane))
                continue;
            lane->users++;
            return lane;
        }
    }
    return NULL;
}

/* Memory is short: what was freed is given back, and what is being freed is waited for. */
void stream_give_back_all(CUdevice device, bool wait)
{
    struct stream_block *chain = NULL;
    struct lane *busy = NULL;

    do {
        pthread_mutex_lock(&stream_memory_lock);
        list_each (node, &stream_pools) {
            struct stream_pool *pool = container_of(node, struct stream_pool, node);

            if (pool->device == device)
                stream_pool_chain(pool, 0, &chain);
        }
        busy = wait ? find_busy_lane(device) : NULL;
        pthread_mutex_unlock(&stream_memory_lock);
        if (!busy)
            break;
        if (driver.cuEventSynchronize(busy->event) != CUDA_SUCCESS)
            wait = false;
        pthread_mutex_lock(&stream_memory_lock);
        lane_leave(busy);
        pthread_mutex_unlock(&stream_memory_lock);
    } while (wait);
    stream_chain_free(chain);
}

/* ---- streams and contexts that go */

void stream_memory_stream_ending(CUstream stream)
{
    pthread_mutex_lock(&stream_memory_lock);
    list_each (node, &stream_pools)
        list_each (lane_node, &container_of(node, struct stream_pool, node)->lanes) {
            struct lane *lane = container_of(lane_node, struct lane, node);

            if (lane->stream == stream && !lane->thread)
                lane->ended = true;
        }
    pthread_mutex_unlock(&stream_memory_lock);
}

/* What lies in the lane and belongs to the context (NULL: to any), with the work of the lane done. */
static void empty_lane(struct lane *lane, CUcontext context, struct stream_block **chain)
{
    bool waited = false;

    list_each (node, &lane->ages) {
        struct stream_block *block = container_of(node, struct stream_block, age_node);

        if (context && lane->context != context && block->context != context)
            continue;
        if (!waited)
            driver.cuEventSynchronize(lane->event);
        waited = true;
        block_chain(block, chain);
    }
}

static void empty_lanes(CUcontext context)
{
    struct stream_block *chain = NULL;

    pthread_mutex_lock(&stream_memory_lock);
    list_each (node, &stream_pools) {
        struct stream_pool *pool = container_of(node, struct stream_pool, node);

        list_each (lane_node, &pool->lanes) {
            struct lane *lane = container_of(lane_node, struct lane, node);

            empty_lane(lane, context, &chain);
            if (lane_is_empty(lane) && (!context || lane->context == context))
                lane_delete(lane);
        }
        stream_pool_delete_if_over(pool);
    }
    pthread_mutex_unlock(&stream_memory_lock);
    stream_chain_free(chain);
}

void stream_memory_context_ending(CUcontext context)
{
    empty_lanes(context);
}

void stream_memory_suspend(void)
{
    empty_lanes(NULL);
}

static int forget_block(struct stream_block *block, void *context)
{
    if (block->context != context || block->freed)
        return 0;
    stream_block_freed(block);
    stream_block_remove(block);
    stream_pool_delete_if_over(block->pool);
    free(block);
    return 0;
}

void stream_memory_context_ended(CUcontext context)
{
    pthread_mutex_lock(&stream_memory_lock);
    stream_block_each(forget_block, context);
    pthread_mutex_unlock(&stream_memory_lock);
}
