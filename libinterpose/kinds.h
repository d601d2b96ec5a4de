#ifndef CUDACKPT_KINDS_H
#define CUDACKPT_KINDS_H
/*
 * The kinds of objects, one file each (kind_*.c): the hooks for their entry points, their records, and what they do
 * around a suspend. Order of the steps: suspend.c and resume.c.
 */

#include <stdbool.h>

#include "copy.h"
#include "cuda_abi.h"
#include "error.h"
#include "gate.h"
#include "journal.h"

/* After the driver was taken over: gives the kinds what they need of it. */
void kinds_start(void);

/* ---- kind_driver.c: cuInit */
CUresult driver_initialise(unsigned flags);

/* ---- kind_context.c */
extern const struct record_kind context_kind;

/* The calling thread's current context as its stack says, NULL if none. */
CUcontext context_current(void);
/* Its record; NULL if none. Owner of what is created now. */
struct record *context_owner(void);
void context_after_fork_in_child(void);
/* Puts a thread's context stack back after the driver was restarted. */
void context_restore_thread(struct gate_thread *self);
/* A primary context that the driver made on demand for a private table. */
CUresult context_on_demand(CUcontext *context, CUdevice device, CUresult (*make)(CUcontext *, CUdevice));
/* Ids (cuCtxGetId, cuStreamGetId) count from 1 again in a restarted driver: what the program was told stays. */
unsigned long long id_keep(unsigned long long *kept, unsigned long long of_driver);
void id_restarted(void);
/* Calls f with each context made current (on the calling thread); stops at the first failure. */
int context_each(int (*f)(CUcontext context, void *arg, struct error *err), void *arg, struct error *err);

/* ---- kind_setting.c: what shapes an object and is no object itself; the last value counts */
enum setting_call {
    SETTING_PRIMARY_FLAGS,          /* device, flags */
    SETTING_CONTEXT_LIMIT,          /* limit, value */
    SETTING_CONTEXT_CACHE,          /* config */
    SETTING_CONTEXT_SHARED_MEMORY,  /* config */
    SETTING_CONTEXT_FLAGS,          /* flags */
    SETTING_PEER_ACCESS,            /* peer context, flags */
    SETTING_FUNCTION_ATTRIBUTE,     /* function, attribute, value */
    SETTING_FUNCTION_CACHE,         /* function, config */
    SETTING_FUNCTION_SHARED_MEMORY, /* function, config */
    SETTING_FUNCTION_BLOCK_SHAPE,   /* function, x, y, z */
    SETTING_FUNCTION_SHARED_SIZE,   /* function, bytes */
    SETTING_KERNEL_ATTRIBUTE,       /* attribute, value, kernel, device */
    SETTING_KERNEL_CACHE,           /* kernel, config, device */
};
#define SETTING_ARGUMENTS 4
/* Makes the call and keeps it. owner: what the setting goes away with. */
CUresult setting_make(enum setting_call call, const uint64_t arguments[SETTING_ARGUMENTS], struct record *owner);
#define setting(call, owner, ...) setting_make((call), (const uint64_t[SETTING_ARGUMENTS]){__VA_ARGS__}, (owner))
void setting_forget(enum setting_call call, uint64_t first_argument);
/* The context goes: nobody has access to its memory any more. */
void setting_forget_peer(CUcontext context);

/* ---- kind_stream.c */
/* Whether a stream capture is in progress in any thread. */
bool capture_in_progress(void);
/*
 * One poll of all work in the current context: CUDA_SUCCESS when all is done, CUDA_ERROR_NOT_READY, or the error that
 * sticks to the context. drain_begin puts markers behind what was submitted, drain_end takes them away again.
 */
CUresult drain_begin(void);
CUresult drain_poll(void);
void drain_end(void);

/* ---- kind_event.c */
extern const struct record_kind event_kind;
int event_save(struct error *err);

/* ---- kind_graph.c, kind_graph_exec.c */
/* A capture has ended with a graph. */
void graph_captured(CUgraph graph);
/* Describes all graphs; ERROR_UNSAVEABLE if one can't be saved. Before journal_places. */
int graph_save(struct error *err);

/* ---- kind_module.c, kind_library.c, kind_function.c */
extern const struct record_kind module_kind, library_kind, kernel_kind, function_kind;
/* A function or kernel is going to be launched in this context by other means than a launch: loads it. */
void function_used(CUfunction function);
/* Whether it is a handle of a function or kernel that the program looked up. */
bool function_is_known(CUfunction function);
/* The kernel that a function belongs to in the current context, if it was launched; NULL if none is. */
CUkernel kernel_of_function(CUfunction function);

/* ---- kind_variable.c: contents of module variables */
/* Finds every variable of every loaded module: address, size and host memory, as copy ranges (malloc'd array). */
int variables_find(struct copy_range **ranges, size_t *count, struct error *err);
void variables_release(struct copy_range *ranges, size_t count);

/* ---- kind_host_memory.c */
/* Registered memory is still there. */
int host_memory_check(struct error *err);

/* ---- kind_device_memory.c */
extern const struct device_memory_ops device_memory_driver_ops;
/* Adds the backed chunks as copy ranges with host memory. */
int device_memory_save(struct copy_range **ranges, size_t *count, struct error *err);
/* Physical memory behind every chunk again; ranges to copy in. */
int device_memory_map(struct copy_range **ranges, size_t *count, struct error *err);
/*
 * For records whose replay needs the memory to be there: all that can be mapped already. What can't be is left
 * to device_memory_map.
 */
void device_memory_map_early(void);
/* The copies are not needed any more (or kept: CUDACKPT_KEEP_HOST). */
void device_memory_release_copies(void);
uint64_t device_memory_copy_bytes(void);

/* ---- virtual_memory.c: what the program itself made with the virtual-memory functions */
void virtual_memory_start(void);
/* Ranges with host memory: each physical memory once. */
int virtual_memory_save(struct copy_range **ranges, size_t *count, struct error *err);
/* After the replay: mapped again, as it was; the ranges to copy in. */
int virtual_memory_map(struct copy_range **ranges, size_t *count, struct error *err);
/* After the copy, in both directions, also when it or the above failed. */
void virtual_memory_copied(void);
/* All is restored: handles that the program has given back are given back. */
void virtual_memory_restored(void);
void virtual_memory_release_copies(void);
uint64_t virtual_memory_copy_bytes(void);

#endif
