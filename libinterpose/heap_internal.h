#ifndef CUDACKPT_HEAP_INTERNAL_H
#define CUDACKPT_HEAP_INTERNAL_H
/*
 * Inside of the driver heap. The region is cut into one part for each size class and one for everything
 * larger:
 *
 *   span    64 KiB of one class's part, cut into equal slots (heap_span.c)
 *   extent  a run of pages of the large part, in use or free (heap_extent.c)
 *
 * The class of an address follows from the address alone, so that a reserved place has the same room in every
 * generation. All bookkeeping is in struct heap_books and in what books_alloc gives; a reset makes new books
 * and drops the old ones as a whole.
 *
 * Locks: one per class and one for the large part (heap_lock); inside of either books_alloc may take its own.
 * No two of the former are held at once, but by before_fork and reset, which take all in order.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_heap.h"
#include "list.h"

#define HEAP_PAGE   4096ull
#define SPAN_SIZE   (64ull << 10)
#define CLASS_COUNT 40
#define CLASS_SPANS 4096ull
#define CLASS_BYTES (SPAN_SIZE * CLASS_SPANS)
#define SMALL_MAX   (32ull << 10) /* largest slot */
#define LARGE_BASE  (DRIVER_HEAP_BASE + CLASS_COUNT * CLASS_BYTES)
#define LARGE_PAGES ((DRIVER_HEAP_BASE + DRIVER_HEAP_SIZE - LARGE_BASE) / HEAP_PAGE)
#define LARGE_BINS  (8 * 28)
#define ALIGN_MAX   (2ull << 20)

/* A set of up to 4096 numbers; the smallest is found in two steps. */
struct heap_bits {
    uint64_t summary; /* bit i: words[i] is not 0 */
    uint64_t words[64];
};

static inline void bits_add(struct heap_bits *bits, uint32_t number)
{
    bits->words[number / 64] |= 1ull << (number % 64);
    bits->summary |= 1ull << (number / 64);
}

static inline void bits_remove(struct heap_bits *bits, uint32_t number)
{
    bits->words[number / 64] &= ~(1ull << (number % 64));
    if (!bits->words[number / 64])
        bits->summary &= ~(1ull << (number / 64));
}

/* The set must not be empty. */
static inline uint32_t bits_first(const struct heap_bits *bits)
{
    uint32_t word = (uint32_t)__builtin_ctzll(bits->summary);

    return word * 64 + (uint32_t)__builtin_ctzll(bits->words[word]);
}

struct span;
struct extent;

struct span_class {
    struct list partial;     /* spans with a free slot */
    struct span *idle;       /* the one span without a block that is kept */
    struct heap_bits unused; /* places for spans that have none */
    size_t blocks, bytes, reserved, spans;
    void *spare; /* bookkeeping of spans that were given back, linked by their first word */
};

struct large_part {
    struct list bins[LARGE_BINS];            /* free extents by size */
    uint64_t filled[(LARGE_BINS + 63) / 64]; /* bins that are not empty */
    struct list dirty;    /* free extents whose pages were not given back yet, oldest first */
    uint64_t dirty_pages; /* at most so many of them are in memory */
    struct list spare;    /* struct extent not in use */
    size_t blocks, bytes, reserved, pages;
};

struct heap_books {
    size_t mapped;             /* bytes of this mapping */
    struct book_arena *arenas; /* what books_alloc carves, newest first */
    struct span_class classes[CLASS_COUNT];
    struct large_part large;
    struct span *spans[CLASS_COUNT][CLASS_SPANS];
    struct extent *pages[]; /* by page of the large part: the extent that starts or ends there */
};

extern struct heap_books *heap_books;
extern pthread_mutex_t heap_class_locks[CLASS_COUNT], heap_large_lock;

/* heap_books.c: NULL without memory. */
struct heap_books *books_new(void);
void books_delete(struct heap_books *books);
void *books_alloc(struct heap_books *books, size_t size); /* zeroed, 16-byte aligned */
extern pthread_mutex_t heap_books_lock;

uint64_t heap_next_serial(void);

/* What a live block is; false if no live block starts at address. */
struct block_info {
    uint64_t size, capacity, serial;
};

/* Whether a block can have been there. */
static inline bool place_is_small(const struct heap_place *place)
{
    return place->address >= DRIVER_HEAP_BASE && place->address < LARGE_BASE && place->size <= SMALL_MAX;
}

static inline bool place_is_large(const struct heap_place *place)
{
    return place->address >= LARGE_BASE && place->address < DRIVER_HEAP_BASE + DRIVER_HEAP_SIZE &&
           place->address % HEAP_PAGE == 0 && place->size <= LARGE_PAGES * HEAP_PAGE;
}

/*
 * heap_span.c: blocks of the small part. The first two work on new books, without lock; a place that can't be
 * there is skipped, -1 without memory. The others take the lock; addresses are in the small part, and false
 * says that there is no such block or place, or that size does not fit.
 */
void span_start(struct heap_books *books);
int span_reserve(struct heap_books *books, const struct heap_place *place);
uint64_t span_alloc(uint64_t alignment, uint64_t size); /* 0: no room in any class that fits */
bool span_alloc_at(uint64_t address, uint64_t size);
bool span_free(uint64_t address);
bool span_unreserve(uint64_t address);
bool span_info(uint64_t address, struct block_info *info);
uint64_t span_start_of(uint64_t inside); /* where a block that the address lies in would start */
bool span_resize(uint64_t address, uint64_t size); /* in place */

/* heap_extent.c: the same for the large part; large_start takes all places at once and skips the small ones.
 */
int large_start(struct heap_books *books, const struct heap_place *places, size_t count);
uint64_t large_alloc(uint64_t alignment, uint64_t size);
bool large_alloc_at(uint64_t address, uint64_t size);
bool large_free(uint64_t address);
bool large_unreserve(uint64_t address);
bool large_info(uint64_t address, struct block_info *info);
uint64_t large_start_of(uint64_t inside);
bool large_resize(uint64_t address, uint64_t size);

#endif
