/* What the kinds of graph nodes are made of. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_copy.h"

/* ---- kernels */

CUDA_KERNEL_NODE_PARAMS kernel_params_widen(const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    if (from)
        memcpy(&wide, from, sizeof(*from));
    return wide;
}

CUresult kernel_node_work(struct thread *self, struct context *context, const CUDA_KERNEL_NODE_PARAMS *from,
                          struct work *work)
{
    struct context *owner = from->ctx ? context_find(from->ctx) : context;
    struct kernel_work *kernel = &work->kernel;
    CUresult result;

    *work = (struct work){.kind = WORK_KERNEL};
    if (!owner)
        return CUDA_ERROR_INVALID_CONTEXT;
    kernel->handle = from->func ? from->func : (CUfunction)from->kern;
    result = function_find(self, owner, kernel->handle, &kernel->function);
    if (result != CUDA_SUCCESS)
        return result;
    kernel->grid[0] = from->gridDimX;
    kernel->grid[1] = from->gridDimY;
    kernel->grid[2] = from->gridDimZ;
    kernel->block[0] = from->blockDimX;
    kernel->block[1] = from->blockDimY;
    kernel->block[2] = from->blockDimZ;
    kernel->shared = from->sharedMemBytes;
    result = kernel_work_check(kernel);
    if (result == CUDA_SUCCESS)
        result = function_load(kernel->function);
    return result == CUDA_SUCCESS ? kernel_work_parameters(kernel, from->kernelParams, from->extra) : result;
}

static CUresult add_kernel(struct thread *self, struct context *context, CUgraphNode *node, CUgraph graph,
                           const CUgraphNode *dependencies, size_t count, const CUDA_KERNEL_NODE_PARAMS *from)
{
    struct work work;
    CUresult result = kernel_node_work(self, context, from, &work);

    return result == CUDA_SUCCESS ? graph_add_checked(node, graph, NODE_KERNEL, &work, dependencies, count)
                                  : result;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CALL(cuGraphAddKernelNode, NEEDS_CONTEXT);
    CUDA_KERNEL_NODE_PARAMS wide = kernel_params_widen(from);

    return add_kernel(self, context, node, graph, dependencies, count, &wide);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *from)
{
    CALL(cuGraphAddKernelNode_v2, NEEDS_CONTEXT);
    return from ? add_kernel(self, context, node, graph, dependencies, count, from)
                : CUDA_ERROR_INVALID_VALUE;
}

