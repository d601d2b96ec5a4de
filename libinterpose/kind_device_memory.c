/*
 * Device memory: cuMemAlloc and the like served from the virtual-memory API (device_memory.h), at addresses that can be
 * had again. What the driver is asked about it is answered as if it had come from cuMemAlloc.
 */
#include "kinds.h"

#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"
#include "fault.h"
#include "placement.h"
#include "stream_memory.h"
#include "tracked.h"
#include "unsaveable.h"

/* ---- address space: one record for each range */

struct range {
    struct record record;
    uint64_t address, size;
};

static CUresult reserve_at(uint64_t address, uint64_t size)
{
    CUdeviceptr got = 0;
    CUresult result = driver.cuMemAddressReserve(&got, size, 0, address, 0);

    if (result != CUDA_SUCCESS || got == address)
        return result;
    driver.cuMemAddressFree(got, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool map_due; /* there may be more to map than there was */

static CUresult replay_range(struct record *record, uint64_t *handle)
{
    struct range *range = container_of(record, struct range, record);

    *handle = record->handle;
    map_due = true;
    return reserve_at(range->address, range->size);
}

static const struct record_kind range_kind = {.name = "address range", .replay = replay_range};

static CUresult op_reserve(uint64_t address, uint64_t size)
{
    struct range *range;
    CUresult result;

    journal_note();
    result = reserve_at(address, size);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    range = journal_record_new(&range_kind, sizeof *range);
    if (range) {
        range->record.context = NULL; /* address space belongs to none, and outlives the one that is current */
        range->address = address;
        range->size = size;
    }
    journal_commit(range ? &range->record : NULL, address, NULL);
    return result;
}

/* ---- physical memory */

static CUresult op_map(int device, uint64_t address, uint64_t size, uint64_t *handle)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle made;
    CUresult result;

    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = access.location.id = device;
    result = driver.cuMemCreate(&made, size, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuMemMap(address, size, 0, made, 0);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemSetAccess(address, size, &access, 1);
        if (result != CUDA_SUCCESS)
            driver.cuMemUnmap(address, size);
    }
    if (result != CUDA_SUCCESS)
        driver.cuMemRelease(made);
    *handle = made;
    return result;
}

static CUresult op_unmap(uint64_t address, uint64_t size, uint64_t handle)
{
    CUresult result = driver.cuMemUnmap(address, size);

    driver.cuMemRelease(handle);
    return result;
}

const struct device_memory_ops device_memory_driver_ops = {op_reserve, op_map, op_unmap};

/* ---- allocating */

static CUresult allocate(CUdeviceptr *address, uint64_t size)
{
    CUdevice device;
    CUresult result = driver.cuCtxGetDevice(&device);

    if (result != CUDA_SUCCESS)
        return result;
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    return device_memory_alloc(device, context_current(), size, address);
}

CUresult track_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    return allocate(dptr, bytesize);
}

/* As the driver chooses it: rows begin at multiples of 512 bytes (seen on driver 580). */
#define PITCH_ALIGNMENT 512u

CUresult track_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                  unsigned int ElementSizeBytes)
{
    size_t pitch = (WidthInBytes + PITCH_ALIGNMENT - 1) & ~(size_t)(PITCH_ALIGNMENT - 1), bytes;
    CUresult result;

    if (!pPitch || pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes) ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate(dptr, bytes);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

/* The functions of before CUDA 3.2 have addresses of 32 bits: such memory is not ours. */
static CUresult old_interface(CUresult result)
{
    if (result == CUDA_SUCCESS)
        unsaveable_note("cuMemAlloc: device memory with 32-bit addresses");
    return result;
}

CUresult track_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    return old_interface(driver.cuMemAlloc(dptr, bytesize));
}

CUresult track_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                               unsigned int Height, unsigned int ElementSizeBytes)
{
    return old_interface(driver.cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes));
}

