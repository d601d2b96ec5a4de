/*
 * Contents of the program's virtual-memory objects around a suspend: each physical is copied once, wherever it is
 * mapped, and also if it is mapped nowhere. On the control thread, the gate is closed.
 */
#include "virtual_memory.h"

#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "fault.h"
#include "kinds.h"

static uint64_t copy_bytes;

/* ---- a context for the copies of a device */

#define DEVICES_MAX 64

static CUcontext contexts[DEVICES_MAX]; /* of the copies under way */
static bool retained[DEVICES_MAX];      /* the program has none on that device: its primary one, for the copies */

struct search {
    CUdevice device;
    CUcontext found;
};

static int match_device(CUcontext context, void *arg, struct error *unused)
{
    struct search *search = arg;
    CUdevice device;

    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || device != search->device)
        return 0;
    search->found = context;
    return 1;
}

static CUresult context_for(CUdevice device, CUcontext *context)
{
    struct search search = {device, NULL};
    struct error unused = {0};
    CUresult result;

    if (device < 0 || device >= DEVICES_MAX)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!contexts[device]) {
        context_each(match_device, &search, &unused);
        contexts[device] = search.found;
    }
    if (!contexts[device]) {
        result = driver.cuDevicePrimaryCtxRetain(&contexts[device], device);
        if (result != CUDA_SUCCESS)
            return result;
        retained[device] = true;
    }
    *context = contexts[device];
    return CUDA_SUCCESS;
}

/* ---- windows: where no mapping of the program serves, the physical is mapped at an address of ours */

static CUresult window_open(struct physical *physical)
{
    CUmemAccessDesc access = {physical->properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    CUresult result = driver.cuMemAddressReserve(&address, physical->size, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuMemMap(address, physical->size, 0, physical->made, 0);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemSetAccess(address, physical->size, &access, 1);
        if (result != CUDA_SUCCESS)
            driver.cuMemUnmap(address, physical->size);
    }
    if (result != CUDA_SUCCESS) {
        driver.cuMemAddressFree(address, physical->size);
        return result;
    }
    physical->source = address;
    physical->window = true;
    return result;
}

static int window_close(struct physical *physical, void *unused)
{
    if (physical->window) {
        driver.cuMemUnmap(physical->source, physical->size);
        driver.cuMemAddressFree(physical->source, physical->size);
    }
    physical->window = false;
    physical->source = 0;
    return 0;
}

/* Mappings that show a whole physical to its own device serve as they are. */
static void find_sources(void)
{
    size_t count;
    struct mapping *const *table = mapping_table(&count);

    for (size_t i = 0; i < count; i++) {
        struct physical *physical = table[i]->physical;

        if (!physical->source && table[i]->size == physical->size &&
            mapping_access(table[i], physical->properties.location.id) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            physical->source = table[i]->address;
    }
}

/* ---- the ranges to copy */

struct collection {
    struct copy_range *ranges;
    size_t count, capacity;
    struct error *err;
    int failed;
};

static int add_range(struct collection *collection, const struct copy_range *range)
{
    if (collection->count == collection->capacity) {
        size_t capacity = collection->capacity ? collection->capacity * 2 : 64;
        struct copy_range *grown = realloc(collection->ranges, capacity * sizeof *grown);

        if (!grown) {
            error_set(collection->err, ERROR_MEMORY, "no memory to list the memory of the virtual-memory functions");
            return -1;
        }
        collection->ranges = grown;
        collection->capacity = capacity;
    }
    collection->ranges[collection->count++] = *range;
    return 0;
}

static int add_physical(struct physical *physical, struct collection *collection)
{
    struct copy_range range = {.size = physical->size};
    CUresult result;

    if (!physical->host) {
        physical->host = copy_host_alloc(physical->size, collection->err);
        if (!physical->host)
            return -1;
        copy_bytes += physical->size;
    }
    result = context_for(physical->properties.location.id, &range.context);
    if (result == CUDA_SUCCESS && !physical->source)
        result = window_open(physical);
    if (result != CUDA_SUCCESS) {
        error_set(collection->err, result == CUDA_ERROR_OUT_OF_MEMORY ? ERROR_MEMORY : ERROR_REFUSED,
                  "memory handle %#lx (%zu MiB) can't be reached for a copy: CUDA error %d", physical->record.handle,
                  physical->size >> 20, (int)result);
        return -1;
    }
    range.device = physical->source;
    range.host = physical->host;
    return add_range(collection, &range);
}

static int collect(struct physical *physical, void *arg)
{
    struct collection *collection = arg;

    collection->failed = add_physical(physical, collection);
    return collection->failed;
}

static int find_ranges(struct copy_range **ranges, size_t *count, struct error *err)
{
    struct collection collection = {.err = err};

    find_sources();
    physical_each(collect, &collection);
    *ranges = collection.ranges;
    *count = collection.count;
    return collection.failed;
}

/* ---- for the steps of suspend and resume */

int virtual_memory_save(struct copy_range **ranges, size_t *count, struct error *err)
{
    return find_ranges(ranges, count, err);
}

void virtual_memory_copied(void)
{
    physical_each(window_close, NULL);
    for (CUdevice device = 0; device < DEVICES_MAX; device++) {
        if (retained[device])
            driver.cuDevicePrimaryCtxRelease_v2(device);
        retained[device] = false;
        contexts[device] = NULL;
    }
}

static int refuse_mapping(const struct mapping *mapping, const char *what, CUresult result, struct error *err)
{
    error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? ERROR_MEMORY : ERROR_REFUSED,
              "memory handle %#lx can't be %s at %#llx again: CUDA error %d", mapping->physical->record.handle, what,
              mapping->address, (int)result);
    return -1;
}

static int map_all(struct mapping *const *table, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        CUresult result = driver.cuMemMap(table[i]->address, table[i]->size, table[i]->offset,
                                          table[i]->physical->made, table[i]->flags);

        if (result != CUDA_SUCCESS)
            return refuse_mapping(table[i], "mapped", result, err);
    }
    return 0;
}

