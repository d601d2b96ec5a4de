#ifndef CUDACKPT_MANIFEST_H
#define CUDACKPT_MANIFEST_H
/* cudackpt.json beside CRIU's files: what was dumped, and what has to be done after a restore. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"

#define MANIFEST_NAME      "cudackpt.json"
#define MANIFEST_PROCESSES 256

struct manifest {
    pid_t pid;                        /* of the first process of the tree */
    pid_t resume[MANIFEST_PROCESSES]; /* processes that were running CUDA */
    size_t resume_count;
    char program[64], driver[32], criu[64];
    uint64_t host_copy_bytes; /* device memory in them, as it lies in the host memory that CRIU saved */
};

/* Written under another name first: a manifest that is there is whole. Tells the size of all files that are
 * there. */
int manifest_write(const struct manifest *manifest, const char *directory, struct error *err);

void manifest_remove(const char *directory);

/* Fills in what a restore needs: pid, resume. */
int manifest_read(struct manifest *manifest, const char *directory, struct error *err);

#endif
