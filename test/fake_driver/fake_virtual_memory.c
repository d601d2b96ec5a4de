/* Virtual memory: address space, physical memory and mappings apart from each other. */

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake.h"

static uint64_t handle_of(const struct physical *physical)
{
    return (uint64_t)(uintptr_t)physical;
}

static struct physical *physical_find(CUmemGenericAllocationHandle handle)
{
    struct physical *physical = object_find((const void *)(uintptr_t)handle, OBJECT_PHYSICAL);

    return physical && physical->program_refs ? physical : NULL;
}

void physical_put(struct physical *physical)
{
    if (--physical->refs)
        return;
    object_remove(physical);
    vidmem_free(physical->device, physical->offset, physical->size);
    free(physical);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CALL(cuMemGetAllocationGranularity, NEEDS_INIT);
    if (!granularity || !prop || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_find(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    *granularity = PAGE_SIZE_2M;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    CALL(cuMemAddressReserve, NEEDS_INIT);
    uint64_t place;

    if (!address || !size || size % PAGE_SIZE_2M || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    place = address_reserve(wanted, size, alignment > PAGE_SIZE_2M ? alignment : PAGE_SIZE_2M);
    if (!place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = place;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    CALL(cuMemAddressFree, NEEDS_INIT);
    const struct range *range = range_find(&fake.reservations, address);

    if (!range || range->address != address || range->size != size ||
        range_overlaps(&fake.pages, address, size))
        return CUDA_ERROR_INVALID_VALUE;
    address_release(address, size);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    CALL(cuMemCreate, NEEDS_INIT);
    struct physical *physical;
    struct device *device;
    CUresult result;

    if (!handle || !prop || !size || size % PAGE_SIZE_2M || flags ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    device = device_find(prop->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    result = vidmem_open(device);
    if (result != CUDA_SUCCESS)
        return result;
    physical = handle_alloc(self, sizeof(*physical));
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = vidmem_alloc(device, size, &physical->offset);
    if (result != CUDA_SUCCESS) {
        free(physical);
        return result;
    }
    physical->device = device;
    physical->size = size;
    physical->refs = physical->program_refs = 1;
    physical->prop = *prop;
    if (object_add(physical, OBJECT_PHYSICAL)) {
        vidmem_free(device, physical->offset, size);
        free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = handle_of(physical);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CALL(cuMemRelease, NEEDS_INIT);
    struct physical *physical = physical_find(handle);

    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    physical->program_refs--;
    physical_put(physical);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CALL(cuMemMap, NEEDS_INIT);
    struct physical *physical = physical_find(handle);
    const struct range *space = range_find(&fake.reservations, address);
    CUresult result;

    if (!physical || !size || flags || offset || size != physical->size || address % PAGE_SIZE_2M || !space ||
        size > space->address + space->size - address || range_overlaps(&fake.pages, address, size))
        return CUDA_ERROR_INVALID_VALUE;
    result = pages_map(physical->device, address, physical->offset, size, 0, false, physical);
    if (result == CUDA_SUCCESS)
        physical->refs++;
    return result;
}

/* Calls f for the mappings that make up the range exactly; false if they don't. */
static bool each_mapping(uint64_t address, uint64_t size,
                         void (*f)(struct page_range *pages, uint32_t access), uint32_t access)
{
    uint64_t end = address + size;

    for (uint64_t place = address; place < end;) {
        const struct page_range *pages = (struct page_range *)range_find(&fake.pages, place);

        if (!pages || !pages->physical || pages->range.address != place || place + pages->range.size > end)
            return false;
        place += pages->range.size;
    }
    for (uint64_t place = address; f && place < end;) {
        struct page_range *pages = (struct page_range *)range_find(&fake.pages, place);

        place += pages->range.size;
        f(pages, access);
    }
    return true;
}

static void unmap_one(struct page_range *pages, uint32_t access)
{
    pages_unmap(pages);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    CALL(cuMemUnmap, NEEDS_INIT);
    if (!size || !each_mapping(address, size, NULL, 0))
        return CUDA_ERROR_INVALID_VALUE;
    /* The real device would fault; here work under way would crash the process. */
    for (int i = 0; i < fake.device_count; i++)
        device_wait(&fake.devices[i]);
    return each_mapping(address, size, unmap_one, 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void access_add(struct page_range *pages, uint32_t access)
{
    pages->access |= access;
}

static void access_take(struct page_range *pages, uint32_t access)
{
    pages->access &= ~access;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *wanted, size_t count)
{
    CALL(cuMemSetAccess, NEEDS_INIT);
    if (!wanted || !count || !size || !each_mapping(address, size, NULL, 0))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (wanted[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        if (!device_find(wanted[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        each_mapping(address, size,
                     wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? access_take : access_add,
                     1u << wanted[i].location.id);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    CALL(cuMemGetAccess, NEEDS_INIT);
    const struct page_range *pages = (struct page_range *)range_find(&fake.pages, address);

    if (!flags || !location || !pages)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_find(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = pages->access & 1u << location->id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CALL(cuMemRetainAllocationHandle, NEEDS_INIT);
    struct page_range *pages = (struct page_range *)range_find(&fake.pages, (uint64_t)(uintptr_t)address);

    if (!handle || !pages || !pages->physical)
        return CUDA_ERROR_INVALID_VALUE;
    pages->physical->refs++;
    pages->physical->program_refs++;
    *handle = handle_of(pages->physical);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    CALL(cuMemGetAllocationPropertiesFromHandle, NEEDS_INIT);
    const struct physical *physical = physical_find(handle);

    if (!prop || !physical)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

/* The descriptor belongs to the program: it is a handle to the device's memory as the real one's is. */
CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    CALL(cuMemExportToShareableHandle, NEEDS_INIT);
    const struct physical *physical = physical_find(handle);
    int descriptor;

    if (!shareable || !physical || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(physical->prop.requestedHandleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    descriptor = fcntl(physical->device->vidmem, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)shareable = descriptor;
    return CUDA_SUCCESS;
}
