/* A graph that can't be made again refuses the suspend, with the reason: here its event was destroyed. */
// expect: suspend-exit=6 message=event

#include "device.h"

static CUstream stream;
static CUdeviceptr word;
static CUgraphExec exec;

static void make(void)
{
    CUgraphNode set, record;
    CUDA_MEMSET_NODE_PARAMS params = {.dst = word, .value = 7, .elementSize = 4, .width = 1, .height = 1};
    CUcontext context;
    CUgraph graph;
    CUevent event;

    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEventRecordNode(&record, graph, NULL, 0, event));
    CHECK(cuGraphAddMemsetNode(&set, graph, &record, 1, &params, context));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuEventDestroy_v2(event));
}

static void check_all(void)
{
    word_set(word, 8);
    EXPECT_EQ(word_get(word), 8);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&word, 4));
    make();
    program_ready(check_all);
    while (program_running()) {
        check_all();
        program_sleep_ms(1);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuMemFree_v2(word));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
