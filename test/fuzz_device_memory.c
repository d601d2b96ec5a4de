/*
 * Random use of device memory against a model: fuzz_device_memory [SEED [SECONDS]]
 * Prints the seed and the step of the first difference and exits with 1.
 */
#include "device_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS   6000
#define CONTEXTS 5
#define DEVICES  2
#define GRANULES (DEVICE_MEMORY_RANGE / DEVICE_MEMORY_CHUNK * 24) /* ranges that the model can hold */

/* The model: what must be there. */
static struct model_block {
    uint64_t address, size, id;
    uint32_t sync_memops;
    int context; /* index; the device is context % DEVICES */
} blocks[BLOCKS];
static int block_count;

/* Physical memory that the fake driver gave, by granule. */
static uint64_t granule_handle[GRANULES];
static uint8_t granule_context[GRANULES]; /* of the blocks there, + 1 */
static uint16_t granule_blocks[GRANULES];
static uint64_t mapped_bytes[DEVICES], capacity = 40ull << 30, last_handle;
static uint64_t reserved_end = DEVICE_MEMORY_BASE;
static uint64_t seed, random_state, step, last_id;

static void fail(const char *what, uint64_t value)
{
    printf("seed %" PRIu64 " step %" PRIu64 ": %s (0x%" PRIx64 ")\n", seed, step, what, value);
    exit(1);
}

#define REQUIRE(condition, value)                                                                            \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail(#condition, (value));                                                                       \
    } while (0)

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

static uint64_t granule(uint64_t address)
{
    REQUIRE(address >= DEVICE_MEMORY_BASE, address);
    REQUIRE((address - DEVICE_MEMORY_BASE) / DEVICE_MEMORY_CHUNK < GRANULES, address);
    return (address - DEVICE_MEMORY_BASE) / DEVICE_MEMORY_CHUNK;
}

static CUresult fake_reserve(uint64_t address, uint64_t size)
{
    REQUIRE(address >= reserved_end, address);
    reserved_end = address + size;
    return CUDA_SUCCESS;
}

static CUresult fake_map(int device, uint64_t address, uint64_t size, uint64_t *handle)
{
    if (mapped_bytes[device] + size > capacity || !random_below(50))
        return CUDA_ERROR_OUT_OF_MEMORY;
    REQUIRE(address + size <= reserved_end, address);
    *handle = ++last_handle;
    for (uint64_t at = address; at < address + size; at += DEVICE_MEMORY_CHUNK) {
        REQUIRE(!granule_handle[granule(at)], at);
        granule_handle[granule(at)] = *handle;
    }
    mapped_bytes[device] += size;
    return CUDA_SUCCESS;
}

static int device_of(uint64_t address);

static CUresult fake_unmap(uint64_t address, uint64_t size, uint64_t handle)
{
    int device = device_of(address);

    for (uint64_t at = address; at < address + size; at += DEVICE_MEMORY_CHUNK) {
        REQUIRE(granule_handle[granule(at)] == handle, at);
        granule_handle[granule(at)] = 0;
    }
    mapped_bytes[device] -= size;
    return CUDA_SUCCESS;
}

struct range_query {
    uint64_t address;
    int device;
};

static int range_match(int device, uint64_t address, uint64_t size, void *arg)
{
    struct range_query *query = arg;

    if (query->address < address || query->address >= address + size)
        return 0;
    query->device = device;
    return 1;
}

static int device_of(uint64_t address)
{
    struct range_query query = {.address = address};

    REQUIRE(device_memory_each_range(range_match, &query) == 1, address);
    return query.device;
}

static const struct device_memory_ops ops = {fake_reserve, fake_map, fake_unmap};

static CUcontext context_at(int index)
{
    return (CUcontext)(uintptr_t)(0x100 * (index + 1));
}

static uint64_t random_size(void)
{
    static const unsigned char magnitudes[] = {8, 10, 12, 16, 18, 20, 21, 22, 24, 26, 33};
    uint64_t magnitude = magnitudes[random_below(random_below(4) ? 7 : sizeof(magnitudes))];
    uint64_t size = 1 + random_below(1ull << magnitude);

    return random_below(3) ? size : 1ull << magnitude;
}

/* Marks or unmarks a block in every granule that it touches; small blocks of two contexts never meet in one.
 */
static void block_mark(const struct model_block *block, int change)
{
    for (uint64_t g = granule(block->address); g <= granule(block->address + block->size - 1); g++) {
        if (change > 0) {
            REQUIRE(granule_handle[g], block->address);
            REQUIRE(!granule_blocks[g] || granule_context[g] == block->context + 1, block->address);
            granule_context[g] = (uint8_t)(block->context + 1);
        }
        granule_blocks[g] = (uint16_t)(granule_blocks[g] + change);
    }
}

static void block_check(const struct model_block *block, uint64_t address)
{
    struct device_block found;

    REQUIRE(device_memory_find(address, &found), address);
    REQUIRE(found.address == block->address, found.address);
    REQUIRE(found.size == block->size, found.size);
    REQUIRE(found.id == block->id, found.id);
    REQUIRE(found.sync_memops == block->sync_memops, address);
    REQUIRE(found.context == context_at(block->context), address);
    REQUIRE(found.device == block->context % DEVICES, address);
    REQUIRE(found.chunk_address <= block->address, address);
    REQUIRE(found.chunk_address + found.chunk_size >= block->address + block->size, address);
}

