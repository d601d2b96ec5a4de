/*
 * Graphs that the program holds. The handle of a graph is a block of the driver's heap, those of its nodes
 * are places in blocks that hold many. How a graph came to be does not matter (captures, nodes added and
 * destroyed, clones): before a suspend each is described through the graph API, and that is a record, a
 * snapshot. Executable graphs keep a snapshot of the moment when they were made, since the driver knows the
 * nodes of an executable graph by those of its graph: it must be made again from the same nodes.
 */
#include "kind_graph.h"

#include <stdlib.h>

#include "driver_api.h"
#include "driver_heap.h"
#include "gate.h"
#include "kinds.h"
#include "tracked.h"
#include "unsaveable.h"

#define LOG_PREFIX "graph"
#include "log.h"

static bool children_held;

bool graph_children_are_held(void)
{
    return __atomic_load_n(&children_held, __ATOMIC_RELAXED);
}

/* ---- the graph itself */

static struct graph *graph_of(struct record *record)
{
    return container_of(record, struct graph, record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    CUgraph made = NULL;
    CUresult result = driver.cuGraphCreate(&made, 0);

    graph_state_clear(&graph_of(record)->state); /* of an earlier restore */
    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuGraphDestroy((CUgraph)handle);
}

static void release(struct record *record)
{
    graph_state_clear(&graph_of(record)->state);
    free(graph_of(record)->pairs);
}

const struct record_kind graph_kind = {
    .name = "graph", .replay = replay, .undo = undo, .release = release, .warm_up = true};

/* ---- snapshots */

struct snapshot {
    struct record record;
    struct graph_description *description;
};

static struct snapshot *snapshot_of(struct record *record)
{
    return container_of(record, struct snapshot, record);
}

static CUresult replay_snapshot(struct record *record, uint64_t *handle)
{
    const struct graph_description *description = snapshot_of(record)->description;
    CUgraphNode misplaced;
    CUresult result;

    device_memory_map_early(); /* the driver looks at the addresses of copies */
    result =
        graph_build((CUgraph)record->owner->now, &graph_of(record->owner)->state, description, &misplaced);
    *handle = record->handle;
    if (result == CUDA_SUCCESS && misplaced) {
        log_error("a node of graph %#lx came back as %p", record->owner->handle, (void *)misplaced);
        *handle = (uint64_t)misplaced;
    }
    return result;
}

static void release_snapshot(struct record *record)
{
    graph_description_put(snapshot_of(record)->description);
}

static const struct record_kind snapshot_kind = {
    .name = "graph nodes", .replay = replay_snapshot, .release = release_snapshot};

uint64_t graph_snapshot_add(struct record *graph, struct graph_description *description)
{
    static uint64_t last;
    struct snapshot *snapshot = journal_record_new(&snapshot_kind, sizeof *snapshot);

    if (!snapshot) {
        graph_description_put(description);
        journal_commit(NULL, 0, NULL);
        return 0;
    }
    snapshot->description = description;
    snapshot->record.context = graph->context;
    return journal_commit(&snapshot->record, __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED), graph)->handle;
}

struct graph *graph_snapshot_graph(uint64_t key)
{
    struct record *record = key ? journal_find(&snapshot_kind, key) : NULL;

    return record ? graph_of(record->owner) : NULL;
}

struct record *graph_snapshot_detach(uint64_t key)
{
    return key ? journal_detach(&snapshot_kind, key) : NULL;
}

/* ---- hooks */

static struct graph *graph_keep(CUgraph handle)
{
    struct graph *graph = journal_record_new(&graph_kind, sizeof *graph);
    struct record *record = journal_commit(graph ? &graph->record : NULL, (uint64_t)handle, context_owner());

    return record ? graph_of(record) : NULL;
}

CUresult track_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    CUresult result = driver.cuGraphCreate(phGraph, flags);

    if (result == CUDA_SUCCESS)
        graph_keep(*phGraph);
    return result;
}

void graph_captured(CUgraph graph)
{
    graph_keep(graph);
}

CUresult track_cuGraphDestroy(CUgraph hGraph)
{
    struct record *record = journal_detach(&graph_kind, (uint64_t)hGraph);
    CUresult result = driver.cuGraphDestroy(hGraph);

    if (result == CUDA_SUCCESS)
        journal_drop(record);
    else
        journal_attach(record);
    return result;
}

CUresult track_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    __atomic_store_n(&children_held, true, __ATOMIC_RELAXED);
    return driver.cuGraphChildGraphNodeGetGraph(hNode, phGraph);
}

