/* Thousands of allocations of 1 byte to 1 MiB with known contents, of which some are freed and made new all
 * the time. */

#include "device.h"

#include <stdlib.h>

#define BLOCKS_MAX 10000

static struct kernels kernels;
static struct block {
    CUdeviceptr address;
    uint32_t size;
    uint32_t seed;
} blocks[BLOCKS_MAX];
static uint32_t block_count;

/* Sizes of every order of magnitude are equally frequent. */
static uint32_t random_size(void)
{
    uint32_t limit = 1u << program_random() % 21;

    return 1 + program_random() % limit;
}

/* Whole words are written by a kernel, the up to three bytes after them by a memset. */
static void block_make(struct block *block)
{
    block->size = random_size();
    block->seed = program_random();
    CHECK(cuMemAlloc_v2(&block->address, block->size));
    if (block->address % 256)
        FAIL("address 0x%llx of %u bytes is not aligned", block->address, block->size);
    if (block->size / 4)
        words_fill(&kernels, block->address, block->size / 4, block->seed, NULL);
    if (block->size % 4)
        CHECK(
            cuMemsetD8_v2(block->address + block->size / 4 * 4, (unsigned char)block->seed, block->size % 4));
}

static void block_check_by_kernel(const struct block *block)
{
    if (block->size / 4)
        words_check(&kernels, block->address, block->size / 4, block->seed, NULL);
}

static void block_check_by_copy(const struct block *block)
{
    unsigned char *copy = malloc(block->size);
    uint32_t words = block->size / 4;

    if (!copy)
        FAIL("no memory");
    CHECK(cuMemcpyDtoH_v2(copy, block->address, block->size));
    for (uint32_t i = 0; i < words; i++)
        if (((uint32_t *)copy)[i] != KERNELS_FILL(i, block->seed))
            FAIL("word %u of the %u bytes at 0x%llx is wrong", i, block->size, block->address);
    for (uint32_t i = words * 4; i < block->size; i++)
        if (copy[i] != (unsigned char)block->seed)
            FAIL("byte %u of the %u bytes at 0x%llx is wrong", i, block->size, block->address);
    free(copy);
}

static void check_all(void)
{
    for (uint32_t i = 0; i < block_count; i++)
        block_check_by_kernel(&blocks[i]);
    words_checked(&kernels, "small blocks");
    for (uint32_t i = 0; i < block_count; i++)
        if (blocks[i].size < 4096 || i % 64 == 0)
            block_check_by_copy(&blocks[i]);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    block_count = (uint32_t)program_setting("TEST_BLOCKS", 3000);
    EXPECT(block_count > 0 && block_count <= BLOCKS_MAX);
    device_start();
    kernels_load(&kernels);
    for (uint32_t i = 0; i < block_count; i++)
        block_make(&blocks[i]);
    check_all();
    program_ready(check_all);
    while (program_running()) {
        for (int i = 0; i < 20; i++) {
            struct block *block = &blocks[program_random() % block_count];

            block_check_by_copy(block);
            CHECK(cuMemFree_v2(block->address));
            block_make(block);
        }
        for (int i = 0; i < 20; i++)
            block_check_by_kernel(&blocks[program_random() % block_count]);
        words_checked(&kernels, "some small blocks");
    }
    for (uint32_t i = 0; i < block_count; i++)
        CHECK(cuMemFree_v2(blocks[i].address));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
