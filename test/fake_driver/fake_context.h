#ifndef FAKE_CONTEXT_H
#define FAKE_CONTEXT_H
/* Devices and contexts. */

#include "fake_memory.h"
#include "fake_stream.h"

struct local_value {
    struct list node;
    const void *key;
    void *value;
    void (*destructor)(CUcontext, void *, void *);
};

struct context {
    enum object_kind kind;
    bool active, primary;
    struct device *device;
    unsigned int flags;
    uint64_t id;
    CUresult error; /* sticky: every later call returns it */
    struct stream null_stream;
    struct list streams, events, timelines, modules, local_values, arrays;
    struct arena internal; /* module variables and code */
    struct arena small;    /* allocations up to 1 MiB */
    bool had_stream, had_event;
    struct list extras; /* one-time allocations */
    uint64_t limits[10];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    uint32_t peers;   /* devices with peer access enabled */
    struct list node; /* in fake.contexts */
};

struct device {
    int ordinal;
    uint64_t size;
    int file;   /* nvidia<N>; also the table of all processes' shares */
    int slot;   /* ours in that table */
    int vidmem; /* memory of the device that this process holds, -1 until it is needed */
    uint64_t vidmem_end, used;
    struct holes vidmem_holes;
    int primary_refs;
    unsigned int primary_flags;
    struct context primary;           /* a handle inside of a block of cuInit */
    struct pool *default_pool, *pool; /* made at first use; what cuMemAllocAsync takes from */
};

struct device *device_find(CUdevice ordinal); /* NULL: no such device */
CUresult primary_retain(struct device *device, struct context **context);
CUresult context_open(struct context *context, struct device *device, unsigned int flags, bool primary);
void context_close(struct context *context);
struct context *context_find(CUcontext handle);
struct context *thread_context(const struct thread *thread); /* current one if it lives */
struct thread *thread_self(void);                            /* NULL without memory */

#endif
