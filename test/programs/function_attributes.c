/* Function attributes: launches with 96 KiB of dynamic shared memory, the carve-out, cache preferences. */

#include "device.h"

static CUmodule module;
static CUfunction shared_sum;
static CUlibrary library;
static CUkernel shared_kernel;
static CUdeviceptr word;
static int bytes, carveout;

static void check_sum(CUfunction function)
{
    uint32_t n = (uint32_t)bytes / 4;
    void *arguments[] = {&word, &n};

    word_set(word, 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, (unsigned)bytes, NULL, arguments, NULL));
    CHECK(cuCtxSynchronize());
    EXPECT_EQ(word_get(word), (uint32_t)((uint64_t)n * (n - 1) / 2));
}

static void check_all(void)
{
    int value;

    check_sum(shared_sum);
    check_sum((CUfunction)shared_kernel);
    CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_sum));
    EXPECT_EQ(value, bytes);
    CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, shared_sum));
    EXPECT_EQ(value, carveout);
    CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_kernel, 0));
    EXPECT_EQ(value, bytes);
}

int main(int argc, char **argv)
{
    int limit;

    program_start(argc, argv);
    device_start();
    limit = device_attribute(97 /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */);
    bytes = limit < 96 << 10 ? limit : 96 << 10;
    CHECK(cuMemAlloc_v2(&word, 4));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    shared_sum = kernel_get(module, "shared_sum");
    CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&shared_kernel, library, "shared_sum"));
    CHECK(cuFuncSetAttribute(shared_sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
    CHECK(cuFuncSetAttribute(shared_sum, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 60));
    CHECK(cuFuncGetAttribute(&carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, shared_sum));
    CHECK(cuFuncSetCacheConfig(shared_sum, CU_FUNC_CACHE_PREFER_SHARED));
    CHECK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, shared_kernel, 0));
    /* In every second run the first launch comes only after a resume. */
    program_ready(check_all);
    while (program_running()) {
        if (program_setting("TEST_SEED", 1) % 2)
            check_sum(shared_sum);
        program_sleep_ms(1);
    }
    CHECK(cuLibraryUnload(library));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
