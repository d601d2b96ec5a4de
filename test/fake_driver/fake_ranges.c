/* Sorted address ranges, and lists of holes. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* Index of the first range that ends behind the address. */
static size_t lower(const struct range_map *map, uint64_t address)
{
    size_t low = 0, high = map->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (map->items[middle]->address + map->items[middle]->size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct range *range_find(const struct range_map *map, uint64_t address)
{
    size_t index = lower(map, address);

    if (index == map->count || map->items[index]->address > address)
        return NULL;
    return map->items[index];
}

bool range_overlaps(const struct range_map *map, uint64_t address, uint64_t size)
{
    size_t index = lower(map, address);

    return index < map->count && map->items[index]->address < address + size;
}

int range_insert(struct range_map *map, struct range *range)
{
    size_t index;

    if (map->count == map->capacity) {
        size_t capacity = map->capacity ? map->capacity * 2 : 64;
        struct range **items = realloc(map->items, capacity * sizeof(*items));

        if (!items)
            return -1;
        map->items = items;
        map->capacity = capacity;
    }
    index = lower(map, range->address);
    memmove(map->items + index + 1, map->items + index, (map->count - index) * sizeof(*map->items));
    map->items[index] = range;
    map->count++;
    return 0;
}

void range_remove(struct range_map *map, struct range *range)
{
    size_t index = lower(map, range->address);

    if (index == map->count || map->items[index] != range)
        return;
    map->count--;
    memmove(map->items + index, map->items + index + 1, (map->count - index) * sizeof(*map->items));
}

static void hole_remove(struct holes *holes, size_t index)
{
    holes->count--;
    memmove(holes->items + index, holes->items + index + 1, (holes->count - index) * sizeof(*holes->items));
}

static int hole_insert(struct holes *holes, size_t index, uint64_t start, uint64_t size)
{
    if (holes->count == holes->capacity) {
        size_t capacity = holes->capacity ? holes->capacity * 2 : 32;
        struct hole *items = realloc(holes->items, capacity * sizeof(*items));

        if (!items)
            return -1;
        holes->items = items;
        holes->capacity = capacity;
    }
    memmove(holes->items + index + 1, holes->items + index, (holes->count - index) * sizeof(*holes->items));
    holes->items[index] = (struct hole){start, size};
    holes->count++;
    return 0;
}

int holes_give(struct holes *holes, uint64_t start, uint64_t size)
{
    size_t index = 0;

    while (index < holes->count && holes->items[index].start < start)
        index++;
    if (index && holes->items[index - 1].start + holes->items[index - 1].size == start) {
        index--;
        holes->items[index].size += size;
    } else if (hole_insert(holes, index, start, size)) {
        return -1;
    }
    if (index + 1 < holes->count &&
        holes->items[index].start + holes->items[index].size == holes->items[index + 1].start) {
        holes->items[index].size += holes->items[index + 1].size;
        hole_remove(holes, index + 1);
    }
    return 0;
}

int holes_take(struct holes *holes, uint64_t size, uint64_t alignment, uint64_t *start)
{
    for (size_t i = 0; i < holes->count; i++) {
        struct hole *hole = &holes->items[i];
        uint64_t place = (hole->start + alignment - 1) & ~(alignment - 1);
        uint64_t before = place - hole->start;
        uint64_t after;

        if (before > hole->size || hole->size - before < size)
            continue;
        after = hole->size - before - size;
        if (after && before) {
            if (hole_insert(holes, i + 1, place + size, after))
                return -1;
            holes->items[i].size = before;
        } else if (before) {
            hole->size = before;
        } else if (after) {
            *hole = (struct hole){place + size, after};
        } else {
            hole_remove(holes, i);
        }
        *start = place;
        return 0;
    }
    return -1;
}

uint64_t holes_trim_end(struct holes *holes, uint64_t end, uint64_t unit)
{
    struct hole *last;
    uint64_t cut;

    if (!holes->count)
        return 0;
    last = &holes->items[holes->count - 1];
    if (last->start + last->size != end)
        return 0;
    cut = last->size - last->size % unit;
    last->size -= cut;
    if (!last->size)
        holes->count--;
    return cut;
}
