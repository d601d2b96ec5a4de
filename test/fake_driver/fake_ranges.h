#ifndef FAKE_RANGES_H
#define FAKE_RANGES_H
/* Ranges of addresses, and what is free of one. */

#include "fake_base.h"

struct range {
    uint64_t address, size;
};

/* Sorted by address, without overlaps. */
struct range_map {
    struct range **items;
    size_t count, capacity;
};

struct range *range_find(const struct range_map *map, uint64_t address); /* the one that holds it, or NULL */
bool range_overlaps(const struct range_map *map, uint64_t address, uint64_t size);
int range_insert(struct range_map *map, struct range *range); /* -1 without memory */
void range_remove(struct range_map *map, struct range *range);

/* Holes of an address range or of a file, first fit. */
struct holes {
    struct hole {
        uint64_t start, size;
    } * items;
    size_t count, capacity;
};

int holes_give(struct holes *holes, uint64_t start, uint64_t size);
/* Lowest place with that alignment; -1 if there is none. */
int holes_take(struct holes *holes, uint64_t size, uint64_t alignment, uint64_t *start);
/* Cuts the hole that ends at end down to a multiple of unit from base: gives back what was cut off (0:
 * nothing). */
uint64_t holes_trim_end(struct holes *holes, uint64_t end, uint64_t unit);

#endif
