/* Executable graphs: a copy of the nodes' work, launched as one operation. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"

/* Shared with launches that are under way. */
struct graph_body {
    uint32_t refs;
    size_t count;
    struct graph_step {
        const struct graph_node *node; /* that it was made of: only its address counts */
        struct work work;
    } steps[];
};

struct graph_exec {
    enum object_kind kind;
    unsigned long long flags;
    struct graph_body *body;
};

void graph_body_get(struct graph_body *body)
{
    body->refs++;
}

void graph_body_put(struct graph_body *body)
{
    if (--body->refs)
        return;
    for (size_t i = 0; i < body->count; i++)
        work_drop(&body->steps[i].work);
    free(body);
}

CUresult graph_body_run(struct context *context, struct graph_body *body, struct thread *thread)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; result == CUDA_SUCCESS && i < body->count; i++)
        result = work_run(context, &body->steps[i].work, thread);
    return result;
}

static struct graph_body *body_new(size_t count)
{
    struct graph_body *body = calloc(1, sizeof(*body) + count * sizeof(*body->steps));

    if (body)
        body->refs = 1;
    return body;
}

static CUresult body_add(struct graph_body *body, const struct graph_node *node, const struct work *work)
{
    CUresult result = work_copy(&body->steps[body->count].work, work);

    if (result == CUDA_SUCCESS)
        body->steps[body->count++].node = node;
    return result;
}

static CUresult instantiate(struct thread *self, CUgraphExec *handle, CUgraph graph_handle,
                            unsigned long long flags)
{
    const struct graph *graph = object_find(graph_handle, OBJECT_GRAPH);
    struct graph_exec *exec;
    struct graph_node **nodes;
    CUresult result = CUDA_SUCCESS;
    size_t count;

    if (!handle || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    exec = handle_alloc(self, sizeof(*exec));
    nodes = graph_nodes(graph, &count);
    if (exec && nodes)
        exec->body = body_new(count);
    if (!exec || !nodes || !exec->body)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = body_add(exec->body, nodes[i], &nodes[i]->work);
    free(nodes);
    if (result == CUDA_SUCCESS && object_add(exec, OBJECT_GRAPH_EXEC))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        if (exec && exec->body)
            graph_body_put(exec->body);
        free(exec);
        return result;
    }
    exec->kind = OBJECT_GRAPH_EXEC;
    exec->flags = flags;
    *handle = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *handle, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_size)
{
    CALL(cuGraphInstantiate, NEEDS_CONTEXT);
    return instantiate(self, handle, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *handle, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_size)
{
    CALL(cuGraphInstantiate_v2, NEEDS_CONTEXT);
    return instantiate(self, handle, graph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph, unsigned long long flags)
{
    CALL(cuGraphInstantiateWithFlags, NEEDS_CONTEXT);
    return instantiate(self, handle, graph, flags);
}

static CUresult instantiate_with(struct thread *self, CUgraphExec *handle, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = NULL;
    params->result_out = 0;
    return instantiate(self, handle, graph, params->flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *handle, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CALL(cuGraphInstantiateWithParams, NEEDS_CONTEXT);
    return instantiate_with(self, handle, graph, params);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *handle, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CALL(cuGraphInstantiateWithParams_ptsz, NEEDS_CONTEXT);
    return instantiate_with(self, handle, graph, params);
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    CALL(cuGraphExecDestroy, NEEDS_INIT);
    struct graph_exec *exec = object_find(handle, OBJECT_GRAPH_EXEC);

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    object_remove(exec);
    graph_body_put(exec->body);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    CALL(cuGraphExecGetFlags, NEEDS_INIT);
    const struct graph_exec *exec = object_find(handle, OBJECT_GRAPH_EXEC);

    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

static CUresult launch(struct stream *stream, CUgraphExec handle)
{
    struct graph_exec *exec = object_find(handle, OBJECT_GRAPH_EXEC);
    struct work work = {.kind = WORK_GRAPH};

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    work.graph.body = exec->body;
    graph_body_get(exec->body);
    return stream_submit(stream, &work);
}
BOTH(cuGraphLaunch, launch, (CUgraphExec exec, CUstream handle), (stream, exec))

static CUresult upload(struct stream *stream, CUgraphExec handle)
{
    struct work work = {.kind = WORK_EMPTY};

    return object_find(handle, OBJECT_GRAPH_EXEC) ? stream_submit(stream, &work) : CUDA_ERROR_INVALID_VALUE;
}
BOTH(cuGraphUpload, upload, (CUgraphExec exec, CUstream handle), (stream, exec))

/* Launches under way keep the body that they began with. */
static CUresult replace(struct graph_exec *exec, const struct graph_node *node, struct work *work)
{
    struct graph_body *body = body_new(exec->body->count);
    CUresult result = body ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    bool found = false;

    for (size_t i = 0; result == CUDA_SUCCESS && i < exec->body->count; i++) {
        const struct graph_step *step = &exec->body->steps[i];

        found |= step->node == node;
        result = body_add(body, step->node, step->node == node ? work : &step->work);
    }
    work_drop(work);
    if (result == CUDA_SUCCESS && !found)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        if (body)
            graph_body_put(body);
        return result;
    }
    graph_body_put(exec->body);
    exec->body = body;
    return CUDA_SUCCESS;
}

static CUresult set_kernel(struct thread *self, struct context *context, CUgraphExec exec_handle,
                           CUgraphNode node_handle, const CUDA_KERNEL_NODE_PARAMS *from)
{
    struct graph_exec *exec = object_find(exec_handle, OBJECT_GRAPH_EXEC);
    struct work work;
    CUresult result;

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    result = kernel_node_work(self, context, from, &work);
    return result == CUDA_SUCCESS ? replace(exec, (const struct graph_node *)node_handle, &work) : result;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CALL(cuGraphExecKernelNodeSetParams, NEEDS_CONTEXT);
    CUDA_KERNEL_NODE_PARAMS wide = kernel_params_widen(from);

    return set_kernel(self, context, exec, node, &wide);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *from)
{
    CALL(cuGraphExecKernelNodeSetParams_v2, NEEDS_CONTEXT);
    return from ? set_kernel(self, context, exec, node, from) : CUDA_ERROR_INVALID_VALUE;
}
