#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H
/* Memory: of the device, of the host, and what the program has of both. */

#include "fake_ranges.h"

/* ---- device memory: the file of a device, and the share of this process in the device (fake_vidmem.c) */

CUresult vidmem_open(struct device *device);
CUresult vidmem_alloc(struct device *device, uint64_t size, uint64_t *offset); /* OUT_OF_MEMORY */
void vidmem_free(struct device *device, uint64_t offset, uint64_t size);
/* Bytes that all processes hold. */
uint64_t vidmem_used(struct device *device);

/* Physical memory mapped at an address: what a kernel may touch. */
struct page_range {
    struct range range;
    struct device *device;
    uint64_t offset;           /* in the device's file */
    uint32_t access;           /* a bit per device: what cuMemSetAccess said; host memory: all */
    bool plain;                /* also for devices that have peer access to its own */
    struct physical *physical; /* cuMemCreate's, or NULL */
};

/* Address space without memory; wanted 0: anywhere. 0 if there is none. */
uint64_t address_reserve(uint64_t wanted, uint64_t size, uint64_t alignment);
void address_release(uint64_t address, uint64_t size);
/* Maps a piece of a device's file into reserved space, and the other way. */
CUresult pages_map(struct device *device, uint64_t address, uint64_t offset, uint64_t size, uint32_t access,
                   bool plain, struct physical *physical);
void pages_unmap(struct page_range *pages);
CUresult pages_add_host(uint64_t address, uint64_t size);
void pages_remove_host(uint64_t address);
/* Whether all of the range can be touched from the device (device NULL: from any). */
bool pages_accessible(const struct context *context, uint64_t address, uint64_t size);

/* An allocator over reserved address space that grows by 2 MiB of memory (fake_arena.c). */
struct arena {
    struct device *device;
    uint64_t base, reserved, backed;
    struct holes holes;
};

CUresult arena_alloc(struct arena *arena, uint64_t size, uint64_t alignment, uint64_t *address);
void arena_free(struct arena *arena, uint64_t address, uint64_t size);
void arena_release(struct arena *arena);

/* ---- what the program got: allocations of every kind (fake_memory.c) */

enum block_kind { BLOCK_DEVICE, BLOCK_HOST, BLOCK_REGISTERED, BLOCK_MANAGED, BLOCK_VARIABLE, BLOCK_POOL };

struct block {
    struct range range; /* size as asked for */
    enum block_kind kind;
    struct context *context;
    struct device *device;
    uint64_t id;
    uint64_t own_size;   /* of its own reservation, 0: it lies in the arena */
    uint64_t own_offset; /* in the device's file */
    unsigned int flags;
    uint32_t sync_memops;
    struct pool *pool;
};

struct block *block_find(uint64_t address);
/* pool: for BLOCK_POOL. */
CUresult block_new(struct context *context, struct pool *pool, enum block_kind kind, uint64_t size,
                   struct block **block);
void block_delete(struct block *block);
void host_block_delete(struct block *block);
/* Removes all blocks of a context that is being destroyed, or of a pool. */
void blocks_delete_all(const struct context *context, const struct pool *pool);
/* Whether the program may name the range in a copy: it lies in one block, or in mapped memory. */
CUresult range_check(const struct context *context, uint64_t address, uint64_t size);
/* Pinned or device memory, i.e. an asynchronous copy of it need not be waited for. */
bool memory_is_pinned(uint64_t address);

/* cuMemCreate's handle. */
struct physical {
    struct device *device;
    uint64_t offset, size;
    uint32_t refs; /* the program's, and one for each mapping */
    uint32_t program_refs;
    CUmemAllocationProp prop;
};
void physical_put(struct physical *physical);

struct reservation {
    struct range range;
};

/* ---- pools, arrays */

struct arena *pool_arena(struct pool *pool);
void pool_block_gone(struct pool *pool, uint64_t size);
uint64_t array_address(CUarray array, uint64_t *pitch, uint64_t *slice); /* 0: no array */
void arrays_delete_all(struct context *context);

#endif
