#ifndef CUDACKPT_DRIVER_CHECKPOINT_H
#define CUDACKPT_DRIVER_CHECKPOINT_H
/*
 * The driver's own checkpoint functions (570 and later), for processes that do not run under libcudackpt.so.
 * Each returns the driver's result, DRIVER_CHECKPOINT_MISSING where the driver is not there or has none.
 */

#include <sys/types.h>

#define DRIVER_CHECKPOINT_MISSING (-1)

enum driver_checkpoint_step { DRIVER_LOCK, DRIVER_CHECKPOINT, DRIVER_RESTORE, DRIVER_UNLOCK };

/* timeout_ms is for the lock; 0: none. */
int driver_checkpoint_step(enum driver_checkpoint_step step, pid_t pid, unsigned int timeout_ms);

/* state: 0 running, 1 locked, 2 checkpointed, 3 failed; newer drivers have more. */
int driver_checkpoint_state(pid_t pid, int *state);

int driver_checkpoint_thread(pid_t pid, int *tid);

/* What the driver says about a result. */
const char *driver_checkpoint_text(int result);

#endif
