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
        CUgraphNodeType type;
        CUevent event;
        bool disabled;
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
        if (!body->steps[i].disabled)
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

static CUresult body_add(struct graph_body *body, const struct graph_step *step, const struct work *work)
{
    struct graph_step *added = &body->steps[body->count];

    *added = *step;
    if (work_copy(&added->work, work) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    body->count++;
    return CUDA_SUCCESS;
}

/* A child graph is one step that has a body of its own. */
static CUresult body_add_node(struct graph_body *body, const struct graph_node *node)
{
    const struct graph_step step = {.node = node, .type = node->type, .event = node->event};
    struct work work = {.kind = WORK_GRAPH};
    CUresult result;

    if (!node->child)
        return body_add(body, &step, &node->work);
    work.graph.body = graph_body_of(node->child);
    if (!work.graph.body)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = body_add(body, &step, &work);
    graph_body_put(work.graph.body);
    return result;
}

struct graph_body *graph_body_of(const struct graph *graph)
{
    size_t count;
    struct graph_node **nodes = graph_nodes(graph, &count);
    struct graph_body *body = nodes ? body_new(count) : NULL;

    for (size_t i = 0; body && i < count; i++) {
        if (body_add_node(body, nodes[i]) != CUDA_SUCCESS) {
            graph_body_put(body);
            body = NULL;
        }
    }
    free(nodes);
    return body;
}

struct graph *graph_of_body(struct thread *self, const struct graph_body *body)
{
    struct graph *graph = graph_new(self);
    struct graph_node *last = NULL;

    for (size_t i = 0; graph && i < body->count; i++) {
        const struct graph_step *step = &body->steps[i];
        struct work work;
        bool done = work_copy(&work, &step->work) == CUDA_SUCCESS;

        if (done)
            last = graph_add(graph, step->type, &work, &last, last ? 1 : 0);
        if (done && last && step->work.kind == WORK_GRAPH) {
            last->child = graph_of_body(self, step->work.graph.body);
            if (last->child)
                last->child->embedded = true;
        }
        if (!done || !last || (step->work.kind == WORK_GRAPH && !last->child)) {
            graph_delete(graph);
            return NULL;
        }
        last->event = step->event;
    }
    return graph;
}

static CUresult instantiate(struct thread *self, CUgraphExec *handle, CUgraph graph_handle,
                            unsigned long long flags)
{
    const struct graph *graph = object_find(graph_handle, OBJECT_GRAPH);
    struct graph_exec *exec;
    CUresult result = CUDA_SUCCESS;

    if (!handle || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    exec = handle_alloc(self, sizeof(*exec));
    if (exec)
        exec->body = graph_body_of(graph);
    if (!exec || !exec->body)
        result = CUDA_ERROR_OUT_OF_MEMORY;
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

/* Events of the steps count for the whole: waited for before it, recorded after it. */
static CUresult launch_events(struct stream *stream, const struct graph_body *body, CUgraphNodeType type)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; result == CUDA_SUCCESS && i < body->count; i++) {
        const struct graph_step *step = &body->steps[i];

        if (step->work.kind == WORK_GRAPH)
            result = launch_events(stream, step->work.graph.body, type);
        else if (step->type == type && !step->disabled)
            result = type == NODE_WAIT ? event_wait(stream, step->event) : event_record(stream, step->event);
    }
    return result;
}

static CUresult launch(struct stream *stream, CUgraphExec handle)
{
    struct graph_exec *exec = object_find(handle, OBJECT_GRAPH_EXEC);
    struct work work = {.kind = WORK_GRAPH};
    CUresult result;

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    result = stream->capture ? CUDA_SUCCESS : launch_events(stream, exec->body, NODE_WAIT);
    if (result != CUDA_SUCCESS)
        return result;
    work.graph.body = exec->body;
    graph_body_get(exec->body);
    result = stream_submit(stream, &work);
    if (result == CUDA_SUCCESS && !stream->capture)
        result = launch_events(stream, exec->body, NODE_RECORD);
    return result;
}
BOTH(cuGraphLaunch, launch, (CUgraphExec exec, CUstream handle), (stream, exec))

static CUresult upload(struct stream *stream, CUgraphExec handle)
{
    struct work work = {.kind = WORK_EMPTY};

    return object_find(handle, OBJECT_GRAPH_EXEC) ? stream_submit(stream, &work) : CUDA_ERROR_INVALID_VALUE;
}
BOTH(cuGraphUpload, upload, (CUgraphExec exec, CUstream handle), (stream, exec))

/*
 * Launches under way keep the body that they began with. change: what the step becomes, with work in it
 * (taken over).
 */
static CUresult replace(struct graph_exec *exec, struct graph_step *change)
{
    struct graph_body *body = body_new(exec->body->count);
    CUresult result = body ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; result == CUDA_SUCCESS && i < exec->body->count; i++) {
        const struct graph_step *step = &exec->body->steps[i];

        if (step->node == change->node)
            step = change;
        result = body_add(body, step, &step->work);
    }
    work_drop(&change->work);
    if (result != CUDA_SUCCESS) {
        if (body)
            graph_body_put(body);
        return result;
    }
    graph_body_put(exec->body);
    exec->body = body;
    return CUDA_SUCCESS;
}

