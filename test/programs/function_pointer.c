/* The address of a device function, stored in device memory before a suspend, is called afterwards. */

#include "device.h"

static CUmodule module, before, after;
static CUfunction get_fn, call_fn;
static CUdeviceptr pointer, result;

static void check_call(uint32_t x)
{
    LAUNCH(call_fn, 1, 1, NULL, &pointer, &x, &result);
    CHECK(cuCtxSynchronize());
    EXPECT_EQ(word_get(result), x + 1);
}

static void check_all(void)
{
    CUdeviceptr again;
    uint64_t addresses[2] = {0, 0};

    check_call(program_random());
    /* Asked again, the address is the same one. */
    CHECK(cuMemAlloc_v2(&again, 8));
    LAUNCH(get_fn, 1, 1, NULL, &again);
    CHECK(cuMemcpyDtoH_v2(&addresses[0], pointer, 8));
    CHECK(cuMemcpyDtoH_v2(&addresses[1], again, 8));
    EXPECT_EQ(addresses[1], addresses[0]);
    EXPECT(addresses[0] != 0);
    CHECK(cuMemFree_v2(again));
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    CHECK(cuMemAlloc_v2(&pointer, 8));
    CHECK(cuMemAlloc_v2(&result, 4));
    /* Code of other modules before and behind, one of which is gone by the time of the suspend. */
    CHECK(cuModuleLoadData(&before, kernels_ptx));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleLoadData(&after, kernels_ptx));
    LAUNCH_PLAIN(kernel_get(before, "bump"), NULL);
    get_fn = kernel_get(module, "get_fn");
    call_fn = kernel_get(module, "call_fn");
    LAUNCH(get_fn, 1, 1, NULL, &pointer);
    LAUNCH_PLAIN(kernel_get(after, "bump"), NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(before));
    program_ready(check_all);
    while (program_running()) {
        check_call(program_random());
        program_sleep_ms(1);
    }
    CHECK(cuModuleUnload(after));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
