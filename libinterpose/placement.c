#include "placement.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ledger.h"

/* Weak: the ledger needs nearly the whole library, dlsym of its own included; a test of placements does
 * without. */
#pragma weak ledger_map_holds

#define NOTES_AT_FIRST  32
#define MAPS_AT_FIRST   4
#define BYTES_AT_SECOND (64ull << 10)

/*
 * What a thread notes. Most calls take a few blocks: they fit in here. More go to memory from mmap, since the
 * hooks run inside the driver; it is given back when the noting ends, so that a thread that ends leaves
 * nothing behind.
 */
struct noting {
    uint32_t depth, paused;
    bool failed; /* no memory for a note */
    struct heap_note *heap;
    struct map_place *maps;
    uint32_t heap_count, map_count, heap_room, map_room;

    /* Of a replay. order: the entries of from by size, in from's order within a size. */
    const struct placement *from;
    uint32_t *order;
    uint32_t *passed; /* at the first of a size in order: so many of that size are used, at the front */
    bool *heap_used, *map_used;

    struct heap_note first_heap[NOTES_AT_FIRST];
    struct map_place first_maps[MAPS_AT_FIRST];
};

static __thread struct noting self __attribute__((tls_model("initial-exec")));

/* ---- begin and end */

void placement_note(void)
{
    if (self.depth++)
        return;
    self.failed = false;
    self.heap = self.first_heap;
    self.maps = self.first_maps;
    self.heap_count = self.map_count = 0;
    self.heap_room = NOTES_AT_FIRST;
    self.map_room = MAPS_AT_FIRST;
    self.from = NULL;
}

static int by_size(const void *left, const void *right, void *arg)
{
    const struct heap_note *heap = arg;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    if (heap[a].size != heap[b].size)
        return heap[a].size < heap[b].size ? -1 : 1;
    return a < b ? -1 : a > b;
}

void placement_replay(const struct placement *from)
{
    size_t heap_count = from->heap_count;

    placement_note();
    if (self.depth > 1)
        return;
    self.order =
        calloc(1, heap_count * (2 * sizeof(uint32_t) + sizeof(bool)) + from->map_count * sizeof(bool) + 1);
    if (!self.order) {
        self.failed = true;
        return;
    }
    self.passed = self.order + heap_count;
    self.heap_used = (bool *)(self.passed + heap_count);
    self.map_used = self.heap_used + heap_count;
    for (uint32_t i = 0; i < heap_count; i++)
        self.order[i] = i;
    qsort_r(self.order, heap_count, sizeof(*self.order), by_size, from->heap);
    self.from = from;
}

static void noting_end(void)
{
    if (self.heap != self.first_heap)
        munmap(self.heap, self.heap_room * sizeof(*self.heap));
    if (self.maps != self.first_maps)
        munmap(self.maps, self.map_room * sizeof(*self.maps));
    self.heap = NULL;
    self.maps = NULL;
    if (!self.from)
        return;
    /* What the call did not ask for this time is kept for nobody. */
    for (uint32_t i = 0; i < self.from->heap_count; i++)
        if (!self.heap_used[i] && self.from->heap[i].address)
            driver_heap_unreserve(self.from->heap[i].address);
    free(self.order);
    self.from = NULL;
}

static int copy_notes(struct placement *out)
{
    struct placement copy = {
        .heap_count = self.heap_count, .map_count = self.map_count, .generation = driver_heap_generation()};

    if (self.failed)
        return -1;
    if (copy.heap_count && !(copy.heap = malloc(copy.heap_count * sizeof(*copy.heap))))
        return -1;
    if (copy.map_count && !(copy.maps = malloc(copy.map_count * sizeof(*copy.maps)))) {
        free(copy.heap);
        return -1;
    }
    if (copy.heap_count)
        memcpy(copy.heap, self.heap, copy.heap_count * sizeof(*copy.heap));
    if (copy.map_count)
        memcpy(copy.maps, self.maps, copy.map_count * sizeof(*copy.maps));
    *out = copy;
    return 0;
}

int placement_take(struct placement *out)
{
    int result;

    *out = (struct placement){0};
    if (!self.depth || --self.depth)
        return 0;
    result = copy_notes(out);
    noting_end();
    return result;
}

void placement_discard(void)
{
    if (self.depth && !--self.depth)
        noting_end();
}

void placement_pause(void)
{
    self.paused++;
}

void placement_resume(void)
{
    self.paused--;
}

void placement_free(struct placement *placement)
{
    free(placement->heap);
    free(placement->maps);
    *placement = (struct placement){0};
}

int placement_add(struct placement *to, const struct placement *notes)
{
    struct heap_note *heap = realloc(to->heap, (to->heap_count + notes->heap_count + 1) * sizeof *heap);
    struct map_place *maps;

    if (!heap)
        return -1;
    to->heap = heap;
    maps = realloc(to->maps, (to->map_count + notes->map_count + 1) * sizeof *maps);
    if (!maps)
        return -1;
    to->maps = maps;
    for (uint32_t i = 0; i < notes->heap_count; i++)
        if (notes->heap[i].address && driver_heap_serial((void *)notes->heap[i].address) == notes->heap[i].serial)
            to->heap[to->heap_count++] = notes->heap[i];
    for (uint32_t i = 0; i < notes->map_count; i++)
        to->maps[to->map_count++] = notes->maps[i];
    return 0;
}

