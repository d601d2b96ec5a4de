/* Device memory that the program asks for, and the list of everything that it got. */

#include <stdlib.h>

#include "fake.h"

enum { SMALL_MAX = 1 << 20, SMALL_UNIT = 512 };

struct block *block_find(uint64_t address)
{
    return (struct block *)range_find(&fake.blocks, address);
}

static uint32_t everyone(void)
{
    return (1u << fake.device_count) - 1;
}

/* Memory in address space of its own. */
static CUresult own_memory(struct block *block)
{
    struct device *device = block->device;
    bool managed = block->kind == BLOCK_MANAGED;
    CUresult result;

    if (block->range.size > device->size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->own_size = (block->range.size + PAGE_SIZE_2M - 1) & -(uint64_t)PAGE_SIZE_2M;
    result = vidmem_alloc(device, block->own_size, &block->own_offset);
    if (result != CUDA_SUCCESS)
        return result;
    block->range.address = address_reserve(0, block->own_size, PAGE_SIZE_2M);
    if (!block->range.address) {
        vidmem_free(device, block->own_offset, block->own_size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = pages_map(device, block->range.address, block->own_offset, block->own_size,
                       managed ? everyone() : 1u << device->ordinal, true, NULL);
    if (result != CUDA_SUCCESS) {
        vidmem_free(device, block->own_offset, block->own_size);
        address_release(block->range.address, block->own_size);
    }
    return result;
}

static uint64_t small_size(uint64_t size)
{
    return (size + SMALL_UNIT - 1) & -(uint64_t)SMALL_UNIT;
}

/* Small allocations share an arena; NULL: this one gets address space of its own. */
static struct arena *arena_of(struct context *context, struct pool *pool, enum block_kind kind, uint64_t size)
{
    if (size > SMALL_MAX || kind == BLOCK_MANAGED)
        return NULL;
    return pool ? pool_arena(pool) : &context->small;
}

CUresult block_new(struct context *context, struct pool *pool, enum block_kind kind, uint64_t size,
                   struct block **out)
{
    struct arena *arena = arena_of(context, pool, kind, size);
    struct block *block;
    CUresult result;

    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    block = calloc(1, sizeof(*block));
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->range.size = size;
    block->kind = kind;
    block->context = context;
    block->device = context->device;
    block->sync_memops = 1;
    block->pool = pool;
    if (arena)
        result = arena_alloc(arena, small_size(size), SMALL_UNIT, &block->range.address);
    else
        result = own_memory(block);
    if (result == CUDA_SUCCESS && range_insert(&fake.blocks, &block->range)) {
        block_delete(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    block->id = fake.next_block_id++;
    *out = block;
    return CUDA_SUCCESS;
}

void block_delete(struct block *block)
{
    uint64_t address = block->range.address;

    range_remove(&fake.blocks, &block->range);
    if (block->own_size) {
        pages_unmap((struct page_range *)range_find(&fake.pages, address));
        address_release(address, block->own_size);
    } else if (block->kind != BLOCK_VARIABLE) {
        arena_free(arena_of(block->context, block->pool, block->kind, block->range.size), address,
                   small_size(block->range.size));
    }
    if (block->pool)
        pool_block_gone(block->pool, block->range.size);
    free(block);
}

void blocks_delete_all(const struct context *context, const struct pool *pool)
{
    for (size_t i = fake.blocks.count; i-- > 0;) {
        struct block *block = (struct block *)fake.blocks.items[i];

        if (pool ? block->pool != pool : block->context != context || block->pool)
            continue;
        if (block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED)
            host_block_delete(block);
        else
            block_delete(block);
    }
}

CUresult range_check(const struct context *context, uint64_t address, uint64_t size)
{
    const struct block *block = block_find(address);

    if (block)
        return size <= block->range.address + block->range.size - address ? CUDA_SUCCESS
                                                                          : CUDA_ERROR_INVALID_VALUE;
    /* In reserved space it is the copy itself that finds out. */
    if (range_find(&fake.reservations, address))
        return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

bool memory_is_pinned(uint64_t address)
{
    return block_find(address) || range_find(&fake.reservations, address);
}

/* ---- entry points */

static CUresult allocate(struct thread *self, struct context *context, enum block_kind kind, size_t size,
                         CUdeviceptr *address)
{
    struct block *block;
    CUresult result;

    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_check(self);
    if (result == CUDA_SUCCESS)
        result = block_new(context, NULL, kind, size, &block);
    if (result == CUDA_SUCCESS)
        *address = block->range.address;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    CALL(cuMemAlloc_v2, NEEDS_CONTEXT);
    return allocate(self, context, BLOCK_DEVICE, size, address);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
    CALL(cuMemAllocManaged, NEEDS_CONTEXT);
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(self, context, BLOCK_MANAGED, size, address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    CALL(cuMemAllocPitch_v2, NEEDS_CONTEXT);
    size_t wide = (width + 511) & ~(size_t)511;
    CUresult result;

    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate(self, context, BLOCK_DEVICE, wide * height, address);
    if (result == CUDA_SUCCESS)
        *pitch = wide;
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CALL(cuMemFree_v2, NEEDS_CONTEXT);
    struct block *block = block_find(address);
    CUresult result;

    if (!address)
        return CUDA_SUCCESS;
    if (!block || block->range.address != address ||
        (block->kind != BLOCK_DEVICE && block->kind != BLOCK_MANAGED && block->kind != BLOCK_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_check(self);
    if (result != CUDA_SUCCESS)
        return result;
    /* Work that uses the memory may still be under way. */
    device_wait(block->device);
    block = block_find(address);
    if (block)
        block_delete(block);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    CALL(cuMemGetInfo_v2, NEEDS_CONTEXT);
    uint64_t used = vidmem_used(context->device);

    if (left)
        *left = used < context->device->size ? context->device->size - used : 0;
    if (total)
        *total = context->device->size;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    CALL(cuMemGetAddressRange_v2, NEEDS_CONTEXT);
    const struct range *range = range_find(&fake.blocks, address);

    if (!range)
        range = range_find(&fake.reservations, address);
    if (!range)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range->address;
    if (size)
        *size = range->size;
    return CUDA_SUCCESS;
}

/* Advice changes nothing that a program can see. */
CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
    CALL(cuMemAdvise, NEEDS_CONTEXT);
    const struct block *block = block_find(address);

    return block && block->kind == BLOCK_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
    CALL(cuMemAdvise_v2, NEEDS_CONTEXT);
    const struct block *block = block_find(address);

    return block && block->kind == BLOCK_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
