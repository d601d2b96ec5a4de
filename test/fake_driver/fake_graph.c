/* Graphs: nodes in slabs, and what is made of them to be launched. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"
#include "fake_copy.h"

enum { SLAB_NODES = 16 };

/* Nodes are places in a block that was made for an earlier one. */
struct slab {
    struct list node; /* in graph->slabs */
    struct graph_node nodes[SLAB_NODES];
};

/* ---- nodes */

static struct graph_node *node_place(struct graph *graph)
{
    struct slab *slab;

    list_each (node, &graph->slabs) {
        slab = container_of(node, struct slab, node);
        for (int i = 0; i < SLAB_NODES; i++) {
            if (!slab->nodes[i].used)
                return &slab->nodes[i];
        }
    }
    slab = calloc(1, sizeof(*slab));
    if (!slab)
        return NULL;
    list_insert(&graph->slabs, &slab->node);
    return &slab->nodes[0];
}

static void node_clear(struct graph_node *node)
{
    object_remove(node);
    work_drop(&node->work);
    free(node->dependencies);
    free(node->parameter_pointers);
    if (node->child)
        graph_delete(node->child);
    memset(node, 0, sizeof(*node));
}

struct graph_node *graph_add(struct graph *graph, CUgraphNodeType type, struct work *work,
                             struct graph_node *const *dependencies, size_t count)
{
    struct graph_node *node = node_place(graph);

    if (!node || object_add(node, OBJECT_NODE)) {
        work_drop(work);
        return NULL;
    }
    node->dependencies = malloc((count + 1) * sizeof(struct graph_node *));
    if (!node->dependencies) {
        object_remove(node);
        work_drop(work);
        return NULL;
    }
    if (count)
        memcpy(node->dependencies, dependencies, count * sizeof(struct graph_node *));
    node->dependency_count = count;
    node->kind = OBJECT_NODE;
    node->used = true;
    node->type = type;
    node->graph = graph;
    node->index = graph->created++;
    node->work = *work;
    return node;
}

/* All nodes in the order of their creation: those that others depend on come first. malloc'd. */
struct graph_node **graph_nodes(const struct graph *graph, size_t *count)
{
    struct graph_node **nodes = malloc((graph->created + 1u) * sizeof(*nodes));

    *count = 0;
    if (!nodes)
        return NULL;
    for (struct list *place = graph->slabs.next; place != &graph->slabs; place = place->next) {
        struct slab *slab = container_of(place, struct slab, node);

        for (int i = 0; i < SLAB_NODES; i++) {
            size_t at = *count;

            if (!slab->nodes[i].used)
                continue;
            for (; at && nodes[at - 1]->index > slab->nodes[i].index; at--)
                nodes[at] = nodes[at - 1];
            nodes[at] = &slab->nodes[i];
            ++*count;
        }
    }
    return nodes;
}

struct graph *graph_new(struct thread *self)
{
    struct graph *graph = handle_alloc(self, sizeof(*graph));

    if (!graph)
        return NULL;
    graph->kind = OBJECT_GRAPH;
    list_init(&graph->slabs);
    if (object_add(graph, OBJECT_GRAPH)) {
        free(graph);
        return NULL;
    }
    list_insert(&fake.graphs, &graph->node);
    return graph;
}

void graph_delete(struct graph *graph)
{
    list_each (place, &graph->slabs) {
        struct slab *slab = container_of(place, struct slab, node);

        for (int i = 0; i < SLAB_NODES; i++) {
            if (slab->nodes[i].used)
                node_clear(&slab->nodes[i]);
        }
        free(slab);
    }
    object_remove(graph);
    list_remove(&graph->node);
    free(graph);
}

/* ---- entry points */

CUresult cuGraphCreate(CUgraph *handle, unsigned int flags)
{
    CALL(cuGraphCreate, NEEDS_INIT);
    if (!handle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUgraph)graph_new(self);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph handle)
{
    CALL(cuGraphDestroy, NEEDS_INIT);
    struct graph *graph = object_find(handle, OBJECT_GRAPH);

    if (!graph || graph->embedded)
        return CUDA_ERROR_INVALID_VALUE;
    graph_delete(graph);
    return CUDA_SUCCESS;
}

