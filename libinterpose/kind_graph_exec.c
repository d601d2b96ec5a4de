/*
 * Executable graphs. One is made again from the graph that it was made of, as that was at the time; if the
 * program has destroyed that graph, from a temporary one. What was changed in it afterwards can't be asked
 * for, so the calls are kept, the last for each node, and made again when all records were replayed.
 */
#include "kind_graph.h"

#include <stdlib.h>

#include "driver_api.h"
#include "kinds.h"
#include "tracked.h"
#include "unsaveable.h"

struct change {
    size_t node;  /* number in source */
    bool enables; /* says whether the node is enabled; otherwise it has new parameters */
    unsigned enabled;
    struct graph_node parameters;
    CUcontext context; /* of a copy */
};

struct exec {
    struct record record;
    struct graph_description *source; /* what it was made of */
    uint64_t snapshot;                /* key of the same in the graph that the program held, 0: none */
    unsigned long long flags;
    struct graph_description *update; /* of the last cuGraphExecUpdate; NULL: none */
    struct change *changes;           /* since */
    size_t change_count, change_room;
    const char *reason; /* why it can't be saved since it was changed; NULL: it can */

    /* While records are replayed, until the changes are made: what it was made of if that is temporary. */
    CUgraph temporary;
    struct graph_state temporary_state;
};

static struct exec *exec_of(struct record *record)
{
    return container_of(record, struct exec, record);
}

static bool is_changed(const struct exec *exec)
{
    return exec->update || exec->change_count;
}

/* ---- replay */

static CUresult instantiate(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    if (driver_api_has(ROW_cuGraphInstantiateWithFlags))
        return driver.cuGraphInstantiateWithFlags(made, graph, flags);
    return driver.cuGraphInstantiate_v2(made, graph, NULL, NULL, 0);
}

static void end_temporary(struct exec *exec)
{
    if (exec->temporary)
        graph_build_end(exec->temporary, &exec->temporary_state);
    exec->temporary = NULL;
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct exec *exec = exec_of(record);
    struct graph *held = graph_snapshot_graph(exec->snapshot);
    CUgraph graph = held ? (CUgraph)held->record.now : NULL;
    CUgraphExec made = NULL;
    CUresult result;

    exec->temporary = NULL; /* one of a restore that failed is gone with the driver */
    graph_state_clear(&exec->temporary_state);
    device_memory_map_early();
    if (!held) {
        result = graph_build_temporary(&graph, &exec->temporary_state, exec->source);
        if (result != CUDA_SUCCESS)
            return result;
        exec->temporary = graph;
    }
    result = instantiate(&made, graph, exec->flags);
    if (!is_changed(exec) || result != CUDA_SUCCESS)
        end_temporary(exec);
    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    end_temporary(exec_of(record));
    return driver.cuGraphExecDestroy((CUgraphExec)handle);
}

static void forget_changes(struct exec *exec, bool enables_too)
{
    size_t kept = 0;

    for (size_t i = 0; i < exec->change_count; i++) {
        if (exec->changes[i].enables && !enables_too)
            exec->changes[kept++] = exec->changes[i];
        else
            graph_node_clear(&exec->changes[i].parameters);
    }
    exec->change_count = kept;
}

static void release(struct record *record)
{
    struct exec *exec = exec_of(record);

    forget_changes(exec, true);
    free(exec->changes);
    graph_description_put(exec->update);
    graph_description_put(exec->source);
    graph_state_clear(&exec->temporary_state);
}

static const struct record_kind exec_kind = {
    .name = "executable graph", .replay = replay, .undo = undo, .release = release, .warm_up = true};

/* ---- replay of the changes */

struct kernel_change {
    CUgraphExec exec;
    CUgraphNode node;
};

static CUresult change_kernel(const CUDA_KERNEL_NODE_PARAMS *params, void *arg)
{
    struct kernel_change *change = arg;

    if (driver_api_has(ROW_cuGraphExecKernelNodeSetParams_v2))
        return driver.cuGraphExecKernelNodeSetParams_v2(change->exec, change->node, params);
    return driver.cuGraphExecKernelNodeSetParams(
        change->exec, change->node, (const CUDA_KERNEL_NODE_PARAMS_v1 *)params); /* begins the same */
}

static CUresult change_child(CUgraphExec exec, CUgraphNode node, const struct graph_description *child)
{
    struct graph_state state;
    CUgraph graph;
    CUresult result = graph_build_temporary(&graph, &state, child);

    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuGraphExecChildGraphNodeSetParams(exec, node, graph);
    graph_build_end(graph, &state);
    return result;
}

