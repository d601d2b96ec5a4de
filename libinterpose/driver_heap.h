#ifndef CUDACKPT_DRIVER_HEAP_H
#define CUDACKPT_DRIVER_HEAP_H
/*
 * The driver heap: what the driver's own malloc is served from. It lies in one region at a fixed address, so
 * that a handle (most handles are heap blocks) can have its old value after the driver was restarted.
 *
 * Any thread may call; the heap locks itself and takes no memory from libc. Bookkeeping lies outside of the
 * region: emptying the heap returns its pages to the system. Alignment is 16 bytes unless more is asked for.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Not 0x600000000000: AddressSanitizer's own heap lies there. */
#define DRIVER_HEAP_BASE 0x400000000000ull
#define DRIVER_HEAP_SIZE (64ull << 30) /* address space; memory is taken as it is used */

/* A block that must come back at its address: what a record noted of an allocation. */
struct heap_place {
    uint64_t address; /* 0: the block was free again by the time of the suspend; its size still counts */
    uint64_t size;    /* as asked for */
};

/* Reserves the region. Once, before any other call; without it allocations fail and nothing is owned. */
int driver_heap_start(struct error *err);

/*
 * NULL with errno ENOMEM when the region is full. size 0 gives a block of its own, as glibc does. The
 * alignment is a power of two, up to 2 MiB (EINVAL otherwise). errno is kept on success.
 */
void *driver_heap_alloc(size_t size);
void *driver_heap_alloc_aligned(size_t alignment, size_t size);

/* Takes a reserved place (driver_heap_reset); NULL if it is not reserved, or not large enough for size. */
void *driver_heap_alloc_at(uint64_t address, size_t size);

/*
 * Stays in place where the block has room for size (driver_heap_capacity), shrinking always does; the block
 * keeps its serial then. NULL allocates, size 0 frees and gives NULL, as glibc does. pointer must be a block
 * of this heap: NULL with errno EINVAL if it is not.
 */
void *driver_heap_realloc(void *pointer, size_t size);

/* Keeps errno. What is not the start of a live block (freed twice, say) is logged and ignored. */
void driver_heap_free(void *pointer);

bool driver_heap_owns(const void *pointer);         /* any address in the region */
size_t driver_heap_block_size(const void *pointer); /* as asked for; 0 if no live block starts there */
size_t driver_heap_capacity(const void *pointer);   /* what it can grow to in place; 0 likewise */

/* The live block that an address lies in: its start and its size as asked for. False if there is none. */
bool driver_heap_block_of(const void *inside, struct heap_place *block);

/*
 * Every allocation gets a number of its own, never used again in the life of the process. 0 if no live block
 * starts at the address. A record whose block has another number by now knows that its block is gone.
 */
uint64_t driver_heap_serial(const void *pointer);

/* Counts the resets: of blocks from an earlier generation nothing is known any more. */
uint64_t driver_heap_generation(void);

/*
 * The driver is gone: every block vanishes (its memory is given back to the system) and the given places
 * become reserved: nobody gets them but by driver_heap_alloc_at, until the next reset or
 * driver_heap_unreserve. Places with address 0 are skipped. No other thread may use the heap meanwhile.
 * Places come from blocks that existed at some time since the start, with the size they were asked for. Fails
 * (and changes nothing) only for lack of memory.
 */
int driver_heap_reset(const struct heap_place *places, size_t count, struct error *err);

/* A reserved place is not needed after all: it becomes ordinary free space. Not reserved: nothing happens. */
void driver_heap_unreserve(uint64_t address);

/* Around fork(): the child must not inherit a locked heap. */
void driver_heap_before_fork(void);
void driver_heap_after_fork(void);

struct driver_heap_stats {
    size_t blocks;      /* live */
    size_t block_bytes; /* asked for, of the live ones */
    size_t reserved;    /* reserved places not taken */
    size_t mapped;      /* bytes of the region in spans and large blocks, free slots included */
};
void driver_heap_get_stats(struct driver_heap_stats *stats);

#endif
