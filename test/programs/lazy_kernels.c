/* Kernels that are launched for the first time only after a resume: one more each time that verify runs. */

#include "device.h"

static CUmodule module;
static CUfunction copy_words, increment, fill, stamp; /* asked for at the start, except stamp */
static CUdeviceptr words;
static int step;

static void launch_next(void)
{
    uint32_t seed = 9, one = 1;
    uint64_t count = 100;
    CUdeviceptr second = words + 400, time = words + 800;

    switch (step++ % 4) {
    case 0:
        LAUNCH(fill, 1, 32, NULL, &words, &count, &seed);
        CHECK(cuCtxSynchronize());
        EXPECT_EQ(word_get(words + 4 * 99), KERNELS_FILL(99, seed));
        break;
    case 1:
        LAUNCH(copy_words, 1, 32, NULL, &second, &words, &count);
        CHECK(cuCtxSynchronize());
        EXPECT_EQ(word_get(second + 4 * 99), KERNELS_FILL(99, seed));
        break;
    case 2:
        LAUNCH(increment, 1, 1, NULL, &words, &one);
        CHECK(cuCtxSynchronize());
        EXPECT_EQ(word_get(words), KERNELS_FILL(0, seed) + 1);
        break;
    default: /* asked for only now, too; then all begins again with a new module */
        stamp = kernel_get(module, "stamp");
        LAUNCH(stamp, 1, 1, NULL, &time);
        CHECK(cuCtxSynchronize());
        EXPECT(word_get(time) != 0 || word_get(time + 4) != 0);
        CHECK(cuModuleUnload(module));
        module = NULL;
    }
}

static void load(void)
{
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    copy_words = kernel_get(module, "copy_words");
    increment = kernel_get(module, "increment");
    fill = kernel_get(module, "fill");
}

static void check_all(void)
{
    launch_next();
    if (!module)
        load();
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    CHECK(cuMemAlloc_v2(&words, 808));
    CHECK(cuMemsetD32_v2(words, 0, 202));
    load();
    program_ready(check_all);
    while (program_running()) {
        CHECK(cuMemsetD32_v2(words + 800, 0, 2)); /* something to do that loads no kernel of ours */
        program_sleep_ms(1);
    }
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
