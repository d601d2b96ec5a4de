#include "stream_memory.h"

#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"
#include "kinds.h"
#include "stream_internal.h"

pthread_mutex_t stream_memory_lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
    pthread_mutex_lock(&stream_memory_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&stream_memory_lock);
}

void stream_memory_start(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* ---- allocating */

/* A block that was freed in another stream, and whose free is over. */
static struct stream_block *take_from_others(struct stream_pool *pool, CUcontext context, uint64_t backing)
{
    if (!pool->reuse || !__atomic_load_n(&stream_free_blocks, __ATOMIC_RELAXED) || capture_in_progress())
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
        __atomic_fetch_sub(&stream_free_blocks, 1, __ATOMIC_RELAXED);
        stream_block_used(block, size);
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
        stream_give_back_all(device, wait);
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
    pthread_mutex_lock(&stream_memory_lock);
    if (!take_freed(pool, context, stream, size, &block))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&stream_memory_lock);
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
        pthread_mutex_lock(&stream_memory_lock);
        if (stream_block_add(block))
            stream_block_used(block, size);
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&stream_memory_lock);
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
    pthread_mutex_lock(&stream_memory_lock);
    stream_block_freed(block);
    stream_block_remove(block);
    stream_pool_delete_if_over(block->pool);
    pthread_mutex_unlock(&stream_memory_lock);
    result = device_memory_free(block->address);
    free(block);
    return result;
}

CUresult stream_memory_free(CUdeviceptr address, CUcontext context, CUstream stream)
{
    struct stream_block *block;
    struct lane *lane = NULL;
    CUresult result;

    pthread_mutex_lock(&stream_memory_lock);
    block = stream_block_find(address);
    if (block && block->freed)
        block = NULL;
    if (block) {
        lane = lane_get(block->pool, context, stream);
        if (lane)
            stream_block_freed(block); /* a second free of it fails from here on */
    }
    pthread_mutex_unlock(&stream_memory_lock);
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    if (!lane)
        return free_slowly(block, stream);

    result = lane_mark(lane, stream);
    pthread_mutex_lock(&stream_memory_lock);
    if (result == CUDA_SUCCESS) {
        lane_add(lane, block);
        __atomic_fetch_add(&stream_free_blocks, 1, __ATOMIC_RELAXED);
    } else {
        block->freed = false;
        block->pool->used += lane_backing(block->size);
    }
    lane_leave(lane);
    pthread_mutex_unlock(&stream_memory_lock);
    return result;
}

CUresult stream_memory_free_now(CUdeviceptr address)
{
    struct stream_block *block;
    CUresult result;

    pthread_mutex_lock(&stream_memory_lock);
    block = stream_block_find(address);
    if (block && block->freed)
        block = NULL;
    if (block) {
        stream_block_freed(block);
        stream_block_remove(block);
        stream_pool_delete_if_over(block->pool);
    }
    pthread_mutex_unlock(&stream_memory_lock);
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    result = device_memory_free(address);
    free(block);
    return result;
}

bool stream_memory_find(CUdeviceptr address, struct stream_block_info *info)
{
    const struct stream_block *block;

    if (!stream_block_any())
        return false;
    pthread_mutex_lock(&stream_memory_lock);
    block = stream_block_find(address);
    if (block)
        *info = (struct stream_block_info){block->size, block->id, block->pool->handle, block->freed};
    pthread_mutex_unlock(&stream_memory_lock);
    return block != NULL;
}