/* Nodes of copies and sets do not tell their context. */
static void check_context(CUgraph handle, CUcontext context)
{
    struct record *record = journal_find(&graph_kind, (uint64_t)handle);

    if (record && !record->context)
        record->context = context;
    if (context != (record ? record->context : context_current()))
        unsaveable_note("graphs with nodes of several contexts are not supported");
}

CUresult track_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                    size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    CUresult result =
        driver.cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx);

    if (result == CUDA_SUCCESS)
        check_context(hGraph, ctx ? ctx : context_current());
    return result;
}

CUresult track_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                    size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                    CUcontext ctx)
{
    CUresult result =
        driver.cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx);

    if (result == CUDA_SUCCESS)
        check_context(hGraph, ctx ? ctx : context_current());
    return result;
}

/* ---- clones: the driver knows which node is whose copy, until it is restarted */

static CUgraphNode *get_nodes(CUgraph graph, size_t *count)
{
    CUgraphNode *nodes;

    *count = 0;
    if (driver.cuGraphGetNodes(graph, NULL, count) != CUDA_SUCCESS)
        return NULL;
    nodes = calloc(*count + 1, sizeof *nodes);
    if (nodes && *count && driver.cuGraphGetNodes(graph, nodes, count) != CUDA_SUCCESS)
        *count = 0;
    return nodes;
}

static void keep_pairs(struct graph *clone, CUgraph original)
{
    size_t count;
    CUgraphNode *nodes = get_nodes(original, &count);

    clone->pairs = calloc(count + 1, sizeof *clone->pairs);
    for (size_t i = 0; i < count && nodes && clone->pairs; i++) {
        struct clone_pair *pair = &clone->pairs[clone->pair_count];

        pair->original = nodes[i];
        if (driver.cuGraphNodeFindInClone(&pair->clone, nodes[i], (CUgraph)clone->record.handle) ==
            CUDA_SUCCESS)
            clone->pair_count++;
    }
    if (!nodes || !clone->pairs)
        unsaveable_note("no memory to note the nodes of a cloned graph");
    free(nodes);
}

CUresult track_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    CUresult result = driver.cuGraphClone(phGraphClone, originalGraph);
    struct graph *clone;

    if (result != CUDA_SUCCESS)
        return result;
    clone = graph_keep(*phGraphClone);
    if (clone)
        keep_pairs(clone, originalGraph);
    return result;
}

CUresult track_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    CUresult result = driver.cuGraphNodeFindInClone(phNode, hOriginalNode, hClonedGraph);
    struct record *record;
    CUgraphNode found = NULL, *nodes;
    size_t count;

    if (result == CUDA_SUCCESS || !gate_generation() || !phNode)
        return result;
    record = journal_find(&graph_kind, (uint64_t)hClonedGraph);
    for (size_t i = 0; record && i < graph_of(record)->pair_count; i++)
        if (graph_of(record)->pairs[i].original == hOriginalNode)
            found = graph_of(record)->pairs[i].clone;
    if (!found)
        return result;
    nodes = get_nodes(hClonedGraph, &count); /* it may have been destroyed since */
    for (size_t i = 0; nodes && i < count; i++)
        if (nodes[i] == found) {
            *phNode = found;
            result = CUDA_SUCCESS;
        }
    free(nodes);
    return result;
}

/* ---- before a suspend */

struct check {
    uint64_t position;
    const char *reason;
};

static bool lives(const struct record_kind *kind, uint64_t handle, uint64_t position)
{
    const struct record *record = journal_find(kind, handle);

    return record && record->born < position;
}

static int check_node(const struct graph_node *node, void *arg)
{
    struct check *check = arg;

    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (!lives(&function_kind, (uint64_t)node->kernel->params.func, check->position) &&
            !lives(&kernel_kind, (uint64_t)node->kernel->params.func, check->position) &&
            !lives(&kernel_kind, (uint64_t)node->kernel->params.kern, check->position))
            check->reason = "has a kernel whose module was unloaded";
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        if (!lives(&event_kind, (uint64_t)node->event, check->position))
            check->reason = "has an event that was destroyed";
        break;
    }
    return check->reason != NULL;
}

bool graph_objects_live(const struct graph_description *description, uint64_t position, const char **reason)
{
    struct check check = {.position = position};

    graph_each_node(description, check_node, &check);
    *reason = check.reason;
    return !check.reason;
}

static int refuse(struct error *err, const struct record *record, const char *reason)
{
    error_set(err, ERROR_UNSAVEABLE, "graph %#lx %s", record->handle, reason);
    return -1;
}

