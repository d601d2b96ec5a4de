/* TEST_ALLOCATIONS (100,000) allocations in the order of a stream, each freed again: nothing is left in the books. */

#include <stdio.h>

#include "device.h"

static struct kernels kernels;
static CUmemoryPool pool;
static CUstream stream;
static CUdeviceptr kept; /* one that stays */

static cuuint64_t attribute(CUmemPool_attribute which)
{
    cuuint64_t value = ~0ull;

    CHECK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void come_and_go(unsigned count)
{
    CUdeviceptr ring[16] = {0};

    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr *address = &ring[i % 16];

        if (*address)
            CHECK(cuMemFreeAsync(*address, stream));
        CHECK(cuMemAllocAsync(address, 256 + i % 7 * 4096, stream));
    }
    for (unsigned i = 0; i < 16; i++)
        CHECK(cuMemFreeAsync(ring[i], stream));
    CHECK(cuStreamSynchronize(stream));
}

static void verify(void)
{
    words_check(&kernels, kept, 1 << 20, 7, NULL);
    words_checked(&kernels, "the block that stays");
    EXPECT(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 4 << 20);
    EXPECT(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) < 5 << 20);
    EXPECT(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
}

int main(int argc, char **argv)
{
    uint64_t count, start, spent;

    program_start(argc, argv);
    count = program_setting("TEST_ALLOCATIONS", 100000);
    device_start();
    if (!device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        program_skip("the device has no memory pools");
    kernels_load(&kernels);
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    start = program_now_ns();
    come_and_go((unsigned)count);
    spent = program_now_ns() - start;
    if (program_setting("TEST_SHOW", 0))
        fprintf(stderr, "%llu ns for an allocation and its free\n", (unsigned long long)(spent / count));
    EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    if (program_is_preloaded()) /* the driver keeps some */
        EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK(cuMemAllocAsync(&kept, 4 << 20, stream));
    words_fill(&kernels, kept, 1 << 20, 7, stream);
    CHECK(cuStreamSynchronize(stream));
    verify();
    program_ready(verify);
    while (program_running())
        come_and_go(500);
    CHECK(cuMemFreeAsync(kept, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