static CUresult kernel_params(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_node *node = object_find(handle, OBJECT_NODE);
    const struct kernel_work *kernel = node ? &node->work.kernel : NULL;
    const struct image_function *image;

    if (!node || node->type != NODE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    image = kernel->function->image;
    free(node->parameter_pointers);
    node->parameter_pointers = malloc((image->parameter_count + 1u) * sizeof(void *));
    if (!node->parameter_pointers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < image->parameter_count; i++)
        node->parameter_pointers[i] = kernel->parameters + image->parameters[i].offset;
    *params = (CUDA_KERNEL_NODE_PARAMS){
        .func = (CUfunction)kernel->function,
        .gridDimX = kernel->grid[0],
        .gridDimY = kernel->grid[1],
        .gridDimZ = kernel->grid[2],
        .blockDimX = kernel->block[0],
        .blockDimY = kernel->block[1],
        .blockDimZ = kernel->block[2],
        .sharedMemBytes = kernel->shared,
        .kernelParams = node->parameter_pointers,
        .ctx = (CUcontext)kernel->function->module->context,
    };
    /* A node that was made of a kernel tells the kernel. */
    if (object_find(kernel->handle, OBJECT_KERNEL)) {
        params->func = NULL;
        params->kern = (CUkernel)kernel->handle;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CALL(cuGraphKernelNodeGetParams, NEEDS_INIT);
    CUDA_KERNEL_NODE_PARAMS wide;
    CUresult result = kernel_params(node, &wide);

    if (result != CUDA_SUCCESS)
        return result;
    memcpy(params, &wide, sizeof(*params));
    if (!params->func)
        params->func = (CUfunction)((struct graph_node *)node)->work.kernel.function;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    CALL(cuGraphKernelNodeGetParams_v2, NEEDS_INIT);
    return params ? kernel_params(node, params) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_kernel_params(struct thread *self, struct context *context, CUgraphNode handle,
                                  const CUDA_KERNEL_NODE_PARAMS *from)
{
    struct graph_node *node = object_find(handle, OBJECT_NODE);
    struct work work;
    CUresult result;

    if (!node || node->type != NODE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    result = kernel_node_work(self, context, from, &work);
    if (result != CUDA_SUCCESS)
        return result;
    work_drop(&node->work);
    node->work = work;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CALL(cuGraphKernelNodeSetParams, NEEDS_CONTEXT);
    CUDA_KERNEL_NODE_PARAMS wide = kernel_params_widen(from);

    return set_kernel_params(self, context, node, &wide);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *from)
{
    CALL(cuGraphKernelNodeSetParams_v2, NEEDS_CONTEXT);
    return from ? set_kernel_params(self, context, node, from) : CUDA_ERROR_INVALID_VALUE;
}

static struct graph_node *kernel_node(CUgraphNode handle, int attribute)
{
    struct graph_node *node = object_find(handle, OBJECT_NODE);

    return node && node->type == NODE_KERNEL && attribute > 0 && attribute < 18 ? node : NULL;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue *value)
{
    CALL(cuGraphKernelNodeGetAttribute, NEEDS_INIT);
    const struct graph_node *node = kernel_node(handle, attribute);

    if (!node || !value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = node->attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value)
{
    CALL(cuGraphKernelNodeSetAttribute, NEEDS_INIT);
    struct graph_node *node = kernel_node(handle, attribute);

    if (!node || !value)
        return CUDA_ERROR_INVALID_VALUE;
    node->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}

/* ---- copies */

CUresult copy_node_work(struct context *context, const CUDA_MEMCPY3D *from, struct work *work)
{
    *work = (struct work){.kind = WORK_COPY};
    if (!from || !context)
        return CUDA_ERROR_INVALID_VALUE;
    /* Addresses are looked at here, not when the graph runs. */
    if ((from->srcMemoryType == CU_MEMORYTYPE_DEVICE && !pages_accessible(NULL, from->srcDevice, 1)) ||
        (from->dstMemoryType == CU_MEMORYTYPE_DEVICE && !pages_accessible(NULL, from->dstDevice, 1)))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_from_3d(context, from, &work->copy);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *from, CUcontext handle)
{
    CALL(cuGraphAddMemcpyNode, NEEDS_INIT);
    struct work work;
    CUresult result = copy_node_work(handle ? context_find(handle) : context, from, &work);

    return result == CUDA_SUCCESS ? graph_add_checked(node, graph, NODE_COPY, &work, dependencies, count)
                                  : result;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *params)
{
    CALL(cuGraphMemcpyNodeGetParams, NEEDS_INIT);
    const struct graph_node *node = object_find(handle, OBJECT_NODE);
    const struct copy_work *copy = node ? &node->work.copy : NULL;

    if (!node || node->type != NODE_COPY || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_MEMCPY3D){
        .srcMemoryType = copy->source_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .srcHost = (const void *)(uintptr_t)copy->source,
        .srcDevice = copy->source,
        .srcPitch = copy->source_pitch,
        .srcHeight = copy->source_pitch ? copy->source_slice / copy->source_pitch : 0,
        .dstMemoryType = copy->target_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = (void *)(uintptr_t)copy->target,
        .dstDevice = copy->target,
        .dstPitch = copy->target_pitch,
        .dstHeight = copy->target_pitch ? copy->target_slice / copy->target_pitch : 0,
        .WidthInBytes = copy->width,
        .Height = copy->height,
        .Depth = copy->depth,
    };
    return CUDA_SUCCESS;
}

/* ---- memory set to a value */

CUresult set_node_work(const CUDA_MEMSET_NODE_PARAMS *from, struct work *work)
{
    *work = (struct work){.kind = WORK_SET};
    if (!from || (from->elementSize != 1 && from->elementSize != 2 && from->elementSize != 4) ||
        !pages_accessible(NULL, from->dst, 1))
        return CUDA_ERROR_INVALID_VALUE;
    work->set = (struct set_work){.target = from->dst,
                                  .pitch = from->pitch,
                                  .width = from->width,
                                  .height = from->height,
                                  .element = from->elementSize,
                                  .value = from->value};
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *from, CUcontext handle)
{
    CALL(cuGraphAddMemsetNode, NEEDS_INIT);
    struct work work;
    CUresult result = set_node_work(from, &work);

    return result == CUDA_SUCCESS ? graph_add_checked(node, graph, NODE_SET, &work, dependencies, count)
                                  : result;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *params)
{
    CALL(cuGraphMemsetNodeGetParams, NEEDS_INIT);
    const struct graph_node *node = object_find(handle, OBJECT_NODE);

    if (!node || node->type != NODE_SET || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (struct CUDA_MEMSET_NODE_PARAMS){
        .dst = node->work.set.target,
        .pitch = node->work.set.pitch,
        .value = node->work.set.value,
        .elementSize = node->work.set.element,
        .width = node->work.set.width,
        .height = node->work.set.height,
    };
    return CUDA_SUCCESS;
}

/* ---- host functions, nothing */

CUresult host_node_work(const CUDA_HOST_NODE_PARAMS *from, struct work *work)
{
    *work = (struct work){.kind = WORK_HOST};
    if (!from || !from->fn)
        return CUDA_ERROR_INVALID_VALUE;
    work->host.function = from->fn;
    work->host.argument = from->userData;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *from)
{
    CALL(cuGraphAddHostNode, NEEDS_INIT);
    struct work work;
    CUresult result = host_node_work(from, &work);

    return result == CUDA_SUCCESS ? graph_add_checked(node, graph, NODE_HOST, &work, dependencies, count)
                                  : result;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *params)
{
    CALL(cuGraphHostNodeGetParams, NEEDS_INIT);
    const struct graph_node *node = object_find(handle, OBJECT_NODE);

    if (!node || node->type != NODE_HOST || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_HOST_NODE_PARAMS){node->work.host.function, node->work.host.argument};
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    CALL(cuGraphAddEmptyNode, NEEDS_INIT);
    struct work work = {.kind = WORK_EMPTY};

    return graph_add_checked(node, graph, NODE_EMPTY, &work, dependencies, count);
}
