#include "graph_describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "kinds.h"

/* Attributes that a kernel node may have. */
static const CUlaunchAttributeID attribute_ids[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
    CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
};
_Static_assert(sizeof attribute_ids / sizeof *attribute_ids <= GRAPH_ATTRIBUTES_MAX,
               "room for all attributes");

static const char *const no_memory = "can't be described: no memory";

/* ---- kernels */

static CUresult parameter_info(const CUDA_KERNEL_NODE_PARAMS *params, size_t index,
                               struct graph_parameter *info)
{
    return params->func ? driver.cuFuncGetParamInfo(params->func, index, &info->offset, &info->size)
                        : driver.cuKernelGetParamInfo(params->kern, index, &info->offset, &info->size);
}

static const char *find_parameters(struct graph_kernel *kernel)
{
    struct graph_parameter info;
    CUresult result;

    while ((result = parameter_info(&kernel->params, kernel->parameter_count, &info)) == CUDA_SUCCESS) {
        struct graph_parameter *grown =
            realloc(kernel->parameters, (kernel->parameter_count + 1) * sizeof *grown);

        if (!grown)
            return no_memory;
        kernel->parameters = grown;
        grown[kernel->parameter_count++] = info;
        if (kernel->values_size < info.offset + info.size)
            kernel->values_size = info.offset + info.size;
    }
    /* One past the last is an invalid value; anything else does not say how many there are. */
    return result == CUDA_ERROR_INVALID_VALUE
               ? NULL
               : "has a kernel whose parameters this driver does not tell; it takes CUDA 12.4 or newer";
}

static void copy_extra(struct graph_kernel *kernel, void **extra)
{
    const void *buffer = NULL;
    size_t size = 0;

    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(const size_t *)extra[1];
    }
    if (buffer)
        memcpy(kernel->values, buffer, size < kernel->values_size ? size : kernel->values_size);
}

const char *graph_node_keep_kernel(struct graph_node *node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_kernel *kernel = calloc(1, sizeof *kernel);
    const char *reason;

    node->type = CU_GRAPH_NODE_TYPE_KERNEL;
    node->kernel = kernel;
    if (!kernel)
        return no_memory;
    kernel->params.func = params->func; /* one by one: they are compared as bytes */
    kernel->params.gridDimX = params->gridDimX;
    kernel->params.gridDimY = params->gridDimY;
    kernel->params.gridDimZ = params->gridDimZ;
    kernel->params.blockDimX = params->blockDimX;
    kernel->params.blockDimY = params->blockDimY;
    kernel->params.blockDimZ = params->blockDimZ;
    kernel->params.sharedMemBytes = params->sharedMemBytes;
    kernel->params.kern = params->func ? NULL : params->kern;
    kernel->params.ctx = params->ctx;
    /* The function that a kernel has in this context may be one that the program never asked for. */
    if (params->func && !function_is_known(params->func)) {
        kernel->params.kern = kernel_of_function(params->func);
        if (!kernel->params.kern)
            return "has a kernel that was not looked up by the program";
        kernel->params.func = NULL;
    }
    reason = find_parameters(kernel);
    if (reason)
        return reason;
    kernel->values = calloc(1, kernel->values_size + 1);
    if (!kernel->values)
        return no_memory;
    if (params->kernelParams)
        for (size_t i = 0; i < kernel->parameter_count; i++)
            memcpy(kernel->values + kernel->parameters[i].offset, params->kernelParams[i],
                   kernel->parameters[i].size);
    else if (params->extra)
        copy_extra(kernel, params->extra);
    return NULL;
}

static const char *describe_attributes(struct graph_kernel *kernel, CUgraphNode handle)
{
    for (size_t i = 0; i < sizeof attribute_ids / sizeof *attribute_ids; i++) {
        CUlaunchAttribute *attribute = &kernel->attributes[kernel->attribute_count];

        *attribute = (CUlaunchAttribute){.id = attribute_ids[i]};
        if (driver.cuGraphKernelNodeGetAttribute(handle, attribute->id, &attribute->value) != CUDA_SUCCESS)
            continue;
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
            if (attribute->value.deviceUpdatableKernelNode.deviceUpdatable)
                return "has a kernel node that can be updated from the device";
            continue;
        }
        kernel->attribute_count++;
    }
    return NULL;
}

