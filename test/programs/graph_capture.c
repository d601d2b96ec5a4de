/* Captured graphs: those kept, those destroyed after they were instantiated, and those captured all the time.
 */

#include "device.h"

#define WORDS 1000

static struct kernels kernels;
static CUstream stream, other;
static CUevent fork_event, join_event;
static CUdeviceptr words, copy;
static uint32_t value;
static CUgraph kept;
static CUgraphNode kept_nodes[16];
static size_t kept_count;
static CUgraphExec of_kept, of_gone;

/* Words are filled by value, copied by another stream, and checked. */
static CUgraph capture(uint32_t seed)
{
    uint64_t count = WORDS;
    CUgraph graph;

    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    words_fill(&kernels, words, WORDS, seed, stream);
    CHECK(cuEventRecord(fork_event, stream));
    CHECK(cuStreamWaitEvent(other, fork_event, 0));
    CHECK(cuMemcpyDtoDAsync_v2(copy, words, WORDS * 4, other));
    words_check(&kernels, copy, WORDS, seed, other);
    CHECK(cuEventRecord(join_event, other));
    words_check(&kernels, words, WORDS, seed, stream);
    CHECK(cuStreamWaitEvent(stream, join_event, 0));
    CHECK(cuMemsetD32Async(words, 0, WORDS, stream));
    LAUNCH(kernels.copy_words, 4, 64, stream, &words, &copy, &count);
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void run(CUgraphExec exec, uint32_t seed)
{
    CHECK(cuGraphLaunch(exec, stream));
    words_check(&kernels, words, WORDS, seed, stream);
    words_checked(&kernels, "words of a graph");
}

static void capture_and_run(uint32_t seed)
{
    CUgraph graph = capture(seed);
    CUgraphExec exec;

    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    run(exec, seed);
    CHECK(cuGraphExecDestroy(exec));
}

static void check_all(void)
{
    CUgraphNode nodes[16];
    size_t count = 16;
    CUgraphExec again;

    run(of_kept, 1);
    run(of_gone, 2);
    CHECK(cuGraphGetNodes(kept, nodes, &count));
    EXPECT_EQ(count, kept_count);
    for (size_t i = 0; i < count; i++)
        EXPECT(nodes[i] == kept_nodes[i]);
    CHECK(cuGraphInstantiateWithFlags(&again, kept, 0));
    run(again, 1);
    CHECK(cuGraphExecDestroy(again));
}

int main(int argc, char **argv)
{
    CUgraph gone;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc_v2(&words, WORDS * 4));
    CHECK(cuMemAlloc_v2(&copy, WORDS * 4));
    kept = capture(1);
    gone = capture(2);
    kept_count = 16;
    CHECK(cuGraphGetNodes(kept, kept_nodes, &kept_count));
    CHECK(cuGraphInstantiateWithFlags(&of_gone, gone, 0));
    CHECK(cuGraphInstantiateWithFlags(&of_kept, kept, 0));
    CHECK(cuGraphDestroy(gone));
    program_ready(check_all);
    while (program_running()) {
        run(of_kept, 1);
        run(of_gone, 2);
        capture_and_run(3 + value++);
        program_sleep_ms(program_random() % 4);
    }
    CHECK(cuGraphExecDestroy(of_kept));
    CHECK(cuGraphExecDestroy(of_gone));
    CHECK(cuGraphDestroy(kept));
    CHECK(cuEventDestroy_v2(fork_event));
    CHECK(cuEventDestroy_v2(join_event));
    CHECK(cuMemFree_v2(words));
    CHECK(cuMemFree_v2(copy));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuStreamDestroy_v2(other));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
