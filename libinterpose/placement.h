#ifndef CUDACKPT_PLACEMENT_H
#define CUDACKPT_PLACEMENT_H
/*
 * Placement: which driver-heap blocks and which address reservations a call got, and giving it the same ones
 * when it is made again. A record notes them with placement_note; its replay is served from them with
 * placement_replay.
 *
 * Matching is by size: the first unused entry of that size, and for an aligned request of that alignment.
 * Where the entry's block had been freed by the time of the suspend (address 0), and where no entry is left,
 * the request is served from fresh space. Places that the replay did not ask for become free space when it
 * ends. Each thread has its own; what other threads take is not noted.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_heap.h"

struct heap_note {
    uint64_t address; /* 0: gone */
    uint64_t size;
    uint64_t serial; /* driver_heap_serial of the block when it was noted */
};

struct map_place {
    uint64_t address; /* 0: gone */
    uint64_t size;
};

struct placement {
    struct heap_note *heap;
    struct map_place *maps;
    uint32_t heap_count, map_count;
    uint64_t generation; /* driver_heap_generation when it was noted */
};

/* Begins to note what this thread takes. Does not nest: an inner begin until its end changes nothing. */
void placement_note(void);
/* The same, serving requests from the given placement, which must stay until placement_take or _discard. */
void placement_replay(const struct placement *from);
/* Ends noting. take: *out owns the notes (malloc), -1 without memory; discard: they are dropped. */
int placement_take(struct placement *out);
void placement_discard(void);
void placement_free(struct placement *placement);
/* Adds notes to a placement, without those whose block is gone already. -1 without memory: nothing was added. */
int placement_add(struct placement *to, const struct placement *notes);

/*
 * What this thread takes between the two is neither noted nor matched: things that a replay makes for itself
 * and destroys again. Counts.
 */
void placement_pause(void);
void placement_resume(void);

/*
 * Notes whose block or reservation is gone get address 0: called for each record before the driver heap is
 * reset. A placement from before the last reset stays as it is: a restore that failed is tried again with the
 * places of the suspend, though nothing lies there now.
 */
void placement_prune(struct placement *placement);
/* No block is wanted again, but the sizes still count. */
void placement_forget_blocks(struct placement *placement);

/*
 * For the import hooks: as the functions of driver_heap.h, noted if the thread notes. A realloc counts as an
 * allocation of the new size when the block moves, and is not noted when it stays.
 */
void *placement_heap_alloc(size_t size);
void *placement_heap_alloc_aligned(size_t alignment, size_t size);
void *placement_heap_realloc(void *pointer, size_t size);
/* Address for a reservation of size bytes that this replay wants, 0: any. */
uint64_t placement_map_wanted(size_t size);
void placement_map_got(uint64_t address, size_t size);
/* What this thread takes is being noted. */
bool placement_is_noting(void);

#endif
