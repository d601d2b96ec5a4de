#ifndef CUDACKPT_DEVICE_CHUNK_H
#define CUDACKPT_DEVICE_CHUNK_H
/*
 * Chunks of device memory: made, laid out for blocks of some size, given back. Part of device_memory.c, which
 * knows the blocks in them and whose they are.
 *
 * device_memory_lock is held around every call; those that work with the driver let it go meanwhile.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "device_memory.h"
#include "list.h"

/* Slot counts of shared chunks go from 2 to 4096, four to a doubling. */
#define CHUNK_CLASSES 52

struct slot {
    uint64_t id;
    uint64_t size; /* as asked for; 0: free */
    uint32_t sync_memops;
    uint32_t next_free; /* index + 1 of the free slot after this one, 0: none */
};

struct chunk {
    uint64_t address, size;
    uint64_t handle;
    void *host;
    struct device_state *device;
    struct owner *owner;      /* of the blocks in it; NULL while it is empty and kept by the device */
    struct list owner_node;   /* for the owner's list of all */
    struct list partial_node; /* and of those with a free slot */
    uint64_t slot_size;
    uint32_t slot_count;
    uint32_t class;
    uint32_t used;
    uint32_t fresh;      /* slots from here on were never used and hold garbage */
    uint32_t first_free; /* index + 1 */
    struct slot *slots;  /* slot_count of them; of a whole-chunk block: &single */
    struct slot single;
};

struct device_state {
    struct list node; /* in devices; stays */
    int number;
    struct chunk *kept; /* an empty shared chunk, so that a block that comes and goes maps nothing */
    struct device_memory_stats stats;
};

/* How a block of some size is laid out. */
struct layout {
    uint64_t chunk_size, slot_size;
    uint32_t slot_count, class;
};

extern pthread_mutex_t device_memory_lock;

struct layout layout_for(uint64_t size);

/* Made if need be; NULL without memory. */
struct device_state *device_get(int number);
/* Gives the kept chunk back; whether there was one. Lets the lock go. */
bool device_trim(const struct device_memory_ops *ops, struct device_state *device);
void device_trim_all(const struct device_memory_ops *ops);
/* Device -1: of all. */
void device_add_stats(int number, struct device_memory_stats *stats);
/* In a forked child. */
void device_forget(void);

/* A chunk without an owner, ready for blocks of the layout. Lets the lock go. */
CUresult chunk_new(const struct device_memory_ops *ops, struct device_state *device,
                   const struct layout *layout, struct chunk **made);
/* Gives the memory of a chunk back; no owner has it any more. Lets the lock go. */
CUresult chunk_release(const struct device_memory_ops *ops, struct chunk *chunk);

#endif