static bool same_access(const struct mapping *a, const struct mapping *b)
{
    if (a->access_count != b->access_count)
        return false;
    return !a->access_count || !memcmp(a->access, b->access, a->access_count * sizeof *a->access);
}

/* Giving access takes longer than mapping (seen on driver 580: 0.1 ms): neighbours get it in one call. */
static int give_access(struct mapping *const *table, size_t count, struct error *err)
{
    for (size_t i = 0, end; i < count; i = end) {
        size_t size = table[i]->size;
        CUresult result;

        for (end = i + 1; end < count; end++) {
            if (table[end]->address != table[i]->address + size || address_range_begins(table[end]->address) ||
                !same_access(table[end], table[i]))
                break;
            size += table[end]->size;
        }
        if (!table[i]->access_count)
            continue;
        result = driver.cuMemSetAccess(table[i]->address, size, table[i]->access, table[i]->access_count);
        if (result != CUDA_SUCCESS)
            return refuse_mapping(table[i], "made accessible", result, err);
    }
    return 0;
}

int virtual_memory_map(struct copy_range **ranges, size_t *count, struct error *err)
{
    size_t mappings;
    struct mapping *const *table = mapping_table(&mappings);

    *ranges = NULL;
    *count = 0;
    if (map_all(table, mappings, err) || give_access(table, mappings, err))
        return -1;
    return find_ranges(ranges, count, err);
}

/* The program has given back the handle, only its mappings are left. */
static int let_go(struct physical *physical, void *unused)
{
    if (!physical->references)
        driver.cuMemRelease(physical->made);
    return 0;
}

void virtual_memory_restored(void)
{
    physical_each(let_go, NULL);
}

static int release_copy(struct physical *physical, void *unused)
{
    copy_host_free(physical->host, physical->size);
    physical->host = NULL;
    return 0;
}

void virtual_memory_release_copies(void)
{
    physical_each(release_copy, NULL);
    copy_bytes = 0;
}

uint64_t virtual_memory_copy_bytes(void)
{
    return copy_bytes;
}
