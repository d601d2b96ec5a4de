#ifndef CUDACKPT_FAULT_H
#define CUDACKPT_FAULT_H
/*
 * Named fault points, so that a test can make every step of suspend and resume fail:
 *   CUDACKPT_FAULT=NAME[@N][,NAME...]   the Nth time (first if not given) that NAME is reached fails
 * The names are listed in docs/testing.md and by fault_names. Unset, a fault point costs a load and a branch.
 */

#include <stdbool.h>

#include "error.h"

#define FAULT_POINTS(X)                                                                                      \
    X(lock_close)       /* the gate can't be closed */                                                       \
    X(lock_drain)       /* the work does not end */                                                          \
    X(save_objects)     /* a kind can't save its state */                                                    \
    X(copy_out_memory)  /* no host memory for the copies */                                                  \
    X(copy_out)         /* a copy from the device fails */                                                   \
    X(release_threads)  /* a driver thread does not end */                                                   \
    X(release_heap)     /* no memory to note the places */                                                   \
    X(replay_init)      /* cuInit fails at restore */                                                        \
    X(replay_record)    /* a record can't be made again */                                                   \
    X(replay_mismatch)  /* a record comes back different */                                                  \
    X(map_memory)       /* no device memory */                                                               \
    X(copy_in)          /* a copy to the device fails */                                                     \
    X(restore_objects)  /* a kind can't put its state back */

enum fault_point {
#define FAULT_ENUM(name) FAULT_##name,
    FAULT_POINTS(FAULT_ENUM)
#undef FAULT_ENUM
    FAULT_COUNT
};

void fault_start(void); /* reads CUDACKPT_FAULT; once, early */

/* True if this point must fail now; err is set then (ERROR_REFUSED, "fault point NAME"). */
bool fault_here(enum fault_point point, struct error *err);

extern const char *const fault_names[FAULT_COUNT];

#endif