static void step_alloc(void)
{
    struct model_block *block = &blocks[block_count];
    struct device_block found;
    CUresult result;

    block->context = (int)random_below(CONTEXTS);
    block->size = random_size();
    block->sync_memops = 1;
    result = device_memory_alloc(block->context % DEVICES, context_at(block->context), block->size,
                                 (CUdeviceptr *)&block->address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    REQUIRE(result == CUDA_SUCCESS, (uint64_t)result);
    REQUIRE(block->address % DEVICE_MEMORY_ALIGNMENT == 0, block->address);
    REQUIRE(device_of(block->address) == block->context % DEVICES, block->address);
    REQUIRE(device_memory_find(block->address, &found), block->address);
    REQUIRE(found.id > last_id, found.id);
    block->id = last_id = found.id;
    block_check(block, block->address + block->size - 1);
    for (int i = 0; i < block_count && step % 64 == 0; i++)
        REQUIRE(block->address + block->size <= blocks[i].address ||
                    block->address >= blocks[i].address + blocks[i].size,
                block->address);
    block_mark(block, 1);
    block_count++;
}

static void block_forget(int i)
{
    block_mark(&blocks[i], -1);
    blocks[i] = blocks[--block_count];
}

static void step_free(void)
{
    int i = (int)random_below((uint64_t)block_count);
    uint64_t address = blocks[i].address;
    struct device_block found;

    if (blocks[i].size > 1)
        REQUIRE(device_memory_free(address + 1 + random_below(blocks[i].size - 1)) ==
                    CUDA_ERROR_INVALID_VALUE,
                address);
    REQUIRE(device_memory_free(address) == CUDA_SUCCESS, address);
    REQUIRE(!device_memory_find(address, &found), address);
    block_forget(i);
}

static void step_look(void)
{
    struct model_block *block = &blocks[random_below((uint64_t)block_count)];
    uint64_t end = block->address + block->size;
    struct device_block found;

    block->sync_memops = (uint32_t)random_below(2);
    device_memory_set_sync_memops(block->address + random_below(block->size), block->sync_memops);
    block_check(block, block->address + random_below(block->size));
    if (device_memory_find(end, &found))
        REQUIRE(found.address == end, end);
}

static void step_destroy_context(void)
{
    int context = (int)random_below(CONTEXTS);

    device_memory_free_context(context_at(context));
    for (int i = block_count - 1; i >= 0; i--) {
        if (blocks[i].context == context)
            block_forget(i);
    }
}

/* Takes every chunk away and puts it back, as a suspend and a resume do. */
static int chunk_move(struct device_chunk *chunk, void *arg)
{
    uint64_t g = granule(chunk->address);

    REQUIRE(granule_blocks[g], chunk->address);
    REQUIRE(chunk->context == context_at(granule_context[g] - 1), chunk->address);
    if (*(bool *)arg) {
        fake_unmap(chunk->address, chunk->size, chunk->handle);
        chunk->host = &granule_handle[g];
        chunk->handle = 0;
    } else {
        REQUIRE(chunk->host == &granule_handle[g] && !chunk->handle, chunk->address);
        while (fake_map(chunk->device, chunk->address, chunk->size, &chunk->handle) != CUDA_SUCCESS)
            ;
        chunk->host = NULL;
    }
    return 0;
}

static void check_stats(void)
{
    struct device_memory_stats stats;
    uint64_t bytes = 0;

    for (int i = 0; i < block_count; i++)
        bytes += blocks[i].size;
    device_memory_get_stats(-1, &stats);
    REQUIRE(stats.blocks == (uint64_t)block_count, stats.blocks);
    REQUIRE(stats.block_bytes == bytes, stats.block_bytes);
    for (int device = 0; device < DEVICES; device++) {
        device_memory_get_stats(device, &stats);
        REQUIRE(stats.chunk_bytes == mapped_bytes[device], stats.chunk_bytes);
    }
}

static void step_suspend(void)
{
    bool out = true;

    device_memory_each_chunk(chunk_move, &out);
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(!mapped_bytes[device], mapped_bytes[device]);
    out = false;
    device_memory_each_chunk(chunk_move, &out);
    check_stats();
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    struct timespec start, now;

    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    random_state = seed * 0x9e3779b97f4a7c15ull + 1;
    device_memory_start(&ops);
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        /* Phases of growth and of decline, so that chunks become full and empty. */
        uint64_t growth = step / 8192 % 2 ? 40 : 60;

        for (int i = 0; i < 256; i++, step++) {
            uint64_t choice = random_below(100);

            if (!random_below(20000))
                step_destroy_context();
            else if (!block_count || (choice < growth && block_count < BLOCKS))
                step_alloc();
            else if (choice < 90)
                step_free();
            else
                step_look();
        }
        if (step % 65536 == 0)
            step_suspend();
        check_stats();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9 < seconds);

    while (block_count)
        step_free();
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(mapped_bytes[device] <= DEVICE_MEMORY_CHUNK, mapped_bytes[device]);
    for (int context = 0; context < CONTEXTS; context++)
        device_memory_free_context(context_at(context));
    check_stats();
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(!mapped_bytes[device], mapped_bytes[device]);
    printf("seed %" PRIu64 ": %" PRIu64 " steps\n", seed, step);
    return 0;
}
