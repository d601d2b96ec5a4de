/* Libraries: kernels, functions, globals and modules asked of them, launches by kernel and by function. */

#include "device.h"

#include <stdlib.h>
#include <string.h>

static CUlibrary library;
static CUkernel bump, increment, fill;
static CUfunction bump_function;
static CUmodule module;
static CUdeviceptr counter, word;
static size_t counter_size;
static uint32_t count;

static void library_load(void)
{
    char *text = strdup(kernels_ptx);
    CUjit_option options[] = {CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {(void *)(uintptr_t)4};

    if (!text)
        FAIL("no memory");
    CHECK(cuLibraryLoadData(&library, text, options, values, 1, NULL, NULL, 0));
    memset(text, 'x', strlen(text));
    free(text);
    memset(options, 0xff, sizeof options);
    memset(values, 0xff, sizeof values);
    CHECK(cuLibraryGetKernel(&bump, library, "bump"));
    CHECK(cuLibraryGetKernel(&increment, library, "increment"));
    CHECK(cuLibraryGetKernel(&fill, library, "fill"));
    CHECK(cuKernelGetFunction(&bump_function, bump));
    CHECK(cuLibraryGetGlobal(&counter, &counter_size, library, "g_counter"));
    EXPECT_EQ(counter_size, 4);
    CHECK(cuLibraryGetModule(&module, library));
}

static void check_all(void)
{
    CUkernel kernel;
    CUfunction function;
    CUmodule again;
    CUdeviceptr address;
    size_t size;
    int threads;

    EXPECT_EQ(word_get(counter), KERNELS_GLOBAL_INITIAL + 2 * count);
    EXPECT_EQ(word_get(word), 5 * count);
    CHECK(cuLibraryGetKernel(&kernel, library, "bump"));
    EXPECT(kernel == bump);
    CHECK(cuLibraryGetKernel(&kernel, library, "increment"));
    EXPECT(kernel == increment);
    CHECK(cuKernelGetFunction(&function, bump));
    EXPECT(function == bump_function);
    CHECK(cuLibraryGetModule(&again, library));
    EXPECT(again == module);
    CHECK(cuLibraryGetGlobal(&address, &size, library, "g_counter"));
    EXPECT_EQ(address, counter);
    CHECK_GIVES(cuLibraryGetKernel(&kernel, library, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    CHECK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill, 0));
    EXPECT(threads >= 256);
}

/* Another library that comes and goes. */
static void load_and_unload(void)
{
    CUlibrary other;
    CUkernel kernel;

    CHECK(cuLibraryLoadData(&other, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, other, "bump"));
    LAUNCH_PLAIN((CUfunction)kernel, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(other));
}

int main(int argc, char **argv)
{
    uint32_t five = 5;

    program_start(argc, argv);
    device_start();
    library_load();
    CHECK(cuMemAlloc_v2(&word, 4));
    word_set(word, 0);
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN((CUfunction)bump, NULL); /* a kernel may be passed for a function */
        LAUNCH_PLAIN(bump_function, NULL);
        LAUNCH((CUfunction)increment, 1, 1, NULL, &word, &five);
        CHECK(cuCtxSynchronize());
        count++;
        check_all();
        if (count % 16 == 0)
            load_and_unload();
        program_sleep_ms(1);
    }
    CHECK(cuLibraryUnload(library));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
