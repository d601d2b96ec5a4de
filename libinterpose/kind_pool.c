/*
 * Memory pools. They exist in the driver, so that their handles and questions about them are the driver's; what is
 * allocated from them comes from stream_memory.h. Only a pool whose memory the driver must own (because it can be
 * exported, or because another device uses it) allocates in the driver, and then the process can't be suspended.
 */
#include "kinds.h"

#include "driver_api.h"
#include "kind_pool.h"
#include "stream_memory.h"
#include "tracked.h"
#include "unsaveable.h"

struct pool {
    struct record record;
    enum { CREATED, DEVICE_DEFAULT, LOCATION_DEFAULT } how;
    CUmemPoolProps properties; /* CREATED */
    CUmemLocation location;    /* LOCATION_DEFAULT */
    CUmemAllocationType type;
    struct stream_pool *memory;
    unsigned set; /* a bit for each attribute that was set, and its value */
    uint64_t values[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD + 1];
};

static struct pool *pool_of(struct record *record)
{
    return container_of(record, struct pool, record);
}

/* ---- replay */

static CUresult set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, uint64_t value)
{
    int small = (int)value;

    return driver.cuMemPoolSetAttribute(handle, attribute,
                                        attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? (void *)&small : &value);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct pool *pool = pool_of(record);
    CUmemoryPool made = NULL;
    CUresult result;

    if (pool->how == CREATED)
        result = driver.cuMemPoolCreate(&made, &pool->properties);
    else if (pool->how == DEVICE_DEFAULT)
        result = driver.cuDeviceGetDefaultMemPool(&made, stream_pool_device(pool->memory));
    else
        result = driver.cuMemGetDefaultMemPool(&made, &pool->location, pool->type);
    for (CUmemPool_attribute i = 1; i <= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && result == CUDA_SUCCESS; i++)
        if (pool->set & 1u << i)
            result = set_attribute(made, i, pool->values[i]);
    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuMemPoolDestroy((CUmemoryPool)handle);
}

static void release(struct record *record)
{
    if (pool_of(record)->memory)
        stream_pool_end(pool_of(record)->memory);
}

static const struct record_kind created_kind = {
    .name = "memory pool", .replay = replay, .undo = undo, .release = release, .warm_up = true};
static const struct record_kind default_kind = {
    .name = "default memory pool", .replay = replay, .release = release};

static struct pool *find(CUmemoryPool handle)
{
    struct record *record = journal_find(&created_kind, (uint64_t)handle);

    if (!record)
        record = journal_find(&default_kind, (uint64_t)handle);
    return record ? pool_of(record) : NULL;
}

/* properties NULL: a default pool. NULL without memory. */
static struct pool *new_pool(CUmemoryPool handle, CUdevice device, const CUmemPoolProps *properties)
{
    struct pool *pool = journal_record_new(properties ? &created_kind : &default_kind, sizeof *pool);

    if (!pool)
        return NULL;
    pool->record.context = NULL; /* it belongs to none, and outlives them */
    pool->how = properties ? CREATED : DEVICE_DEFAULT;
    if (properties)
        pool->properties = *properties;
    pool->memory = stream_pool_new(handle, device, properties ? properties->maxSize : 0);
    if (pool->memory)
        return pool;
    unsaveable_note("no memory to note a memory pool");
    return pool;
}

static struct pool *commit(struct pool *pool, CUmemoryPool handle)
{
    struct record *record = journal_commit(pool ? &pool->record : NULL, (uint64_t)handle, NULL);

    return record ? pool_of(record) : NULL;
}

/* ---- creating and destroying */

CUresult track_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    struct pool *made;
    CUresult result;

    journal_note();
    result = driver.cuMemPoolCreate(pool, poolProps);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    made = commit(new_pool(*pool, poolProps->location.id, poolProps), *pool);
    if (!made || !made->memory)
        return result;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        stream_pool_make_foreign(made->memory);
    return result;
}

#define DEVICES_MAX 64

static struct stream_pool *currents[DEVICES_MAX]; /* as far as known; NULL: ask the driver */

static void set_current(CUdevice device, struct stream_pool *memory)
{
    if (device >= 0 && device < DEVICES_MAX)
        __atomic_store_n(&currents[device], memory, __ATOMIC_RELEASE);
}

CUresult track_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct record *record = journal_detach(&created_kind, (uint64_t)pool);
    struct stream_pool *memory = record ? pool_of(record)->memory : NULL;
    CUresult result = driver.cuMemPoolDestroy(pool);

    if (result != CUDA_SUCCESS) {
        journal_attach(record);
        return result;
    }
    for (CUdevice device = 0; memory && device < DEVICES_MAX; device++)
        if (__atomic_load_n(&currents[device], __ATOMIC_ACQUIRE) == memory)
            set_current(device, NULL);
    /* Here, not in release: giving memory back may take its time, and the journal is locked there. */
    if (memory) {
        pool_of(record)->memory = NULL;
        stream_pool_end(memory);
    }
    journal_drop(record);
    return result;
}

/* ---- default and current pools: their getters may make them */

static struct pool *note_default(CUmemoryPool handle, CUdevice device)
{
    struct pool *known = find(handle);

    if (known) {
        journal_discard(CUDA_SUCCESS);
        return known;
    }
    return commit(new_pool(handle, device, NULL), handle);
}

CUresult track_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    CUresult result;

    journal_note();
    result = driver.cuDeviceGetDefaultMemPool(pool_out, dev);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    note_default(*pool_out, dev);
    return result;
}

/* A current pool that is not in the journal is the default one: every other was created, or imported. */
CUresult track_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    CUmemoryPool of_device = NULL;
    CUresult result = driver.cuDeviceGetMemPool(pool, dev);

    if (result == CUDA_SUCCESS && !find(*pool))
        track_cuDeviceGetDefaultMemPool(&of_device, dev);
    return result;
}

