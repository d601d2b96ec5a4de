#ifndef CUDACKPT_DEVICE_MEMORY_H
#define CUDACKPT_DEVICE_MEMORY_H
/*
 * Device memory that the program asked for with cuMemAlloc and the like. Address space at a fixed place,
 * carved by us, backed by physical memory from the virtual-memory API, so that the same addresses can be had
 * again:
 *
 *   range   one cuMemAddressReserve per device and 256 GiB (more ranges as needed), reserved by ops->reserve
 *   chunk   a piece of a range with one physical handle: a multiple of the granularity (2 MiB)
 *   block   what the program got: a whole chunk, or (up to 1 MiB) a slot of a chunk that holds equal slots
 *
 * Blocks are at least 512 bytes apart and 512-byte aligned, as the driver's own. This file knows addresses
 * only; everything that touches the driver goes through struct device_memory_ops, so that it can be tested
 * without one. Any thread may call; one lock per process, not held across ops that create or map memory of a
 * whole chunk. Contexts share no chunk. One empty chunk per device is kept for the next small block, until it
 * is needed otherwise.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "error.h"

#define DEVICE_MEMORY_BASE      0x200000000000ull
#define DEVICE_MEMORY_RANGE     (256ull << 30)
#define DEVICE_MEMORY_CHUNK     (2ull << 20)
#define DEVICE_MEMORY_SMALL     (1ull << 20) /* largest block that shares a chunk */
#define DEVICE_MEMORY_ALIGNMENT 512ull
#define DEVICE_MEMORY_LARGEST   (1ull << 40) /* no device has more: out of memory without asking the driver */

struct device_memory_ops {
    /*
     * Address space, exactly there or not at all. The lock is held: it must not call back. What it reserved
     * stays until the driver goes; device_memory_each_range tells what to reserve again.
     */
    CUresult (*reserve)(uint64_t address, uint64_t size);
    CUresult (*map)(int device, uint64_t address, uint64_t size,
                    uint64_t *handle);                                   /* create, map, give access */
    CUresult (*unmap)(uint64_t address, uint64_t size, uint64_t handle); /* unmap, release */
};

/* What the driver would tell about a block; context is opaque here. */
struct device_block {
    CUdeviceptr address;
    uint64_t size;     /* as asked for */
    CUcontext context; /* current when it was allocated */
    int device;
    uint64_t id;          /* never used again: CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uint32_t sync_memops; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as set */
    CUdeviceptr
        chunk_address; /* of the chunk that backs it: CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR and _SIZE */
    uint64_t chunk_size;
};

void device_memory_start(const struct device_memory_ops *ops);

/*
 * CUDA_ERROR_INVALID_VALUE for size 0; else what ops say (CUDA_ERROR_OUT_OF_MEMORY). When memory can't be had
 * and an empty chunk is kept, that is given back and it is tried once more.
 */
CUresult device_memory_alloc(int device, CUcontext context, uint64_t size, CUdeviceptr *address);
/*
 * address must be the start of a block: CUDA_ERROR_INVALID_VALUE if not (the caller asks find first). If
 * ops->unmap fails, its result is returned; the block is gone all the same and its addresses are not used
 * again.
 */
CUresult device_memory_free(CUdeviceptr address);
/* The block that holds address (anywhere inside of what was asked for); false if none. */
bool device_memory_find(CUdeviceptr address, struct device_block *block);
/* Whether the address is in one of our ranges at all. */
bool device_memory_owns(CUdeviceptr address);
void device_memory_set_sync_memops(CUdeviceptr address, uint32_t value);
/* Frees all blocks of a context that is being destroyed. */
void device_memory_free_context(CUcontext context);

/* A chunk that is backed, for the copies and for mapping again. Only with the gate closed. */
struct device_chunk {
    uint64_t address, size;
    uint64_t handle; /* 0: not mapped (suspended) */
    int device;
    CUcontext context; /* of a live block in it */
    void *host;        /* the copy while suspended */
};
/*
 * Calls f for every chunk with a block in it, by ascending address; f may change handle and host. Stops at
 * the first non-zero and returns it. Empty chunks are given back first (ops->unmap). The lock is not held
 * while f runs: f may ask for the stats.
 */
int device_memory_each_chunk(int (*f)(struct device_chunk *chunk, void *arg), void *arg);
/* Calls f for every range that was reserved, in the same way. */
int device_memory_each_range(int (*f)(int device, uint64_t address, uint64_t size, void *arg), void *arg);

struct device_memory_stats {
    uint64_t blocks, block_bytes; /* as asked for */
    uint64_t chunks, chunk_bytes; /* backed */
};
void device_memory_get_stats(int device, struct device_memory_stats *stats); /* device -1: all */

void device_memory_before_fork(void);
void device_memory_after_fork(bool child); /* child: everything is forgotten */

#endif
