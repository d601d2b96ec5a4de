/* A kernel does not end: the suspend times out and the program runs on; once it has ended all works. */
// expect: suspend-exit=5 timeout=500 then=release again=arm

#include "device.h"

static struct kernels kernels;
static CUstream spinning, working;
static volatile uint32_t *flag; /* pinned; the kernel waits until it is 1 */
static uint32_t count;
static bool armed;         /* main thread: a kernel spins */
static bool wanted = true; /* the runner wants a kernel to spin */

static void release(void)
{
    __atomic_store_n(&wanted, false, __ATOMIC_SEQ_CST);
    *flag = 1;
}

static void arm(void)
{
    __atomic_store_n(&wanted, true, __ATOMIC_SEQ_CST);
}

static void spin(void)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)flag;
    uint32_t one = 1;

    *flag = 0;
    LAUNCH(kernels.spin_until, 1, 1, spinning, &address, &one);
    CHECK_GIVES(cuStreamQuery(spinning), CUDA_ERROR_NOT_READY);
    armed = true;
}

static void check_all(void)
{
    /* Nothing of the kind that waits for all streams: that would wait for the spinning kernel. */
    CHECK(cuStreamSynchronize(working));
    EXPECT_EQ(flag[1], count);
}

int main(int argc, char **argv)
{
    CUdeviceptr counter;
    uint32_t one = 1;
    void *host;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&spinning, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc(&host, 8, 0));
    flag = host;
    flag[0] = flag[1] = 0;
    counter = (CUdeviceptr)(uintptr_t)host + 4;
    /* Both kernels are loaded before one of them spins. */
    LAUNCH(kernels.increment, 1, 1, working, &counter, &one);
    CHECK(cuStreamSynchronize(working));
    count++;
    spin();
    program_command("release", release);
    program_command("arm", arm);
    program_ready(check_all);
    while (program_running()) {
        bool now;

        LAUNCH(kernels.increment, 1, 1, working, &counter, &one);
        count++;
        check_all();
        if (armed && cuStreamQuery(spinning) != CUDA_ERROR_NOT_READY)
            EXPECT(!__atomic_load_n(&wanted, __ATOMIC_SEQ_CST)); /* it ends only when it is released */
        now = __atomic_load_n(&wanted, __ATOMIC_SEQ_CST);
        if (armed && !now) {
            CHECK(cuStreamSynchronize(spinning));
            armed = false;
        }
        if (!armed && now)
            spin();
    }
    if (armed) {
        *flag = 1;
        CHECK(cuStreamSynchronize(spinning));
    }
    CHECK(cuStreamDestroy_v2(spinning));
    CHECK(cuStreamDestroy_v2(working));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
