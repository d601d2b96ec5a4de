/*
 * Stream-ordered memory in two streams: a block that was freed in one stream must not be given to the other while work
 * on it is under way, sizes are used again, contents and addresses of what is allocated last, attributes last too.
 */

#include "device.h"

#define BLOCKS 24

static struct kernels kernels;
static CUmemoryPool pool, own;
static CUstream streams[3]; /* the last one: the per-thread default stream */
static struct block {
    CUdeviceptr address;
    uint64_t size;
    uint32_t seed;
} blocks[BLOCKS];

static void block_new(struct block *block)
{
    static const uint64_t sizes[] = {512, 1000, 4096, 100000, 1 << 20, 3 << 20, (5 << 20) + 4};
    CUstream stream = streams[program_random() % 3];

    block->size = sizes[program_random() % 7];
    block->seed = program_random();
    if (program_random() % 2)
        CHECK(cuMemAllocAsync(&block->address, block->size, stream));
    else
        CHECK(cuMemAllocFromPoolAsync(&block->address, block->size, own, stream));
    words_fill(&kernels, block->address, block->size / 4, block->seed, stream);
    CHECK(cuStreamSynchronize(stream)); /* others read it */
}

/* Checked and freed in one stream, without waiting: who gets the memory next must not disturb the check. */
static void block_free(struct block *block)
{
    CUstream stream = streams[program_random() % 3];

    words_check(&kernels, block->address, block->size / 4, block->seed, stream);
    CHECK(cuMemFreeAsync(block->address, stream));
}

static void check_all(void)
{
    CUmemoryPool current = NULL, of_block = NULL;
    cuuint64_t threshold = 0;
    int reuse = 99;

    for (unsigned i = 0; i < BLOCKS; i++)
        words_check(&kernels, blocks[i].address, blocks[i].size / 4, blocks[i].seed, NULL);
    words_checked(&kernels, "stream-ordered blocks");
    CHECK(cuDeviceGetDefaultMemPool(&current, 0));
    EXPECT_EQ((uintptr_t)current, (uintptr_t)pool);
    CHECK(cuDeviceGetMemPool(&current, 0));
    EXPECT_EQ((uintptr_t)current, (uintptr_t)pool);
    CHECK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EXPECT_EQ(threshold, 8 << 20);
    CHECK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &reuse));
    EXPECT_EQ(reuse, 0);
    CHECK(cuPointerGetAttribute(&of_block, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, blocks[0].address));
    EXPECT(of_block == own || of_block == pool);
}

int main(int argc, char **argv)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    cuuint64_t threshold = 8 << 20;
    int reuse = 0;

    program_start(argc, argv);
    device_start();
    if (!device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        program_skip("the device has no memory pools");
    kernels_load(&kernels);
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolCreate(&own, &properties));
    CHECK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &reuse));
    CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    streams[2] = CU_STREAM_PER_THREAD;
    for (unsigned i = 0; i < BLOCKS; i++)
        block_new(&blocks[i]);
    check_all();
    program_ready(check_all);
    while (program_running()) {
        for (unsigned i = 0; i < 8; i++) {
            struct block *block = &blocks[program_random() % BLOCKS];

            block_free(block);
            block_new(block);
        }
        if (program_random() % 8 == 0) {
            CHECK(cuStreamDestroy_v2(streams[0]));
            CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
        }
        words_checked(&kernels, "blocks that were freed");
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        block_free(&blocks[i]);
    words_checked(&kernels, "blocks that were freed at the end");
    CHECK(cuStreamDestroy_v2(streams[0]));
    CHECK(cuStreamDestroy_v2(streams[1]));
    CHECK(cuMemPoolDestroy(own));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
