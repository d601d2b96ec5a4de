#ifndef CUDACKPT_COPY_H
#define CUDACKPT_COPY_H
/*
 * Bulk copies between device memory and host memory through a ring of pinned slots: each of a few threads has
 * two slots and a stream, and moves bytes between one slot and host memory while the device moves the other.
 * Host memory is ordinary anonymous memory of the process, so that CRIU takes it along.
 *
 * Called from the control thread only, while the gate is closed. The ring is made for each call, no larger
 * than the amount of bytes is worth and at most 128 MiB, and given back; a few MiB go without one.
 */

#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "error.h"

struct copy_range {
    CUdeviceptr device;
    void *host;
    size_t size;
    CUcontext context; /* to be current for the copy */
};

enum copy_direction { COPY_OUT, COPY_IN };

struct copy_progress {
    /*
     * Called from the calling thread about every 10 ms with the bytes done so far (never fewer than before),
     * and at the end of a copy that succeeded; non-zero stops the copy, which then fails.
     */
    int (*tick)(uint64_t done, uint64_t total, void *arg);
    void *arg;
};

/*
 * Copies all ranges; those of different contexts at the same time. Ranges do not overlap. The driver's error
 * is in the sentence, the code is ERROR_MEMORY if the driver lacked memory, else ERROR_REFUSED. After a
 * failure the destination holds some of the bytes; it may be tried again. progress may be NULL. The thread's
 * current context is left as it was.
 */
int copy_ranges(enum copy_direction direction, const struct copy_range *ranges, size_t count,
                const struct copy_progress *progress, struct error *err);

/*
 * Host memory for a copy: anonymous, huge pages asked for, not touched yet (copy_ranges does that, in
 * parallel). NULL with err set (ERROR_MEMORY). A forked child does not have it and must not free it: its
 * addresses may be another's.
 */
void *copy_host_alloc(size_t size, struct error *err);
/* size as it was asked for. NULL is ignored. */
void copy_host_free(void *host, size_t size);

#endif
