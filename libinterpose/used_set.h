#ifndef CUDACKPT_USED_SET_H
#define CUDACKPT_USED_SET_H
/*
 * A set of numbers that is read without a lock on every kernel launch: which functions have been launched. Open
 * addressing; a table that is outgrown stays, since a reader may be in it (their sizes double, so together they are no
 * larger than the one in use).
 */

#include <stdbool.h>
#include <stdint.h>

/* A number made of two; 0 and 1 are never made (they mark empty and removed places). */
static inline uint64_t used_set_key(uint64_t a, uint64_t b)
{
    uint64_t key = (a * 0x9e3779b97f4a7c15ull) ^ (b * 0xc2b2ae3d27d4eb4full);

    return key | 2;
}

bool used_set_has(uint64_t key);
int used_set_add(uint64_t key); /* -1 without memory */
void used_set_remove(uint64_t key);

#endif
