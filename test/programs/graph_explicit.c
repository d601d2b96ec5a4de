/* Graphs built node by node, with holes where nodes were destroyed, keep their handles, and what is made of
 * them works. */

#include "device.h"

#define CHAIN 40

static struct kernels kernels;
static CUstream stream;
static CUdeviceptr word, source;
static uint32_t count, host_calls, *pinned;
static CUevent started, finished;
static CUgraph graph;
static CUgraphNode increments[CHAIN], copy, set, host, record, wait;
static CUgraphExec exec, of_gone;
static size_t node_count, edge_count;

static void count_call(void *argument)
{
    ++*(uint32_t *)argument;
}

static CUgraphNode increment_add(CUgraph to, const CUgraphNode *after, uint32_t by)
{
    void *arguments[] = {&word, &by};
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernels.increment,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    CUgraphNode node;

    CHECK(cuGraphAddKernelNode_v2(&node, to, after, after ? 1 : 0, &params));
    return node;
}

/* The word is set to 100, incremented by what is left of the chain, and copied to the host. */
static void graph_make(CUcontext context)
{
    CUDA_MEMCPY3D to_host = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = word,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = pinned,
                             .WidthInBytes = 4,
                             .Height = 1,
                             .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS hundred = {.dst = word, .value = 100, .elementSize = 4, .width = 1, .height = 1};
    CUDA_HOST_NODE_PARAMS call = {count_call, &host_calls};

    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, started));
    CHECK(cuGraphAddMemsetNode(&set, graph, &wait, 1, &hundred, context));
    for (int i = 0; i < CHAIN; i++)
        increments[i] = increment_add(graph, i ? &increments[i - 1] : &set, 1);
    CHECK(cuGraphAddMemcpyNode(&copy, graph, &increments[CHAIN - 1], 1, &to_host, context));
    CHECK(cuGraphAddHostNode(&host, graph, &copy, 1, &call));
    CHECK(cuGraphAddEventRecordNode(&record, graph, &host, 1, finished));
    for (int i = 1; i < CHAIN - 1; i += 3) {
        CHECK(cuGraphDestroyNode(increments[i]));
        CHECK(cuGraphAddDependencies(graph, &increments[i - 1], &increments[i + 1], 1));
        increments[i] = NULL;
    }
    increments[1] = increment_add(graph, &record, 5); /* in a hole, and after the others in order */
    CHECK(cuGraphGetNodes(graph, NULL, &node_count));
    CHECK(cuGraphGetEdges(graph, NULL, NULL, &edge_count));
}

static uint32_t expected(void)
{
    uint32_t sum = 100;

    for (int i = 0; i < CHAIN; i++)
        sum += increments[i] && i != 1;
    return sum;
}

static void run(CUgraphExec which, uint32_t wanted)
{
    *pinned = 0;
    CHECK(cuEventRecord(started, stream));
    CHECK(cuGraphLaunch(which, stream));
    count++;
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventSynchronize(finished));
    EXPECT_EQ(*pinned, wanted);
    EXPECT_EQ(word_get(word), wanted + (which == exec ? 5 : 0));
    EXPECT_EQ(host_calls, count);
}

/* Handles of nodes are as they were, and each node is still what it was. */
static void check_nodes(void)
{
    CUgraphNode nodes[CHAIN + 8], from;
    CUDA_KERNEL_NODE_PARAMS params;
    CUDA_MEMSET_NODE_PARAMS memset_params;
    CUgraphExec again;
    CUevent event;
    size_t n = CHAIN + 8, edges, one = 1;

    CHECK(cuGraphGetNodes(graph, nodes, &n));
    EXPECT_EQ(n, node_count);
    CHECK(cuGraphGetEdges(graph, NULL, NULL, &edges));
    EXPECT_EQ(edges, edge_count);
    for (int i = 0; i < CHAIN; i++)
        if (increments[i]) {
            CHECK(cuGraphKernelNodeGetParams_v2(increments[i], &params));
            EXPECT(params.func == kernels.increment);
            EXPECT_EQ(*(CUdeviceptr *)params.kernelParams[0], word);
            EXPECT_EQ(*(uint32_t *)params.kernelParams[1], i == 1 ? 5 : 1);
        }
    CHECK(cuGraphMemsetNodeGetParams(set, &memset_params));
    EXPECT_EQ(memset_params.value, 100);
    CHECK(cuGraphEventRecordNodeGetEvent(record, &event));
    EXPECT(event == finished);
    CHECK(cuGraphNodeGetDependencies(host, &from, &one));
    EXPECT(from == copy);
    CHECK(cuGraphInstantiateWithFlags(&again, graph, 0));
    CHECK(cuGraphExecDestroy(again));
}

/* A new node after a resume, and gone again. */
static void change_graph(void)
{
    CUgraphNode node = increment_add(graph, &set, 7);

    CHECK(cuGraphDestroyNode(node));
}

static void check_all(void)
{
    run(exec, expected());
    run(of_gone, expected());
    check_nodes();
    change_graph();
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUgraph kept;

    program_start(argc, argv);
    context = device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&word, 4));
    CHECK(cuMemAlloc_v2(&source, 4));
    CHECK(cuMemHostAlloc((void **)&pinned, 4, 0));
    CHECK(cuEventCreate(&started, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&finished, 0));
    graph_make(context);
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    kept = graph;
    CHECK(cuGraphDestroyNode(increments[1]));
    CHECK(cuGraphInstantiateWithFlags(&of_gone, graph, 0));
    EXPECT(graph == kept);
    increments[1] = increment_add(graph, &record, 5);
    program_ready(check_all);
    while (program_running()) {
        run(exec, expected());
        program_sleep_ms(1);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphExecDestroy(of_gone));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuEventDestroy_v2(started));
    CHECK(cuEventDestroy_v2(finished));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree_v2(word));
    CHECK(cuMemFree_v2(source));
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