static CUresult make_change(CUgraphExec exec, CUgraphNode node, const struct change *change)
{
    struct kernel_change kernel = {exec, node};

    if (change->enables)
        return driver.cuGraphNodeSetEnabled(exec, node, change->enabled);
    switch (change->parameters.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return graph_with_kernel(change->parameters.kernel, change_kernel, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return driver.cuGraphExecMemcpyNodeSetParams(exec, node, &change->parameters.copy, change->context);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return driver.cuGraphExecMemsetNodeSetParams(exec, node, &change->parameters.set, change->context);
    case CU_GRAPH_NODE_TYPE_HOST:
        return driver.cuGraphExecHostNodeSetParams(exec, node, &change->parameters.host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return driver.cuGraphExecEventWaitNodeSetEvent(exec, node, change->parameters.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return driver.cuGraphExecEventRecordNodeSetEvent(exec, node, change->parameters.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return driver.cuGraphExecBatchMemOpNodeSetParams(exec, node, &change->parameters.batch);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return change_child(exec, node, change->parameters.child);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult make_update(CUgraphExec exec, const struct graph_description *update)
{
    CUgraphExecUpdateResultInfo info = {0};
    CUgraphExecUpdateResult outcome;
    struct graph_state state;
    CUgraphNode node;
    CUgraph graph;
    CUresult result = graph_build_temporary(&graph, &state, update);

    if (result != CUDA_SUCCESS)
        return result;
    if (driver_api_has(ROW_cuGraphExecUpdate_v2))
        result = driver.cuGraphExecUpdate_v2(exec, graph, &info);
    else
        result = driver.cuGraphExecUpdate(exec, graph, &node, &outcome);
    graph_build_end(graph, &state);
    return result;
}

static CUresult replay_changes(struct record *record, uint64_t *handle)
{
    struct exec *exec = exec_of(record->owner);
    CUgraphExec now = (CUgraphExec)exec->record.now;
    CUresult result = exec->update ? make_update(now, exec->update) : CUDA_SUCCESS;

    for (size_t i = 0; i < exec->change_count && result == CUDA_SUCCESS; i++) {
        size_t number = exec->changes[i].node;
        CUgraphNode node =
            exec->temporary ? exec->temporary_state.nodes[number] : exec->source->nodes[number].handle;

        result = make_change(now, node, &exec->changes[i]);
    }
    end_temporary(exec);
    *handle = record->handle;
    return result;
}

static const struct record_kind changes_kind = {.name = "changes of an executable graph",
                                                .replay = replay_changes};

/* ---- making and destroying */

struct making {
    struct graph_description *source;
    uint64_t snapshot;
};

static int use_function(const struct graph_node *node, void *unused)
{
    const CUDA_KERNEL_NODE_PARAMS *params;

    if (node->type != CU_GRAPH_NODE_TYPE_KERNEL || !node->kernel)
        return 0;
    params = &node->kernel->params;
    if (!params->ctx || params->ctx == context_current())
        function_used(params->func ? params->func : (CUfunction)params->kern);
    return 0;
}

/* The kernels are loaded first: what the instantiation takes is the executable graph's own then. */
static struct graph_description *describe(CUgraph graph)
{
    struct graph_description *description = graph_describe(graph, graph_children_are_held());

    if (description)
        graph_each_node(description, use_function, NULL);
    return description;
}

static struct making begin(CUgraph graph)
{
    struct making making = {.source = describe(graph)};
    struct record *record = journal_find(&graph_kind, (uint64_t)graph);

    if (making.source && !*making.source->reason && record)
        making.snapshot = graph_snapshot_add(record, graph_description_get(making.source));
    journal_note();
    return making;
}

static CUresult end(CUresult result, const struct making *making, CUgraphExec *handle,
                    unsigned long long flags)
{
    struct exec *exec;

    if (result != CUDA_SUCCESS) {
        journal_drop(graph_snapshot_detach(making->snapshot));
        graph_description_put(making->source);
        return journal_discard(result);
    }
    exec = making->source ? journal_record_new(&exec_kind, sizeof *exec) : NULL;
    if (exec) {
        exec->source = making->source;
        exec->snapshot = making->snapshot;
        exec->flags =
            flags & ~(unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* the first launch does */
        if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
            exec->reason = "can be launched from the device, which can't be saved yet";
    }
    journal_commit(exec ? &exec->record : NULL, (uint64_t)*handle, context_owner());
    return result;
}

CUresult track_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                  char *logBuffer, size_t bufferSize)
{
    struct making making = begin(hGraph);

    return end(driver.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), &making,
               phGraphExec, 0);
}

CUresult track_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                     char *logBuffer, size_t bufferSize)
{
    struct making making = begin(hGraph);

    return end(driver.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), &making,
               phGraphExec, 0);
}

CUresult track_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    struct making making = begin(hGraph);

    return end(driver.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags), &making, phGraphExec, flags);
}

CUresult track_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                            CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    struct making making = begin(hGraph);

    return end(driver.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams), &making,
               phGraphExec, instantiateParams ? instantiateParams->flags : 0);
}

