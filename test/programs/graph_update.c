/* What was changed in an executable graph stays: parameters, disabled nodes, updates, before a suspend and
 * after it. */

#include "device.h"

enum { HELD, ALONE, UPDATED, GRAPHS }; /* its graph is there; is destroyed; it was updated with another */

static struct kernels kernels;
static CUcontext context;
static CUstream stream;
static CUdeviceptr word;
static uint32_t calls;
static struct changing {
    CUgraph graph;
    CUgraphNode first, second, set, host;
    CUgraphExec exec;
    uint32_t base, by; /* what it makes of the word: base + by, or base + 2 * by */
    bool both;
} all[GRAPHS];

static void count_call(void *argument)
{
    calls += (uint32_t)(uintptr_t)argument;
}

static CUDA_KERNEL_NODE_PARAMS increment_by(void **arguments, uint32_t *by)
{
    arguments[0] = &word;
    arguments[1] = by;
    return (CUDA_KERNEL_NODE_PARAMS){.func = kernels.increment,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = arguments};
}

static CUDA_MEMSET_NODE_PARAMS set_to(uint32_t value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = word, .value = value, .elementSize = 4, .width = 1, .height = 1};
}

static void graph_make(struct changing *one, uint32_t base, uint32_t by)
{
    void *arguments[2];
    CUDA_KERNEL_NODE_PARAMS kernel = increment_by(arguments, &by);
    CUDA_MEMSET_NODE_PARAMS set = set_to(base);
    CUDA_HOST_NODE_PARAMS host = {count_call, (void *)1};

    CHECK(cuGraphCreate(&one->graph, 0));
    CHECK(cuGraphAddMemsetNode(&one->set, one->graph, NULL, 0, &set, context));
    CHECK(cuGraphAddKernelNode_v2(&one->first, one->graph, &one->set, 1, &kernel));
    CHECK(cuGraphAddKernelNode_v2(&one->second, one->graph, &one->first, 1, &kernel));
    CHECK(cuGraphAddHostNode(&one->host, one->graph, &one->second, 1, &host));
    one->base = base;
    one->by = by;
    one->both = true;
}

static void change(struct changing *one)
{
    void *arguments[2];
    CUDA_KERNEL_NODE_PARAMS kernel = increment_by(arguments, &one->by);
    CUDA_MEMSET_NODE_PARAMS set;

    one->base += 10;
    one->by += 3;
    one->both = !one->both;
    set = set_to(one->base);
    CHECK(cuGraphExecKernelNodeSetParams_v2(one->exec, one->first, &kernel));
    CHECK(cuGraphExecKernelNodeSetParams_v2(one->exec, one->second, &kernel));
    CHECK(cuGraphExecMemsetNodeSetParams(one->exec, one->set, &set, context));
    CHECK(cuGraphNodeSetEnabled(one->exec, one->second, one->both));
}

static void update(struct changing *one)
{
    CUgraphExecUpdateResultInfo info;
    struct changing model;

    graph_make(&model, one->base + 1, one->by + 1);
    CHECK(cuGraphExecUpdate_v2(one->exec, model.graph, &info));
    CHECK(cuGraphDestroy(model.graph));
    one->base++;
    one->by++;
}

static void check(const struct changing *one)
{
    uint32_t before = calls;

    CHECK(cuGraphLaunch(one->exec, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT_EQ(word_get(word), one->base + (one->both ? 2 : 1) * one->by);
    EXPECT_EQ(calls, before + (one == &all[HELD] ? 2 : 1));
}

static void check_each(void)
{
    for (int i = 0; i < GRAPHS; i++)
        check(&all[i]);
}

static void check_all(void)
{
    unsigned enabled;

    check_each();
    CHECK(cuGraphNodeGetEnabled(all[HELD].exec, all[HELD].second, &enabled));
    EXPECT_EQ(enabled, all[HELD].both);
    change(&all[HELD]);
    update(&all[UPDATED]);
    change(&all[UPDATED]);
    update(&all[ALONE]);
    check_each();
}

int main(int argc, char **argv)
{
    CUDA_HOST_NODE_PARAMS host = {count_call, (void *)2};

    program_start(argc, argv);
    context = device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&word, 4));
    for (int i = 0; i < GRAPHS; i++) {
        graph_make(&all[i], 100 * (uint32_t)i, 1 + (uint32_t)i);
        CHECK(cuGraphInstantiateWithFlags(&all[i].exec, all[i].graph, 0));
    }
    for (int i = 0; i < GRAPHS; i++)
        change(&all[i]);
    CHECK(cuGraphExecHostNodeSetParams(all[HELD].exec, all[HELD].host, &host));
    update(&all[UPDATED]);
    CHECK(cuGraphDestroy(all[ALONE].graph));
    program_ready(check_all);
    while (program_running()) {
        check_each();
        change(&all[program_random() % 2 ? HELD : UPDATED]);
        program_sleep_ms(1);
    }
    for (int i = 0; i < GRAPHS; i++) {
        CHECK(cuGraphExecDestroy(all[i].exec));
        if (i != ALONE)
            CHECK(cuGraphDestroy(all[i].graph));
    }
    CHECK(cuMemFree_v2(word));
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