static struct graph_step *step_find(CUgraphExec handle, CUgraphNode node)
{
    struct graph_exec *exec = object_find(handle, OBJECT_GRAPH_EXEC);

    for (size_t i = 0; exec && i < exec->body->count; i++) {
        if ((CUgraphNode)exec->body->steps[i].node == node)
            return &exec->body->steps[i];
    }
    return NULL;
}

/* New work, taken over if it could be made. */
static CUresult change_work(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, struct work *work,
                            CUresult made)
{
    const struct graph_step *step = step_find(exec, node);
    struct graph_step change;

    if (made != CUDA_SUCCESS)
        return made;
    if (!step || step->type != type) {
        work_drop(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    change = *step;
    change.work = *work;
    return replace((struct graph_exec *)exec, &change);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *from,
                                        CUcontext handle)
{
    CALL(cuGraphExecMemcpyNodeSetParams, NEEDS_CONTEXT);
    struct work work;
    CUresult made = copy_node_work(handle ? context_find(handle) : context, from, &work);

    return change_work(exec, node, NODE_COPY, &work, made);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *from, CUcontext handle)
{
    CALL(cuGraphExecMemsetNodeSetParams, NEEDS_CONTEXT);
    struct work work;
    CUresult made = set_node_work(from, &work);

    return change_work(exec, node, NODE_SET, &work, made);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *from)
{
    CALL(cuGraphExecHostNodeSetParams, NEEDS_INIT);
    struct work work;
    CUresult made = host_node_work(from, &work);

    return change_work(exec, node, NODE_HOST, &work, made);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CALL(cuGraphExecChildGraphNodeSetParams, NEEDS_INIT);
    const struct graph *graph = object_find(child, OBJECT_GRAPH);
    struct work work = {.kind = WORK_GRAPH};

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    work.graph.body = graph_body_of(graph);
    return change_work(exec, node, NODE_GRAPH, &work,
                       work.graph.body ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult set_event(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, CUevent event)
{
    struct graph_step *step = step_find(exec, node);

    if (!step || step->type != type || !object_find(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_VALUE;
    step->event = event;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CALL(cuGraphExecEventRecordNodeSetEvent, NEEDS_INIT);
    return set_event(exec, node, NODE_RECORD, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CALL(cuGraphExecEventWaitNodeSetEvent, NEEDS_INIT);
    return set_event(exec, node, NODE_WAIT, event);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
    CALL(cuGraphNodeSetEnabled, NEEDS_INIT);
    const struct graph_step *step = step_find(exec, node);
    struct graph_step change;

    if (!step || step->type > NODE_SET)
        return CUDA_ERROR_INVALID_VALUE;
    change = *step;
    change.disabled = !enabled;
    if (work_copy(&change.work, &step->work) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return replace((struct graph_exec *)exec, &change);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
    CALL(cuGraphNodeGetEnabled, NEEDS_INIT);
    const struct graph_step *step = step_find(exec, node);

    if (!step || !enabled)
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !step->disabled;
    return CUDA_SUCCESS;
}

/* The nodes stay, what they do is that of the other graph. */
static CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResult *outcome)
{
    struct graph_exec *exec = object_find(handle, OBJECT_GRAPH_EXEC);
    const struct graph *graph = object_find(graph_handle, OBJECT_GRAPH);
    struct graph_body *body;
    bool same;

    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    body = graph_body_of(graph);
    if (!body)
        return CUDA_ERROR_OUT_OF_MEMORY;
    same = body->count == exec->body->count;
    for (size_t i = 0; same && i < body->count; i++) {
        same = body->steps[i].type == exec->body->steps[i].type;
        body->steps[i].node = exec->body->steps[i].node;
        body->steps[i].disabled = exec->body->steps[i].disabled;
    }
    *outcome = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
    if (!same) {
        graph_body_put(body);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    graph_body_put(exec->body);
    exec->body = body;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
                           CUgraphExecUpdateResult *outcome)
{
    CALL(cuGraphExecUpdate, NEEDS_CONTEXT);
    if (node)
        *node = NULL;
    return outcome ? update(exec, graph, outcome) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    CALL(cuGraphExecUpdate_v2, NEEDS_CONTEXT);
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){0};
    return update(exec, graph, &info->result);
}

static CUresult set_kernel(struct thread *self, struct context *context, CUgraphExec exec_handle,
                           CUgraphNode node_handle, const CUDA_KERNEL_NODE_PARAMS *from)
{
    struct work work;
    CUresult made = kernel_node_work(self, context, from, &work);

    return change_work(exec_handle, node_handle, NODE_KERNEL, &work, made);
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
