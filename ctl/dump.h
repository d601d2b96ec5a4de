#ifndef CUDACKPT_DUMP_H
#define CUDACKPT_DUMP_H
/*
 * Programs into files and back, with CRIU: `cudackpt-ctl dump` and `cudackpt-ctl restore -D`. The criu to use
 * is $CUDACKPT_CRIU, or the one in PATH.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"

struct dump_options {
    const char *directory;
    bool leave_running;
    uint64_t timeout_ms; /* for the suspend; 0: none */
    char **criu_options; /* handed on; NULL at the end */
};

/*
 * Suspends the process and its descendants that use CUDA and dumps the whole tree. The processes end, or run
 * on with leave_running. If it fails, they run on as well.
 */
int dump_run(pid_t pid, const struct dump_options *options, struct error *err);

/* Brings a dumped tree back and resumes what was running then. Prints the number of the first process. */
int restore_run(const struct dump_options *options, struct error *err);

#endif
