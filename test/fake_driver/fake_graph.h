#ifndef FAKE_GRAPH_H
#define FAKE_GRAPH_H

#include "fake.h"

enum { NODE_KERNEL = 0, NODE_COPY, NODE_SET, NODE_HOST, NODE_GRAPH, NODE_EMPTY };

struct graph_node **graph_nodes(const struct graph *graph, size_t *count);
/* Takes work over. */
CUresult graph_add_checked(CUgraphNode *handle, CUgraph graph, CUgraphNodeType type, struct work *work,
                           const CUgraphNode *dependencies, size_t count);

/* Parameters of a kernel node as work; what it points to is new. */
CUresult kernel_node_work(struct thread *self, struct context *context, const CUDA_KERNEL_NODE_PARAMS *from,
                          struct work *work);
/* The older struct lacks the last two members. */
CUDA_KERNEL_NODE_PARAMS kernel_params_widen(const CUDA_KERNEL_NODE_PARAMS_v1 *from);

#endif
