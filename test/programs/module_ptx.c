/* A module from PTX text that is gone after the load, with JIT options that were on the stack. */

#include "device.h"

#include <stdlib.h>
#include <string.h>

static struct kernels plain;
static CUmodule with_options;
static CUfunction increment, bump;
static CUdeviceptr word, global;
static uint32_t count;

static void load_with_options(void)
{
    char *text = strdup(kernels_ptx);
    char log[2000] = "";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {log, (void *)(uintptr_t)sizeof log, (void *)(uintptr_t)3};

    if (!text)
        FAIL("no memory");
    CHECK(cuModuleLoadDataEx(&with_options, text, 3, options, values));
    /* Nobody may count on any of these any more. */
    memset(text, 'x', strlen(text));
    free(text);
    memset(log, 0xff, sizeof log);
    memset(options, 0xff, sizeof options);
    memset(values, 0xff, sizeof values);
    increment = kernel_get(with_options, "increment");
    bump = kernel_get(with_options, "bump");
    global = global_get(with_options, "g_counter", sizeof(uint32_t));
}

static void check_all(void)
{
    CUfunction none;

    EXPECT_EQ(word_get(word), count);
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
    EXPECT_EQ(global_get(with_options, "g_counter", sizeof(uint32_t)), global);
    EXPECT(kernel_get(with_options, "increment") == increment);
    EXPECT(kernel_get(plain.module, "fill") == plain.fill);
    CHECK_GIVES(cuModuleGetFunction(&none, with_options, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    words_fill(&plain, word + 4, 10, count, NULL);
    words_check(&plain, word + 4, 10, count, NULL);
    words_checked(&plain, "words after the counter");
}

int main(int argc, char **argv)
{
    CUmodule none;
    uint32_t one = 1;

    program_start(argc, argv);
    device_start();
    kernels_load(&plain);
    load_with_options();
    CHECK(cuMemAlloc_v2(&word, 44));
    word_set(word, 0);
    program_ready(check_all);
    while (program_running()) {
        LAUNCH(increment, 1, 1, NULL, &word, &one);
        LAUNCH_PLAIN(bump, NULL);
        LAUNCH_PLAIN(plain.bump, NULL); /* has a g_counter of its own */
        LAUNCH_PLAIN(plain.bump, NULL);
        CHECK(cuCtxSynchronize());
        count++;
        check_all();
        EXPECT_EQ(word_get(global_get(plain.module, "g_counter", 4)), KERNELS_GLOBAL_INITIAL + 2 * count);
        if (count % 64 == 0) {
            CUresult result = cuModuleLoadData(&none, "this is no module");

            EXPECT(result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX);
        }
    }
    CHECK(cuModuleUnload(with_options));
    kernels_unload(&plain);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
