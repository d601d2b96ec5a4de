/* Physical memory behind a handle: cuMemCreate. */
#include "kinds.h"

#include "device_memory.h"
#include "driver_api.h"
#include "tracked.h"
#include "unsaveable.h"
#include "virtual_memory.h"

static struct physical *physical_of(struct record *record)
{
    return container_of(record, struct physical, record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct physical *physical = physical_of(record);
    CUresult result = driver.cuMemCreate(&physical->made, physical->size, &physical->properties, physical->flags);

    /* A handle that the program has given back already may be another one now. */
    *handle = physical->references ? physical->made : record->handle;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuMemRelease(physical_of(record)->made);
}

static void release(struct record *record)
{
    struct physical *physical = physical_of(record);

    copy_host_free(physical->host, physical->size);
}

static const struct record_kind physical_kind = {
    .name = "memory handle", .replay = replay, .undo = undo, .release = release, .warm_up = true};

struct physical *physical_find(CUmemGenericAllocationHandle handle)
{
    struct record *record = journal_find(&physical_kind, handle);

    return record ? physical_of(record) : NULL;
}

struct visit {
    int (*f)(struct physical *physical, void *arg);
    void *arg;
};

static int visit_one(struct record *record, void *arg)
{
    const struct visit *visit = arg;

    return visit->f(physical_of(record), visit->arg);
}

void physical_each(int (*f)(struct physical *physical, void *arg), void *arg)
{
    struct visit visit = {f, arg};

    journal_each(&physical_kind, visit_one, &visit);
}

bool physical_unmapped(struct physical *physical)
{
    if (--physical->mappings || physical->references)
        return false;
    journal_detach(&physical_kind, physical->record.handle);
    return true;
}

void physical_gone(struct physical *physical)
{
    journal_drop(&physical->record);
}

void physical_stays(struct physical *physical)
{
    if (!physical->mappings++ && !physical->references)
        journal_attach(&physical->record);
}

CUresult track_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                           unsigned long long flags)
{
    struct physical *physical;
    CUresult result;

    journal_note();
    result = driver.cuMemCreate(handle, size, prop, flags);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    /* The driver promises that a mapping keeps the handle; the two could not be told apart. */
    if (physical_find(*handle))
        unsaveable_note("cuMemCreate: a handle that is in use for a mapping");
    physical = journal_record_new(&physical_kind, sizeof *physical);
    if (physical) {
        physical->size = size;
        physical->properties = *prop;
        physical->flags = flags;
        physical->made = *handle;
        physical->references = 1;
        physical->record.context = NULL; /* it belongs to none, and outlives them */
    }
    journal_commit(physical ? &physical->record : NULL, *handle, NULL);
    /* The CPU may have it mapped as well: it could not be taken away behind its back. */
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        unsaveable_note("cuMemCreate: memory of the host behind a handle of the virtual-memory functions");
    return result;
}

CUresult track_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical *physical;
    bool last = false;
    CUresult result;

    virtual_memory_lock();
    physical = physical_find(handle);
    if (physical && physical->references > 1) {
        physical->references--;
        virtual_memory_unlock();
        return CUDA_SUCCESS;
    }
    if (physical && physical->references) {
        physical->references = 0;
        last = !physical->mappings;
        if (last)
            journal_detach(&physical_kind, handle);
    }
    virtual_memory_unlock();
    /* Not the last: from here on another thread may unmap it, which ends the record. */
    result = driver.cuMemRelease(handle);
    if (!last)
        return result;
    if (result == CUDA_SUCCESS) {
        journal_drop(&physical->record);
    } else {
        physical->references = 1;
        journal_attach(&physical->record);
    }
    return result;
}

CUresult track_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    bool counted = false;
    struct physical *physical;
    CUresult result;

    /* memory of cuMemAlloc has no handle that a program could have */
    if (device_memory_owns((CUdeviceptr)addr))
        return CUDA_ERROR_INVALID_VALUE;
    result = driver.cuMemRetainAllocationHandle(handle, addr);
    if (result != CUDA_SUCCESS)
        return result;
    virtual_memory_lock();
    physical = physical_find(*handle);
    if (physical)
        counted = physical->references++ > 0;
    virtual_memory_unlock();
    if (counted)
        driver.cuMemRelease(*handle);
    if (!physical)
        unsaveable_note("cuMemRetainAllocationHandle: a handle that is not from cuMemCreate");
    return result;
}
