/* Blocks of stream-ordered memory by address. */
#include "stream_internal.h"

#include <stdlib.h>

#include "device_memory.h"

/* Ids of device_memory.h count from 1; these must not meet them. */
#define ID_FIRST (1ull << 48)

static uint64_t last_id = ID_FIRST;
static struct stream_block **buckets;
static size_t bucket_count, block_count;

static struct stream_block **bucket_of(CUdeviceptr address)
{
    return &buckets[(address / DEVICE_MEMORY_ALIGNMENT * 0x9e3779b97f4a7c15ull >> 32) & (bucket_count - 1)];
}

/* Without memory for it the old ones go on, only slower. */
static bool grow_buckets(void)
{
    struct stream_block **before = buckets;
    size_t count = bucket_count;
    struct stream_block **grown = calloc(count ? count * 2 : 256, sizeof *grown);

    if (!grown)
        return count > 0;
    buckets = grown;
    bucket_count = count ? count * 2 : 256;
    for (size_t i = 0; i < count; i++)
        for (struct stream_block *block = before[i], *next; block; block = next) {
            struct stream_block **bucket = bucket_of(block->address);

            next = block->hash_next;
            block->hash_next = *bucket;
            *bucket = block;
        }
    free(before);
    return true;
}

struct stream_block *stream_block_find(CUdeviceptr address)
{
    struct stream_block *block = bucket_count ? *bucket_of(address) : NULL;

    while (block && block->address != address)
        block = block->hash_next;
    return block;
}

bool stream_block_add(struct stream_block *block)
{
    struct stream_block **bucket;

    if (block_count >= bucket_count && !grow_buckets())
        return false;
    bucket = bucket_of(block->address);
    block->hash_next = *bucket;
    *bucket = block;
    block_count++;
    block->pool->blocks++;
    block->pool->reserved += block->backing;
    if (block->pool->reserved_most < block->pool->reserved)
        block->pool->reserved_most = block->pool->reserved;
    return true;
}

/* It is in no lane. */
void stream_block_remove(struct stream_block *block)
{
    struct stream_block **link = bucket_of(block->address);

    while (*link != block)
        link = &(*link)->hash_next;
    *link = block->hash_next;
    block_count--;
    block->pool->blocks--;
    block->pool->reserved -= block->backing;
}

void stream_block_used(struct stream_block *block, uint64_t size)
{
    struct stream_pool *pool = block->pool;

    block->freed = false;
    block->size = size;
    block->id = ++last_id;
    pool->used += lane_backing(size);
    if (pool->used_most < pool->used)
        pool->used_most = pool->used;
}

void stream_block_freed(struct stream_block *block)
{
    block->freed = true;
    block->pool->used -= lane_backing(block->size);
}

int stream_block_each(int (*f)(struct stream_block *block, void *arg), void *arg)
{
    int stop = 0;

    for (size_t i = 0; i < bucket_count && !stop; i++)
        for (struct stream_block *block = buckets[i], *next; block && !stop; block = next) {
            next = block->hash_next;
            stop = f(block, arg);
        }
    return stop;
}

bool stream_block_any(void)
{
    return __atomic_load_n(&block_count, __ATOMIC_RELAXED) > 0;
}
