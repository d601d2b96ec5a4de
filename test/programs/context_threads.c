/* Threads with current contexts and stacks of their own, some of which come and go. */

#include "device.h"

#include <pthread.h>

#define KEPT 4

static CUcontext primary, other;

static void check_current(CUcontext expected)
{
    CUcontext current;

    CHECK(cuCtxGetCurrent(&current));
    if (current != expected)
        FAIL("the current context is %p, not %p", (void *)current, (void *)expected);
}

/* Uses memory of the current context. */
static void use_memory(void)
{
    CUdeviceptr address;

    CHECK(cuMemAlloc_v2(&address, 1000));
    CHECK(cuMemsetD32_v2(address, 77, 250));
    EXPECT_EQ(word_get(address + 996), 77);
    CHECK(cuMemFree_v2(address));
}

/* A thread that begins without a context, fills its stack and looks at it again and again. */
static void *keep_stack(void *arg)
{
    uintptr_t number = (uintptr_t)arg;
    CUcontext popped;

    check_current(NULL);
    if (number == 0) { /* never has one: the calls that need one say so, before and after */
        CUdeviceptr none;

        while (program_goes_on()) {
            check_current(NULL);
            CHECK_GIVES(cuMemAlloc_v2(&none, 100), CUDA_ERROR_INVALID_CONTEXT);
            program_sleep_ms(1);
        }
        return NULL;
    }
    CHECK(cuCtxSetCurrent(number % 2 ? primary : other));
    CHECK(cuCtxPushCurrent_v2(number % 2 ? other : primary));
    CHECK(cuCtxPushCurrent_v2(other));
    while (program_goes_on()) {
        check_current(other);
        use_memory();
        CHECK(cuCtxPopCurrent_v2(&popped));
        EXPECT(popped == other);
        check_current(number % 2 ? other : primary);
        use_memory();
        CHECK(cuCtxPopCurrent_v2(&popped));
        check_current(number % 2 ? primary : other);
        CHECK(cuCtxPushCurrent_v2(number % 2 ? other : primary));
        CHECK(cuCtxPushCurrent_v2(other));
        program_sleep_ms(1);
    }
    return NULL;
}

static void *come_and_go(void *arg)
{
    CUcontext popped;

    check_current(NULL);
    CHECK(cuCtxPushCurrent_v2(arg ? primary : other));
    use_memory();
    if (arg) /* the other one ends with its stack as it is */
        CHECK(cuCtxPopCurrent_v2(&popped));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t kept[KEPT];
    unsigned round = 0;

    program_start(argc, argv);
    primary = device_start();
    CHECK(cuCtxCreate_v2(&other, CU_CTX_SCHED_AUTO, 0));
    CHECK(cuCtxPopCurrent_v2(&other));
    for (uintptr_t i = 0; i < KEPT; i++)
        kept[i] = program_thread(keep_stack, (void *)i);
    program_ready(NULL);
    while (program_running()) {
        pthread_t thread = program_thread(come_and_go, round++ % 2 ? &round : NULL);

        program_thread_join(thread);
        check_current(primary);
        use_memory();
        program_sleep_ms(1);
    }
    for (int i = 0; i < KEPT; i++)
        program_thread_join(kept[i]);
    CHECK(cuCtxDestroy_v2(other));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
