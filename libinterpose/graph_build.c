/* Making a graph what a description says. */
#include "graph_describe.h"

#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "placement.h"

/*
 * Nodes lie in blocks that hold many. A new one takes a place that the driver chooses; where nodes were
 * destroyed there are holes, which it would fill. So places that must stay empty are filled with empty nodes
 * meanwhile, at most so many.
 */
#define FILLERS_MAX 4096

struct build {
    CUgraph graph;
    const struct graph_description *wanted;
    bool in_place;      /* what is held must come to its place */
    CUgraphNode *nodes; /* of wanted */
    CUgraphNode *fillers;
    size_t filler_count, filler_room;
    CUgraphNode misplaced;
};

/* ---- kernel nodes */

CUresult graph_with_kernel(const struct graph_kernel *kernel,
                           CUresult (*f)(const CUDA_KERNEL_NODE_PARAMS *params, void *arg), void *arg)
{
    CUDA_KERNEL_NODE_PARAMS params = kernel->params;
    void **pointers = malloc((kernel->parameter_count + 1) * sizeof *pointers);
    CUresult result;

    if (!pointers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < kernel->parameter_count; i++)
        pointers[i] = kernel->values + kernel->parameters[i].offset;
    params.kernelParams = kernel->parameter_count ? pointers : NULL;
    result = f(&params, arg);
    free(pointers);
    return result;
}

struct add_kernel {
    CUgraph graph;
    CUgraphNode *made;
};

static CUresult add_kernel(const CUDA_KERNEL_NODE_PARAMS *params, void *arg)
{
    struct add_kernel *add = arg;
    CUDA_KERNEL_NODE_PARAMS_v1 narrow;

    if (driver_api_has(ROW_cuGraphAddKernelNode_v2))
        return driver.cuGraphAddKernelNode_v2(add->made, add->graph, NULL, 0, params);
    memcpy(&narrow, params, sizeof narrow);
    return driver.cuGraphAddKernelNode(add->made, add->graph, NULL, 0, &narrow);
}

static CUresult set_kernel(const CUDA_KERNEL_NODE_PARAMS *params, void *node)
{
    CUDA_KERNEL_NODE_PARAMS_v1 narrow;

    if (driver_api_has(ROW_cuGraphKernelNodeSetParams_v2))
        return driver.cuGraphKernelNodeSetParams_v2(node, params);
    memcpy(&narrow, params, sizeof narrow);
    return driver.cuGraphKernelNodeSetParams(node, &narrow);
}

/* Only what differs: the driver tells attributes that it does not let anybody set. */
static CUresult set_attributes(const struct graph_kernel *kernel, CUgraphNode node)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < kernel->attribute_count && result == CUDA_SUCCESS; i++) {
        CUlaunchAttributeValue now = {.pad = {0}};

        if (driver.cuGraphKernelNodeGetAttribute(node, kernel->attributes[i].id, &now) == CUDA_SUCCESS &&
            !memcmp(&now, &kernel->attributes[i].value, sizeof now))
            continue;
        result = driver.cuGraphKernelNodeSetAttribute(node, kernel->attributes[i].id,
                                                      &kernel->attributes[i].value);
    }
    return result;
}

/* ---- nodes of all types */