CUresult track_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    struct making making = begin(hGraph);

    return end(driver.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams), &making,
               phGraphExec, instantiateParams ? instantiateParams->flags : 0);
}

CUresult track_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    struct record *record = journal_detach(&exec_kind, (uint64_t)hGraphExec);
    struct record *snapshot = record ? graph_snapshot_detach(exec_of(record)->snapshot) : NULL;
    CUresult result = driver.cuGraphExecDestroy(hGraphExec);

    if (result == CUDA_SUCCESS) {
        journal_drop(snapshot);
        journal_drop(record);
    } else {
        journal_attach(snapshot);
        journal_attach(record);
    }
    return result;
}

/* ---- changing */

/* Where the new value for a node of an executable graph is to be put; NULL: nowhere. */
static struct change *change_of(CUgraphExec handle, CUgraphNode node, bool enables)
{
    struct record *record = journal_find(&exec_kind, (uint64_t)handle);
    struct exec *exec = record ? exec_of(record) : NULL;
    ptrdiff_t number = exec ? graph_description_find(exec->source, node, 0) : -1;
    struct change *grown;

    if (!exec)
        return NULL;
    if (number < 0) {
        exec->reason = "was changed by a node that its graph did not have when it was instantiated";
        return NULL;
    }
    for (size_t i = 0; i < exec->change_count; i++)
        if (exec->changes[i].node == (size_t)number && exec->changes[i].enables == enables) {
            graph_node_clear(&exec->changes[i].parameters);
            return &exec->changes[i];
        }
    if (exec->change_count == exec->change_room) {
        size_t room = exec->change_room ? exec->change_room * 2 : 8;

        grown = realloc(exec->changes, room * sizeof *grown);
        if (!grown) {
            exec->reason = "was changed while there was no memory to note it";
            return NULL;
        }
        exec->changes = grown;
        exec->change_room = room;
    }
    grown = &exec->changes[exec->change_count++];
    *grown = (struct change){
        .node = (size_t)number, .enables = enables, .parameters = {.type = CU_GRAPH_NODE_TYPE_EMPTY}};
    return grown;
}

static void note_reason(CUgraphExec handle, const char *reason)
{
    struct record *record = reason ? journal_find(&exec_kind, (uint64_t)handle) : NULL;

    if (record)
        exec_of(record)->reason = reason;
}

static CUresult changed_kernel(CUresult result, CUgraphExec exec, CUgraphNode node,
                               const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct change *change = result == CUDA_SUCCESS ? change_of(exec, node, false) : NULL;

    if (change)
        note_reason(exec, graph_node_keep_kernel(&change->parameters, params));
    return result;
}

CUresult track_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams)
        function_used(nodeParams->func ? nodeParams->func : (CUfunction)nodeParams->kern);
    return changed_kernel(driver.cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams), hGraphExec,
                          hNode, nodeParams);
}

CUresult track_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    if (nodeParams) {
        *(CUDA_KERNEL_NODE_PARAMS_v1 *)&wide = *nodeParams; /* begins the same */
        function_used(nodeParams->func);
    }
    return changed_kernel(driver.cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams), hGraphExec,
                          hNode, &wide);
}

CUresult track_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    CUresult result = driver.cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx);
    struct change *change = result == CUDA_SUCCESS ? change_of(hGraphExec, hNode, false) : NULL;

    if (change) {
        change->parameters = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *copyParams};
        change->context = ctx;
    }
    return result;
}

CUresult track_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    CUresult result = driver.cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx);
    struct change *change = result == CUDA_SUCCESS ? change_of(hGraphExec, hNode, false) : NULL;

    if (change) {
        change->parameters = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_MEMSET, .set = *memsetParams};
        change->context = ctx;
    }
    return result;
}

CUresult track_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUresult result = driver.cuGraphExecHostNodeSetParams(hGraphExec, hNode, nodeParams);
    struct change *change = result == CUDA_SUCCESS ? change_of(hGraphExec, hNode, false) : NULL;

    if (change)
        change->parameters = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_HOST, .host = *nodeParams};
    return result;
}

static CUresult changed_event(CUresult result, CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                              CUevent event)
{
    struct change *change = result == CUDA_SUCCESS ? change_of(exec, node, false) : NULL;

    if (change)
        change->parameters = (struct graph_node){.type = type, .event = event};
    return result;
}