static CUresult kernel_params(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    CUDA_KERNEL_NODE_PARAMS_v1 narrow = {0};
    CUresult result;

    if (driver_api_has(ROW_cuGraphKernelNodeGetParams_v2))
        return driver.cuGraphKernelNodeGetParams_v2(handle, params);
    result = driver.cuGraphKernelNodeGetParams(handle, &narrow);
    memcpy(params, &narrow, sizeof narrow);
    return result;
}

static const char *describe_kernel(struct graph_node *node, CUgraphNode handle)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    const char *reason;

    if (kernel_params(handle, &params) != CUDA_SUCCESS)
        return "has a kernel node that does not tell its parameters";
    reason = graph_node_keep_kernel(node, &params);
    return reason ? reason : describe_attributes(node->kernel, handle);
}

/* ---- the other nodes */

const char *graph_node_keep_batch(struct graph_node *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    size_t size = params->count * sizeof *params->paramArray;

    node->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    node->batch = *params;
    node->batch.paramArray = malloc(size + 1);
    if (!node->batch.paramArray)
        return no_memory;
    memcpy(node->batch.paramArray, params->paramArray, size);
    return NULL;
}

static const char *describe_batch(struct graph_node *node, CUgraphNode handle)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {0};

    if (driver.cuGraphBatchMemOpNodeGetParams(handle, &params) != CUDA_SUCCESS)
        return "has a memory operation node that does not tell its parameters";
    return graph_node_keep_batch(node, &params);
}

static const char *describe_child(struct graph_node *node, CUgraphNode handle, bool hold)
{
    CUgraph child;

    if (driver.cuGraphChildGraphNodeGetGraph(handle, &child) != CUDA_SUCCESS)
        return "has a child graph that can't be described";
    node->child = graph_describe(child, hold);
    if (!node->child)
        return no_memory;
    node->child->held = hold;
    return *node->child->reason ? node->child->reason : NULL;
}

static const char *told(CUresult result)
{
    return result == CUDA_SUCCESS ? NULL : "has a node that does not tell its parameters";
}

static const char *describe_node(struct graph_node *node, CUgraphNode handle, bool hold_children)
{
    CUgraphNodeType type;

    if (driver.cuGraphNodeGetType(handle, &type) != CUDA_SUCCESS)
        return "has a node that does not tell its type";
    node->handle = handle;
    node->type = CU_GRAPH_NODE_TYPE_EMPTY; /* until there is something to free */
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return describe_kernel(node, handle);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return describe_batch(node, handle);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return "has a memory allocation node, which can't be saved yet";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return "has a conditional node, which can't be saved yet";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return "has an external semaphore node, which can't be saved";
    }
    node->type = type;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return told(driver.cuGraphMemcpyNodeGetParams(handle, &node->copy));
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return told(driver.cuGraphMemsetNodeGetParams(handle, &node->set));
    case CU_GRAPH_NODE_TYPE_HOST:
        return told(driver.cuGraphHostNodeGetParams(handle, &node->host));
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return told(driver.cuGraphEventWaitNodeGetEvent(handle, &node->event));
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return told(driver.cuGraphEventRecordNodeGetEvent(handle, &node->event));
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return describe_child(node, handle, hold_children);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return NULL;
    }
    return "has a node of a type that is not known to this version of cudackpt";
}

void graph_node_clear(struct graph_node *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (node->kernel) {
            free(node->kernel->values);
            free(node->kernel->parameters);
        }
        free(node->kernel);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        free(node->batch.paramArray);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        graph_description_put(node->child);
        break;
    }
    *node = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

/* ---- graphs */

static const char *describe_nodes(struct graph_description *description, bool hold_children)
{
    const char *reason = NULL, *first = NULL;
    CUgraphNode *handles;
    size_t count = 0;

    if (driver.cuGraphGetNodes(description->graph, NULL, &count) != CUDA_SUCCESS)
        return "does not tell its nodes";
    handles = calloc(count + 1, sizeof *handles);
    description->nodes = calloc(count + 1, sizeof *description->nodes);
    if (!handles || !description->nodes) {
        reason = no_memory;
    } else if (count && driver.cuGraphGetNodes(description->graph, handles, &count) != CUDA_SUCCESS) {
        reason = "does not tell its nodes";
    } else {
        description->node_count = count;
        for (size_t i = 0; i < count; i++) {
            reason = describe_node(&description->nodes[i], handles[i], hold_children);
            first = first ? first : reason;
        }
        reason = first;
    }
    free(handles);
    return reason;
}

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                          size_t *count)
{
    if (driver_api_has(ROW_cuGraphGetEdges_v2))
        return driver.cuGraphGetEdges_v2(graph, from, to, data, count);
    return driver.cuGraphGetEdges(graph, from, to, count);
}