/* An embedded graph that is held must be in its place, with its nodes. */
static CUresult check_embedded(struct build *build, const struct graph_description *child, CUgraphNode node)
{
    CUgraphNode *nodes;
    CUgraph graph;
    size_t count = child->node_count;
    CUresult result;

    if (!build->in_place || !child->held)
        return CUDA_SUCCESS;
    nodes = calloc(child->node_count + 1, sizeof *nodes);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = driver.cuGraphChildGraphNodeGetGraph(node, &graph);
    if (result == CUDA_SUCCESS && count)
        result = driver.cuGraphGetNodes(graph, nodes, &count);
    if (result == CUDA_SUCCESS && (graph != child->graph || count != child->node_count))
        build->misplaced = (CUgraphNode)graph;
    for (size_t i = 0; i < child->node_count && result == CUDA_SUCCESS && !build->misplaced; i++) {
        if (nodes[i] != child->nodes[i].handle)
            build->misplaced = nodes[i];
        else if (child->nodes[i].type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = check_embedded(build, child->nodes[i].child, nodes[i]);
    }
    free(nodes);
    return result;
}

/* The driver takes a copy of a graph. */
static CUresult add_child(struct build *build, const struct graph_description *child, CUgraphNode *made)
{
    struct graph_state state = {0};
    CUgraph graph;
    CUresult result = graph_build_temporary(&graph, &state, child);

    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuGraphAddChildGraphNode(made, build->graph, NULL, 0, graph);
    graph_build_end(graph, &state);
    return result == CUDA_SUCCESS ? check_embedded(build, child, *made) : result;
}

static CUresult add_node(struct build *build, const struct graph_node *node, CUgraphNode *made)
{
    CUgraph graph = build->graph;
    struct add_kernel add = {graph, made};
    CUcontext context = NULL;
    CUresult result;

    driver.cuCtxGetCurrent(&context);
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        result = graph_with_kernel(node->kernel, add_kernel, &add);
        return result == CUDA_SUCCESS ? set_attributes(node->kernel, *made) : result;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return driver.cuGraphAddMemcpyNode(made, graph, NULL, 0, &node->copy, context);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return driver.cuGraphAddMemsetNode(made, graph, NULL, 0, &node->set, context);
    case CU_GRAPH_NODE_TYPE_HOST:
        return driver.cuGraphAddHostNode(made, graph, NULL, 0, &node->host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return driver.cuGraphAddEventWaitNode(made, graph, NULL, 0, node->event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return driver.cuGraphAddEventRecordNode(made, graph, NULL, 0, node->event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return driver.cuGraphAddBatchMemOpNode(made, graph, NULL, 0, &node->batch);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(build, node->child, made);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return driver.cuGraphAddEmptyNode(made, graph, NULL, 0);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult set_node(CUgraphNode handle, const struct graph_node *node)
{
    CUresult result;

    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        result = graph_with_kernel(node->kernel, set_kernel, handle);
        return result == CUDA_SUCCESS ? set_attributes(node->kernel, handle) : result;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return driver.cuGraphMemcpyNodeSetParams(handle, &node->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return driver.cuGraphMemsetNodeSetParams(handle, &node->set);
    case CU_GRAPH_NODE_TYPE_HOST:
        return driver.cuGraphHostNodeSetParams(handle, &node->host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return driver.cuGraphEventWaitNodeSetEvent(handle, node->event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return driver.cuGraphEventRecordNodeSetEvent(handle, node->event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return driver.cuGraphBatchMemOpNodeSetParams(handle, &node->batch);
    }
    return CUDA_SUCCESS;
}

static bool same_kernel(const struct graph_kernel *a, const struct graph_kernel *b)
{
    return !memcmp(&a->params, &b->params, sizeof a->params) && a->values_size == b->values_size &&
           !memcmp(a->values, b->values, a->values_size) && a->attribute_count == b->attribute_count &&
           !memcmp(a->attributes, b->attributes, a->attribute_count * sizeof *a->attributes);
}

static bool same_graph(const struct graph_description *a, const struct graph_description *b);

static bool same_parameters(const struct graph_node *a, const struct graph_node *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return same_kernel(a->kernel, b->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return !memcmp(&a->copy, &b->copy, sizeof a->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return !memcmp(&a->set, &b->set, sizeof a->set);
    case CU_GRAPH_NODE_TYPE_HOST:
        return !memcmp(&a->host, &b->host, sizeof a->host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return a->event == b->event;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return false; /* set again, which does no harm */
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return same_graph(a->child, b->child);
    }
    return true;
}

static bool same_edges(const struct graph_description *a, const struct graph_description *b)
{
    return a->edge_count == b->edge_count && !memcmp(a->edges, b->edges, a->edge_count * sizeof *a->edges);
}

static bool same_graph(const struct graph_description *a, const struct graph_description *b)
{
    if (a == b)
        return true;
    if (a->node_count != b->node_count || !same_edges(a, b))
        return false;
    for (size_t i = 0; i < a->node_count; i++)
        if (!same_parameters(&a->nodes[i], &b->nodes[i]) || a->nodes[i].handle != b->nodes[i].handle)
            return false;
    return true;
}

/* ---- placing */

static CUresult filler_add(struct build *build)
{
    if (build->filler_count == build->filler_room) {
        size_t room = build->filler_room ? build->filler_room * 2 : 64;
        CUgraphNode *grown = realloc(build->fillers, room * sizeof *grown);

        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        build->fillers = grown;
        build->filler_room = room;
    }
    return driver.cuGraphAddEmptyNode(&build->fillers[build->filler_count++], build->graph, NULL, 0);
}

static CUresult filler_remove_at(struct build *build, CUgraphNode place)
{
    for (size_t i = 0; i < build->filler_count; i++)
        if (build->fillers[i] == place) {
            build->fillers[i] = build->fillers[--build->filler_count];
            return driver.cuGraphDestroyNode(place);
        }
    return CUDA_SUCCESS;
}

static CUresult fillers_remove(struct build *build)
{
    CUresult result = CUDA_SUCCESS;

    while (build->filler_count && result == CUDA_SUCCESS)
        result = driver.cuGraphDestroyNode(build->fillers[--build->filler_count]);
    return result;
}

/*
 * Goes on until a node comes to the place. A child graph must not be made more than once: it takes places of
 * its own. An empty node tries for it.
 */
static CUresult place_node(struct build *build, const struct graph_node *node, CUgraphNode *made)
{
    const struct graph_node empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    bool by_empty = node->type == CU_GRAPH_NODE_TYPE_GRAPH;
    CUresult result;

    if (!build->in_place || !node->handle)
        return add_node(build, node, made);
    for (;;) {
        result = filler_remove_at(build, node->handle);
        if (result == CUDA_SUCCESS)
            result = add_node(build, by_empty ? &empty : node, made);
        if (result != CUDA_SUCCESS || *made == node->handle || build->misplaced)
            break;
        if (build->filler_count == FILLERS_MAX) {
            build->misplaced = *made;
            return CUDA_SUCCESS;
        }
        result = driver.cuGraphDestroyNode(*made);
        if (result == CUDA_SUCCESS)
            result = filler_add(build);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (!by_empty || result != CUDA_SUCCESS)
        return result;
    result = driver.cuGraphDestroyNode(*made);
    if (result == CUDA_SUCCESS)
        result = add_node(build, node, made);
    if (result == CUDA_SUCCESS && *made != node->handle)
        build->misplaced = *made;
    return result;
}

/* ---- edges */

static CUresult change_edges(CUgraph graph, const struct graph_description *description,
                             const CUgraphNode *nodes, bool add)
{
    size_t count = 0;
    CUgraphNode *from = calloc(description->edge_count + 1, sizeof *from);
    CUgraphNode *to = calloc(description->edge_count + 1, sizeof *to);
    CUgraphEdgeData *data = calloc(description->edge_count + 1, sizeof *data);
    const CUgraphEdgeData plain = {0};
    bool all_plain = true;
    CUresult result = from && to && data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; i < description->edge_count && result == CUDA_SUCCESS; i++) {
        const struct graph_edge *edge = &description->edges[i];

        if (!nodes[edge->from] || !nodes[edge->to]) /* it went with its node */
            continue;
        from[count] = nodes[edge->from];
        to[count] = nodes[edge->to];
        data[count++] = edge->data;
        all_plain &= !memcmp(&edge->data, &plain, sizeof plain);
    }
    if (result == CUDA_SUCCESS && count && all_plain)
        result = add ? driver.cuGraphAddDependencies(graph, from, to, count)
                     : driver.cuGraphRemoveDependencies(graph, from, to, count);
    else if (result == CUDA_SUCCESS && count)
        result = add ? driver.cuGraphAddDependencies_v2(graph, from, to, data, count)
                     : driver.cuGraphRemoveDependencies_v2(graph, from, to, data, count);
    free(from);
    free(to);
    free(data);
    return result;
}

/* ---- the whole */

static bool stays(const struct graph_node *now, const struct graph_node *wanted)
{
    return now->handle && now->type == wanted->type &&
           (now->type != CU_GRAPH_NODE_TYPE_GRAPH || same_parameters(now, wanted)); /* can't be set */
}

/* Nodes that stay get their number in build->nodes and new parameters; the others go. */
static CUresult keep_nodes(struct build *build, struct graph_state *state)
{
    const struct graph_description *now = state->now;
    size_t hint = 0;

    for (size_t i = 0; now && i < now->node_count; i++) {
        const struct graph_node *node = &now->nodes[i];
        ptrdiff_t at = node->handle ? graph_description_find(build->wanted, node->handle, hint) : -1;
        CUresult result = CUDA_SUCCESS;

        if (at >= 0 && stays(node, &build->wanted->nodes[at])) {
            hint = (size_t)at + 1;
            build->nodes[at] = state->nodes[i];
            if (!same_parameters(node, &build->wanted->nodes[at]))
                result = set_node(state->nodes[i], &build->wanted->nodes[at]);
            else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
                result = check_embedded(build, build->wanted->nodes[at].child, state->nodes[i]);
        } else {
            result = driver.cuGraphDestroyNode(state->nodes[i]);
            state->nodes[i] = NULL;
        }
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static bool edges_stay(const struct build *build, const struct graph_state *state)
{
    if (!state->now || state->now->node_count != build->wanted->node_count ||
        !same_edges(state->now, build->wanted))
        return false;
    for (size_t i = 0; i < state->now->node_count; i++)
        if (state->nodes[i] != build->nodes[i])
            return false;
    return true;
}

static CUresult build_all(struct build *build, struct graph_state *state)
{
    CUresult result = keep_nodes(build, state);
    bool edges;

    edges = result == CUDA_SUCCESS && !edges_stay(build, state);
    if (edges && state->now)
        result = change_edges(build->graph, state->now, state->nodes, false);
    for (size_t i = 0; i < build->wanted->node_count && result == CUDA_SUCCESS && !build->misplaced; i++)
        if (!build->nodes[i])
            result = place_node(build, &build->wanted->nodes[i], &build->nodes[i]);
    if (result == CUDA_SUCCESS)
        result = fillers_remove(build);
    if (edges && result == CUDA_SUCCESS && !build->misplaced)
        result = change_edges(build->graph, build->wanted, build->nodes, true);
    return result;
}

void graph_state_clear(struct graph_state *state)
{
    free(state->nodes);
    *state = (struct graph_state){0};
}

static CUresult build_run(struct build *build, struct graph_state *state)
{
    CUresult result;

    build->nodes = calloc(build->wanted->node_count + 1, sizeof *build->nodes);
    if (!build->nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = build_all(build, state);
    free(build->fillers);
    graph_state_clear(state);
    *state = (struct graph_state){build->wanted, build->nodes};
    return result;
}

CUresult graph_build(CUgraph graph, struct graph_state *state, const struct graph_description *wanted,
                     CUgraphNode *misplaced)
{
    struct build build = {.graph = graph, .wanted = wanted, .in_place = true};
    CUresult result = build_run(&build, state);

    *misplaced = build.misplaced;
    return result;
}

CUresult graph_build_temporary(CUgraph *graph, struct graph_state *state,
                               const struct graph_description *wanted)
{
    struct build build = {.wanted = wanted};
    CUresult result;

    *state = (struct graph_state){0};
    placement_pause();
    result = driver.cuGraphCreate(&build.graph, 0);
    if (result == CUDA_SUCCESS) {
        result = build_run(&build, state);
        if (result != CUDA_SUCCESS)
            graph_build_end(build.graph, state);
    }
    placement_resume();
    *graph = build.graph;
    return result;
}

void graph_build_end(CUgraph graph, struct graph_state *state)
{
    placement_pause();
    driver.cuGraphDestroy(graph);
    placement_resume();
    graph_state_clear(state);
}