CUresult track_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return changed_event(driver.cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, event), hGraphExec,
                         hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult track_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return changed_event(driver.cuGraphExecEventWaitNodeSetEvent(hGraphExec, hNode, event), hGraphExec, hNode,
                         CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult track_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    CUresult result = driver.cuGraphExecBatchMemOpNodeSetParams(hGraphExec, hNode, nodeParams);
    struct change *change = result == CUDA_SUCCESS ? change_of(hGraphExec, hNode, false) : NULL;

    if (change)
        note_reason(hGraphExec, graph_node_keep_batch(&change->parameters, nodeParams));
    return result;
}

CUresult track_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                  CUgraph childGraph)
{
    struct graph_description *child = describe(childGraph);
    CUresult result = driver.cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph);
    struct change *change = result == CUDA_SUCCESS ? change_of(hGraphExec, hNode, false) : NULL;

    if (!change) {
        graph_description_put(child);
    } else if (!child) {
        note_reason(hGraphExec, "was changed while there was no memory to note it");
    } else {
        change->parameters = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child};
        if (*child->reason)
            note_reason(hGraphExec, "was given a child graph that can't be saved");
    }
    return result;
}

/* The parameters of all types in one struct: they come as several layouts, by the version of CUDA. */
CUresult track_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        CUgraphNodeParams *nodeParams)
{
    CUresult result = driver.cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams);

    if (result == CUDA_SUCCESS)
        note_reason(hGraphExec, "was changed by cuGraphExecNodeSetParams, which can't be saved yet");
    return result;
}

CUresult track_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    CUresult result = driver.cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);
    struct change *change = result == CUDA_SUCCESS ? change_of(hGraphExec, hNode, true) : NULL;

    if (change)
        change->enabled = isEnabled;
    return result;
}

/* The parameters of all nodes are those of the other graph now. */
static CUresult updated(CUresult result, CUgraphExec handle, struct graph_description *update)
{
    struct record *record = result == CUDA_SUCCESS ? journal_find(&exec_kind, (uint64_t)handle) : NULL;

    if (!record) {
        graph_description_put(update);
        return result;
    }
    if (!update)
        note_reason(handle, "was updated while there was no memory to note it");
    forget_changes(exec_of(record), false);
    graph_description_put(exec_of(record)->update);
    exec_of(record)->update = update;
    return result;
}

CUresult track_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                 CUgraphExecUpdateResult *updateResult_out)
{
    struct graph_description *update = describe(hGraph);

    return updated(driver.cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out), hGraphExec,
                   update);
}

CUresult track_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                    CUgraphExecUpdateResultInfo *resultInfo)
{
    struct graph_description *update = describe(hGraph);

    return updated(driver.cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo), hGraphExec, update);
}

/* ---- before a suspend */

static const char *reason_of(const struct exec *exec)
{
    bool held = graph_snapshot_graph(exec->snapshot);
    const char *reason = exec->reason;

    if (!reason && *exec->source->reason)
        reason = exec->source->reason;
    if (!reason && exec->update && *exec->update->reason)
        reason = exec->update->reason;
    if (!reason && graph_objects_live(exec->source, exec->record.born, &reason) && exec->update)
        graph_objects_live(exec->update, UINT64_MAX, &reason);
    for (size_t i = 0; i < exec->change_count && !reason; i++) {
        struct graph_description one = {.nodes = &exec->changes[i].parameters, .node_count = 1};

        if (held && !exec->source->nodes[exec->changes[i].node].handle)
            reason = "was changed at a node that its graph does not have any more";
        else
            graph_objects_live(&one, UINT64_MAX, &reason);
    }
    return reason;
}

static int save(struct record *record, void *arg)
{
    struct exec *exec = exec_of(record);
    struct error *err = arg;
    struct record *changes;
    const char *reason = reason_of(exec);

    if (reason) {
        error_set(err, ERROR_UNSAVEABLE, "executable graph %#lx %s", record->handle, reason);
        return -1;
    }
    journal_drop(journal_detach(&changes_kind, record->handle));
    if (!is_changed(exec))
        return 0;
    changes = journal_record_new(&changes_kind, sizeof *changes);
    if (!changes) {
        error_set(err, ERROR_MEMORY, "no memory to keep the changes of a graph");
        return -1;
    }
    changes->context = record->context;
    journal_commit(changes, record->handle, record);
    return 0;
}

int graph_exec_save(struct error *err)
{
    journal_each(&exec_kind, save, err);
    return err->code ? -1 : 0;
}
