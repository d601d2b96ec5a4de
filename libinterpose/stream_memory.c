#include "stream_memory.h"

#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"
#include "kinds.h"
#include "stream_lane.h"

/* Ids of device_memory.h count from 1; these must not meet them. */
#define ID_FIRST (1ull << 48)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list pools = LIST_INIT(pools);
static uint64_t free_blocks; /* in lanes; read without the lock */
static uint64_t last_id = ID_FIRST;

/* All blocks, those in lanes too, by address. */
static struct stream_block **buckets;
static size_t bucket_count, block_count;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

void stream_memory_start(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* ---- blocks by address: the lock is held */

static struct stream_block **bucket_of(CUdeviceptr address)
{
    return &buckets[(address / DEVICE_MEMORY_ALIGNMENT * 0x9e3779b97f4a7c15ull >> 32) & (bucket_count - 1)];
}

/* Without memory for it the old ones go on, only slower. */
static bool grow_buckets(void)
{
    struct stream_block **before = buckets;
    size_t count = bucket_count;
    struct stream_block **grown = calloc(count ? count * 2 : 256, sizeof *grown);

    if (!grown)
        return count > 0;
    buckets = grown;
    bucket_count = count ? count * 2 : 256;
    for (size_t i = 0; i < count; i++)
        for (struct stream_block *block = before[i], *next; block; block = next) {
            struct stream_block **bucket = bucket_of(block->address);

            next = block->hash_next;
            block->hash_next = *bucket;
            *bucket = block;
        }
    free(before);
    return true;
}

static struct stream_block *find_block(CUdeviceptr address)
{
    struct stream_block *block = bucket_count ? *bucket_of(address) : NULL;

    while (block && block->address != address)
        block = block->hash_next;
    return block;
}

static bool add_block(struct stream_block *block)
{
    struct stream_block **bucket;

    if (block_count >= bucket_count && !grow_buckets())
        return false;
    bucket = bucket_of(block->address);
    block->hash_next = *bucket;
    *bucket = block;
    block_count++;
    block->pool->blocks++;
    block->pool->reserved += block->backing;
    if (block->pool->reserved_most < block->pool->reserved)
        block->pool->reserved_most = block->pool->reserved;
    return true;
}

/* It is in no lane. */
static void remove_block(struct stream_block *block)
{
    struct stream_block **link = bucket_of(block->address);

    while (*link != block)
        link = &(*link)->hash_next;
    *link = block->hash_next;
    block_count--;
    block->pool->blocks--;
    block->pool->reserved -= block->backing;
}

static void now_used(struct stream_block *block, uint64_t size)
{
    struct stream_pool *pool = block->pool;

    block->freed = false;
    block->size = size;
    block->id = ++last_id;
    pool->used += lane_backing(size);
    if (pool->used_most < pool->used)
        pool->used_most = pool->used;
}

static void now_freed(struct stream_block *block)
{
    block->freed = true;
    block->pool->used -= lane_backing(block->size);
}

/* ---- giving back: blocks are chained with the lock held, and freed without it */

static void pool_delete_if_over(struct stream_pool *pool)
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
    __atomic_fetch_sub(&free_blocks, 1, __ATOMIC_RELAXED);
}

static void chain_block(struct stream_block *block, struct stream_block **chain)
{
    take_from_lane(block);
    remove_block(block);
    block->chain = *chain;
    *chain = block;
}

/* The oldest first, until the pool has no more than keep bytes. */
static void chain_lane(struct lane *lane, struct stream_pool *pool, uint64_t keep, struct stream_block **chain)
{
    list_each (node, &lane->ages) {
        if (pool->reserved <= keep)
            break;
        chain_block(container_of(node, struct stream_block, age_node), chain);
    }
}

static void chain_pool(struct stream_pool *pool, uint64_t keep, struct stream_block **chain)
{
    list_each (node, &pool->lanes) {
        struct lane *lane = container_of(node, struct lane, node);

        if (pool->reserved > keep && !list_empty(&lane->ages) && lane_is_done(lane))
            chain_lane(lane, pool, keep, chain);
        if (lane_is_useless(lane))
            lane_delete(lane);
    }
}

static void free_chain(struct stream_block *chain)
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

    pthread_mutex_lock(&lock);
    chain_pool(pool, keep, &chain);
    pthread_mutex_unlock(&lock);
    free_chain(chain);
}

void stream_memory_synchronised(void)
{
    struct stream_block *chain = NULL;

    /* During a capture the driver forbids to ask for events. */
    if (!__atomic_load_n(&free_blocks, __ATOMIC_RELAXED) || capture_in_progress())
        return;
    pthread_mutex_lock(&lock);
    list_each (node, &pools) {
        struct stream_pool *pool = container_of(node, struct stream_pool, node);

        if (pool->reserved > pool->threshold)
            chain_pool(pool, pool->threshold, &chain);
        pool_delete_if_over(pool);
    }
    pthread_mutex_unlock(&lock);
    free_chain(chain);
}

