/* Graphs in graphs, and clones: embedded graphs keep their handles, and nodes of a clone are found by the
 * originals. */

#include "device.h"

static struct kernels kernels;
static CUstream stream;
static CUdeviceptr word;
static uint32_t value;
static CUgraph inner, outer, copied, embedded;
static CUgraphNode inner_nodes[3], child, after, cloned_child, embedded_nodes[3];
static CUgraphExec exec, of_clone, of_capture;

static CUgraphNode increment_add(CUgraph graph, const CUgraphNode *dependency, uint32_t by)
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

    CHECK(cuGraphAddKernelNode_v2(&node, graph, dependency, dependency ? 1 : 0, &params));
    return node;
}

static void launch(CUgraphExec which, uint32_t adds)
{
    CHECK(cuGraphLaunch(which, stream));
    CHECK(cuStreamSynchronize(stream));
    value += adds;
    EXPECT_EQ(word_get(word), value);
}

static void launch_all(void)
{
    launch(exec, 3 + 10);
    launch(of_clone, 3 + 10);
    launch(of_capture, 1);
}

static void check_all(void)
{
    CUgraphNode found, nodes[3];
    CUgraph graph;
    CUgraphExec again;
    size_t count = 3;

    launch_all();
    CHECK(cuGraphChildGraphNodeGetGraph(child, &graph));
    EXPECT(graph == embedded);
    CHECK(cuGraphGetNodes(embedded, nodes, &count));
    EXPECT_EQ(count, 3);
    for (int i = 0; i < 3; i++)
        EXPECT(nodes[i] == embedded_nodes[i]);
    CHECK(cuGraphNodeFindInClone(&found, child, copied));
    EXPECT(found == cloned_child);
    CHECK(cuGraphInstantiateWithFlags(&again, outer, 0));
    launch(again, 3 + 10);
    CHECK(cuGraphExecDestroy(again));
}

static void capture_launch(void)
{
    uint32_t one = 1;
    CUgraph graph;

    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    LAUNCH(kernels.increment, 1, 1, stream, &word, &one);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&of_capture, graph, 0));
    CHECK(cuGraphDestroy(graph));
}

int main(int argc, char **argv)
{
    CUgraphNode child_of_first[2];
    size_t count = 3;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&word, 4));
    word_set(word, 0);
    CHECK(cuGraphCreate(&inner, 0));
    for (int i = 0; i < 3; i++)
        inner_nodes[i] = increment_add(inner, i ? &inner_nodes[i - 1] : NULL, 1);
    CHECK(cuGraphCreate(&outer, 0));
    CHECK(cuGraphAddChildGraphNode(&child_of_first[0], outer, NULL, 0, inner)); /* leaves a hole */
    CHECK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    CHECK(cuGraphDestroyNode(child_of_first[0]));
    after = increment_add(outer, &child, 10);
    CHECK(cuGraphChildGraphNodeGetGraph(child, &embedded));
    CHECK(cuGraphGetNodes(embedded, embedded_nodes, &count));
    CHECK(cuGraphClone(&copied, outer));
    CHECK(cuGraphNodeFindInClone(&cloned_child, child, copied));
    CHECK(cuGraphInstantiateWithFlags(&exec, outer, 0));
    CHECK(cuGraphInstantiateWithFlags(&of_clone, copied, 0));
    capture_launch();
    CHECK(cuGraphDestroy(inner));
    program_ready(check_all);
    while (program_running()) {
        launch_all();
        program_sleep_ms(1);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphExecDestroy(of_clone));
    CHECK(cuGraphExecDestroy(of_capture));
    CHECK(cuGraphDestroy(outer));
    CHECK(cuGraphDestroy(copied));
    CHECK(cuMemFree_v2(word));
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
