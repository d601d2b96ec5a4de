/* Host functions and stream callbacks are in flight all the time; each runs once and in order. */

#include "device.h"

#include <stdlib.h>

#define QUEUED_MAX 64

static CUstream streams[2]; /* one for host functions, one for callbacks */
static struct kernels kernels;
static CUdeviceptr words;
static uint64_t queued[2], ran[2];

struct call {
    int stream;
    uint64_t number;
};

static void note(struct call *call)
{
    uint64_t before = __atomic_fetch_add(&ran[call->stream], 1, __ATOMIC_SEQ_CST);

    if (before != call->number)
        FAIL("call %llu of stream %d came as number %llu", (unsigned long long)call->number, call->stream,
             (unsigned long long)before);
    if (call->number % 16 == 0)
        program_sleep_ms(2); /* is still running when the suspend begins */
    free(call);
}

static void host_function(void *arg)
{
    note(arg);
}

static void callback(CUstream stream, CUresult result, void *arg)
{
    if (stream != streams[1] || result != CUDA_SUCCESS)
        FAIL("callback with stream %p and %s", (void *)stream, program_result_name(result));
    note(arg);
}

static void queue(int stream)
{
    struct call *call = malloc(sizeof *call);
    CUdeviceptr word = words + 4 * (unsigned)stream;
    uint32_t one = 1;

    if (!call)
        FAIL("no memory");
    call->stream = stream;
    call->number = queued[stream]++;
    LAUNCH(kernels.increment, 1, 1, streams[stream], &word, &one);
    if (stream == 0)
        CHECK(cuLaunchHostFunc(streams[0], host_function, call));
    else
        CHECK(cuStreamAddCallback(streams[1], callback, call, 0));
}

static void check_all(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK(cuStreamSynchronize(streams[i]));
        EXPECT_EQ(__atomic_load_n(&ran[i], __ATOMIC_SEQ_CST), queued[i]);
        EXPECT_EQ(word_get(words + 4 * (unsigned)i), (uint32_t)queued[i]);
    }
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&words, 8));
    CHECK(cuMemsetD32_v2(words, 0, 2));
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    program_ready(check_all);
    while (program_running()) {
        for (int i = 0; i < 2; i++)
            if (queued[i] - __atomic_load_n(&ran[i], __ATOMIC_SEQ_CST) < QUEUED_MAX)
                queue(i);
        if (program_random() % 1024 == 0)
            check_all();
    }
    check_all();
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamDestroy_v2(streams[i]));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
