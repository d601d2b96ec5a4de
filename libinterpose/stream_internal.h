#ifndef CUDACKPT_STREAM_INTERNAL_H
#define CUDACKPT_STREAM_INTERNAL_H
/* What the files of stream-ordered memory share. The lock is held in all functions but stream_chain_free and
 * stream_give_back_all. */

#include <pthread.h>

#include "stream_lane.h"

extern pthread_mutex_t stream_memory_lock;

/* ---- stream_block.c: all blocks, those in lanes too, by address; and what their pools count */

/* NULL: there is none. */
struct stream_block *stream_block_find(CUdeviceptr address);
/* False without memory. */
bool stream_block_add(struct stream_block *block);
void stream_block_remove(struct stream_block *block); /* it is in no lane */
/* The program has it, with a new id; and has it no longer. */
void stream_block_used(struct stream_block *block, uint64_t size);
void stream_block_freed(struct stream_block *block);
/* f may remove the block. Stops at the first non-zero and returns it. */
int stream_block_each(int (*f)(struct stream_block *block, void *arg), void *arg);
/* Read without the lock. */
bool stream_block_any(void);

/* ---- stream_release.c: giving back. Blocks are chained with the lock held, and freed without it */

extern struct list stream_pools;
extern uint64_t stream_free_blocks; /* in lanes; read without the lock */

/* What is free in the pool, the oldest first, until the pool has no more than keep bytes. */
void stream_pool_chain(struct stream_pool *pool, uint64_t keep, struct stream_block **chain);
/* Frees a pool that ended and has nothing left. */
void stream_pool_delete_if_over(struct stream_pool *pool);
void stream_chain_free(struct stream_block *chain);
/* Memory is short: what was freed is given back, and with wait, what is being freed is waited for. */
void stream_give_back_all(CUdevice device, bool wait);

#endif
