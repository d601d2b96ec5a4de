/* What the driver tells about an address. */

#include <string.h>

#include "fake.h"

struct pointer {
    uint64_t address;
    const struct range *range;
    const struct block *block;      /* NULL: mapped virtual memory */
    const struct page_range *pages; /* NULL for reserved space without memory */
};

static bool pointer_find(uint64_t address, struct pointer *pointer)
{
    pointer->address = address;
    pointer->block = block_find(address);
    pointer->pages = (struct page_range *)range_find(&fake.pages, address);
    pointer->range = pointer->block ? &pointer->block->range : range_find(&fake.reservations, address);
    return pointer->range != NULL;
}

static bool is_host(const struct pointer *pointer)
{
    return pointer->block && (pointer->block->kind == BLOCK_HOST || pointer->block->kind == BLOCK_REGISTERED);
}

static bool is_managed(const struct pointer *pointer)
{
    return pointer->block && pointer->block->kind == BLOCK_MANAGED;
}

static int ordinal_of(const struct pointer *pointer)
{
    if (pointer->block)
        return pointer->block->device->ordinal;
    return pointer->pages && pointer->pages->device ? pointer->pages->device->ordinal : 0;
}

#define GIVE(type, value) (*(type *)data = (type)(value), CUDA_SUCCESS)

static CUresult get_attribute(void *data, CUpointer_attribute attribute, const struct pointer *pointer)
{
    const struct block *block = pointer->block;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return GIVE(CUcontext, block ? (CUcontext)block->context : NULL);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return GIVE(unsigned int, is_host(pointer) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return GIVE(CUdeviceptr, pointer->address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(pointer) && !is_managed(pointer))
            return CUDA_ERROR_INVALID_VALUE;
        return GIVE(uint64_t, pointer->address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return GIVE(unsigned int, block ? block->sync_memops : 1);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return GIVE(uint64_t, block ? block->id : pointer->range->address >> 21);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return GIVE(unsigned int, is_managed(pointer));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return GIVE(int, ordinal_of(pointer));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return GIVE(unsigned int, block && block->kind == BLOCK_DEVICE);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return GIVE(CUdeviceptr, pointer->range->address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return GIVE(size_t, pointer->range->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return GIVE(unsigned int, pointer->pages != NULL);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return GIVE(uint64_t, pointer->pages && pointer->pages->physical
                                  ? pointer->pages->physical->prop.requestedHandleTypes
                                  : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return GIVE(unsigned int, block && block->kind == BLOCK_DEVICE);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return GIVE(unsigned int, pointer->pages && pointer->pages->access
                                      ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                      : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return GIVE(CUmemoryPool, block ? (CUmemoryPool)block->pool : NULL);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return GIVE(size_t, pointer->pages ? pointer->pages->range.size : pointer->range->size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return GIVE(CUdeviceptr, pointer->pages ? pointer->pages->range.address : pointer->range->address);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return GIVE(unsigned int, block && block->kind == BLOCK_DEVICE);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    CALL(cuPointerGetAttribute, NEEDS_INIT);
    struct pointer pointer;

    if (!data || !pointer_find(address, &pointer))
        return CUDA_ERROR_INVALID_VALUE;
    return get_attribute(data, attribute, &pointer);
}

static size_t attribute_size(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return 8;
    default:
        return 4;
    }
}

/* An address that the driver doesn't know gives zeros, not an error. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *wanted, void **data,
                                CUdeviceptr address)
{
    CALL(cuPointerGetAttributes, NEEDS_INIT);
    struct pointer pointer;
    bool known = pointer_find(address, &pointer);

    if (!count || !wanted || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count; i++) {
        if (known && get_attribute(data[i], wanted[i], &pointer) == CUDA_SUCCESS)
            continue;
        memset(data[i], 0, attribute_size(wanted[i]));
        if (wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = CU_DEVICE_INVALID;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    CALL(cuPointerSetAttribute, NEEDS_INIT);
    struct block *block = block_find(address);

    if (!value || !block || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    block->sync_memops = *(const unsigned int *)value;
    return CUDA_SUCCESS;
}
