#include "intervals.h"

#include <string.h>
#include <sys/mman.h>

static bool make_room(struct intervals *set)
{
    size_t capacity = set->capacity ? set->capacity * 2 : 4096 / sizeof(struct interval);
    struct interval *items;

    if (set->count < set->capacity)
        return true;
    items = mmap(NULL, capacity * sizeof *items, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (items == MAP_FAILED)
        return false;
    if (set->items) {
        memcpy(items, set->items, set->count * sizeof *items);
        munmap(set->items, set->capacity * sizeof *items);
    }
    set->items = items;
    set->capacity = capacity;
    return true;
}

/* Index of the first interval that ends after address. */
static size_t index_after(const struct intervals *set, uint64_t address)
{
    size_t low = 0, high = set->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (set->items[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void replace(struct intervals *set, size_t at, size_t old, size_t new)
{
    memmove(&set->items[at + new], &set->items[at + old], (set->count - at - old) * sizeof *set->items);
    set->count += new - old;
}

bool intervals_add(struct intervals *set, uint64_t start, uint64_t end)
{
    size_t first, last;

    if (start >= end)
        return true;
    if (!make_room(set))
        return false;
    /* Everything that overlaps or touches [start, end) becomes one interval. */
    first = index_after(set, start ? start - 1 : 0);
    for (last = first; last < set->count && set->items[last].start <= end; last++) {
        if (set->items[last].start < start)
            start = set->items[last].start;
        if (set->items[last].end > end)
            end = set->items[last].end;
    }
    replace(set, first, last - first, 1);
    set->items[first] = (struct interval){start, end};
    return true;
}

bool intervals_remove(struct intervals *set, uint64_t start, uint64_t end)
{
    size_t first = index_after(set, start), last;
    struct interval left = {0, 0}, right = {0, 0};
    size_t kept = 0;

    if (start >= end)
        return true;
    if (!make_room(set))
        return false;
    for (last = first; last < set->count && set->items[last].start < end; last++) {
        if (set->items[last].start < start)
            left = (struct interval){set->items[last].start, start};
        if (set->items[last].end > end)
            right = (struct interval){end, set->items[last].end};
    }
    kept = (left.end != 0) + (right.end != 0);
    replace(set, first, last - first, kept);
    if (right.end)
        set->items[first + kept - 1] = right;
    if (left.end)
        set->items[first] = left;
    return true;
}

const struct interval *intervals_after(const struct intervals *set, uint64_t address)
{
    size_t index = index_after(set, address);

    return index < set->count ? &set->items[index] : NULL;
}

bool intervals_overlap(const struct intervals *set, uint64_t start, uint64_t end)
{
    const struct interval *next = intervals_after(set, start);

    return next && next->start < end;
}

uint64_t intervals_find_gap(const struct intervals *set, uint64_t from, uint64_t limit, uint64_t size,
                            uint64_t alignment)
{
    uint64_t at = (from + alignment - 1) & ~(alignment - 1);
    size_t index = index_after(set, at);

    for (; index < set->count && set->items[index].start < at + size; index++)
        at = (set->items[index].end + alignment - 1) & ~(alignment - 1);
    return at + size <= limit ? at : 0;
}

void intervals_clear(struct intervals *set)
{
    set->count = 0;
}
