#ifndef FAKE_GRAPH_H
#define FAKE_GRAPH_H
/* Graphs: nodes are work that waits to be launched. */

#include "fake_queue.h"

struct graph_node {
    enum object_kind kind;
    bool used;
    CUgraphNodeType type;
    struct graph *graph;
    uint32_t index; /* order of creation */
    struct work work;
    struct graph_node **dependencies;
    size_t dependency_count;
    CUlaunchAttributeValue attributes[18];
    void **parameter_pointers;       /* what cuGraphKernelNodeGetParams hands out */
    CUevent event;                   /* of an event node */
    struct graph *child;             /* of a child graph node */
    const struct graph_node *origin; /* of a clone: whose copy it is; only the address counts */
};

struct graph {
    enum object_kind kind;
    struct list slabs; /* of nodes */
    uint32_t created;
    bool embedded;    /* a child graph, which its node owns */
    struct list node; /* in fake.graphs */
};

struct graph_node *graph_add(struct graph *graph, CUgraphNodeType type, struct work *work,
                             struct graph_node *const *dependencies, size_t count);
struct graph *graph_new(struct thread *self);
void graph_delete(struct graph *graph);
void graph_body_put(struct graph_body *body);
void graph_body_get(struct graph_body *body);
CUresult graph_body_run(struct context *context, struct graph_body *body,
                        struct thread *thread); /* no lock */

enum { NODE_KERNEL = 0, NODE_COPY, NODE_SET, NODE_HOST, NODE_GRAPH, NODE_EMPTY, NODE_WAIT, NODE_RECORD };

/* Parameters of nodes as work. */
CUresult copy_node_work(struct context *context, const CUDA_MEMCPY3D *from, struct work *work);
CUresult set_node_work(const CUDA_MEMSET_NODE_PARAMS *from, struct work *work);
CUresult host_node_work(const CUDA_HOST_NODE_PARAMS *from, struct work *work);

/* A copy with its own nodes; NULL without memory. */
struct graph *graph_clone(struct thread *self, const struct graph *original);
/* A graph that does the same, for a launch that is captured. */
struct graph *graph_of_body(struct thread *self, const struct graph_body *body);
/* What is done when a graph is launched; NULL without memory. */
struct graph_body *graph_body_of(const struct graph *graph);

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
