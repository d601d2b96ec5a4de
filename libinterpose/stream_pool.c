/* Pools of stream-ordered memory. */
#include "stream_internal.h"

#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"
#include "stream_memory.h"

struct stream_pool *stream_pool_new(CUmemoryPool handle, CUdevice device, uint64_t max_size)
{
    struct stream_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->handle = handle;
    pool->device = device;
    pool->max_size = max_size;
    pool->reuse = true;
    list_init(&pool->lanes);
    pthread_mutex_lock(&stream_memory_lock);
    list_insert(&stream_pools, &pool->node);
    pthread_mutex_unlock(&stream_memory_lock);
    return pool;
}

void stream_pool_end(struct stream_pool *pool)
{
    struct stream_block *chain = NULL;

    pthread_mutex_lock(&stream_memory_lock);
    pool->ended = true;
    pool->threshold = 0;
    stream_pool_chain(pool, 0, &chain);
    stream_pool_delete_if_over(pool);
    pthread_mutex_unlock(&stream_memory_lock);
    stream_chain_free(chain);
}

CUmemoryPool stream_pool_handle(const struct stream_pool *pool)
{
    return pool->handle;
}

CUdevice stream_pool_device(const struct stream_pool *pool)
{
    return pool->device;
}

void stream_pool_make_foreign(struct stream_pool *pool)
{
    __atomic_store_n(&pool->foreign, true, __ATOMIC_RELAXED);
}

bool stream_pool_is_foreign(const struct stream_pool *pool)
{
    return __atomic_load_n(&pool->foreign, __ATOMIC_RELAXED);
}

void stream_pool_set_threshold(struct stream_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&stream_memory_lock);
    pool->threshold = bytes;
    pthread_mutex_unlock(&stream_memory_lock);
}

void stream_pool_set_reuse(struct stream_pool *pool, bool allowed)
{
    pthread_mutex_lock(&stream_memory_lock);
    pool->reuse = allowed;
    pthread_mutex_unlock(&stream_memory_lock);
}

void stream_pool_get_stats(struct stream_pool *pool, struct stream_pool_stats *stats)
{
    pthread_mutex_lock(&stream_memory_lock);
    *stats = (struct stream_pool_stats){pool->reserved, pool->reserved_most, pool->used, pool->used_most};
    pthread_mutex_unlock(&stream_memory_lock);
}

void stream_pool_reset_most(struct stream_pool *pool, bool reserved, bool used)
{
    pthread_mutex_lock(&stream_memory_lock);
    if (reserved)
        pool->reserved_most = pool->reserved;
    if (used)
        pool->used_most = pool->used;
    pthread_mutex_unlock(&stream_memory_lock);
}

struct wish {
    struct stream_pool *pool;
    const CUmemAccessDesc *access;
};

static int give_access(struct stream_block *block, void *arg)
{
    const struct wish *wish = arg;
    struct device_block memory;

    if (block->pool != wish->pool || !device_memory_find(block->address, &memory))
        return CUDA_SUCCESS;
    return (int)driver.cuMemSetAccess(memory.chunk_address, memory.chunk_size, wish->access, 1);
}

CUresult stream_pool_give_access(struct stream_pool *pool, const CUmemAccessDesc *access)
{
    struct wish wish = {pool, access};
    CUresult result;

    pthread_mutex_lock(&stream_memory_lock);
    result = (CUresult)stream_block_each(give_access, &wish);
    pthread_mutex_unlock(&stream_memory_lock);
    return result;
}