CUresult track_cuMemFree(CUdeviceptr_v1 dptr)
{
    return driver.cuMemFree(dptr);
}

/*
 * Memory may go while work that uses it is under way: cuMemFree waits for it, so must we, in the context that the memory
 * belongs to.
 */
static CUresult wait_for_context(CUcontext context)
{
    CUcontext popped;
    CUresult result;

    if (context == context_current())
        return driver.cuCtxSynchronize();
    if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* the context is gone, and its work with it */
    result = driver.cuCtxSynchronize();
    driver.cuCtxPopCurrent_v2(&popped);
    return result;
}

CUresult track_cuMemFree_v2(CUdeviceptr dptr)
{
    struct stream_block_info info;
    struct device_block block;
    CUresult result;

    if (!device_memory_owns(dptr))
        return driver.cuMemFree_v2(dptr);
    if (!device_memory_find(dptr, &block) || block.address != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream_memory_find(dptr, &info)) /* the program has waited for what uses it: documented so */
        return stream_memory_free_now(dptr);
    result = wait_for_context(block.context);
    return result == CUDA_SUCCESS ? device_memory_free(dptr) : result;
}

/* ---- questions */

/* The block as the program knows it: what it freed in a stream may be there still, or be larger than asked for. */
static bool find_block(CUdeviceptr address, struct device_block *block, CUmemoryPool *pool)
{
    struct stream_block_info info;

    *pool = NULL;
    if (!device_memory_find(address, block))
        return false;
    if (!stream_memory_find(block->address, &info))
        return true;
    block->size = info.size;
    block->id = info.id;
    *pool = info.pool;
    return !info.freed && address - block->address < info.size;
}

CUresult track_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct device_block block;
    CUmemoryPool pool;

    if (!device_memory_owns(dptr))
        return driver.cuMemGetAddressRange_v2(pbase, psize, dptr);
    if (!find_block(dptr, &block, &pool))
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = block.address;
    if (psize)
        *psize = block.size;
    return CUDA_SUCCESS;
}

CUresult track_cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
    return driver.cuMemGetAddressRange(pbase, psize, dptr);
}

/* What differs between memory mapped by the virtual-memory API and memory of cuMemAlloc: seen on driver 580. */
static void correct_attribute(const struct device_block *block, CUmemoryPool pool, CUpointer_attribute attribute,
                              void *data)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = block->context;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = block->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = block->id;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = block->address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = block->size;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = block->chunk_address;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = pool;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = block->chunk_size;
        break;
    default:
        break;
    }
}

CUresult track_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct device_block block;
    CUmemoryPool pool;
    CUresult result;

    if (!device_memory_owns(ptr))
        return driver.cuPointerGetAttribute(data, attribute, ptr);
    if (!find_block(ptr, &block, &pool))
        return CUDA_ERROR_INVALID_VALUE;
    result = driver.cuPointerGetAttribute(data, attribute, ptr);
    if (result == CUDA_SUCCESS)
        correct_attribute(&block, pool, attribute, data);
    return result;
}

CUresult track_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                      CUdeviceptr ptr)
{
    struct device_block block;
    CUmemoryPool pool;
    CUresult result;

    if (!device_memory_owns(ptr))
        return driver.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
    /* of an address that is nobody's the driver tells zeros: ask about one */
    if (!find_block(ptr, &block, &pool))
        return driver.cuPointerGetAttributes(numAttributes, attributes, data, 0);
    result = driver.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < numAttributes; i++)
        if (data[i])
            correct_attribute(&block, pool, attributes[i], data[i]);
    return result;
}

/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is the one attribute that can be set. The driver refuses it for memory of the
 * virtual-memory API, whose copies are synchronous in this sense anyhow: the value is only kept.
 */
