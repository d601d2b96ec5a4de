/* Import hooks for memory: the driver's malloc is served from the driver heap. */
#include "import_internal.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "ledger.h"
#include "placement.h"
#include "restart.h"

/*
 * All memory comes zeroed, as it mostly does at the start of a process: a driver that reads a block before it has written
 * it behaves in every generation as it did in the first.
 */
static void *zeroed(void *pointer, size_t size)
{
    return pointer ? memset(pointer, 0, size) : NULL;
}

static void *hook_malloc(size_t size)
{
    ledger_check_caller();
    return zeroed(placement_heap_alloc(size), size);
}

static void *hook_calloc(size_t count, size_t size)
{
    size_t bytes;

    ledger_check_caller();
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return zeroed(placement_heap_alloc(bytes), bytes);
}

static void *hook_memalign(size_t alignment, size_t size)
{
    ledger_check_caller();
    return zeroed(placement_heap_alloc_aligned(alignment, size), size);
}

static int hook_posix_memalign(void **pointer, size_t alignment, size_t size)
{
    *pointer = hook_memalign(alignment, size);
    return *pointer ? 0 : ENOMEM;
}

/* A block that a constructor took from libc stays as it is: the next driver finds it in its data again. */
static void *copy_of(void *pointer, size_t size)
{
    size_t old = malloc_usable_size(pointer);
    void *copy = zeroed(placement_heap_alloc(size), size);

    return copy ? memcpy(copy, pointer, old < size ? old : size) : NULL;
}

static void *hook_realloc(void *pointer, size_t size)
{
    ledger_check_caller();
    if (!pointer)
        return zeroed(placement_heap_alloc(size), size);
    if (!driver_heap_owns(pointer))
        return restart_pristine_holds(pointer) ? copy_of(pointer, size) : realloc(pointer, size);
    return placement_heap_realloc(pointer, size);
}

/*
 * A pointer from outside of the heap came from libc itself (strdup, realpath, scandir: libc's to free) or from a
 * constructor that ran before the imports were patched. The latter lives on in the pristine segment, and would be freed
 * again after every restart.
 */
static void hook_free(void *pointer)
{
    if (!pointer)
        return;
    if (driver_heap_owns(pointer))
        driver_heap_free(pointer);
    else if (!restart_pristine_holds(pointer))
        free(pointer);
}

const struct import_hook import_memory[] = {
    {"malloc", hook_malloc},
    {"calloc", hook_calloc},
    {"memalign", hook_memalign},
    {"aligned_alloc", hook_memalign},
    {"posix_memalign", hook_posix_memalign},
    {"realloc", hook_realloc},
    {"free", hook_free},
    {NULL, NULL},
};
