#include "heap_internal.h"

#include <sys/mman.h>

#define LOG_PREFIX "heap"
#include "log.h"

/* Free pages that stay in memory, so that blocks that come and go need not be paged in each time. */
#define DIRTY_LIMIT ((16ull << 20) / HEAP_PAGE)
/* Larger blocks are given back when they are freed. */
#define DIRTY_LARGEST ((1ull << 20) / HEAP_PAGE)

enum extent_state {
    EXTENT_FREE,
    EXTENT_LIVE,
    EXTENT_RESERVED,
    EXTENT_LEAVING, /* free, its pages are being given back without the lock */
};

struct extent {
    struct list node;       /* in a bin or in spare */
    struct list dirty_node; /* in dirty */
    uint64_t page, pages;
    uint64_t dirty; /* free: at most so many pages are in memory */
    uint64_t size, serial;
    enum extent_state state;
};

pthread_mutex_t heap_large_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- bookkeeping of extents */

static struct extent *extent_new(struct heap_books *books)
{
    struct extent *extent;

    if (!list_empty(&books->large.spare)) {
        extent = container_of(books->large.spare.next, struct extent, node);
        list_remove(&extent->node);
        *extent = (struct extent){0};
    } else {
        extent = books_alloc(books, sizeof(*extent));
        if (!extent)
            return NULL;
    }
    list_init(&extent->node);
    list_init(&extent->dirty_node);
    return extent;
}

static void extent_delete(struct heap_books *books, struct extent *extent)
{
    list_insert(&books->large.spare, &extent->node);
}

/* Both ends are entered, so that a neighbour is found from either side; what lies between is never looked at.
 */
static void extent_enter(struct heap_books *books, struct extent *extent)
{
    books->pages[extent->page] = extent;
    books->pages[extent->page + extent->pages - 1] = extent;
}

static void extent_leave(struct heap_books *books, struct extent *extent)
{
    books->pages[extent->page] = NULL;
    books->pages[extent->page + extent->pages - 1] = NULL;
}

static void *extent_memory(const struct extent *extent)
{
    return (void *)(LARGE_BASE + extent->page * HEAP_PAGE);
}

/* ---- free extents */

/* Eight bins to each doubling; bin b holds sizes from its own lower bound up to the next one's. */
static uint32_t bin_of(uint64_t pages)
{
    uint32_t log;

    if (pages < 8)
        return (uint32_t)pages;
    log = 63 - (uint32_t)__builtin_clzll(pages);
    return (log - 2) * 8 + (uint32_t)((pages >> (log - 3)) & 7);
}

/* The first bin in which every extent has that many pages. */
static uint32_t bin_above(uint64_t pages)
{
    if (pages >= 8)
        pages += (1ull << (63 - __builtin_clzll(pages) - 3)) - 1;
    return bin_of(pages);
}

static void free_remove(struct large_part *large, struct extent *extent)
{
    uint32_t bin = bin_of(extent->pages);

    list_remove(&extent->node);
    if (list_empty(&large->bins[bin]))
        large->filled[bin / 64] &= ~(1ull << (bin % 64));
    list_remove(&extent->dirty_node);
    large->dirty_pages -= extent->dirty;
}

static void dirty_trim(struct large_part *large)
{
    while (large->dirty_pages > DIRTY_LIMIT) {
        struct extent *oldest = container_of(large->dirty.next, struct extent, dirty_node);

        madvise(extent_memory(oldest), oldest->pages * HEAP_PAGE, MADV_DONTNEED);
        list_remove(&oldest->dirty_node);
        large->dirty_pages -= oldest->dirty;
        oldest->dirty = 0;
    }
}

/* Adds an extent that no list has, joined with its free neighbours. */
static void free_insert(struct heap_books *books, struct extent *extent)
{
    struct large_part *large = &books->large;
    uint64_t end = extent->page + extent->pages;
    struct extent *before = extent->page ? books->pages[extent->page - 1] : NULL;
    struct extent *after = end < LARGE_PAGES ? books->pages[end] : NULL;
    uint32_t bin;

    extent_leave(books, extent);
    if (before && before->state == EXTENT_FREE) {
        free_remove(large, before);
        extent_leave(books, before);
        extent->page = before->page;
        extent->pages += before->pages;
        extent->dirty += before->dirty;
        extent_delete(books, before);
    }
    if (after && after->state == EXTENT_FREE) {
        free_remove(large, after);
        extent_leave(books, after);
        extent->pages += after->pages;
        extent->dirty += after->dirty;
        extent_delete(books, after);
    }
    extent->state = EXTENT_FREE;
    extent_enter(books, extent);
    bin = bin_of(extent->pages);
    list_insert(large->bins[bin].next, &extent->node);
    large->filled[bin / 64] |= 1ull << (bin % 64);
    if (extent->dirty) {
        list_insert(&large->dirty, &extent->dirty_node);
        large->dirty_pages += extent->dirty;
        dirty_trim(large);
    }
}

