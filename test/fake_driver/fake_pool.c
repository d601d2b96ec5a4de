/* Memory pools and allocations in the order of a stream. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"

enum { POOL_OFFSET = 224, POOL_ATTRIBUTES = 9 };
enum { RELEASE_THRESHOLD = 4, RESERVED_NOW, RESERVED_MOST, USED_NOW, USED_MOST };

/* Its handle points into a heap block, not to its start. */
struct pool {
    struct device *device;
    CUmemPoolProps props;
    uint64_t attributes[POOL_ATTRIBUTES];
    struct arena arena;
    bool is_default;
};

struct arena *pool_arena(struct pool *pool)
{
    return &pool->arena;
}

void pool_block_gone(struct pool *pool, uint64_t size)
{
    pool->attributes[USED_NOW] -= size;
}

static struct pool *pool_new(struct thread *self, struct device *device)
{
    char *block;
    struct pool *pool;

    if (vidmem_open(device) != CUDA_SUCCESS)
        return NULL;
    block = handle_alloc(self, POOL_OFFSET + sizeof(*pool));
    if (!block)
        return NULL;
    pool = (struct pool *)(block + POOL_OFFSET);
    pool->device = pool->arena.device = device;
    for (int i = 1; i < RELEASE_THRESHOLD; i++)
        pool->attributes[i] = 1; /* what may be used again for what */
    if (object_add(pool, OBJECT_POOL)) {
        free(block);
        return NULL;
    }
    return pool;
}

static struct pool *pool_default(struct thread *self, struct device *device)
{
    if (!device->default_pool) {
        device->default_pool = pool_new(self, device);
        if (device->default_pool)
            device->default_pool->is_default = true;
    }
    return device->default_pool;
}

static struct pool *pool_current(struct thread *self, struct device *device)
{
    return device->pool ? device->pool : pool_default(self, device);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *handle, CUdevice ordinal)
{
    CALL(cuDeviceGetDefaultMemPool, NEEDS_INIT);
    struct device *device = device_find(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *handle = (CUmemoryPool)pool_default(self, device);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *handle, CUdevice ordinal)
{
    CALL(cuDeviceGetMemPool, NEEDS_INIT);
    struct device *device = device_find(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *handle = (CUmemoryPool)pool_current(self, device);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle)
{
    CALL(cuDeviceSetMemPool, NEEDS_INIT);
    struct device *device = device_find(ordinal);
    struct pool *pool = object_find(handle, OBJECT_POOL);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    device->pool = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props)
{
    CALL(cuMemPoolCreate, NEEDS_INIT);
    struct device *device;
    struct pool *pool;

    if (!handle || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    device = device_find(props->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    pool = pool_new(self, device);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->props = *props;
    *handle = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    CALL(cuMemPoolDestroy, NEEDS_INIT);
    struct pool *pool = object_find(handle, OBJECT_POOL);

    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    device_wait(pool->device);
    if (pool->device->pool == pool)
        pool->device->pool = NULL;
    blocks_delete_all(NULL, pool);
    arena_release(&pool->arena);
    object_remove(pool);
    free((char *)pool - POOL_OFFSET);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    CALL(cuMemPoolTrimTo, NEEDS_INIT);
    return object_find(handle, OBJECT_POOL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CALL(cuMemPoolGetAttribute, NEEDS_INIT);
    struct pool *pool = object_find(handle, OBJECT_POOL);

    if (!pool || !value || attribute < 1 || attribute >= POOL_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    pool->attributes[RESERVED_NOW] = pool->arena.backed;
    if (pool->attributes[RESERVED_MOST] < pool->arena.backed)
        pool->attributes[RESERVED_MOST] = pool->arena.backed;
    if (attribute < RELEASE_THRESHOLD)
        *(int *)value = (int)pool->attributes[attribute];
    else
        *(cuuint64_t *)value = pool->attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CALL(cuMemPoolSetAttribute, NEEDS_INIT);
    struct pool *pool = object_find(handle, OBJECT_POOL);

    if (!pool || !value || attribute < 1 || attribute >= POOL_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute < RELEASE_THRESHOLD)
        pool->attributes[attribute] = (uint64_t) * (int *)value;
    else if (attribute == RELEASE_THRESHOLD)
        pool->attributes[attribute] = *(cuuint64_t *)value;
    else if (attribute == RESERVED_MOST || attribute == USED_MOST)
        pool->attributes[attribute] = pool->attributes[attribute - 1];
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult alloc_async(struct stream *stream, struct pool *pool, CUdeviceptr *address, size_t size)
{
    struct block *block;
    CUresult result;

    if (!address || !pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = block_new(stream->context, pool, BLOCK_POOL, size, &block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        /* What was freed may wait in its stream still. */
        device_wait(pool->device);
        result = block_new(stream->context, pool, BLOCK_POOL, size, &block);
    }
    if (result != CUDA_SUCCESS)
        return result;
    pool->attributes[USED_NOW] += size;
    if (pool->attributes[USED_MOST] < pool->attributes[USED_NOW])
        pool->attributes[USED_MOST] = pool->attributes[USED_NOW];
    *address = block->range.address;
    return CUDA_SUCCESS;
}
BOTH(cuMemAllocAsync, alloc_async, (CUdeviceptr * address, size_t size, CUstream handle),
     (stream, pool_current(self, stream->context->device), address, size))
BOTH(cuMemAllocFromPoolAsync, alloc_async,
     (CUdeviceptr * address, size_t size, CUmemoryPool pool, CUstream handle),
     (stream, object_find(pool, OBJECT_POOL), address, size))

static CUresult free_async(struct stream *stream, CUdeviceptr address)
{
    const struct block *block = block_find(address);
    struct work work = {.kind = WORK_FREE, .free = {address}};

    if (!address)
        return CUDA_SUCCESS;
    if (!block || block->range.address != address ||
        (block->kind != BLOCK_POOL && block->kind != BLOCK_DEVICE && block->kind != BLOCK_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return CUDA_ERROR_NOT_SUPPORTED;
    return stream_submit(stream, &work);
}
BOTH(cuMemFreeAsync, free_async, (CUdeviceptr address, CUstream handle), (stream, address))
