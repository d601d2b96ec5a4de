/* Eight threads launch without pause: the lock must get in, and no launch may be lost. */

#include "device.h"

#define THREADS 8

static struct kernels kernels;
static CUcontext context;
static CUdeviceptr shared_word;
static uint64_t launched; /* by all threads */
static bool pause_wanted;
static int paused;

/* Holds the threads while the main thread compares; they are told by a flag, so that launching costs nothing
 * more. */
static void pause_here(void)
{
    if (!__atomic_load_n(&pause_wanted, __ATOMIC_SEQ_CST))
        return;
    __atomic_add_fetch(&paused, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&pause_wanted, __ATOMIC_SEQ_CST))
        program_sleep_ms(1);
    __atomic_sub_fetch(&paused, 1, __ATOMIC_SEQ_CST);
}

static void *launch_all_the_time(void *arg)
{
    CUdeviceptr own;
    CUstream stream;
    uint32_t one = 1, count = 0;

    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&own, 4));
    word_set(own, 0);
    while (program_goes_on()) {
        for (int i = 0; i < 100; i++) {
            LAUNCH(kernels.increment, 1, 1, stream, &own, &one);
            LAUNCH(kernels.increment, 1, 1, stream, &shared_word, &one);
            count++;
            __atomic_add_fetch(&launched, 1, __ATOMIC_SEQ_CST);
        }
        CHECK(cuStreamSynchronize(stream));
        EXPECT_EQ(word_get(own), count);
        pause_here();
    }
    CHECK(cuMemFree_v2(own));
    CHECK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void check_all(void)
{
    __atomic_store_n(&pause_wanted, true, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&paused, __ATOMIC_SEQ_CST) < THREADS)
        program_sleep_ms(1);
    CHECK(cuCtxSynchronize());
    EXPECT_EQ(word_get(shared_word), (uint32_t)launched);
    __atomic_store_n(&pause_wanted, false, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&paused, __ATOMIC_SEQ_CST) > 0)
        program_sleep_ms(1);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    CUcontext current;

    program_start(argc, argv);
    context = device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&shared_word, 4));
    word_set(shared_word, 0);
    for (int i = 0; i < THREADS; i++)
        threads[i] = program_thread(launch_all_the_time, NULL);
    program_ready(check_all);
    while (program_running()) {
        CHECK(cuCtxGetCurrent(&current));
        EXPECT(current == context);
        program_sleep_ms(1);
    }
    for (int i = 0; i < THREADS; i++)
        program_thread_join(threads[i]);
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
