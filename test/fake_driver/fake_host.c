/* Host memory that the device can reach: allocated here, or registered. */

#include <stdlib.h>
#include <sys/mman.h>

#include "fake.h"

static CUresult host_block_new(struct context *context, enum block_kind kind, uint64_t address, uint64_t size,
                               unsigned int flags)
{
    struct block *block = calloc(1, sizeof(*block));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!block)
        return result;
    *block = (struct block){
        .range = {address, size},
        .kind = kind,
        .context = context,
        .device = context->device,
        .flags = flags,
    };
    result = pages_add_host(address, size);
    if (result == CUDA_SUCCESS && range_insert(&fake.blocks, &block->range)) {
        pages_remove_host(address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    block->id = fake.next_block_id++;
    return CUDA_SUCCESS;
}

void host_block_delete(struct block *block)
{
    pages_remove_host(block->range.address);
    range_remove(&fake.blocks, &block->range);
    if (block->kind == BLOCK_HOST)
        munmap((void *)(uintptr_t)block->range.address, block->range.size);
    free(block);
}

static CUresult host_alloc(struct thread *self, struct context *context, void **pointer, size_t size,
                           unsigned int flags)
{
    CUresult result;
    void *memory;

    if (!pointer || !size || flags & ~7u)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_check(self);
    if (result != CUDA_SUCCESS)
        return result;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* What cuMemHostGetFlags tells: always mapped, never portable. */
    flags = (flags & CU_MEMHOSTALLOC_WRITECOMBINED) | CU_MEMHOSTALLOC_DEVICEMAP;
    result = host_block_new(context, BLOCK_HOST, (uint64_t)(uintptr_t)memory, size, flags);
    if (result != CUDA_SUCCESS) {
        munmap(memory, size);
        return result;
    }
    *pointer = memory;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned int flags)
{
    CALL(cuMemHostAlloc, NEEDS_CONTEXT);
    return host_alloc(self, context, pointer, size, flags);
}

CUresult cuMemAllocHost_v2(void **pointer, size_t size)
{
    CALL(cuMemAllocHost_v2, NEEDS_CONTEXT);
    return host_alloc(self, context, pointer, size, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
    CALL(cuMemFreeHost, NEEDS_CONTEXT);
    struct block *block = block_find((uint64_t)(uintptr_t)pointer);

    if (!pointer)
        return CUDA_SUCCESS;
    if (!block || block->kind != BLOCK_HOST || block->range.address != (uint64_t)(uintptr_t)pointer)
        return CUDA_ERROR_INVALID_VALUE;
    device_wait(block->device);
    block = block_find((uint64_t)(uintptr_t)pointer);
    if (block)
        host_block_delete(block);
    return CUDA_SUCCESS;
}

static CUresult host_register(struct context *context, void *pointer, size_t size, unsigned int flags)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    /* The device sees whole pages. */
    uint64_t start = address & ~4095ull, end = (address + size + 4095) & ~4095ull;

    if (!pointer || !size || flags & ~11u)
        return CUDA_ERROR_INVALID_VALUE;
    if (range_overlaps(&fake.blocks, start, end - start))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (madvise((void *)(uintptr_t)start, end - start, MADV_NORMAL))
        return CUDA_ERROR_INVALID_VALUE; /* not all of it is mapped */
    return host_block_new(context, BLOCK_REGISTERED, address, size,
                          (flags & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTREGISTER_DEVICEMAP);
}

CUresult cuMemHostRegister(void *pointer, size_t size, unsigned int flags)
{
    CALL(cuMemHostRegister, NEEDS_CONTEXT);
    return host_register(context, pointer, size, flags);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags)
{
    CALL(cuMemHostRegister_v2, NEEDS_CONTEXT);
    return host_register(context, pointer, size, flags);
}

CUresult cuMemHostUnregister(void *pointer)
{
    CALL(cuMemHostUnregister, NEEDS_CONTEXT);
    struct block *block = block_find((uint64_t)(uintptr_t)pointer);

    if (!block || block->kind != BLOCK_REGISTERED || block->range.address != (uint64_t)(uintptr_t)pointer)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    device_wait(block->device);
    block = block_find((uint64_t)(uintptr_t)pointer);
    if (block)
        host_block_delete(block);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
    CALL(cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT);
    const struct block *block = block_find((uint64_t)(uintptr_t)pointer);

    if (!address || flags || !block || (block->kind != BLOCK_HOST && block->kind != BLOCK_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *address = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
    CALL(cuMemHostGetFlags, NEEDS_CONTEXT);
    const struct block *block = block_find((uint64_t)(uintptr_t)pointer);

    if (!flags || !block || (block->kind != BLOCK_HOST && block->kind != BLOCK_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = block->flags;
    return CUDA_SUCCESS;
}