/* A lane with freed blocks of the device that is not done, with a user more; NULL if there is none. */
static struct lane *find_busy_lane(CUdevice device)
{
    list_each (node, &pools) {
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
static void give_back_all(CUdevice device, bool wait)
{
    struct stream_block *chain = NULL;
    struct lane *busy = NULL;

    do {
        pthread_mutex_lock(&lock);
        list_each (node, &pools) {
            struct stream_pool *pool = container_of(node, struct stream_pool, node);

            if (pool->device == device)
                chain_pool(pool, 0, &chain);
        }
        busy = wait ? find_busy_lane(device) : NULL;
        pthread_mutex_unlock(&lock);
        if (!busy)
            break;
        if (driver.cuEventSynchronize(busy->event) != CUDA_SUCCESS)
            wait = false;
        pthread_mutex_lock(&lock);
        lane_leave(busy);
        pthread_mutex_unlock(&lock);
    } while (wait);
    free_chain(chain);
}

/* ---- pools */

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
    pthread_mutex_lock(&lock);
    list_insert(&pools, &pool->node);
    pthread_mutex_unlock(&lock);
    return pool;
}

void stream_pool_end(struct stream_pool *pool)
{
    struct stream_block *chain = NULL;

    pthread_mutex_lock(&lock);
    pool->ended = true;
    pool->threshold = 0;
    chain_pool(pool, 0, &chain);
    pool_delete_if_over(pool);
    pthread_mutex_unlock(&lock);
    free_chain(chain);
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
    pthread_mutex_lock(&lock);
    pool->threshold = bytes;
    pthread_mutex_unlock(&lock);
}

void stream_pool_set_reuse(struct stream_pool *pool, bool allowed)
{
    pthread_mutex_lock(&lock);
    pool->reuse = allowed;
    pthread_mutex_unlock(&lock);
}

void stream_pool_get_stats(struct stream_pool *pool, struct stream_pool_stats *stats)
{
    pthread_mutex_lock(&lock);
    *stats = (struct stream_pool_stats){pool->reserved, pool->reserved_most, pool->used, pool->used_most};
    pthread_mutex_unlock(&lock);
}

void stream_pool_reset_most(struct stream_pool *pool, bool reserved, bool used)
{
    pthread_mutex_lock(&lock);
    if (reserved)
        pool->reserved_most = pool->reserved;
    if (used)
        pool->used_most = pool->used;
    pthread_mutex_unlock(&lock);
}

CUresult stream_pool_give_access(struct stream_pool *pool, const CUmemAccessDesc *access)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < bucket_count && result == CUDA_SUCCESS; i++)
        for (struct stream_block *block = buckets[i]; block && result == CUDA_SUCCESS; block = block->hash_next) {
            struct device_block memory;

            if (block->pool == pool && device_memory_find(block->address, &memory))
                result = driver.cuMemSetAccess(memory.chunk_address, memory.chunk_size, access, 1);
        }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- allocating */

/* A block that was freed in another stream, and whose free is over. */
static struct stream_block *take_from_others(struct stream_pool *pool, CUcontext context, uint64_t backing)
{
    if (!pool->reuse || !__atomic_load_n(&free_blocks, __ATOMIC_RELAXED) || capture_in_progress())
        return NULL;
    list_each (node, &pool->lanes) {
        struct lane *lane = container_of(node, struct lane, node);
        struct stream_block *block;

        if (list_empty(&lane->ages) || !lane_is_done(lane))
            continue;
        block = lane_take(lane, backing, context);
        if (block)
            return block;
    }
    return NULL;
}

/* False: the pool would be larger than it may. */
static bool take_freed(struct stream_pool *pool, CUcontext context, CUstream stream, uint64_t size,
                       struct stream_block **taken)
{
    uint64_t backing = lane_backing(size);
    struct lane *lane = lane_find(pool, context, stream);
    struct stream_block *block = lane ? lane_take(lane, backing, context) : NULL;

    if (!block)
        block = take_from_others(pool, context, backing);
    if (block) {
        __atomic_fetch_sub(&free_blocks, 1, __ATOMIC_RELAXED);
        now_used(block, size);
    } else if (pool->max_size && (backing > pool->max_size || pool->used > pool->max_size - backing)) {
        return false;
    }
    *taken = block;
    return true;
}

static CUresult take_device_memory(CUdevice device, CUcontext context, uint64_t backing, CUdeviceptr *address)
{
    CUresult result = device_memory_alloc(device, context, backing, address);

    for (int wait = 0; wait < 2 && result == CUDA_ERROR_OUT_OF_MEMORY; wait++) {
        give_back_all(device, wait);
        result = device_memory_alloc(device, context, backing, address);
    }
    return result;
}