CUresult track_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct device_block block;
    CUmemoryPool pool;
    CUresult result;

    if (device_memory_owns(ptr)) {
        if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !find_block(ptr, &block, &pool))
            return CUDA_ERROR_INVALID_VALUE;
        device_memory_set_sync_memops(ptr, *(const unsigned *)value);
        return CUDA_SUCCESS;
    }
    result = driver.cuPointerSetAttribute(value, attribute, ptr);
    if (result == CUDA_SUCCESS)
        unsaveable_note("cuPointerSetAttribute: an attribute of memory that is not from cuMemAlloc");
    return result;
}

/* ---- suspend and resume: on the control thread, the gate is closed */

struct collection {
    struct copy_range *ranges;
    size_t count, capacity;
    bool map; /* physical memory is needed first */
    struct error *err;
};

static uint64_t copy_bytes;

static int add_range(struct collection *collection, const struct device_chunk *chunk)
{
    if (collection->count == collection->capacity) {
        size_t capacity = collection->capacity ? collection->capacity * 2 : 64;
        struct copy_range *grown = realloc(collection->ranges, capacity * sizeof *grown);

        if (!grown) {
            error_set(collection->err, ERROR_MEMORY, "no memory to list the device memory");
            return -1;
        }
        collection->ranges = grown;
        collection->capacity = capacity;
    }
    collection->ranges[collection->count++] =
        (struct copy_range){chunk->address, chunk->host, chunk->size, chunk->context};
    return 0;
}

static int save_chunk(struct device_chunk *chunk, void *arg)
{
    struct collection *collection = arg;

    if (!chunk->host) {
        chunk->host = copy_host_alloc(chunk->size, collection->err);
        if (!chunk->host)
            return -1;
        copy_bytes += chunk->size;
    }
    return add_range(collection, chunk);
}

static int map_chunk(struct device_chunk *chunk, void *arg)
{
    struct collection *collection = arg;
    CUresult result;

    if (fault_here(FAULT_map_memory, collection->err))
        return -1;
    if (chunk->handle) /* early */
        return add_range(collection, chunk);
    result = op_map(chunk->device, chunk->address, chunk->size, &chunk->handle);
    if (result != CUDA_SUCCESS) {
        error_set(collection->err, result == CUDA_ERROR_OUT_OF_MEMORY ? ERROR_MEMORY : ERROR_REFUSED,
                  "device %d has no room for %llu MiB of the program's memory (error %d); free some and try again",
                  chunk->device, (unsigned long long)chunk->size >> 20, (int)result);
        return -1;
    }
    return add_range(collection, chunk);
}

static int each_chunk(int (*f)(struct device_chunk *, void *), struct copy_range **ranges, size_t *count,
                      struct error *err)
{
    struct collection collection = {.err = err};
    int result = device_memory_each_chunk(f, &collection);

    *ranges = collection.ranges;
    *count = collection.count;
    return result;
}

int device_memory_save(struct copy_range **ranges, size_t *count, struct error *err)
{
    return each_chunk(save_chunk, ranges, count, err);
}

int device_memory_map(struct copy_range **ranges, size_t *count, struct error *err)
{
    return each_chunk(map_chunk, ranges, count, err);
}

static int map_chunk_early(struct device_chunk *chunk, void *unused)
{
    if (!chunk->handle && op_map(chunk->device, chunk->address, chunk->size, &chunk->handle) != CUDA_SUCCESS)
        chunk->handle = 0;
    return 0;
}

void device_memory_map_early(void)
{
    if (!map_due)
        return;
    map_due = false;
    placement_pause();
    device_memory_each_chunk(map_chunk_early, NULL);
    placement_resume();
}

static int release_copy(struct device_chunk *chunk, void *arg)
{
    copy_host_free(chunk->host, chunk->size);
    chunk->host = NULL;
    return 0;
}

void device_memory_release_copies(void)
{
    device_memory_each_chunk(release_copy, NULL);
    copy_bytes = 0;
}

uint64_t device_memory_copy_bytes(void)
{
    return copy_bytes;
}