static bool is_device_memory(const CUmemLocation *location, CUmemAllocationType type)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

CUresult track_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    struct pool *pool;
    CUresult result;

    journal_note();
    result = driver.cuMemGetDefaultMemPool(pool_out, location, type);
    if (result != CUDA_SUCCESS || find(*pool_out))
        return journal_discard(result);
    pool = new_pool(*pool_out, location->id, NULL);
    if (pool) {
        pool->how = LOCATION_DEFAULT;
        pool->location = *location;
        pool->type = type;
        if (pool->memory && !is_device_memory(location, type))
            stream_pool_make_foreign(pool->memory);
    }
    commit(pool, *pool_out);
    return result;
}

CUresult track_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUmemoryPool of_location = NULL;
    CUresult result = driver.cuMemGetMemPool(pool, location, type);

    if (result == CUDA_SUCCESS && !find(*pool))
        track_cuMemGetDefaultMemPool(&of_location, location, type);
    return result;
}

struct current {
    struct record record; /* handle: device + 1; owner: the pool */
    CUdevice device;
};

static CUresult replay_current(struct record *record, uint64_t *handle)
{
    *handle = record->handle;
    return driver.cuDeviceSetMemPool(container_of(record, struct current, record)->device,
                                     (CUmemoryPool)record->owner->handle);
}

static const struct record_kind current_kind = {.name = "current memory pool", .replay = replay_current};

static void note_current(CUdevice device, CUmemoryPool handle)
{
    struct pool *pool = find(handle);
    struct current *current;

    set_current(device, pool ? pool->memory : NULL);
    journal_drop(journal_detach(&current_kind, (uint64_t)device + 1));
    if (!pool) { /* imported: noted when that was done */
        journal_discard(CUDA_SUCCESS);
        return;
    }
    current = journal_record_new(&current_kind, sizeof *current);
    if (current) {
        current->device = device;
        current->record.context = NULL;
    }
    journal_commit(current ? &current->record : NULL, (uint64_t)device + 1, &pool->record);
}

CUresult track_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUresult result;

    journal_note();
    result = driver.cuDeviceSetMemPool(dev, pool);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    note_current(dev, pool);
    return result;
}

CUresult track_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUresult result;

    journal_note();
    result = driver.cuMemSetMemPool(location, type, pool);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    if (is_device_memory(location, type)) {
        note_current(location->id, pool);
        return result;
    }
    unsaveable_note("cuMemSetMemPool: a pool of memory that is not a device's");
    return journal_discard(result);
}

struct stream_pool *pool_memory(CUmemoryPool handle)
{
    struct pool *pool = find(handle);

    return pool ? pool->memory : NULL;
}

struct stream_pool *pool_current(CUdevice device)
{
    struct stream_pool *memory = NULL;
    CUmemoryPool handle;

    if (device >= 0 && device < DEVICES_MAX)
        memory = __atomic_load_n(&currents[device], __ATOMIC_ACQUIRE);
    if (memory || track_cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS)
        return memory;
    memory = pool_memory(handle);
    set_current(device, memory);
    return memory;
}

/* ---- attributes */

static void note_attribute(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        stream_pool_reset_most(pool->memory, attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                               attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
        return;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->values[attribute] = *(const uint64_t *)value;
        stream_pool_set_threshold(pool->memory, pool->values[attribute]);
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        stream_pool_set_reuse(pool->memory, *(const int *)value);
        /* fall through */
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->values[attribute] = (uint64_t)*(const int *)value;
        break;
    default:
        unsaveable_note("cuMemPoolSetAttribute: attribute %d, which is not known to this version of cudackpt", attribute);
        return;
    }
    pool->set |= 1u << attribute;
}

CUresult track_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = driver.cuMemPoolSetAttribute(pool, attr, value);
    struct pool *known = find(pool);

    if (result == CUDA_SUCCESS && known && known->memory)
        note_attribute(known, attr, value);
    return result;
}

/* The driver tells of what it holds itself: of a pool that is all ours nothing. */
static void add_stats(struct stream_pool *memory, CUmemPool_attribute attribute, uint64_t *value)
{
    const uint64_t unit = 2 << 20; /* what is reserved comes in such pieces */
    struct stream_pool_stats stats;

    stream_pool_get_stats(memory, &stats);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *value += (stats.reserved + unit - 1) & ~(unit - 1);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *value += (stats.reserved_most + unit - 1) & ~(unit - 1);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *value += stats.used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *value += stats.used_most;
        break;
    default:
        break;
    }
}

CUresult track_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = driver.cuMemPoolGetAttribute(pool, attr, value);
    struct stream_pool *memory = pool_memory(pool);

    if (result == CUDA_SUCCESS && memory)
        add_stats(memory, attr, value);
    return result;
}

CUresult track_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult result = driver.cuMemPoolTrimTo(pool, minBytesToKeep);
    struct stream_pool *memory = pool_memory(pool);

    if (result == CUDA_SUCCESS && memory)
        stream_pool_trim(memory, minBytesToKeep);
    return result;
}

CUresult track_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult result = driver.cuMemPoolSetAccess(pool, map, count);
    struct stream_pool *memory = pool_memory(pool);

    if (result != CUDA_SUCCESS || !memory)
        return result;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            map[i].location.id == stream_pool_device(memory))
            continue; /* has it anyhow */
        if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && !stream_pool_is_foreign(memory)) {
            stream_pool_make_foreign(memory);
            unsaveable_note("cuMemPoolSetAccess: a memory pool that another device uses");
        }
        result = stream_pool_give_access(memory, &map[i]);
    }
    return result;
}