CUresult graph_add_checked(CUgraphNode *handle, CUgraph graph_handle, CUgraphNodeType type, struct work *work,
                           const CUgraphNode *dependencies, size_t count)
{
    struct graph *graph = object_find(graph_handle, OBJECT_GRAPH);
    struct graph_node *node;
    bool valid = handle && graph && (dependencies || !count);

    for (size_t i = 0; valid && i < count; i++) {
        node = object_find(dependencies[i], OBJECT_NODE);
        valid = node && node->graph == graph;
    }
    if (!valid) {
        work_drop(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    node = graph_add(graph, type, work, (struct graph_node *const *)dependencies, count);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    CALL(cuGraphDestroyNode, NEEDS_INIT);
    struct graph_node *node = object_find(handle, OBJECT_NODE);
    struct graph_node **others;
    size_t count;

    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    others = graph_nodes(node->graph, &count);
    if (!others)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        size_t kept = 0;

        for (size_t j = 0; j < others[i]->dependency_count; j++) {
            if (others[i]->dependencies[j] != node)
                others[i]->dependencies[kept++] = others[i]->dependencies[j];
        }
        others[i]->dependency_count = kept;
    }
    free(others);
    node_clear(node);
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *out, size_t *room, bool roots)
{
    const struct graph *graph = object_find(handle, OBJECT_GRAPH);
    struct graph_node **nodes;
    size_t count, found = 0;

    if (!graph || !room)
        return CUDA_ERROR_INVALID_VALUE;
    nodes = graph_nodes(graph, &count);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (roots && nodes[i]->dependency_count)
            continue;
        if (out && found < *room)
            out[found] = (CUgraphNode)nodes[i];
        found++;
    }
    for (size_t i = found; out && i < *room; i++)
        out[i] = NULL;
    if (!out || *room > found)
        *room = found;
    free(nodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    CALL(cuGraphGetNodes, NEEDS_INIT);
    return get_nodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    CALL(cuGraphGetRootNodes, NEEDS_INIT);
    return get_nodes(graph, nodes, count, true);
}

static CUresult get_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *room)
{
    const struct graph *graph = object_find(handle, OBJECT_GRAPH);
    struct graph_node **nodes;
    size_t count, found = 0;

    if (!graph || !room || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    nodes = graph_nodes(graph, &count);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < nodes[i]->dependency_count; j++, found++) {
            if (from && found < *room) {
                from[found] = (CUgraphNode)nodes[i]->dependencies[j];
                to[found] = (CUgraphNode)nodes[i];
            }
        }
    }
    if (!from || *room > found)
        *room = found;
    free(nodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    CALL(cuGraphGetEdges, NEEDS_INIT);
    return get_edges(graph, from, to, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                            size_t *count)
{
    CALL(cuGraphGetEdges_v2, NEEDS_INIT);
    CUresult result = get_edges(graph, from, to, count);

    if (result == CUDA_SUCCESS && data && from)
        memset(data, 0, *count * sizeof(*data)); /* no special edges here */
    return result;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    CALL(cuGraphNodeGetType, NEEDS_INIT);
    const struct graph_node *node = object_find(handle, OBJECT_NODE);

    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

static CUresult get_dependencies(CUgraphNode handle, CUgraphNode *out, size_t *room)
{
    const struct graph_node *node = object_find(handle, OBJECT_NODE);

    if (!node || !room)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; out && i < *room; i++)
        out[i] = i < node->dependency_count ? (CUgraphNode)node->dependencies[i] : NULL;
    if (!out || *room > node->dependency_count)
        *room = node->dependency_count;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count)
{
    CALL(cuGraphNodeGetDependencies, NEEDS_INIT);
    return get_dependencies(node, dependencies, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *data,
                                       size_t *count)
{
    CALL(cuGraphNodeGetDependencies_v2, NEEDS_INIT);
    CUresult result = get_dependencies(node, dependencies, count);

    if (result == CUDA_SUCCESS && data && dependencies)
        memset(data, 0, *count * sizeof(*data));
    return result;
}

static CUresult add_dependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    struct graph *graph = object_find(handle, OBJECT_GRAPH);

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct graph_node *source = object_find(from[i], OBJECT_NODE),
                          *target = object_find(to[i], OBJECT_NODE);
        struct graph_node **larger;

        /* A launch runs the nodes in the order of their creation. */
        if (!source || !target || source->graph != graph || target->graph != graph ||
            source->index >= target->index)
            return CUDA_ERROR_INVALID_VALUE;
        larger = realloc(target->dependencies, (target->dependency_count + 1) * sizeof(*larger));
        if (!larger)
            return CUDA_ERROR_OUT_OF_MEMORY;
        larger[target->dependency_count++] = source;
        target->dependencies = larger;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    CALL(cuGraphAddDependencies, NEEDS_INIT);
    return add_dependencies(graph, from, to, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    CALL(cuGraphAddDependencies_v2, NEEDS_INIT);
    return add_dependencies(graph, from, to, count);
}

static CUresult remove_dependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                    size_t count)
{
    struct graph *graph = object_find(handle, OBJECT_GRAPH);

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct graph_node *target = object_find(to[i], OBJECT_NODE);
        size_t j = 0;

        if (!target || target->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        while (j < target->dependency_count && (CUgraphNode)target->dependencies[j] != from[i])
            j++;
        if (j == target->dependency_count)
            return CUDA_ERROR_INVALID_VALUE;
        target->dependency_count--;
        memmove(&target->dependencies[j], &target->dependencies[j + 1],
                (target->dependency_count - j) * sizeof(*target->dependencies));
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    CALL(cuGraphRemoveDependencies, NEEDS_INIT);
    return remove_dependencies(graph, from, to, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    CALL(cuGraphRemoveDependencies_v2, NEEDS_INIT);
    return remove_dependencies(graph, from, to, count);
}
