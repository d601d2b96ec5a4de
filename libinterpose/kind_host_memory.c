/*
 * Pinned host memory. What the program allocates through the driver is ours: mapped by us and registered with the driver,
 * so that it stays valid while the driver is gone. Registered memory, ours and the program's own, is a record: its replay
 * registers it again. The device's address is the host's.
 */
#include "kinds.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_api.h"
#include "tracked.h"
#include "unsaveable.h"

struct host_memory {
    struct record record;
    void *address;
    size_t size;         /* as asked for */
    size_t mapped;       /* bytes of our mapping, 0: the program's own memory */
    unsigned flags;      /* of the registration */
    unsigned alloc_flags;
};

static struct host_memory *host_of(struct record *record)
{
    return container_of(record, struct host_memory, record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct host_memory *memory = host_of(record);

    *handle = record->handle;
    return driver.cuMemHostRegister_v2(memory->address, memory->mapped ? memory->mapped : memory->size,
                                       memory->flags);
}

static void release(struct record *record)
{
    if (host_of(record)->mapped)
        munmap(host_of(record)->address, host_of(record)->mapped);
}

static const struct record_kind host_kind = {.name = "host memory", .replay = replay, .release = release};

/* ---- allocated */

static CUresult allocate(void **pp, size_t size, unsigned flags)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (size + page - 1) & ~(page - 1);
    unsigned registration = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
    int saved = errno;
    struct host_memory *memory;
    CUresult result;
    void *address;

    if (!pp || !size || mapped < size ||
        (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)))
        return CUDA_ERROR_INVALID_VALUE;
    /* shared, as the driver's own: a forked child sees the same memory, and pinned pages are never copied on write */
    address = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    if (address == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    journal_note();
    result = driver.cuMemHostRegister_v2(address, mapped, registration);
    if (result != CUDA_SUCCESS) {
        munmap(address, mapped);
        return journal_discard(result);
    }
    memory = journal_record_new(&host_kind, sizeof *memory);
    if (memory)
        *memory = (struct host_memory){memory->record, address, size, mapped, registration, flags};
    journal_commit(memory ? &memory->record : NULL, (uint64_t)address, context_owner());
    *pp = address;
    return CUDA_SUCCESS;
}

CUresult track_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    return allocate(pp, bytesize, Flags);
}

CUresult track_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return allocate(pp, bytesize, 0);
}

CUresult track_cuMemAllocHost(void **pp, unsigned int bytesize)
{
    return allocate(pp, bytesize, 0);
}

static CUresult forget(struct record *record, CUresult result)
{
    if (result == CUDA_SUCCESS)
        journal_drop(record);
    else
        journal_attach(record);
    return result;
}

CUresult track_cuMemFreeHost(void *p)
{
    struct record *record = journal_find(&host_kind, (uint64_t)p);

    if (!record || !host_of(record)->mapped)
        return driver.cuMemFreeHost(p); /* the driver tells what is wrong with it */
    record = journal_detach(&host_kind, (uint64_t)p);
    return forget(record, driver.cuMemHostUnregister(p));
}

/* ---- registered */

CUresult track_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct host_memory *memory;
    CUresult result;

    journal_note();
    result = driver.cuMemHostRegister_v2(p, bytesize, Flags);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    memory = journal_record_new(&host_kind, sizeof *memory);
    if (memory)
        *memory = (struct host_memory){memory->record, p, bytesize, 0, Flags, 0};
    journal_commit(memory ? &memory->record : NULL, (uint64_t)p, context_owner());
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
        unsaveable_note("cuMemHostRegister: memory of another device");
    return result;
}

CUresult track_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    return track_cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult track_cuMemHostUnregister(void *p)
{
    struct record *record = journal_find(&host_kind, (uint64_t)p);

    /* memory that we allocated is not the program's to unregister */
    if (record && host_of(record)->mapped)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    record = journal_detach(&host_kind, (uint64_t)p);
    return forget(record, driver.cuMemHostUnregister(p));
}

/* ---- before a suspend: what can't be registered again would keep the program suspended for ever */

static int check_mapped(struct record *record, void *err)
{
    const struct host_memory *memory = host_of(record);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = (uint64_t)memory->address & ~(page - 1);

    /* msync tells a hole without touching the memory */
    if (memory->mapped || msync((void *)start, (uint64_t)memory->address + memory->size - start, MS_ASYNC) == 0)
        return 0;
    error_set(err, ERROR_UNSAVEABLE, "the program has unmapped host memory at %p that is still registered with CUDA",
              memory->address);
    return 1;
}

int host_memory_check(struct error *err)
{
    int saved = errno;

    journal_each(&host_kind, check_mapped, err);
    errno = saved;
    return err->code ? -1 : 0;
}

/* ---- questions */

CUresult track_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct record *record = journal_find(&host_kind, (uint64_t)p);
    CUresult result = driver.cuMemHostGetFlags(pFlags, p);

    /* Allocated memory shows no portable flag, whatever was asked for: seen on driver 580. */
    if (result == CUDA_SUCCESS && record && host_of(record)->mapped)
        *pFlags = CU_MEMHOSTALLOC_DEVICEMAP | (host_of(record)->alloc_flags & CU_MEMHOSTALLOC_WRITECOMBINED);
    return result;
}

CUresult track_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    return driver.cuMemHostGetDevicePointer_v2(pdptr, p, Flags);
}

/* Addresses of 32 bits: the driver refuses what does not fit. */
CUresult track_cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
    return driver.cuMemHostGetDevicePointer(pdptr, p, Flags);
}
