#include "device_space.h"

#include <stdlib.h>
#include <string.h>

#include "device_memory.h"

/* Address ranges that something else holds are passed over, but not without end: each try is a call of the
 * driver. */
#define RESERVE_TRIES 8

struct range {
    uint64_t address, size;
    uint64_t granules;
    uint64_t lowest; /* no granule below this one is free */
    uint64_t *taken; /* one bit per granule */
    void **things;   /* one per granule; large, but only the used part of it is ever touched */
    int device;
};

/* By number. Written under the lock; read without it by device_space_has. */
static struct range *ranges[DEVICE_SPACE_RANGES];
static unsigned int ranges_end; /* numbers from here on were never used */

static uint64_t number_address(unsigned int number)
{
    return DEVICE_MEMORY_BASE + number * DEVICE_MEMORY_RANGE;
}

static struct range *range_at(uint64_t address)
{
    uint64_t number = (address - DEVICE_MEMORY_BASE) / DEVICE_MEMORY_RANGE;

    if (address < DEVICE_MEMORY_BASE || number >= DEVICE_SPACE_RANGES)
        return NULL;
    return __atomic_load_n(&ranges[number], __ATOMIC_ACQUIRE);
}

static uint64_t granule_of(const struct range *range, uint64_t address)
{
    return (address - range->address) / DEVICE_MEMORY_CHUNK;
}

/* The first granule from `at` on whose bit is as asked for; range->granules if there is none. */
static uint64_t granule_find(const struct range *range, uint64_t at, bool taken)
{
    uint64_t flip = taken ? 0 : ~0ull;

    while (at < range->granules) {
        uint64_t word = (range->taken[at / 64] ^ flip) >> (at % 64);

        if (word) {
            at += (uint64_t)__builtin_ctzll(word);
            break;
        }
        at = (at / 64 + 1) * 64;
    }
    return at < range->granules ? at : range->granules;
}

static void granules_mark(struct range *range, uint64_t first, uint64_t count, bool taken)
{
    for (uint64_t at = first, end = first + count; at < end;) {
        uint64_t in_word = 64 - at % 64, n = end - at < in_word ? end - at : in_word;
        uint64_t bits = (~0ull >> (64 - n)) << (at % 64);

        if (taken)
            range->taken[at / 64] |= bits;
        else
            range->taken[at / 64] &= ~bits;
        at += n;
    }
}

/* The lowest run of free granules, range->granules if there is none. */
static uint64_t range_fit(struct range *range, uint64_t count)
{
    uint64_t at = granule_find(range, range->lowest, false);

    range->lowest = at;
    while (at < range->granules) {
        uint64_t end = granule_find(range, at, true);

        if (end - at >= count)
            return at;
        at = granule_find(range, end, false);
    }
    return range->granules;
}

static void range_free(struct range *range)
{
    if (!range)
        return;
    free(range->taken);
    free(range->things);
    free(range);
}

static struct range *range_new(int device, uint64_t size)
{
    struct range *range = calloc(1, sizeof(*range));

    if (!range)
        return NULL;
    range->size = size;
    range->granules = size / DEVICE_MEMORY_CHUNK;
    range->device = device;
    range->taken = calloc((range->granules + 63) / 64, sizeof(*range->taken));
    range->things = calloc(range->granules, sizeof(*range->things));
    if (range->taken && range->things)
        return range;
    range_free(range);
    return NULL;
}

static CUresult range_reserve(int device, uint64_t size, device_space_reserve *reserve, struct range **made)
{
    unsigned int numbers = (unsigned int)((size + DEVICE_MEMORY_RANGE - 1) / DEVICE_MEMORY_RANGE);
    struct range *range = range_new(device, numbers * DEVICE_MEMORY_RANGE);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned int i = 0; i < RESERVE_TRIES && ranges_end + i + numbers <= DEVICE_SPACE_RANGES; i++) {
        unsigned int first = ranges_end + i;

        result = reserve(number_address(first), range->size);
        if (result != CUDA_SUCCESS)
            continue;
        range->address = number_address(first);
        for (unsigned int n = first; n < first + numbers; n++)
            __atomic_store_n(&ranges[n], range, __ATOMIC_RELEASE);
        ranges_end = first + numbers;
        *made = range;
        return CUDA_SUCCESS;
    }
    range_free(range);
    return result;
}

/* The range after the given number's, skipping numbers that are not in use and the further ones of a wide
 * range. */
static struct range *range_next(unsigned int *number)
{
    for (; *number < ranges_end; ++*number) {
        struct range *range = ranges[*number];

        if (range && range->address == number_address(*number)) {
            ++*number;
            return range;
        }
    }
    return NULL;
}

CUresult device_space_take(int device, uint64_t size, device_space_reserve *reserve, uint64_t *address)
{
    uint64_t count = size / DEVICE_MEMORY_CHUNK, first = 0;
    unsigned int number = 0;
    struct range *range;

    while ((range = range_next(&number))) {
        if (range->device != device)
            continue;
        first = range_fit(range, count);
        if (first < range->granules)
            break;
    }
    if (!range) {
        CUresult result = range_reserve(device, size, reserve, &range);

        if (result != CUDA_SUCCESS)
            return result;
        first = 0;
    }
    granules_mark(range, first, count, true);
    *address = range->address + first * DEVICE_MEMORY_CHUNK;
    return CUDA_SUCCESS;
}

void device_space_give(uint64_t address, uint64_t size)
{
    struct range *range = range_at(address);
    uint64_t first = granule_of(range, address);

    granules_mark(range, first, size / DEVICE_MEMORY_CHUNK, false);
    if (first < range->lowest)
        range->lowest = first;
}

void device_space_set(uint64_t address, uint64_t size, void *thing)
{
    struct range *range = range_at(address);
    uint64_t first = granule_of(range, address);

    for (uint64_t i = 0; i < size / DEVICE_MEMORY_CHUNK; i++)
        range->things[first + i] = thing;
}

void *device_space_get(uint64_t address)
{
    struct range *range = range_at(address);

    return range ? range->things[granule_of(range, address)] : NULL;
}

uint64_t device_space_next(uint64_t address)
{
    unsigned int number = 0;
    struct range *range;

    while ((range = range_next(&number))) {
        uint64_t at = address > range->address ? granule_of(range, address) : 0;

        /* Only taken granules are looked at: the untouched parts of range->things stay untouched. */
        for (at = granule_find(range, at, true); at < range->granules;
             at = granule_find(range, at + 1, true)) {
            if (range->things[at])
                return range->address + at * DEVICE_MEMORY_CHUNK;
        }
    }
    return 0;
}

bool device_space_has(uint64_t address)
{
    return range_at(address) != NULL;
}

int device_space_each_range(int (*f)(int device, uint64_t address, uint64_t size, void *arg), void *arg)
{
    unsigned int number = 0;
    struct range *range;
    int result;

    while ((range = range_next(&number))) {
        result = f(range->device, range->address, range->size, arg);
        if (result)
            return result;
    }
    return 0;
}

void device_space_forget(void)
{
    /* Not freed: another thread may have been inside the program's malloc at the time of the fork. */
    memset(ranges, 0, sizeof(ranges));
    ranges_end = 0;
}
