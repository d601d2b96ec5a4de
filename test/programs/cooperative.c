/* Cooperative launches, and launches with attributes by cuLaunchKernelEx. */

#include "device.h"

static CUmodule module;
static CUfunction grid_count;
static CUstream stream;
static CUdeviceptr word;
static uint32_t count;

static void launch_cooperative(unsigned blocks)
{
    void *arguments[] = {&word};

    CHECK(cuLaunchCooperativeKernel(grid_count, blocks, 1, 1, 32, 1, 1, 0, stream, arguments));
    count += blocks;
}

static void launch_with_attributes(unsigned blocks)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {
        .gridDimX = blocks,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 64,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream,
        .attrs = &attribute,
        .numAttrs = 1,
    };
    void *arguments[] = {&word};

    CHECK(cuLaunchKernelEx(&config, grid_count, arguments, NULL));
    count += blocks;
}

static void check_all(void)
{
    launch_cooperative(7);
    launch_with_attributes(3);
    CHECK(cuStreamSynchronize(stream));
    EXPECT_EQ(word_get(word), count);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    if (!device_attribute(95 /* CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH */))
        program_skip("the device has no cooperative launch");
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    grid_count = kernel_get(module, "grid_count");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&word, 4));
    word_set(word, 0);
    program_ready(check_all);
    while (program_running()) {
        launch_cooperative(1 + program_random() % 16);
        check_all();
    }
    CHECK(cuMemFree_v2(word));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