CUresult stream_memory_alloc(struct stream_pool *pool, CUcontext context, CUstream stream, uint64_t size,
                             CUdeviceptr *address)
{
    struct stream_block *block = NULL;
    CUresult result = CUDA_SUCCESS;

    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > DEVICE_MEMORY_LARGEST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (!take_freed(pool, context, stream, size, &block))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&lock);
    if (block) {
        device_memory_set_sync_memops(block->address, 1); /* as of a new one */
        *address = block->address;
    }
    if (block || result != CUDA_SUCCESS)
        return result;

    block = calloc(1, sizeof *block);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->pool = pool;
    block->context = context;
    block->backing = lane_backing(size);
    list_init(&block->class_node);
    list_init(&block->age_node);
    result = take_device_memory(pool->device, context, block->backing, &block->address);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        if (add_block(block))
            now_used(block, size);
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&lock);
        if (result != CUDA_SUCCESS)
            device_memory_free(block->address);
    }
    if (result == CUDA_SUCCESS)
        *address = block->address;
    else
        free(block);
    return result;
}

/* ---- freeing */

/* Without a lane the stream is waited for. */
static CUresult free_slowly(struct stream_block *block, CUstream stream)
{
    CUresult result = driver.cuStreamSynchronize(stream);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    now_freed(block);
    remove_block(block);
    pool_delete_if_over(block->pool);
    pthread_mutex_unlock(&lock);
    result = device_memory_free(block->address);
    free(block);
    return result;
}

CUresult stream_memory_free(CUdeviceptr address, CUcontext context, CUstream stream)
{
    struct stream_block *block;
    struct lane *lane = NULL;
    CUresult result;

    pthread_mutex_lock(&lock);
    block = find_block(address);
    if (block && block->freed)
        block = NULL;
    if (block) {
        lane = lane_get(block->pool, context, stream);
        if (lane)
            now_freed(block); /* a second free of it fails from here on */
    }
    pthread_mutex_unlock(&lock);
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    if (!lane)
        return free_slowly(block, stream);

    result = lane_mark(lane, stream);
    pthread_mutex_lock(&lock);
    if (result == CUDA_SUCCESS) {
        lane_add(lane, block);
        __atomic_fetch_add(&free_blocks, 1, __ATOMIC_RELAXED);
    } else {
        block->freed = false;
        block->pool->used += lane_backing(block->size);
    }
    lane_leave(lane);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult stream_memory_free_now(CUdeviceptr address)
{
    struct stream_block *block;
    CUresult result;

    pthread_mutex_lock(&lock);
    block = find_block(address);
    if (block && block->freed)
        block = NULL;
    if (block) {
        now_freed(block);
        remove_block(block);
        pool_delete_if_over(block->pool);
    }
    pthread_mutex_unlock(&lock);
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    result = device_memory_free(address);
    free(block);
    return result;
}

bool stream_memory_find(CUdeviceptr address, struct stream_block_info *info)
{
    const struct stream_block *block;

    if (!__atomic_load_n(&block_count, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&lock);
    block = find_block(address);
    if (block)
        *info = (struct stream_block_info){block->size, block->id, block->pool->handle, block->freed};
    pthread_mutex_unlock(&lock);
    return block != NULL;
}

/* ---- streams and contexts that go */

void stream_memory_stream_ending(CUstream stream)
{
    pthread_mutex_lock(&lock);
    list_each (node, &pools)
        list_each (lane_node, &container_of(node, struct stream_pool, node)->lanes) {
            struct lane *lane = container_of(lane_node, struct lane, node);

            if (lane->stream == stream && !lane->thread)
                lane->ended = true;
        }
    pthread_mutex_unlock(&lock);
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
        chain_block(block, chain);
    }
}

static void empty_lanes(CUcontext context)
{
    struct stream_block *chain = NULL;

    pthread_mutex_lock(&lock);
    list_each (node, &pools) {
        struct stream_pool *pool = container_of(node, struct stream_pool, node);

        list_each (lane_node, &pool->lanes) {
            struct lane *lane = container_of(lane_node, struct lane, node);

            empty_lane(lane, context, &chain);
            if (lane_is_empty(lane) && (!context || lane->context == context))
                lane_delete(lane);
        }
        pool_delete_if_over(pool);
    }
    pthread_mutex_unlock(&lock);
    free_chain(chain);
}

void stream_memory_context_ending(CUcontext context)
{
    empty_lanes(context);
}

void stream_memory_suspend(void)
{
    empty_lanes(NULL);
}

void stream_memory_context_ended(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < bucket_count; i++)
        for (struct stream_block *block = buckets[i], *next; block; block = next) {
            next = block->hash_next;
            if (block->context != context || block->freed)
                continue;
            now_freed(block);
            remove_block(block);
            pool_delete_if_over(block->pool);
            free(block);
        }
    pthread_mutex_unlock(&lock);
}
