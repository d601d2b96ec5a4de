#ifndef CUDACKPT_KIND_GRAPH_H
#define CUDACKPT_KIND_GRAPH_H
/* What graphs and executable graphs have in common. */

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "graph_describe.h"
#include "journal.h"

struct graph {
    struct record record;
    struct graph_state state; /* while records are replayed */
    uint64_t final;           /* key of the snapshot of the last suspend, 0: none */
    struct clone_pair {
        CUgraphNode original, clone;
    } * pairs; /* of a clone */
    size_t pair_count;
};

extern const struct record_kind graph_kind;

/* Embedded graphs must keep their handles: the program has asked for one. */
bool graph_children_are_held(void);

/*
 * A snapshot is a record of what a graph consists of at a moment: its replay makes the graph so. It is owned
 * by the graph's record and takes over description. Returns its key, 0 if it could not be made (the process
 * is noted as unsaveable then).
 */
uint64_t graph_snapshot_add(struct record *graph, struct graph_description *description);
/* The graph that a snapshot is of; NULL if the graph is gone. */
struct graph *graph_snapshot_graph(uint64_t key);
struct record *graph_snapshot_detach(uint64_t key);

/* Whether all that the nodes use existed at that position of the journal and still does; reason: why not. */
bool graph_objects_live(const struct graph_description *description, uint64_t position, const char **reason);

/* The same for executable graphs as graph_save. */
int graph_exec_save(struct error *err);

#endif
