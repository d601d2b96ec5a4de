#ifndef CUDACKPT_CRIU_H
#define CUDACKPT_CRIU_H
/* Running criu, and finding out why it failed. */

#include <stddef.h>

#include "error.h"

/* Its version, such as "4.1"; an error if there is no criu to be started. */
int criu_version(char *version, size_t size, struct error *err);

/*
 * Runs criu VERB --images-dir DIRECTORY --log-file VERB.log, then fixed and more options (NULL at the end).
 * If it fails, err has the last error of its log.
 */
int criu_run(const char *verb, const char *directory, const char *const *fixed, char *const *more,
             struct error *err);

#endif
