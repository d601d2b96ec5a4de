/* Physical memory mapped at addresses of the program: cuMemMap, and who has access there. */
#include "kinds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"
#include "driver_api.h"
#include "tracked.h"
#include "unsaveable.h"
#include "virtual_memory.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping **table; /* by ascending address; they don't overlap */
static size_t table_count, table_room;

void virtual_memory_lock(void)
{
    pthread_mutex_lock(&lock);
}

void virtual_memory_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A thread of the parent may hold it at the time of a fork. */
void virtual_memory_start(void)
{
    pthread_atfork(virtual_memory_lock, virtual_memory_unlock, virtual_memory_unlock);
}

struct mapping *const *mapping_table(size_t *count)
{
    *count = table_count;
    return table;
}

/* ---- the table: the lock is held */

/* Index of the first mapping that ends after the address. */
static size_t find_index(CUdeviceptr address)
{
    size_t low = 0, high = table_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (table[middle]->address + table[middle]->size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(void)
{
    size_t room = table_room ? table_room * 2 : 64;
    struct mapping **grown;

    if (table_count < table_room)
        return true;
    grown = realloc(table, room * sizeof *grown);
    if (!grown)
        return false;
    table = grown;
    table_room = room;
    return true;
}

/* There is room for it. */
static void insert(struct mapping *mapping)
{
    size_t at = find_index(mapping->address);

    memmove(&table[at + 1], &table[at], (table_count - at) * sizeof *table);
    table[at] = mapping;
    table_count++;
}

static bool is_inside(const struct mapping *mapping, CUdeviceptr address, size_t size)
{
    return mapping->address >= address && mapping->address + mapping->size <= address + size;
}

/* Takes out what lies inside of the range, as a chain. *cut: a mapping lies there with a part of it only. */
static struct mapping *take_out(CUdeviceptr address, size_t size, bool *cut)
{
    struct mapping *chain = NULL;
    size_t from = find_index(address), to = from, kept = from;

    for (; to < table_count && table[to]->address < address + size; to++) {
        struct mapping *mapping = table[to];

        if (!is_inside(mapping, address, size)) {
            *cut = true;
            table[kept++] = mapping;
            continue;
        }
        mapping->last = physical_unmapped(mapping->physical);
        mapping->next = chain;
        chain = mapping;
    }
    memmove(&table[kept], &table[to], (table_count - to) * sizeof *table);
    table_count -= to - kept;
    return chain;
}

static void put_back(struct mapping *chain)
{
    virtual_memory_lock();
    for (struct mapping *next; chain; chain = next) {
        next = chain->next;
        physical_stays(chain->physical);
        insert(chain);
    }
    virtual_memory_unlock();
}

static void free_chain(struct mapping *chain)
{
    for (struct mapping *next; chain; chain = next) {
        next = chain->next;
        if (chain->last)
            physical_gone(chain->physical);
        free(chain->access);
        free(chain);
    }
}

/* ---- mapping and unmapping */

static bool remember(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                     unsigned long long flags)
{
    struct mapping *mapping = calloc(1, sizeof *mapping);
    struct physical *physical;
    bool done = false;

    if (!mapping)
        return false;
    virtual_memory_lock();
    physical = physical_find(handle);
    if (physical && make_room()) {
        *mapping = (struct mapping){.address = address, .size = size, .offset = offset, .flags = flags,
                                    .physical = physical};
        physical->mappings++;
        insert(mapping);
        done = true;
    }
    virtual_memory_unlock();
    if (!done)
        free(mapping);
    return done || !physical; /* a handle that is not in the journal was noted when it was made */
}

CUresult track_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags)
{
    CUresult result;

    if (device_memory_owns(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    result = driver.cuMemMap(ptr, size, offset, handle, flags);
    if (result == CUDA_SUCCESS && !remember(ptr, size, offset, handle, flags))
        unsaveable_note("no memory to note a mapping of device memory");
    return result;
}

CUresult track_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct mapping *chain;
    bool cut = false;
    CUresult result;

    if (device_memory_owns(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    /* Out of the table first: once it is unmapped, another thread may map something there. */
    virtual_memory_lock();
    chain = take_out(ptr, size, &cut);
    virtual_memory_unlock();
    result = driver.cuMemUnmap(ptr, size);
    if (result != CUDA_SUCCESS) {
        put_back(chain);
        return result;
    }
    free_chain(chain);
    if (cut)
        unsaveable_note("cuMemUnmap: only a part of a mapping");
    return result;
}

/* ---- access */

static bool same_location(const CUmemLocation *a, const CUmemLocation *b)
{
    return a->type == b->type && a->id == b->id;
}

static bool set_access(struct mapping *mapping, const CUmemAccessDesc *wanted)
{
    CUmemAccessDesc *grown;
    unsigned i;

    for (i = 0; i < mapping->access_count; i++)
        if (same_location(&mapping->access[i].location, &wanted->location))
            break;
    if (i == mapping->access_count) {
        grown = realloc(mapping->access, (i + 1) * sizeof *grown);
        if (!grown)
            return false;
        mapping->access = grown;
        mapping->access_count++;
    }
    mapping->access[i] = *wanted;
    return true;
}

CUmemAccess_flags mapping_access(const struct mapping *mapping, int device)
{
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};

    for (unsigned i = 0; i < mapping->access_count; i++)
        if (same_location(&mapping->access[i].location, &location))
            return mapping->access[i].flags;
    return CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult track_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    bool cut = false, noted = true;
    CUresult result;

    if (device_memory_owns(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    result = driver.cuMemSetAccess(ptr, size, desc, count);
    if (result != CUDA_SUCCESS)
        return result;
    virtual_memory_lock();
    for (size_t i = find_index(ptr); i < table_count && table[i]->address < ptr + size; i++) {
        if (!is_inside(table[i], ptr, size))
            cut = true;
        for (size_t j = 0; j < count; j++)
            noted = set_access(table[i], &desc[j]) && noted;
    }
    virtual_memory_unlock();
    if (cut)
        unsaveable_note("cuMemSetAccess: only a part of a mapping");
    if (!noted)
        unsaveable_note("no memory to note who has access to a mapping");
    return result;
}

CUresult track_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    if (device_memory_owns(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    return driver.cuMemGetAccess(flags, location, ptr);
}
