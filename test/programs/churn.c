/*
 * Thousands of objects of each kind are made and destroyed; what is left is what counts. verify goes on until
 * TEST_CHURN (10000) of each kind, and a fiftieth of modules and libraries, were made since the last time.
 */

#include "device.h"

#include <string.h>

#define STEP 200 /* of each kind in a round */

static const char small_module[] = ".version 7.0\n"
                                   ".target sm_52\n"
                                   ".address_size 64\n"
                                   ".visible .global .align 4 .u32 g_counter = 7;\n"
                                   ".visible .entry bump()\n"
                                   "{\n"
                                   "    .reg .b32 %r<2>;\n"
                                   "    .reg .b64 %rd<2>;\n"
                                   "    mov.u64 %rd1, g_counter;\n"
                                   "    atom.global.add.u32 %r1, [%rd1], 1;\n"
                                   "    ret;\n"
                                   "}\n";

/* The last ones made are kept for a while, so that objects of all ages exist at a suspend. */
#define KEPT 16

static struct kernels kernels;
static CUstream streams[KEPT];
static CUevent events[KEPT];
static CUdeviceptr blocks[KEPT];
static void *hosts[KEPT];
static CUmodule modules[KEPT];
static CUlibrary libraries[KEPT];
static uint64_t made;

static void churn_objects(void)
{
    for (int i = 0; i < STEP; i++) {
        int slot = (int)(made++ % KEPT);

        if (streams[slot])
            CHECK(cuStreamDestroy_v2(streams[slot]));
        CHECK(cuStreamCreate(&streams[slot], CU_STREAM_NON_BLOCKING));
        if (events[slot])
            CHECK(cuEventDestroy_v2(events[slot]));
        CHECK(cuEventCreate(&events[slot], i % 2 ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT));
        CHECK(cuEventRecord(events[slot], streams[slot]));
        if (blocks[slot])
            CHECK(cuMemFree_v2(blocks[slot]));
        CHECK(cuMemAlloc_v2(&blocks[slot], 4 + program_random() % 30000));
        word_set(blocks[slot], (uint32_t)slot);
        if (i % 8 == 0) { /* these are slow */
            if (hosts[slot])
                CHECK(cuMemFreeHost(hosts[slot]));
            CHECK(cuMemHostAlloc(&hosts[slot], 4096, 0));
            memset(hosts[slot], slot, 4096);
        }
    }
}

static void module_load(int slot)
{
    CUkernel kernel;

    CHECK(cuModuleLoadData(&modules[slot], small_module));
    LAUNCH_PLAIN(kernel_get(modules[slot], "bump"), NULL);
    CHECK(cuLibraryLoadData(&libraries[slot], small_module, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, libraries[slot], "bump"));
    CHECK(cuCtxSynchronize());
}

static void module_unload(int slot)
{
    CHECK(cuModuleUnload(modules[slot]));
    CHECK(cuLibraryUnload(libraries[slot]));
    modules[slot] = NULL;
    libraries[slot] = NULL;
}

/* The first ones stay for ever; the last place is for what comes and goes. */
static void churn_modules(void)
{
    for (int i = 0; i < KEPT - 1; i++)
        if (!modules[i])
            module_load(i);
    for (int i = 0; i < STEP / 50; i++) {
        module_load(KEPT - 1);
        module_unload(KEPT - 1);
    }
}

static void check_kept(void)
{
    for (int i = 0; i < KEPT; i++) {
        if (blocks[i])
            EXPECT_EQ(word_get(blocks[i]), i);
        if (streams[i])
            CHECK(cuStreamSynchronize(streams[i]));
        if (events[i])
            CHECK(cuEventQuery(events[i]));
        if (hosts[i])
            EXPECT_EQ(((unsigned char *)hosts[i])[4095], i);
        if (modules[i])
            EXPECT_EQ(word_get(global_get(modules[i], "g_counter", 4)), 8);
    }
}

static void check_all(void)
{
    static uint64_t made_before;

    while (made < made_before + program_setting("TEST_CHURN", 10000)) {
        churn_objects();
        churn_modules();
    }
    made_before = made;
    check_kept();
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    program_ready(check_all);
    while (program_running()) {
        churn_objects();
        churn_modules();
        check_kept();
    }
    for (int i = 0; i < KEPT; i++)
        if (modules[i])
            module_unload(i);
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
