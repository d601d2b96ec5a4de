#ifndef CUDACKPT_STREAM_MEMORY_H
#define CUDACKPT_STREAM_MEMORY_H
/*
 * Stream-ordered memory: cuMemAllocAsync and the like, served from device_memory.h.
 *
 * An allocation is backed when the call returns, which is more than what is promised. A free marks the place in its
 * stream by an event; the block lies in a lane (the freed blocks of one pool and one stream) until
 *   - an allocation in the same stream takes it again, at once: the stream itself is in order;
 *   - an allocation in another stream takes it, when the event has completed;
 *   - it is given back to the device: at a synchronisation, as much as the pool has beyond its release threshold
 *     (0 at first, so everything, as in the driver), when a pool is trimmed, when memory is short, and at a suspend.
 * So a program that allocates and frees the same sizes between two synchronisations, or that sets a threshold,
 * pays for an event and two locks, no more.
 *
 * Any thread; one lock, not held over calls of the driver that may wait or that map and unmap memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

struct stream_pool;

struct stream_pool_stats {
    uint64_t reserved, reserved_most, used, used_most;
};

/* max_size 0: as much as the device has. NULL without memory. */
struct stream_pool *stream_pool_new(CUmemoryPool handle, CUdevice device, uint64_t max_size);
/* The program destroyed it; what it has allocated stays until it is freed. */
void stream_pool_end(struct stream_pool *pool);
CUmemoryPool stream_pool_handle(const struct stream_pool *pool);
CUdevice stream_pool_device(const struct stream_pool *pool);
/* Something that only the driver's own memory can do is asked of the pool: from now on it is the driver's. */
void stream_pool_make_foreign(struct stream_pool *pool);
bool stream_pool_is_foreign(const struct stream_pool *pool);
void stream_pool_set_threshold(struct stream_pool *pool, uint64_t bytes);
/* Whether blocks that were freed in another stream are used again once they are free. */
void stream_pool_set_reuse(struct stream_pool *pool, bool allowed);
void stream_pool_get_stats(struct stream_pool *pool, struct stream_pool_stats *stats);
void stream_pool_reset_most(struct stream_pool *pool, bool reserved, bool used);
void stream_pool_trim(struct stream_pool *pool, uint64_t keep);
/* Access for another device to what the pool has; not kept across a suspend. */
CUresult stream_pool_give_access(struct stream_pool *pool, const CUmemAccessDesc *access);

/* stream: CU_STREAM_LEGACY or CU_STREAM_PER_THREAD for the default ones; context: the stream's. */
CUresult stream_memory_alloc(struct stream_pool *pool, CUcontext context, CUstream stream, uint64_t size,
                             CUdeviceptr *address);
/* CUDA_ERROR_INVALID_VALUE: no allocation of a pool begins there. */
CUresult stream_memory_free(CUdeviceptr address, CUcontext context, CUstream stream);
/* Frees without any order: cuMemFree of such memory. */
CUresult stream_memory_free_now(CUdeviceptr address);

struct stream_block_info {
    uint64_t size; /* as asked for */
    uint64_t id;   /* never used again */
    CUmemoryPool pool;
    bool freed;
};
/* address: where a block of device_memory.h begins. False: it is not of a pool. */
bool stream_memory_find(CUdeviceptr address, struct stream_block_info *info);

/* A call that waits for the device has succeeded. */
void stream_memory_synchronised(void);
/* Before a stream is destroyed: its handle may be another's next. */
void stream_memory_stream_ending(CUstream stream);
/* Before a context is destroyed, current or not: waits for what was freed in its streams. */
void stream_memory_context_ending(CUcontext context);
/* After it; the blocks themselves are freed by device_memory_free_context. */
void stream_memory_context_ended(CUcontext context);
/* Before a suspend, all work is done: nothing is kept, and no event is left in the driver. */
void stream_memory_suspend(void);

void stream_memory_start(void);

#endif
