#include "driver_heap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "heap_internal.h"

#define LOG_PREFIX "heap"
#include "log.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static uint64_t serials, generation;

uint64_t heap_next_serial(void)
{
    return __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
}

static bool in_small_part(uint64_t address)
{
    return address < LARGE_BASE;
}

static struct heap_books *books_with_places(const struct heap_place *places, size_t count)
{
    struct heap_books *books = books_new();

    if (!books)
        return NULL;
    if (large_start(books, places, count))
        goto fail;
    for (size_t i = 0; i < count; i++)
        if (place_is_small(&places[i]) && span_reserve(books, &places[i]))
            goto fail;
    return books;
fail:
    books_delete(books);
    return NULL;
}

int driver_heap_start(struct error *err)
{
    void *const base = (void *)DRIVER_HEAP_BASE;
    struct heap_books *books;
    void *region;

    /*
     * Without access first: in a program that has called mlockall(MCL_FUTURE) the whole region would be
     * filled with memory otherwise.
     */
    region = mmap(base, DRIVER_HEAP_SIZE, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (region == MAP_FAILED) {
        error_set_errno(
            err, ERROR_MEMORY, errno,
            "can't reserve %llu GiB of address space at %p for the driver's memory; check ulimit -v and "
            "that nothing else is mapped there",
            DRIVER_HEAP_SIZE >> 30, base);
        return -1;
    }
    if (region != base) { /* kernels before 4.17 take the address as a hint */
        munmap(region, DRIVER_HEAP_SIZE);
        error_set(err, ERROR_REFUSED, "address %p, where the driver's memory must lie, is in use", base);
        return -1;
    }
    munlock(base, DRIVER_HEAP_SIZE);
    if (mprotect(base, DRIVER_HEAP_SIZE, PROT_READ | PROT_WRITE)) {
        error_set_errno(err, ERROR_MEMORY, errno,
                        "can't make %llu GiB at %p writable for the driver's memory", DRIVER_HEAP_SIZE >> 30,
                        base);
        goto fail;
    }
    /* Small blocks are spread over the classes' parts: with huge pages each class would take 2 MiB at least.
     */
    madvise(base, LARGE_BASE - DRIVER_HEAP_BASE, MADV_NOHUGEPAGE);
    books = books_with_places(NULL, 0);
    if (!books) {
        error_set(err, ERROR_MEMORY, "no memory for the bookkeeping of the driver's memory");
        goto fail;
    }
    heap_books = books;
    return 0;
fail:
    munmap(base, DRIVER_HEAP_SIZE);
    return -1;
}

static void *heap_alloc(uint64_t alignment, uint64_t size)
{
    int saved = errno;
    uint64_t address = 0;

    if (heap_books && size <= SMALL_MAX && alignment <= SMALL_MAX)
        address = span_alloc(alignment, size);
    if (heap_books && !address)
        address = large_alloc(alignment, size);
    errno = address ? saved : ENOMEM;
    return (void *)address;
}

void *driver_heap_alloc(size_t size)
{
    return heap_alloc(16, size);
}

void *driver_heap_alloc_aligned(size_t alignment, size_t size)
{
    if (!alignment || alignment & (alignment - 1) || alignment > ALIGN_MAX) {
        errno = EINVAL;
        return NULL;
    }
    return heap_alloc(alignment < 16 ? 16 : alignment, size);
}

void *driver_heap_alloc_at(uint64_t address, size_t size)
{
    bool done;

    if (!driver_heap_owns((void *)address))
        return NULL;
    done = in_small_part(address) ? span_alloc_at(address, size) : large_alloc_at(address, size);
    return done ? (void *)address : NULL;
}

static bool block_find(const void *pointer, struct block_info *info)
{
    uint64_t address = (uint64_t)pointer;

    if (!driver_heap_owns(pointer))
        return false;
    return in_small_part(address) ? span_info(address, info) : large_info(address, info);
}

void driver_heap_free(void *pointer)
{
    uint64_t address = (uint64_t)pointer;
    int saved = errno;
    bool done;

    if (!pointer)
        return;
    done = driver_heap_owns(pointer) && (in_small_part(address) ? span_free(address) : large_free(address));
    if (!done)
        log_warn("free of %p, which is no block", pointer);
    errno = saved;
}

void *driver_heap_realloc(void *pointer, size_t size)
{
    uint64_t address = (uint64_t)pointer;
    int saved = errno;
    struct block_info info;
    void *moved;

    if (!pointer)
        return driver_heap_alloc(size);
    if (!block_find(pointer, &info)) {
        log_warn("realloc of %p, which is no block", pointer);
        errno = EINVAL;
        return NULL;
    }
    if (!size) {
        driver_heap_free(pointer);
        return NULL;
    }
    if (in_small_part(address) ? span_resize(address, size) : large_resize(address, size)) {
        errno = saved;
        return pointer;
    }
    moved = driver_heap_alloc(size);
    if (!moved)
        return NULL;
    memcpy(moved, pointer, info.size); /* it did not fit, so it is larger than before */
    driver_heap_free(pointer);
    return moved;
}

bool driver_heap_owns(const void *pointer)
{
    return heap_books && (uint64_t)pointer - DRIVER_HEAP_BASE < DRIVER_HEAP_SIZE;
}

bool driver_heap_block_of(const void *inside, struct heap_place *block)
{
    uint64_t start;
    struct block_info info;

    if (!driver_heap_owns(inside))
        return false;
    start = in_small_part((uint64_t)inside) ? span_start_of((uint64_t)inside) : large_start_of((uint64_t)inside);
    if (!block_find((void *)start, &info) || (uint64_t)inside - start >= info.size)
        return false;
    *block = (struct heap_place){start, info.size};
    return true;
}

size_t driver_heap_block_size(const void *pointer)
{
    struct block_info info;

    return block_find(pointer, &info) ? info.size : 0;
}

size_t driver_heap_capacity(const void *pointer)
{
    struct block_info info;

    return block_find(pointer, &info) ? info.capacity : 0;
}

uint64_t driver_heap_serial(const void *pointer)
{
    struct block_info info;

    return block_find(pointer, &info) ? info.serial : 0;
}

uint64_t driver_heap_generation(void)
{
    return __atomic_load_n(&generation, __ATOMIC_RELAXED);
}

int driver_heap_reset(const struct heap_place *places, size_t count, struct error *err)
{
    struct heap_books *before = heap_books, *books = before ? books_with_places(places, count) : NULL;

    if (!books) {
        error_set(err, ERROR_MEMORY, "no memory to keep %zu places of the driver's memory", count);
        return -1;
    }
    heap_books = books;
    __atomic_store_n(&generation, generation + 1, __ATOMIC_RELAXED);
    madvise((void *)DRIVER_HEAP_BASE, DRIVER_HEAP_SIZE, MADV_DONTNEED);
    books_delete(before);
    return 0;
}

void driver_heap_unreserve(uint64_t address)
{
    int saved = errno;

    if (driver_heap_owns((void *)address)) {
        if (in_small_part(address))
            span_unreserve(address);
        else
            large_unreserve(address);
    }
    errno = saved;
}

void driver_heap_before_fork(void)
{
    for (uint32_t class = 0; class < CLASS_COUNT; class ++)
        pthread_mutex_lock(&heap_class_locks[class]);
    pthread_mutex_lock(&heap_large_lock);
    pthread_mutex_lock(&heap_books_lock);
}

void driver_heap_after_fork(void)
{
    pthread_mutex_unlock(&heap_books_lock);
    pthread_mutex_unlock(&heap_large_lock);
    for (uint32_t class = CLASS_COUNT; class --;)
        pthread_mutex_unlock(&heap_class_locks[class]);
}

void driver_heap_get_stats(struct driver_heap_stats *stats)
{
    const struct large_part *large;

    *stats = (struct driver_heap_stats){0};
    if (!heap_books)
        return;
    for (uint32_t class = 0; class < CLASS_COUNT; class ++) {
        const struct span_class *part = &heap_books->classes[class];

        pthread_mutex_lock(&heap_class_locks[class]);
        stats->blocks += part->blocks;
        stats->block_bytes += part->bytes;
        stats->reserved += part->reserved;
        stats->mapped += part->spans * SPAN_SIZE;
        pthread_mutex_unlock(&heap_class_locks[class]);
    }
    large = &heap_books->large;
    pthread_mutex_lock(&heap_large_lock);
    stats->blocks += large->blocks;
    stats->block_bytes += large->bytes;
    stats->reserved += large->reserved;
    stats->mapped += large->pages * HEAP_PAGE;
    pthread_mutex_unlock(&heap_large_lock);
}
