/*
 * Random use of the driver heap, resets included, against a model: fuzz_driver_heap [SEED [SECONDS]]
 * Prints the seed and the step of the first difference and exits with 1.
 */
#include "driver_heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS 1500

/* A block, or a reserved place (serial 0). */
struct model_block {
    unsigned char *address;
    uint64_t size, alignment;
    uint64_t noted; /* the size when it was allocated: what its place has */
    uint64_t serial;
    unsigned char mark;
};

static struct model_block blocks[BLOCKS];
static size_t count;
static uint64_t seed, random_state, step, last_serial;

static void fail(const char *what, const void *where)
{
    printf("seed %" PRIu64 " step %" PRIu64 ": %s (%p)\n", seed, step, what, where);
    exit(1);
}

#define REQUIRE(condition, where)                                                                            \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail(#condition, (where));                                                                       \
    } while (0)

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

/* Mostly small; now and then many pages; seldom so large that it is not filled. */
static uint64_t random_size(void)
{
    switch (random_below(20)) {
    case 0:
        return random_below(8u << 20);
    case 1:
    case 2:
        return random_below(150000);
    case 3:
        return random_below(2) ? 32768 - random_below(3) : 0;
    case 4:
        return random_below(300) ? 33000 : 1ull << 30;
    default:
        return random_below(1ull << (4 + random_below(10)));
    }
}

/* The parts of a block that are filled: all of a small one, the ends of a large one. */
static uint64_t ends(const struct model_block *block)
{
    return block->size < 4096 ? block->size : 512;
}

static void fill(struct model_block *block)
{
    block->mark = (unsigned char)(1 + random_below(255));
    memset(block->address, block->mark, ends(block));
    memset(block->address + block->size - ends(block), block->mark, ends(block));
}

static void check(const struct model_block *block)
{
    REQUIRE(driver_heap_serial(block->address) == block->serial, block->address);
    if (!block->serial)
        return;
    REQUIRE(driver_heap_block_size(block->address) == block->size, block->address);
    for (uint64_t i = 0; i < ends(block); i++) {
        REQUIRE(block->address[i] == block->mark, block->address);
        REQUIRE(block->address[block->size - 1 - i] == block->mark, block->address);
    }
}

static uint64_t extent(const struct model_block *block)
{
    uint64_t size = block->size > block->noted ? block->size : block->noted;

    return size ? size : 1;
}

static void check_apart(const struct model_block *block)
{
    REQUIRE(driver_heap_owns(block->address), block->address);
    REQUIRE(driver_heap_owns(block->address + extent(block) - 1), block->address);
    for (size_t i = 0; i < count; i++)
        REQUIRE(&blocks[i] == block || block->address + extent(block) <= blocks[i].address ||
                    blocks[i].address + extent(&blocks[i]) <= block->address,
                block->address);
}

/* The block at that address is new. */
static void check_new(struct model_block *block)
{
    REQUIRE((uint64_t)block->address % 16 == 0 && (uint64_t)block->address % block->alignment == 0,
            block->address);
    block->serial = driver_heap_serial(block->address);
    REQUIRE(block->serial > last_serial, block->address);
    last_serial = block->serial;
    block->noted = block->size;
    check_apart(block);
    fill(block);
}

static void step_alloc(void)
{
    struct model_block *block = &blocks[count];

    *block = (struct model_block){.size = random_size(), .alignment = 1};
    if (random_below(6)) {
        block->address = driver_heap_alloc(block->size);
    } else {
        block->alignment = 1ull << random_below(22);
        block->address = driver_heap_alloc_aligned(block->alignment, block->size);
    }
    REQUIRE(block->address, NULL);
    count++;
    check_new(block);
}

static void step_free(size_t which)
{
    struct model_block *block = &blocks[which];

    check(block);
    if (block->serial) {
        if (extent(block) > 1)
            driver_heap_free(block->address + 1 + random_below(extent(block) - 1));
        driver_heap_free(block->address);
        driver_heap_free(block->address);
    } else {
        driver_heap_free(block->address); /* a reserved place is no block */
        driver_heap_unreserve((uint64_t)block->address);
    }
    REQUIRE(!driver_heap_alloc_at((uint64_t)block->address, 0), block->address);
    *block = blocks[--count];
}

static void step_realloc(struct model_block *block)
{
    uint64_t size = random_below(2) ? random_size() : block->size + random_below(64), capacity, kept;
    unsigned char *before = block->address, *after;

    check(block);
    if (!size || block->size > 16u << 20) /* to copy those would take all the time */
        return;
    capacity = driver_heap_capacity(before);
    kept = size < block->size ? size : block->size;
    after = driver_heap_realloc(before, size);
    REQUIRE(after, before);
    REQUIRE((after == before) == (size <= capacity), before);
    for (uint64_t i = 0; i < kept && i < ends(block); i++)
        REQUIRE(after[i] == block->mark, after);
    block->address = after;
    block->size = size;
    if (after != before) {
        block->alignment = 1;
        check_new(block);
    } else {
        check_apart(block);
        fill(block);
    }
}

static void take_place(struct model_block *block)
{
    REQUIRE(!driver_heap_alloc_at((uint64_t)block->address + 8, 0), block->address);
    block->size = block->noted;
    REQUIRE(driver_heap_alloc_at((uint64_t)block->address, block->size) == block->address, block->address);
    check_new(block);
}

/* Some of the blocks and places are to come back. */
static void step_reset(void)
{
    static struct heap_place places[BLOCKS];
    struct error err = {0};
    size_t kept = 0;
    uint64_t rate = random_below(11);

    for (size_t i = 0; i < count; i++) {
        check(&blocks[i]);
        if (random_below(10) >= rate)
            continue;
        blocks[kept] = blocks[i];
        blocks[kept].serial = 0;
        blocks[kept].size = blocks[kept].noted;
        kept++;
    }
    count = kept;
    for (size_t i = 0; i < count; i++)
        places[i] = (struct heap_place){(uint64_t)blocks[i].address, blocks[i].noted};
    REQUIRE(driver_heap_reset(places, count, &err) == 0, NULL);
}

static void check_stats(void)
{
    struct driver_heap_stats stats;
    size_t live = 0, bytes = 0;

    for (size_t i = 0; i < count; i++) {
        live += blocks[i].serial != 0;
        bytes += blocks[i].serial ? blocks[i].size : 0;
    }
    driver_heap_get_stats(&stats);
    REQUIRE(stats.blocks == live, NULL);
    REQUIRE(stats.block_bytes == bytes, NULL);
    REQUIRE(stats.reserved == count - live, NULL);
    REQUIRE(stats.mapped >= bytes, NULL);
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    struct timespec start, now;
    struct error err = {0};

    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    random_state = seed * 0x9e3779b97f4a7c15ull + 1;
    if (driver_heap_start(&err)) {
        printf("%s\n", err.text);
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 256; i++, step++) {
            uint64_t choice = random_below(100);
            /* Phases of growth and of decline, so that spans become full and empty. */
            uint64_t growth = step / 4096 % 2 ? 35 : 60;
            struct model_block *block = count ? &blocks[random_below(count)] : NULL;

            if (!random_below(3000))
                step_reset();
            else if (!block || (choice < growth && count < BLOCKS))
                step_alloc();
            else if (choice < 75)
                step_free((size_t)(block - blocks));
            else if (!block->serial)
                take_place(block);
            else
                step_realloc(block);
        }
        check_stats();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9 < seconds);
    while (count)
        step_free(count - 1);
    check_stats();
    printf("seed %" PRIu64 ": %" PRIu64 " steps\n", seed, step);
    return 0;
}