static const char *keep_edges(struct graph_description *description, const CUgraphNode *from,
                              const CUgraphNode *to, const CUgraphEdgeData *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* Most lead from a node near the one of the edge before. */
        const struct graph_edge *before = i ? &description->edges[i - 1] : NULL;
        ptrdiff_t source = graph_description_find(description, from[i], before ? before->from : 0);
        ptrdiff_t target = graph_description_find(description, to[i], before ? before->to : 0);

        if (source < 0 || target < 0)
            return "has an edge to a node that it does not tell";
        description->edges[description->edge_count++] =
            (struct graph_edge){(size_t)source, (size_t)target, data[i]};
    }
    return NULL;
}

static const char *describe_edges(struct graph_description *description)
{
    CUgraphNode *from = NULL, *to = NULL;
    CUgraphEdgeData *data = NULL;
    const char *reason = NULL;
    size_t count = 0;

    if (get_edges(description->graph, NULL, NULL, NULL, &count) != CUDA_SUCCESS)
        return "does not tell its edges";
    from = calloc(count + 1, sizeof *from);
    to = calloc(count + 1, sizeof *to);
    data = calloc(count + 1, sizeof *data);
    description->edges = calloc(count + 1, sizeof *description->edges);
    if (!from || !to || !data || !description->edges)
        reason = no_memory;
    else if (count && get_edges(description->graph, from, to, data, &count) != CUDA_SUCCESS)
        reason = "does not tell its edges";
    else
        reason = keep_edges(description, from, to, data, count);
    free(from);
    free(to);
    free(data);
    return reason;
}

struct graph_description *graph_describe(CUgraph graph, bool hold_children)
{
    struct graph_description *description = calloc(1, sizeof *description);
    const char *reason;

    if (!description)
        return NULL;
    description->refs = 1;
    description->graph = graph;
    reason = describe_nodes(description, hold_children);
    if (!reason)
        reason = describe_edges(description);
    if (reason)
        snprintf(description->reason, sizeof description->reason, "%s", reason);
    return description;
}

struct graph_description *graph_description_get(struct graph_description *description)
{
    __atomic_add_fetch(&description->refs, 1, __ATOMIC_RELAXED);
    return description;
}

void graph_description_put(struct graph_description *description)
{
    if (!description || __atomic_sub_fetch(&description->refs, 1, __ATOMIC_ACQ_REL))
        return;
    for (size_t i = 0; i < description->node_count; i++)
        graph_node_clear(&description->nodes[i]);
    free(description->nodes);
    free(description->edges);
    free(description);
}

ptrdiff_t graph_description_find(const struct graph_description *description, CUgraphNode handle, size_t hint)
{
    size_t count = description->node_count, at = hint < count ? hint : 0;

    for (size_t i = 0; i < count; i++, at = at + 1 == count ? 0 : at + 1)
        if (description->nodes[at].handle == handle)
            return (ptrdiff_t)at;
    return -1;
}

void graph_description_forget_nodes(struct graph_description *description,
                                    const struct graph_description *now)
{
    size_t hint = 0;

    for (size_t i = 0; i < description->node_count; i++) {
        struct graph_node *node = &description->nodes[i];
        ptrdiff_t found = node->handle ? graph_description_find(now, node->handle, hint) : -1;

        if (found < 0)
            node->handle = NULL;
        else
            hint = (size_t)found + 1;
    }
}

int graph_each_node(const struct graph_description *description,
                    int (*f)(const struct graph_node *node, void *arg), void *arg)
{
    int result = 0;

    for (size_t i = 0; i < description->node_count && !result; i++) {
        const struct graph_node *node = &description->nodes[i];

        result = f(node, arg);
        if (!result && node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->child)
            result = graph_each_node(node->child, f, arg);
    }
    return result;
}
