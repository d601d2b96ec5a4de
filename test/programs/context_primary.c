/* The primary context: counted retains and releases, its flags, a reset after which the program goes on. */

#include "device.h"

static struct kernels kernels;
static CUcontext context;
static CUdeviceptr words;
static uint32_t seed;
static int retained;

#define WORDS 5000

static bool is_active(void)
{
    unsigned flags;
    int active;

    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    if (active)
        EXPECT_EQ(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    return active;
}

static void retain(void)
{
    CUcontext again;

    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    retained++;
    if (context)
        EXPECT(again == context);
    context = again;
}

static void release(void)
{
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    retained--;
}

/* A reset says nothing about what it does to the count. */
static void release_all(void)
{
    for (int i = 0; is_active(); i++) {
        EXPECT(i < 100000);
        release();
    }
    retained = 0;
}

static void fill(void)
{
    CHECK(cuCtxSetCurrent(context));
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&words, WORDS * 4));
    seed = program_random();
    words_fill(&kernels, words, WORDS, seed, NULL);
    CHECK(cuCtxSynchronize());
}

/* The content of the context is gone with it. It is the same context for the program when it is made again.
 */
static void lose_by_reset(void)
{
    CHECK(cuDevicePrimaryCtxReset_v2(0));
    EXPECT(!is_active());
    retained = 0;
    context = NULL;
    retain();
    EXPECT(is_active());
    fill();
}

static void lose_by_release(void)
{
    release_all();
    context = NULL;
    retain();
    retain();
    release();
    EXPECT(is_active());
    fill();
}

static void check_all(void)
{
    CUcontext current;
    CUdevice device;

    EXPECT(is_active());
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == context);
    CHECK(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 0);
    words_check(&kernels, words, WORDS, seed, NULL);
    words_checked(&kernels, "memory of the primary context");
    retain(); /* gives the same one */
    release();
}

int main(int argc, char **argv)
{
    unsigned round = 0;

    program_start(argc, argv);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT(!is_active());
    retain();
    fill();
    program_ready(check_all);
    while (program_running()) {
        round++;
        if (round % 4 == 1)
            retain(); /* the count at the suspend is another one each time */
        else if (retained > 1)
            release();
        if (round % 200 == 100)
            lose_by_reset();
        if (round % 200 == 199)
            lose_by_release();
        check_all();
        program_sleep_ms(1);
    }
    release_all();
    return program_end();
}
