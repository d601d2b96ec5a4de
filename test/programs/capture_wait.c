/* Stream captures begin and end all the time: a suspend waits for the end of one, and never breaks it. */

#include "device.h"

static struct kernels kernels;
static CUstream stream;
static CUdeviceptr word;
static uint32_t count;

static void capture_and_launch(void)
{
    CUstreamCaptureStatus status;
    CUgraphExec exec;
    CUgraph graph;
    uint32_t one = 1;

    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < 5; i++) {
        LAUNCH(kernels.increment, 1, 1, stream, &word, &one);
        program_sleep_ms(2); /* a suspend that did not wait would come here */
        CHECK(cuStreamIsCapturing(stream, &status));
        EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    }
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    count += 5;
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void check_all(void)
{
    EXPECT_EQ(word_get(word), count);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&word, 4));
    word_set(word, 0);
    program_ready(check_all);
    while (program_running()) {
        capture_and_launch();
        check_all();
        program_sleep_ms(program_random() % 8);
    }
    CHECK(cuMemFree_v2(word));
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