static struct extent *free_find(struct large_part *large, uint64_t pages)
{
    uint32_t bin = bin_above(pages);

    for (uint32_t word = bin / 64; word < (LARGE_BINS + 63) / 64; word++) {
        uint64_t filled = large->filled[word];

        if (word == bin / 64)
            filled &= ~0ull << (bin % 64);
        if (filled)
            return container_of(large->bins[word * 64 + (uint32_t)__builtin_ctzll(filled)].next,
                                struct extent, node);
    }
    /* Only when hardly anything is left: some of the bin that the size itself falls into may fit. */
    list_each (node, &large->bins[bin_of(pages)]) {
        struct extent *extent = container_of(node, struct extent, node);

        if (extent->pages >= pages)
            return extent;
    }
    return NULL;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Which part of a free extent has dirty pages is not known: each piece may have all of them. */
static void free_insert_piece(struct heap_books *books, struct extent *piece, uint64_t page, uint64_t pages,
                              uint64_t dirty)
{
    if (!pages) {
        extent_delete(books, piece);
        return;
    }
    piece->page = page;
    piece->pages = pages;
    piece->dirty = smaller(pages, dirty);
    free_insert(books, piece);
}

/* Cuts a free extent down to the given pages; what is left on either side stays free. False without memory.
 */
static bool extent_cut(struct heap_books *books, struct extent *extent, uint64_t page, uint64_t pages)
{
    uint64_t first = extent->page, end = first + extent->pages, dirty = extent->dirty;
    struct extent *front = extent_new(books), *back = front ? extent_new(books) : NULL;

    if (!back) {
        if (front)
            extent_delete(books, front);
        return false;
    }
    free_remove(&books->large, extent);
    extent_leave(books, extent);
    extent->page = page;
    extent->pages = pages;
    extent->dirty = 0;
    extent->state = EXTENT_RESERVED; /* not free: its new neighbours must not join it */
    extent_enter(books, extent);
    free_insert_piece(books, front, first, page - first, dirty);
    free_insert_piece(books, back, page + pages, end - page - pages, dirty);
    return true;
}

/* ---- blocks */

static uint64_t pages_for(uint64_t size)
{
    return size ? (size + HEAP_PAGE - 1) / HEAP_PAGE : 1;
}

static void extent_fill(struct large_part *large, struct extent *extent, uint64_t size)
{
    extent->state = EXTENT_LIVE;
    extent->size = size;
    extent->serial = heap_next_serial();
    large->blocks++;
    large->bytes += size;
}

/* The extent that starts at the address and is in that state, or NULL. */
static struct extent *extent_find(uint64_t address, enum extent_state state)
{
    uint64_t offset = address - LARGE_BASE;
    struct extent *extent = heap_books->pages[offset / HEAP_PAGE];

