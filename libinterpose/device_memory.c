#include "device_memory.h"

#include <stdlib.h>

#include "device_chunk.h"
#include "device_space.h"

/* The chunks of one context on one device. */
struct owner {
    struct list node; /* in owners */
    struct device_state *device;
    CUcontext context;
    struct list chunks;
    struct list partial[CHUNK_CLASSES]; /* shared chunks with a free slot */
};

static const struct device_memory_ops *ops;
static struct list owners = LIST_INIT(owners);
static uint64_t last_id;

/* ---- owners and blocks: the lock is held */

static struct owner *owner_find(const struct device_state *device, CUcontext context)
{
    list_each(node, &owners)
    {
        struct owner *owner = container_of(node, struct owner, node);

        if (owner->context == context && (!device || owner->device == device))
            return owner;
    }
    return NULL;
}

static struct owner *owner_get(struct device_state *device, CUcontext context)
{
    struct owner *owner = owner_find(device, context);

    if (owner)
        return owner;
    owner = calloc(1, sizeof(*owner));
    if (!owner)
        return NULL;
    owner->device = device;
    owner->context = context;
    list_init(&owner->chunks);
    for (int i = 0; i < CHUNK_CLASSES; i++)
        list_init(&owner->partial[i]);
    list_insert(&owners, &owner->node);
    return owner;
}

static void chunk_own(struct chunk *chunk, struct owner *owner)
{
    chunk->owner = owner;
    list_insert(&owner->chunks, &chunk->owner_node);
    list_insert(&owner->partial[chunk->class], &chunk->partial_node);
}

static void chunk_disown(struct chunk *chunk)
{
    chunk->owner = NULL;
    list_remove(&chunk->owner_node);
    list_remove(&chunk->partial_node);
}

static CUdeviceptr slot_take(struct chunk *chunk, uint64_t size)
{
    uint32_t index = chunk->first_free ? chunk->first_free - 1 : chunk->fresh;
    struct slot *slot = &chunk->slots[index];

    if (chunk->first_free)
        chunk->first_free = slot->next_free;
    else
        chunk->fresh++;
    *slot = (struct slot){.id = ++last_id, .size = size, .sync_memops = 1};
    if (++chunk->used == chunk->slot_count)
        list_remove(&chunk->partial_node);
    chunk->device->stats.blocks++;
    chunk->device->stats.block_bytes += size;
    return chunk->address + index * chunk->slot_size;
}

static void slot_free(struct chunk *chunk, struct slot *slot)
{
    chunk->device->stats.blocks--;
    chunk->device->stats.block_bytes -= slot->size;
    if (chunk->used-- == chunk->slot_count)
        list_insert(&chunk->owner->partial[chunk->class], &chunk->partial_node);
    slot->size = 0;
    slot->next_free = chunk->first_free;
    chunk->first_free = (uint32_t)(slot - chunk->slots) + 1;
}

/* The slot of the block that holds the address, and its chunk and start; NULL if there is none. */
static struct slot *slot_find(CUdeviceptr address, struct chunk **found, CUdeviceptr *start)
{
    struct chunk *chunk = device_space_get(address);
    struct slot *slot;
    uint64_t index;

    if (!chunk)
        return NULL;
    index = (address - chunk->address) / chunk->slot_size;
    if (index >= chunk->fresh)
        return NULL;
    slot = &chunk->slots[index];
    *found = chunk;
    *start = chunk->address + index * chunk->slot_size;
    return address - *start < slot->size ? slot : NULL;
}

static CUresult block_alloc(int device_number, CUcontext context, uint64_t size, CUdeviceptr *address)
{
    struct layout layout = layout_for(size);
    struct device_state *device = device_get(device_number);
    struct owner *owner = device ? owner_find(device, context) : NULL;
    struct chunk *chunk;
    CUresult result;

    if (!device)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (owner && layout.slot_count > 1 && !list_empty(&owner->partial[layout.class])) {
        chunk = container_of(owner->partial[layout.class].next, struct chunk, partial_node);
    } else {
        result = chunk_new(ops, device, &layout, &chunk);
        if (result != CUDA_SUCCESS)
            return result;
        /* Only now: while the lock was let go another thread may have freed the owner. */
        owner = owner_get(device, context);
        if (!owner) {
            chunk_release(ops, chunk);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        chunk_own(chunk, owner);
    }
    *address = slot_take(chunk, size);
    return CUDA_SUCCESS;
}

static CUresult block_free(CUdeviceptr address)
{
    struct chunk *chunk;
    CUdeviceptr start;
    struct slot *slot = slot_find(address, &chunk, &start);

    if (!slot || start != address)
        return CUDA_ERROR_INVALID_VALUE;
    slot_free(chunk, slot);
    if (chunk->used)
        return CUDA_SUCCESS;
    chunk_disown(chunk);
    if (chunk->slot_count > 1 && !chunk->device->kept) {
        chunk->device->kept = chunk;
        return CUDA_SUCCESS;
    }
    return chunk_release(ops, chunk);
}

static void owner_free_chunk(struct owner *owner)
{
    struct chunk *chunk = container_of(owner->chunks.next, struct chunk, owner_node);

    for (uint32_t i = 0; i < chunk->fresh; i++) {
        if (chunk->slots[i].size)
            slot_free(chunk, &chunk->slots[i]);
    }
    chunk_disown(chunk);
    chunk_release(ops, chunk);
}

/* ---- what others call; these take the lock */

void device_memory_start(const struct device_memory_ops *given)
{
    ops = given;
}

CUresult device_memory_alloc(int device, CUcontext context, uint64_t size, CUdeviceptr *address)
{
    CUresult result;

    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > DEVICE_MEMORY_LARGEST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&device_memory_lock);
    result = block_alloc(device, context, size, address);
    pthread_mutex_unlock(&device_memory_lock);
    return result;
}

