#ifndef CUDACKPT_DEVICE_SPACE_H
#define CUDACKPT_DEVICE_SPACE_H
/*
 * The address space that device memory is carved from: ranges, which of their granules (2 MiB) are taken, and
 * what lies at each. Part of device_memory.c, whose lock is held around every call except device_space_has.
 *
 * Range number n lies at DEVICE_MEMORY_BASE + n * DEVICE_MEMORY_RANGE and belongs to the device that first
 * needed it; a range that must hold something larger takes several numbers in a row. Ranges are never given
 * back.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

/* Below the driver heap and where the kernel puts programs and libraries. */
#define DEVICE_SPACE_RANGES 192

typedef CUresult device_space_reserve(uint64_t address, uint64_t size);

/*
 * Takes the lowest free address of the device's ranges where size (a multiple of the granularity) fits; a new
 * range is reserved if it fits nowhere. Fails with what reserve says, or CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult device_space_take(int device, uint64_t size, device_space_reserve *reserve, uint64_t *address);
void device_space_give(uint64_t address, uint64_t size);

/* Notes what lies at taken space; NULL: nothing. */
void device_space_set(uint64_t address, uint64_t size, void *thing);
/* What was noted for the address, NULL if nothing or if it is in none of our ranges. */
void *device_space_get(uint64_t address);
/* The lowest address from the given one on where something was noted; 0: none. */
uint64_t device_space_next(uint64_t address);

/* Whether the address lies in one of our ranges. Needs no lock. */
bool device_space_has(uint64_t address);
/* Calls f for each range; stops at the first non-zero and returns it. */
int device_space_each_range(int (*f)(int device, uint64_t address, uint64_t size, void *arg), void *arg);

/* In a forked child: there are no ranges. */
void device_space_forget(void);

#endif