    if (offset % HEAP_PAGE || !extent || extent->page != offset / HEAP_PAGE || extent->state != state)
        return NULL;
    return extent;
}

uint64_t large_alloc(uint64_t alignment, uint64_t size)
{
    uint64_t step = alignment > HEAP_PAGE ? alignment / HEAP_PAGE : 1;
    uint64_t address = 0, pages, page;
    struct extent *extent;

    if (size > LARGE_PAGES * HEAP_PAGE)
        return 0;
    pages = pages_for(size);
    pthread_mutex_lock(&heap_large_lock);
    extent = free_find(&heap_books->large, pages + step - 1);
    if (extent) {
        page = (extent->page + step - 1) / step * step;
        if (extent_cut(heap_books, extent, page, pages)) {
            extent_fill(&heap_books->large, extent, size);
            heap_books->large.pages += pages;
            address = LARGE_BASE + page * HEAP_PAGE;
        }
    }
    pthread_mutex_unlock(&heap_large_lock);
    return address;
}

bool large_alloc_at(uint64_t address, uint64_t size)
{
    struct extent *extent;
    bool done;

    pthread_mutex_lock(&heap_large_lock);
    extent = extent_find(address, EXTENT_RESERVED);
    done = extent && size <= extent->pages * HEAP_PAGE;
    if (done) {
        heap_books->large.reserved--;
        extent_fill(&heap_books->large, extent, size);
    }
    pthread_mutex_unlock(&heap_large_lock);
    return done;
}

bool large_free(uint64_t address)
{
    struct large_part *large = &heap_books->large;
    struct extent *extent;

    pthread_mutex_lock(&heap_large_lock);
    extent = extent_find(address, EXTENT_LIVE);
    if (extent) {
        large->blocks--;
        large->bytes -= extent->size;
        large->pages -= extent->pages;
        extent->dirty = extent->pages;
        if (extent->pages > DIRTY_LARGEST) {
            /* Gigabytes take long to give back: others need not wait for it. */
            extent->state = EXTENT_LEAVING;
            pthread_mutex_unlock(&heap_large_lock);
            madvise(extent_memory(extent), extent->pages * HEAP_PAGE, MADV_DONTNEED);
            pthread_mutex_lock(&heap_large_lock);
            extent->dirty = 0;
        }
        free_insert(heap_books, extent);
    }
    pthread_mutex_unlock(&heap_large_lock);
    return extent;
}

bool large_unreserve(uint64_t address)
{
    struct extent *extent;

    pthread_mutex_lock(&heap_large_lock);
    extent = extent_find(address, EXTENT_RESERVED);
    if (extent) {
        heap_books->large.reserved--;
        heap_books->large.pages -= extent->pages;
        free_insert(heap_books, extent);
    }
    pthread_mutex_unlock(&heap_large_lock);
    return extent;
}

/* Only the ends of an extent are entered: the nearest entry at or before the page is of its extent. */
uint64_t large_start_of(uint64_t inside)
{
    uint64_t page = (inside - LARGE_BASE) / HEAP_PAGE, start = 0;
    const struct extent *extent = NULL;

    pthread_mutex_lock(&heap_large_lock);
    for (uint64_t at = page + 1; at-- && !extent;)
        extent = heap_books->pages[at];
    if (extent)
        start = LARGE_BASE + extent->page * HEAP_PAGE;
    pthread_mutex_unlock(&heap_large_lock);
    return start;
}

bool large_info(uint64_t address, struct block_info *info)
{
    struct extent *extent;

    pthread_mutex_lock(&heap_large_lock);
    extent = extent_find(address, EXTENT_LIVE);
    if (extent)
        *info = (struct block_info){extent->size, extent->pages * HEAP_PAGE, extent->serial};
    pthread_mutex_unlock(&heap_large_lock);
    return extent;
}

bool large_resize(uint64_t address, uint64_t size)
{
    struct extent *extent;
    uint64_t kept = pages_for(size);
    bool done;

    pthread_mutex_lock(&heap_large_lock);
    extent = extent_find(address, EXTENT_LIVE);
    done = extent && size <= extent->pages * HEAP_PAGE;
    if (done) {
        /* The extent keeps its pages, since its place does (placement.h); the memory behind them need not
         * stay. */
        if (pages_for(extent->size) > kept + DIRTY_LARGEST)
            madvise((void *)(address + kept * HEAP_PAGE), (extent->pages - kept) * HEAP_PAGE, MADV_DONTNEED);
        heap_books->large.bytes += size - extent->size;
        extent->size = size;
    }
    pthread_mutex_unlock(&heap_large_lock);
    return done;
}

/* ---- reset */

/* Sorts a list that is linked by node.next only and ends with NULL. */
static struct list *sort_by_page(struct list *chain, size_t count)
{
    struct list *left = chain, *right, sorted, *tail = &sorted;

    if (count < 2)
        return chain;
    for (size_t i = 1; i < count / 2; i++)
        chain = chain->next;
    right = chain->next;
    chain->next = NULL;
    left = sort_by_page(left, count / 2);
    right = sort_by_page(right, count - count / 2);
    while (left && right) {
        const struct extent *first = container_of(left, struct extent, node);
        bool take_left = first->page <= container_of(right, struct extent, node)->page;
        struct list **from = take_left ? &left : &right;

        tail->next = *from;
        tail = *from;
        *from = tail->next;
    }
    tail->next = left ? left : right;
    return sorted.next;
}

static int free_add(struct heap_books *books, uint64_t page, uint64_t end)
{
    struct extent *extent;

    if (page >= end)
        return 0;
    extent = extent_new(books);
    if (!extent)
        return -1;
    extent->page = page;
    extent->pages = end - page;
    free_insert(books, extent);
    return 0;
}

int large_start(struct heap_books *books, const struct heap_place *places, size_t count)
{
    struct large_part *large = &books->large;
    struct list *chain = NULL;
    size_t length = 0;
    uint64_t free_from = 0;

    for (uint32_t bin = 0; bin < LARGE_BINS; bin++)
        list_init(&large->bins[bin]);
    list_init(&large->dirty);
    list_init(&large->spare);
    for (size_t i = 0; i < count; i++) {
        struct extent *extent;

        if (!place_is_large(&places[i]))
            continue;
        extent = extent_new(books);
        if (!extent)
            return -1;
        extent->page = (places[i].address - LARGE_BASE) / HEAP_PAGE;
        extent->pages = pages_for(places[i].size);
        extent->node.next = chain;
        chain = &extent->node;
        length++;
    }
    for (chain = sort_by_page(chain, length); chain;) {
        struct extent *extent = container_of(chain, struct extent, node);

        chain = chain->next;
        list_init(&extent->node);
        if (extent->page < free_from || extent->pages > LARGE_PAGES - extent->page) {
            log_warn("place %p lies in another one or leaves the heap", extent_memory(extent));
            extent_delete(books, extent);
            continue;
        }
        extent->state = EXTENT_RESERVED;
        extent_enter(books, extent);
        if (free_add(books, free_from, extent->page))
            return -1;
        free_from = extent->page + extent->pages;
        large->pages += extent->pages;
        large->reserved++;
    }
    return free_add(books, free_from, LARGE_PAGES);
}
