#ifndef CUDACKPT_KIND_POOL_H
#define CUDACKPT_KIND_POOL_H
/* Pools, for the allocations in the order of a stream (kind_stream_memory.c). Any thread. */

#include "cuda_abi.h"

struct stream_pool;

/* NULL: a pool that is not in the journal (imported). */
struct stream_pool *pool_memory(CUmemoryPool handle);
struct stream_pool *pool_current(CUdevice device);

#endif