CUresult device_memory_free(CUdeviceptr address)
{
    CUresult result;

    pthread_mutex_lock(&device_memory_lock);
    result = block_free(address);
    pthread_mutex_unlock(&device_memory_lock);
    return result;
}

bool device_memory_find(CUdeviceptr address, struct device_block *block)
{
    struct chunk *chunk;
    struct slot *slot;
    CUdeviceptr start;

    pthread_mutex_lock(&device_memory_lock);
    slot = slot_find(address, &chunk, &start);
    if (slot) {
        *block = (struct device_block){
            .address = start,
            .size = slot->size,
            .context = chunk->owner->context,
            .device = chunk->device->number,
            .id = slot->id,
            .sync_memops = slot->sync_memops,
            .chunk_address = chunk->address,
            .chunk_size = chunk->size,
        };
    }
    pthread_mutex_unlock(&device_memory_lock);
    return slot != NULL;
}

bool device_memory_owns(CUdeviceptr address)
{
    return device_space_has(address);
}

void device_memory_set_sync_memops(CUdeviceptr address, uint32_t value)
{
    struct chunk *chunk;
    struct slot *slot;
    CUdeviceptr start;

    pthread_mutex_lock(&device_memory_lock);
    slot = slot_find(address, &chunk, &start);
    if (slot)
        slot->sync_memops = value;
    pthread_mutex_unlock(&device_memory_lock);
}

void device_memory_free_context(CUcontext context)
{
    struct owner *owner;

    pthread_mutex_lock(&device_memory_lock);
    /* Looked up again each time: the lock is let go while a chunk is released. */
    while ((owner = owner_find(NULL, context))) {
        struct device_state *device = owner->device;

        if (!list_empty(&owner->chunks)) {
            owner_free_chunk(owner);
            continue;
        }
        list_remove(&owner->node);
        free(owner);
        device_trim(ops, device);
    }
    pthread_mutex_unlock(&device_memory_lock);
}

int device_memory_each_chunk(int (*f)(struct device_chunk *chunk, void *arg), void *arg)
{
    int result = 0;

    pthread_mutex_lock(&device_memory_lock);
    device_trim_all(ops);
    pthread_mutex_unlock(&device_memory_lock);

    /* The gate is closed: nobody else changes anything. */
    for (uint64_t address = 0; !result && (address = device_space_next(address));) {
        struct chunk *chunk = device_space_get(address);
        struct device_chunk told = {
            .address = chunk->address,
            .size = chunk->size,
            .handle = chunk->handle,
            .device = chunk->device->number,
            .context = chunk->owner->context,
            .host = chunk->host,
        };

        result = f(&told, arg);
        chunk->handle = told.handle;
        chunk->host = told.host;
        address += chunk->size;
    }
    return result;
}

int device_memory_each_range(int (*f)(int device, uint64_t address, uint64_t size, void *arg), void *arg)
{
    return device_space_each_range(f, arg);
}

void device_memory_get_stats(int device, struct device_memory_stats *stats)
{
    *stats = (struct device_memory_stats){0};
    pthread_mutex_lock(&device_memory_lock);
    device_add_stats(device, stats);
    pthread_mutex_unlock(&device_memory_lock);
}

void device_memory_before_fork(void)
{
    pthread_mutex_lock(&device_memory_lock);
}

void device_memory_after_fork(bool child)
{
    if (child) {
        /* Not freed: another thread may have been inside the program's malloc at the time of the fork. */
        device_forget();
        list_init(&owners);
        device_space_forget();
    }
    pthread_mutex_unlock(&device_memory_lock);
}
