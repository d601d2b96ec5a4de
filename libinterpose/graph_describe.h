#ifndef CUDACKPT_GRAPH_DESCRIBE_H
#define CUDACKPT_GRAPH_DESCRIBE_H
/*
 * What a graph consists of, as the graph API tells it, and making a graph what a description says.
 *
 * A description is counted and does not change once it is made, except that graph_description_forget_nodes
 * says which of its nodes are gone. The current context is that of the graph.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

#define GRAPH_ATTRIBUTES_MAX 16

struct graph_description;

struct graph_kernel {
    CUDA_KERNEL_NODE_PARAMS params; /* its kernelParams and extra are not used */
    uint8_t *values;                /* what the parameters hold, laid out as the kernel has them */
    struct graph_parameter {
        size_t offset, size;
    } * parameters;
    size_t parameter_count, values_size;
    unsigned attribute_count;
    CUlaunchAttribute attributes[GRAPH_ATTRIBUTES_MAX];
};

/* A node, or new parameters for one. */
struct graph_node {
    CUgraphNode handle; /* NULL: nobody holds it, it may be anywhere */
    CUgraphNodeType type;
    union {
        struct graph_kernel *kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        CUevent event;
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch; /* owns its array */
        struct graph_description *child;
    };
};

struct graph_edge {
    size_t from, to; /* nodes by their numbers */
    CUgraphEdgeData data;
};

struct graph_description {
    unsigned refs;
    CUgraph graph;
    bool held;                /* an embedded graph whose handle, and those of its nodes, must come back */
    struct graph_node *nodes; /* in the order that the driver tells them in */
    size_t node_count;
    struct graph_edge *edges;
    size_t edge_count;
    char reason[160]; /* why it can't be saved, without its subject: "has a memory node"; empty: it can */
};

/* NULL without memory. hold_children: see held. */
struct graph_description *graph_describe(CUgraph graph, bool hold_children);
struct graph_description *graph_description_get(struct graph_description *description);
void graph_description_put(struct graph_description *description); /* NULL is ignored */

/* Number of the node with that handle, or -1. hint: where it may be. */
ptrdiff_t graph_description_find(const struct graph_description *description, CUgraphNode handle,
                                 size_t hint);
/* Nodes that are not in now, which describes the same graph at a later time, are gone. */
void graph_description_forget_nodes(struct graph_description *description,
                                    const struct graph_description *now);

/*
 * Parameters as a call gives them, into a zeroed node; the reason (as above) if they can't be kept.
 * graph_node_clear frees what the node owns.
 */
const char *graph_node_keep_kernel(struct graph_node *node, const CUDA_KERNEL_NODE_PARAMS *params);
const char *graph_node_keep_batch(struct graph_node *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
void graph_node_clear(struct graph_node *node);

/* Calls f for each node, those of embedded graphs too, until it returns non-zero; returns that. */
int graph_each_node(const struct graph_description *description,
                    int (*f)(const struct graph_node *node, void *arg), void *arg);

/* ---- building (graph_build.c) */

/* What a graph consists of while it is being built: of which description, and its nodes. All zero: of
 * nothing. */
struct graph_state {
    const struct graph_description *now;
    CUgraphNode *nodes;
};

void graph_state_clear(struct graph_state *state);

/*
 * Makes graph, which is as state says, what is described; state follows. Nodes get the places that they have
 * in the description if the driver's memory for them is where it was. *misplaced: the handle of a node that
 * came elsewhere, NULL if none did; the graph is of no use then, and state neither.
 */
CUresult graph_build(CUgraph graph, struct graph_state *state, const struct graph_description *wanted,
                     CUgraphNode *misplaced);

/* A new graph that nobody holds, without places (placement_pause); to be given to graph_build_end. */
CUresult graph_build_temporary(CUgraph *graph, struct graph_state *state,
                               const struct graph_description *wanted);
void graph_build_end(CUgraph graph, struct graph_state *state);

/* A driver call with the parameters of a kernel node as the driver takes them. */
CUresult graph_with_kernel(const struct graph_kernel *kernel,
                           CUresult (*f)(const CUDA_KERNEL_NODE_PARAMS *params, void *arg), void *arg);

#endif
