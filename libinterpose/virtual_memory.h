#ifndef CUDACKPT_VIRTUAL_MEMORY_H
#define CUDACKPT_VIRTUAL_MEMORY_H
/*
 * The program's own objects of the virtual-memory API:
 *
 *   reservation  address space (kind_address_range.c), a record
 *   physical     memory behind a handle (kind_physical_memory.c), a record. It lives as long as the program has
 *                references to the handle or mappings of it, as in the driver
 *   mapping      a physical at an address, and who may access it there (virtual_mapping.c). No record: thousands
 *                of them are unmapped and given access by address, so they have a table by address. A restore
 *                makes them after the replay
 *
 * virtual_memory.c takes the contents out and puts them back. device_memory.h uses the same API for memory of
 * cuMemAlloc, past these hooks.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "journal.h"

/* ---- kind_address_range.c */

/* Whether a reservation of the program begins there. */
bool address_range_begins(CUdeviceptr address);

/* ---- kind_physical_memory.c */

struct physical {
    struct record record; /* handle: the program's, also while it has none (references 0) */
    size_t size;
    CUmemAllocationProp properties;
    unsigned long long flags;
    CUmemGenericAllocationHandle made; /* the driver's handle now */
    /*
     * Under virtual_memory_lock. However often the program retained the handle, the driver counts one reference,
     * and none when the program has none: a restore has nothing to count up.
     */
    unsigned references, mappings;
    void *host;         /* the copy while suspended */
    CUdeviceptr source; /* where a copy finds it; 0: nowhere */
    bool window;        /* virtual_memory.c has mapped it there for the copy */
};

/* Calls f for each in the order of their creation, as journal_each. */
void physical_each(int (*f)(struct physical *physical, void *arg), void *arg);
/* The record of a handle, NULL if it is not in the journal (imported, multicast). The lock is held. */
struct physical *physical_find(CUmemGenericAllocationHandle handle);
/*
 * One mapping less. true: that was the last that kept it alive. The caller makes the driver's call, then
 * physical_gone, or physical_stays if that failed: a new one with the same handle can't be mixed up with it.
 * The lock is held for unmapped and stays.
 */
bool physical_unmapped(struct physical *physical);
void physical_gone(struct physical *physical);
void physical_stays(struct physical *physical);

/* ---- virtual_mapping.c */

struct mapping {
    CUdeviceptr address;
    size_t size, offset;
    unsigned long long flags;
    struct physical *physical;
    CUmemAccessDesc *access; /* as set last, one per location; no entry: none */
    unsigned access_count;
    struct mapping *next; /* while it is being unmapped */
    bool last;            /* of its physical, while it is being unmapped */
};

/* All mappings by ascending address. Only with the gate closed. */
struct mapping *const *mapping_table(size_t *count);
/* What the device may do there. */
CUmemAccess_flags mapping_access(const struct mapping *mapping, int device);

/* Held for a moment only, never over a call of the driver. */
void virtual_memory_lock(void);
void virtual_memory_unlock(void);

#endif