static void forget_nodes(struct record *graph, const struct graph_description *now)
{
    list_each (node, &graph->owned) {
        struct record *record = container_of(node, struct record, owner_node);

        if (record->kind == &snapshot_kind)
            graph_description_forget_nodes(snapshot_of(record)->description, now);
    }
}

static int save_graph(struct record *record, void *arg)
{
    struct graph *graph = graph_of(record);
    struct error *err = arg;
    struct graph_description *now;
    const char *reason;

    driver.cuCtxSetCurrent(record->context);
    journal_drop(graph_snapshot_detach(graph->final));
    graph->final = 0;
    now = graph_describe((CUgraph)record->handle, graph_children_are_held());
    if (!now) {
        error_set(err, ERROR_MEMORY, "no memory to describe a graph");
        return -1;
    }
    if (*now->reason || !graph_objects_live(now, UINT64_MAX, &reason)) {
        refuse(err, record, *now->reason ? now->reason : reason);
        graph_description_put(now);
        return -1;
    }
    forget_nodes(record, now);
    graph->final = graph_snapshot_add(record, now);
    if (!graph->final)
        error_set(err, ERROR_MEMORY, "no memory to keep the description of a graph");
    return graph->final ? 0 : -1;
}

/* ---- places: blocks of the driver's heap as they are at the suspend, whichever call took them */

struct placing {
    uint64_t *taken; /* starts of blocks that a record has */
    size_t count, room;
    struct record *record;
    struct error *err;
};

static int take_block(struct placing *placing, const void *handle)
{
    struct placement *placement = &placing->record->placement;
    struct heap_place block;
    struct heap_note *notes;

    if (!driver_heap_block_of(handle, &block))
        return refuse(placing->err, placing->record->owner ? placing->record->owner : placing->record,
                      "or a node of it lies outside of the driver's heap");
    for (size_t i = placing->count; i--;)
        if (placing->taken[i] == block.address)
            return 0;
    if (placing->count == placing->room) {
        size_t room = placing->room ? placing->room * 2 : 64;
        uint64_t *grown = realloc(placing->taken, room * sizeof *grown);

        if (!grown)
            goto no_memory;
        placing->taken = grown;
        placing->room = room;
    }
    notes = realloc(placement->heap, (placement->heap_count + 1) * sizeof *notes);
    if (!notes)
        goto no_memory;
    placement->heap = notes;
    notes[placement->heap_count++] =
        (struct heap_note){block.address, block.size, driver_heap_serial((void *)block.address)};
    placing->taken[placing->count++] = block.address;
    return 0;
no_memory:
    error_set(placing->err, ERROR_MEMORY, "no memory to note where a graph lies");
    return -1;
}

static int take_nodes(struct placing *placing, const struct graph_description *description)
{
    int result = description->held ? take_block(placing, description->graph) : 0;

    for (size_t i = 0; i < description->node_count && !result; i++) {
        const struct graph_node *node = &description->nodes[i];

        if (node->handle)
            result = take_block(placing, node->handle);
        if (!result && node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->child->held)
            result = take_nodes(placing, node->child);
    }
    return result;
}

/* In the order of the records: the first that needs a block takes it. */
static int place(struct record *record, void *arg)
{
    struct placing *placing = arg;

    if (record->kind != &graph_kind && record->kind != &snapshot_kind)
        return 0;
    placing->record = record;
    placement_free(&record->placement);
    record->placement.generation = driver_heap_generation();
    if (record->kind == &graph_kind)
        return take_block(placing, (void *)record->handle);
    return take_nodes(placing, snapshot_of(record)->description);
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* A captured launch whose placement was noted may have made a block for nodes: it would give the place away.
 */
static int leave_to_graphs(struct record *record, void *arg)
{
    const struct placing *placing = arg;

    if (record->kind == &graph_kind || record->kind == &snapshot_kind)
        return 0;
    for (uint32_t i = 0; i < record->placement.heap_count; i++) {
        uint64_t *address = &record->placement.heap[i].address;

        if (bsearch(address, placing->taken, placing->count, sizeof *placing->taken, by_address))
            *address = 0;
    }
    return 0;
}

int graph_save(struct error *err)
{
    struct placing placing = {.err = err};
    CUcontext current = NULL;

    driver.cuCtxGetCurrent(&current);
    journal_each(&graph_kind, save_graph, err);
    if (!err->code)
        graph_exec_save(err);
    driver.cuCtxSetCurrent(current);
    if (err->code)
        return -1;
    journal_each(NULL, place, &placing);
    if (placing.count) {
        qsort(placing.taken, placing.count, sizeof *placing.taken, by_address);
        journal_each(NULL, leave_to_graphs, &placing);
    }
    free(placing.taken);
    return err->code ? -1 : 0;
}
