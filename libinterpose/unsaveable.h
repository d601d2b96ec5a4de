#ifndef CUDACKPT_UNSAVEABLE_H
#define CUDACKPT_UNSAVEABLE_H
/*
 * Why this process can't be suspended now: noted when the thing is created, told when a suspend is asked for.
 * Any thread. Reasons with the same text count up instead of growing the list.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/*
 * Notes a reason: one sentence without a full stop, e.g. "cuIpcGetMemHandle: another process may hold this
 * memory". Calls no malloc, keeps errno.
 */
void unsaveable_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails with ERROR_UNSAVEABLE and all reasons if there are any. */
int unsaveable_check(struct error *err);

bool unsaveable_any(void);

/* Calls f for each reason. */
void unsaveable_each(void (*f)(const char *reason, uint64_t count, void *arg), void *arg);

void unsaveable_clear(void); /* in a forked child */

#endif