void placement_forget_blocks(struct placement *placement)
{
    for (uint32_t i = 0; i < placement->heap_count; i++)
        placement->heap[i].address = 0;
}

void placement_prune(struct placement *placement)
{
    if (placement->generation != driver_heap_generation())
        return;
    for (uint32_t i = 0; i < placement->heap_count; i++) {
        struct heap_note *note = &placement->heap[i];

        if (note->address && driver_heap_serial((void *)note->address) != note->serial)
            note->address = 0;
    }
    /* A reservation that was given back again still counts in the matching, as a block does. */
    for (uint32_t i = 0; i < placement->map_count; i++)
        if (ledger_map_holds && !ledger_map_holds(placement->maps[i].address, placement->maps[i].size))
            placement->maps[i].address = 0;
}

/* ---- notes */

/* Twice the room, or NULL; the old items are given back. */
static void *notes_grow(void *items, void *first, uint32_t *room, size_t item_size)
{
    size_t before = *room * item_size;
    size_t size = before * 2 < BYTES_AT_SECOND ? BYTES_AT_SECOND : before * 2;
    void *grown;

    if (size / item_size > UINT32_MAX)
        return NULL;
    grown = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED)
        return NULL;
    memcpy(grown, items, before);
    if (items != first)
        munmap(items, before);
    *room = (uint32_t)(size / item_size);
    return grown;
}

static void note_heap(void *pointer, size_t size)
{
    if (self.heap_count == self.heap_room) {
        struct heap_note *grown = notes_grow(self.heap, self.first_heap, &self.heap_room, sizeof(*grown));

        if (!grown) {
            self.failed = true;
            return;
        }
        self.heap = grown;
    }
    self.heap[self.heap_count++] = (struct heap_note){(uint64_t)pointer, size, driver_heap_serial(pointer)};
}

static void note_map(uint64_t address, size_t size)
{
    if (self.map_count == self.map_room) {
        struct map_place *grown = notes_grow(self.maps, self.first_maps, &self.map_room, sizeof(*grown));

        if (!grown) {
            self.failed = true;
            return;
        }
        self.maps = grown;
    }
    self.maps[self.map_count++] = (struct map_place){address, size};
}

/* ---- matching */

/* Where in order the entries of a size begin. */
static uint32_t size_begin(uint64_t size)
{
    uint32_t low = 0, high = self.from->heap_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (self.from->heap[self.order[middle]].size < size)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether the entry that order names at that place exists and has that size. */
static bool has_size(uint32_t at, uint64_t size)
{
    return at < self.from->heap_count && self.from->heap[self.order[at]].size == size;
}

/* The address that the next request of that size had, and marks it as used; 0: none, or gone. */
static uint64_t heap_wanted(uint64_t alignment, uint64_t size)
{
    uint32_t begin = size_begin(size);

    if (!has_size(begin, size))
        return 0;
    while (has_size(begin + self.passed[begin], size) &&
           self.heap_used[self.order[begin + self.passed[begin]]])
        self.passed[begin]++;
    for (uint32_t at = begin + self.passed[begin]; has_size(at, size); at++) {
        uint32_t entry = self.order[at];

        /* An aligned request passes over what is not aligned, and leaves it for another. */
        if (self.heap_used[entry] || self.from->heap[entry].address % alignment)
            continue;
        self.heap_used[entry] = true;
        return self.from->heap[entry].address;
    }
    return 0;
}

uint64_t placement_map_wanted(size_t size)
{
    if (!self.from || self.paused)
        return 0;
    for (uint32_t i = 0; i < self.from->map_count; i++) {
        if (self.map_used[i] || self.from->maps[i].size != size)
            continue;
        self.map_used[i] = true;
        return self.from->maps[i].address;
    }
    return 0;
}

/* ---- the hooks */

static void *take_block(size_t alignment, size_t size)
{
    uint64_t wanted = self.from && !self.paused ? heap_wanted(alignment, size) : 0;
    void *pointer = wanted ? driver_heap_alloc_at(wanted, size) : NULL;

    if (!pointer)
        pointer = alignment > 16 ? driver_heap_alloc_aligned(alignment, size) : driver_heap_alloc(size);
    if (pointer && placement_is_noting())
        note_heap(pointer, size);
    return pointer;
}

void *placement_heap_alloc(size_t size)
{
    return take_block(16, size);
}

void *placement_heap_alloc_aligned(size_t alignment, size_t size)
{
    if (!alignment || alignment & (alignment - 1)) {
        errno = EINVAL;
        return NULL;
    }
    return take_block(alignment, size);
}

void *placement_heap_realloc(void *pointer, size_t size)
{
    size_t before;
    void *moved;

    if (!pointer)
        return take_block(16, size);
    /* Without notes, in place, or not a block: nothing to note. */
    if (!placement_is_noting() || !size || !driver_heap_serial(pointer) || size <= driver_heap_capacity(pointer))
        return driver_heap_realloc(pointer, size);
    moved = take_block(16, size);
    if (!moved)
        return NULL;
    before = driver_heap_block_size(pointer);
    memcpy(moved, pointer, before < size ? before : size);
    driver_heap_free(pointer);
    return moved;
}

void placement_map_got(uint64_t address, size_t size)
{
    if (placement_is_noting())
        note_map(address, size);
}

bool placement_is_noting(void)
{
    return self.depth > 0 && !self.paused;
}
