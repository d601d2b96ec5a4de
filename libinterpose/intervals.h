#ifndef CUDACKPT_INTERVALS_H
#define CUDACKPT_INTERVALS_H
/*
 * A set of addresses as sorted, disjoint intervals [start, end). Memory comes from mmap: the set is used inside of the
 * driver's own calls, where the program's malloc must not be called. No lock: the owner has one.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
    uint64_t start, end;
};

struct intervals {
    struct interval *items;
    size_t count, capacity;
};

/* False without memory; the set is unchanged then. */
bool intervals_add(struct intervals *set, uint64_t start, uint64_t end);
bool intervals_remove(struct intervals *set, uint64_t start, uint64_t end);

/* The first interval that ends after address, or NULL. */
const struct interval *intervals_after(const struct intervals *set, uint64_t address);

bool intervals_overlap(const struct intervals *set, uint64_t start, uint64_t end);

/* The lowest start >= from with size free addresses, aligned; 0 if none below limit. */
uint64_t intervals_find_gap(const struct intervals *set, uint64_t from, uint64_t limit, uint64_t size,
                            uint64_t alignment);

void intervals_clear(struct intervals *set);

#endif
