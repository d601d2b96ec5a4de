/* Large allocations, of sizes around the granularity of device memory, and one that takes the rest of
 * TEST_MEMORY_MIB. */

#include "device.h"

#define MIB (1ull << 20)

static struct kernels kernels;
static struct block {
    CUdeviceptr address;
    uint64_t size;
    uint32_t seed;
} blocks[] = {
    {.size = 1 * MIB + 4}, {.size = 2 * MIB - 4}, {.size = 2 * MIB},
    {.size = 2 * MIB + 4}, {.size = 3 * MIB},     {.size = 5 * MIB + 8},
    {.size = 16 * MIB},    {.size = 64 * MIB},    {.size = 0 /* the rest */},
};

#define BLOCKS (sizeof blocks / sizeof blocks[0])

static void block_fill(struct block *block)
{
    block->seed = program_random();
    words_fill(&kernels, block->address, block->size / 4, block->seed, NULL);
}

static void check_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        words_check(&kernels, blocks[i].address, blocks[i].size / 4, blocks[i].seed, NULL);
    words_checked(&kernels, "large blocks");
}

int main(int argc, char **argv)
{
    uint64_t total, used = 0;

    program_start(argc, argv);
    total = program_setting("TEST_MEMORY_MIB", 256) * MIB;
    for (size_t i = 0; i < BLOCKS; i++)
        used += blocks[i].size;
    blocks[BLOCKS - 1].size = total > used + MIB ? total - used : MIB;
    device_start();
    kernels_load(&kernels);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(cuMemAlloc_v2(&blocks[i].address, blocks[i].size));
        block_fill(&blocks[i]);
    }
    check_all();
    program_ready(check_all);
    while (program_running()) {
        struct block *block = &blocks[program_random() % (BLOCKS - 1)];

        words_check(&kernels, block->address, block->size / 4, block->seed, NULL);
        words_checked(&kernels, "one large block");
        if (program_random() % 4 == 0) {
            CHECK(cuMemFree_v2(block->address));
            CHECK(cuMemAlloc_v2(&block->address, block->size));
        }
        block_fill(block);
        CHECK(cuCtxSynchronize());
    }
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(cuMemFree_v2(blocks[i].address));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
