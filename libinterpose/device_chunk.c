#include "device_chunk.h"

#include <stdlib.h>

#include "device_space.h"

pthread_mutex_t device_memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list devices = LIST_INIT(devices);

struct layout layout_for(uint64_t size)
{
    struct layout layout = {.slot_count = 1, .slot_size = 0};
    unsigned int magnitude;
    uint32_t count;

    layout.chunk_size = (size + DEVICE_MEMORY_CHUNK - 1) & ~(DEVICE_MEMORY_CHUNK - 1);
    if (size > DEVICE_MEMORY_SMALL) {
        layout.slot_size = layout.chunk_size;
        return layout;
    }
    size = (size + DEVICE_MEMORY_ALIGNMENT - 1) & ~(DEVICE_MEMORY_ALIGNMENT - 1);
    /* As many slots as fit, less all but the three leading bits: a slot is at most a quarter too large. */
    count = (uint32_t)(DEVICE_MEMORY_CHUNK / size);
    magnitude = 31 - (unsigned int)__builtin_clz(count);
    if (magnitude >= 2)
        count &= 7u << (magnitude - 2);
    layout.class = magnitude * 4 + (magnitude >= 2 ? count >> (magnitude - 2) & 3 : count & 1);
    layout.slot_count = count;
    layout.slot_size = DEVICE_MEMORY_CHUNK / count & ~(DEVICE_MEMORY_ALIGNMENT - 1);
    return layout;
}

struct device_state *device_get(int number)
{
    struct device_state *device;

    list_each(node, &devices)
    {
        device = container_of(node, struct device_state, node);
        if (device->number == number)
            return device;
    }
    device = calloc(1, sizeof(*device));
    if (!device)
        return NULL;
    device->number = number;
    list_insert(&devices, &device->node);
    return device;
}

static void chunk_free(struct chunk *chunk)
{
    if (chunk && chunk->slots != &chunk->single)
        free(chunk->slots);
    free(chunk);
}

/* Makes an empty chunk ready for blocks of a layout. */
static bool chunk_lay_out(struct chunk *chunk, const struct layout *layout)
{
    if (layout->slot_count == 1) {
        chunk->slots = &chunk->single;
    } else if (!chunk->slots || chunk->slot_count != layout->slot_count) {
        struct slot *slots = malloc(layout->slot_count * sizeof(*slots));

        if (!slots)
            return false;
        free(chunk->slots);
        chunk->slots = slots;
    }
    chunk->slot_count = layout->slot_count;
    chunk->slot_size = layout->slot_size;
    chunk->class = layout->class;
    chunk->fresh = chunk->first_free = 0;
    return true;
}

/* The address space becomes free only when the driver is done: until then nobody else may map there. */
CUresult chunk_release(const struct device_memory_ops *ops, struct chunk *chunk)
{
    CUresult result;

    device_space_set(chunk->address, chunk->size, NULL);
    chunk->device->stats.chunks--;
    chunk->device->stats.chunk_bytes -= chunk->size;
    pthread_mutex_unlock(&device_memory_lock);
    result = ops->unmap(chunk->address, chunk->size, chunk->handle);
    pthread_mutex_lock(&device_memory_lock);
    if (result == CUDA_SUCCESS)
        device_space_give(chunk->address, chunk->size);
    chunk_free(chunk);
    return result;
}

bool device_trim(const struct device_memory_ops *ops, struct device_state *device)
{
    struct chunk *kept = device->kept;

    if (!kept)
        return false;
    device->kept = NULL;
    chunk_release(ops, kept);
    return true;
}

/* Backs a chunk with memory, without the lock. */
static CUresult chunk_map(const struct device_memory_ops *ops, struct chunk *chunk)
{
    CUresult result;

    pthread_mutex_unlock(&device_memory_lock);
    result = ops->map(chunk->device->number, chunk->address, chunk->size, &chunk->handle);
    pthread_mutex_lock(&device_memory_lock);
    return result;
}

CUresult chunk_new(const struct device_memory_ops *ops, struct device_state *device,
                   const struct layout *layout, struct chunk **made)
{
    struct chunk *chunk = device->kept;
    CUresult result;

    if (chunk && layout->slot_count > 1) {
        if (!chunk_lay_out(chunk, layout))
            return CUDA_ERROR_OUT_OF_MEMORY;
        device->kept = NULL;
        *made = chunk;
        return CUDA_SUCCESS;
    }
    chunk = calloc(1, sizeof(*chunk));
    if (!chunk || !chunk_lay_out(chunk, layout)) {
        chunk_free(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->device = device;
    chunk->size = layout->chunk_size;
    list_init(&chunk->owner_node);
    list_init(&chunk->partial_node);
    result = device_space_take(device->number, chunk->size, ops->reserve, &chunk->address);
    if (result != CUDA_SUCCESS) {
        chunk_free(chunk);
        return result;
    }
    result = chunk_map(ops, chunk);
    if (result != CUDA_SUCCESS && device_trim(ops, device))
        result = chunk_map(ops, chunk);
    if (result != CUDA_SUCCESS) {
        device_space_give(chunk->address, chunk->size);
        chunk_free(chunk);
        return result;
    }
    device_space_set(chunk->address, chunk->size, chunk);
    device->stats.chunks++;
    device->stats.chunk_bytes += chunk->size;
    *made = chunk;
    return CUDA_SUCCESS;
}

void device_trim_all(const struct device_memory_ops *ops)
{
    list_each(node, &devices) device_trim(ops, container_of(node, struct device_state, node));
}

void device_add_stats(int number, struct device_memory_stats *stats)
{
    list_each(node, &devices)
    {
        const struct device_state *device = container_of(node, struct device_state, node);

        if (number >= 0 && device->number != number)
            continue;
        stats->blocks += device->stats.blocks;
        stats->block_bytes += device->stats.block_bytes;
        stats->chunks += device->stats.chunks;
        stats->chunk_bytes += device->stats.chunk_bytes;
    }
}

void device_forget(void)
{
    list_init(&devices);
}
