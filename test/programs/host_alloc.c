/* Pinned memory with all flags: written by the CPU while suspended, seen by the device afterwards. */

#include "device.h"

#include <string.h>

/* Word 0 belongs to the ticking thread, word 1 to the device, the rest holds a pattern. */
static const struct {
    size_t size;
    unsigned flags;
} requests[] = {
    {4096, 0},
    {100000, CU_MEMHOSTALLOC_PORTABLE},
    {8, CU_MEMHOSTALLOC_DEVICEMAP},
    {3 << 20, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP},
    {65536, CU_MEMHOSTALLOC_WRITECOMBINED},
    {65540, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE},
    {5000, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_DEVICEMAP},
    {12, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP},
};

#define AREAS (sizeof requests / sizeof requests[0])

static struct area {
    volatile uint32_t *host;
    CUdeviceptr device;
    unsigned flags;
    uint32_t seed, count;
} areas[AREAS];
static struct kernels kernels;
static CUdeviceptr word;

static void area_make(size_t i)
{
    struct area *area = &areas[i];
    void *host;

    CHECK(cuMemHostAlloc(&host, requests[i].size, requests[i].flags));
    CHECK(cuMemHostGetDevicePointer_v2(&area->device, host, 0));
    CHECK(cuMemHostGetFlags(&area->flags, host));
    area->seed = program_random();
    area->count = 0;
    for (size_t j = 2; j < requests[i].size / 4; j++)
        ((uint32_t *)host)[j] = KERNELS_FILL(j - 2, area->seed);
    ((uint32_t *)host)[0] = ((uint32_t *)host)[1] = 0;
    /* From now on the ticking thread may write to it. */
    __atomic_store_n((void **)(uintptr_t)&area->host, host, __ATOMIC_SEQ_CST);
}

/* Without CUDA: runs while the program is suspended. */
static void write_ticks(uint64_t tick)
{
    for (size_t i = 0; i < AREAS; i++)
        areas[i].host[0] = (uint32_t)tick;
}

static void area_check(size_t i)
{
    struct area *area = &areas[i];
    uint32_t one = 1, before, seen, after;
    uint64_t words = 1;
    CUdeviceptr device, counter = area->device + 4;
    unsigned flags;

    CHECK(cuMemHostGetDevicePointer_v2(&device, (void *)(uintptr_t)area->host, 0));
    EXPECT_EQ(device, area->device);
    CHECK(cuMemHostGetFlags(&flags, (void *)(uintptr_t)area->host));
    EXPECT_EQ(flags, area->flags);

    /* The device reads what the CPU wrote... */
    before = area->host[0];
    LAUNCH(kernels.copy_words, 1, 1, NULL, &word, &device, &words);
    CHECK(cuCtxSynchronize());
    after = area->host[0];
    seen = word_get(word);
    if (seen < before || seen > after)
        FAIL("the device saw tick %u in area %zu, the CPU wrote %u before and %u after", seen, i, before,
             after);

    /* ...and the CPU what the device wrote. */
    LAUNCH(kernels.increment, 1, 1, NULL, &counter, &one);
    CHECK(cuCtxSynchronize());
    area->count++;
    EXPECT_EQ(area->host[1], area->count);
}

static void check_all(void)
{
    for (size_t i = 0; i < AREAS; i++) {
        uint64_t words = requests[i].size / 4 - 2;

        area_check(i);
        for (size_t j = 0; j < words; j++)
            if (areas[i].host[j + 2] != KERNELS_FILL(j, areas[i].seed))
                FAIL("word %zu of area %zu is wrong for the CPU", j + 2, i);
        if (words)
            words_check(&kernels, areas[i].device + 8, words, areas[i].seed, NULL);
    }
    words_checked(&kernels, "pinned memory as the device sees it");
}

int main(int argc, char **argv)
{
    void *extra;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&word, 4));
    for (size_t i = 0; i < AREAS; i++)
        area_make(i);
    program_on_tick(write_ticks);
    program_ready(check_all);
    while (program_running()) {
        for (size_t i = 0; i < AREAS; i++)
            area_check(i);
        CHECK(cuMemAllocHost_v2(&extra, 1 + program_random() % 100000));
        memset(extra, 1, 1);
        CHECK(cuMemFreeHost(extra));
    }
    /* The areas are not given back: the ticking thread writes until the end. */
    return program_end();
}
