/*
 * TEST_MEMORY_MIB from a pool that keeps all it ever had, half of it freed again: nothing of it is used while the
 * program is off the device. Also: a pool of the program's own as the current one, destroyed while memory of it is in
 * use; memory of cuMemAlloc freed in a stream, and memory of a pool freed by cuMemFree.
 */

#include "device.h"

#define BLOCKS 8

static struct kernels kernels;
static CUmemoryPool pool, own;
static CUdeviceptr blocks[BLOCKS], lasting;
static uint64_t size;

static void check_all(void)
{
    cuuint64_t threshold = 0;
    CUmemoryPool current;

    for (unsigned i = 0; i < BLOCKS; i += 2)
        words_check(&kernels, blocks[i], size / 4, i, NULL);
    words_check(&kernels, lasting, 1 << 18, 99, NULL);
    words_checked(&kernels, "large blocks of a pool");
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EXPECT_EQ(threshold, UINT64_MAX);
    CHECK(cuDeviceGetMemPool(&current, 0));
    EXPECT_EQ((uintptr_t)current, (uintptr_t)own);
}

static void other_ways(void)
{
    CUdeviceptr a, b, base = 0;
    size_t range = 0;

    CHECK(cuMemAlloc_v2(&a, 1 << 20));
    CHECK(cuMemAllocAsync(&b, 70000, NULL));
    words_fill(&kernels, a, 1 << 18, 1, NULL);
    words_check(&kernels, a, 1 << 18, 1, NULL);
    CHECK(cuMemGetAddressRange_v2(&base, &range, b + 69999));
    EXPECT_EQ(base, b);
    EXPECT(range >= 70000);
    CHECK(cuMemFreeAsync(a, NULL));
    words_checked(&kernels, "memory that was freed in a stream");
    CHECK(cuMemFree_v2(b));
}

/* The pool goes, its memory stays until it is freed. */
static void ended_pool(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool current;

    CHECK(cuMemPoolDestroy(own));
    CHECK(cuDeviceGetMemPool(&current, 0));
    EXPECT_EQ((uintptr_t)current, (uintptr_t)pool);
    CHECK(cuMemPoolCreate(&own, &properties));
    CHECK(cuDeviceSetMemPool(0, own));
}

int main(int argc, char **argv)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    cuuint64_t threshold = UINT64_MAX;

    program_start(argc, argv);
    size = program_setting("TEST_MEMORY_MIB", 256) * (1 << 20) / BLOCKS;
    device_start();
    if (!device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        program_skip("the device has no memory pools");
    kernels_load(&kernels);
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(cuMemAllocAsync(&blocks[i], size, NULL));
        words_fill(&kernels, blocks[i], size / 4, i, NULL);
    }
    for (unsigned i = 1; i < BLOCKS; i += 2)
        CHECK(cuMemFreeAsync(blocks[i], NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemPoolCreate(&own, &properties));
    CHECK(cuDeviceSetMemPool(0, own));
    CHECK(cuMemAllocFromPoolAsync(&lasting, 1 << 20, pool, NULL));
    words_fill(&kernels, lasting, 1 << 18, 99, NULL);
    CHECK(cuCtxSynchronize());
    program_ready(check_all);
    while (program_running()) {
        other_ways();
        ended_pool();
        CHECK(cuMemAllocFromPoolAsync(&blocks[1], size, pool, NULL));
        words_fill(&kernels, blocks[1], size / 4, 1, NULL);
        CHECK(cuMemFreeAsync(blocks[1], NULL));
    }
    for (unsigned i = 0; i < BLOCKS; i += 2)
        CHECK(cuMemFreeAsync(blocks[i], NULL));
    CHECK(cuMemFreeAsync(lasting, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemPoolTrimTo(pool, 0));
    CHECK(cuMemPoolDestroy(own));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
