/* Nodes that refer to other objects: child graphs and events; clones; new parameters for nodes. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* ---- clones */

static struct graph_node *copy_of(struct graph_node **nodes, struct graph_node **copies, size_t count,
                                  const struct graph_node *node)
{
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] == node)
            return copies[i];
    }
    return NULL;
}

static struct graph_node *node_clone(struct thread *self, struct graph *clone, const struct graph_node *node)
{
    struct graph_node *copy = NULL;
    struct work work;

    if (work_copy(&work, &node->work) == CUDA_SUCCESS)
        copy = graph_add(clone, node->type, &work, NULL, 0);
    if (!copy)
        return NULL;
    memcpy(copy->attributes, node->attributes, sizeof(copy->attributes));
    copy->event = node->event;
    copy->origin = node;
    if (node->child) {
        copy->child = graph_clone(self, node->child);
        if (!copy->child)
            return NULL;
        copy->child->embedded = true;
    }
    copy->dependencies =
        realloc(copy->dependencies, (node->dependency_count + 1) * sizeof(struct graph_node *));
    return copy->dependencies ? copy : NULL;
}

struct graph *graph_clone(struct thread *self, const struct graph *original)
{
    struct graph *clone = graph_new(self);
    size_t count = 0;
    struct graph_node **nodes = graph_nodes(original, &count), **copies = calloc(count + 1, sizeof(*copies));
    bool done = clone && nodes && copies;

    for (size_t i = 0; done && i < count; i++) {
        copies[i] = node_clone(self, clone, nodes[i]);
        done = copies[i];
        for (size_t j = 0; done && j < nodes[i]->dependency_count; j++)
            copies[i]->dependencies[copies[i]->dependency_count++] =
                copy_of(nodes, copies, count, nodes[i]->dependencies[j]);
    }
    if (clone && !done)
        graph_delete(clone);
    free(nodes);
    free(copies);
    return done ? clone : NULL;
}

CUresult cuGraphClone(CUgraph *handle, CUgraph original)
{
    CALL(cuGraphClone, NEEDS_INIT);
    const struct graph *graph = object_find(original, OBJECT_GRAPH);

    if (!graph || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUgraph)graph_clone(self, graph);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *handle, CUgraphNode original, CUgraph clone)
{
    CALL(cuGraphNodeFindInClone, NEEDS_INIT);
    const struct graph *graph = object_find(clone, OBJECT_GRAPH);
    struct graph_node **nodes;
    size_t count;

    if (!graph || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    nodes = graph_nodes(graph, &count);
    *handle = NULL;
    for (size_t i = 0; nodes && i < count; i++) {
        if ((CUgraphNode)nodes[i]->origin == original)
            *handle = (CUgraphNode)nodes[i];
    }
    free(nodes);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- child graphs */

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child)
{
    CALL(cuGraphAddChildGraphNode, NEEDS_INIT);
    const struct graph *original = object_find(child, OBJECT_GRAPH);
    struct work work = {.kind = WORK_EMPTY};
    struct graph *copy = original ? graph_clone(self, original) : NULL;
    CUresult result;

    if (!copy)
        return original ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    result = graph_add_checked(node, graph, NODE_GRAPH, &work, dependencies, count);
    if (result != CUDA_SUCCESS) {
        graph_delete(copy);
        return result;
    }
    copy->embedded = true;
    ((struct graph_node *)*node)->child = copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph)
{
    CALL(cuGraphChildGraphNodeGetGraph, NEEDS_INIT);
    const struct graph_node *node = object_find(handle, OBJECT_NODE);

    if (!node || !node->child || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = (CUgraph)node->child;
    return CUDA_SUCCESS;
}

/* ---- events */

static CUresult add_event(CUgraphNode *node, CUgraph graph, CUgraphNodeType type,
                          const CUgraphNode *dependencies, size_t count, CUevent event)
{
    struct work work = {.kind = WORK_EMPTY};
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (object_find(event, OBJECT_EVENT))
        result = graph_add_checked(node, graph, type, &work, dependencies, count);
    if (result == CUDA_SUCCESS)
        ((struct graph_node *)*node)->event = event;
    return result;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                   size_t count, CUevent event)
{
    CALL(cuGraphAddEventRecordNode, NEEDS_INIT);
    return add_event(node, graph, NODE_RECORD, dependencies, count, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUevent event)
{
    CALL(cuGraphAddEventWaitNode, NEEDS_INIT);
    return add_event(node, graph, NODE_WAIT, dependencies, count, event);
}

static CUevent *event_of(CUgraphNode handle, CUgraphNodeType type)
{
    struct graph_node *node = object_find(handle, OBJECT_NODE);

    return node && node->type == type ? &node->event : NULL;
}

static CUresult get_event(const CUevent *event, CUevent *out)
{
    if (!event || !out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = *event;
    return CUDA_SUCCESS;
}

static CUresult set_event(CUevent *event, CUevent value)
{
    if (!event || !object_find(value, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_VALUE;
    *event = value;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    CALL(cuGraphEventRecordNodeGetEvent, NEEDS_INIT);
    return get_event(event_of(node, NODE_RECORD), event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    CALL(cuGraphEventWaitNodeGetEvent, NEEDS_INIT);
    return get_event(event_of(node, NODE_WAIT), event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    CALL(cuGraphEventRecordNodeSetEvent, NEEDS_INIT);
    return set_event(event_of(node, NODE_RECORD), event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    CALL(cuGraphEventWaitNodeSetEvent, NEEDS_INIT);
    return set_event(event_of(node, NODE_WAIT), event);
}

/* ---- new parameters */

static CUresult set_work(CUgraphNode handle, CUgraphNodeType type, struct work *work, CUresult made)
{
    struct graph_node *node = object_find(handle, OBJECT_NODE);

    if (made != CUDA_SUCCESS)
        return made;
    if (!node || node->type != type)
        return CUDA_ERROR_INVALID_VALUE;
    work_drop(&node->work);
    node->work = *work;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    CALL(cuGraphMemcpyNodeSetParams, NEEDS_CONTEXT);
    struct work work;
    CUresult made = copy_node_work(context, params, &work);

    return set_work(node, NODE_COPY, &work, made);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
    CALL(cuGraphMemsetNodeSetParams, NEEDS_INIT);
    struct work work;
    CUresult made = set_node_work(params, &work);

    return set_work(node, NODE_SET, &work, made);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    CALL(cuGraphHostNodeSetParams, NEEDS_INIT);
    struct work work;
    CUresult made = host_node_work(params, &work);

    return set_work(node, NODE_HOST, &work, made);
}
