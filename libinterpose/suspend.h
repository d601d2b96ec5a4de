#ifndef CUDACKPT_SUSPEND_H
#define CUDACKPT_SUSPEND_H
/* The way off the GPU: lock, drain, copy-out, release. On the control thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "error.h"

/*
 * Closes the gate and waits for all work to end, until deadline (CLOCK_MONOTONIC, ns; 0: no deadline). On failure the
 * gate is open again and the program runs on as if nothing had happened.
 */
int suspend_lock(uint64_t deadline, struct error *err);

/* Copies everything out and gives the driver's resources back. *gone: the failure came after that had begun. */
int suspend_checkpoint(bool *gone, struct error *err);

/* Opens the gate. restarted: a restored driver is behind it. */
void suspend_unlock(bool restarted);

/*
 * Makes the driver as it was before its first use: also after a restore that failed half way. What must keep its address
 * is noted at the checkpoint.
 */
int suspend_release(struct error *err);

/* Progress of a copy in either direction (struct copy_progress). */
int suspend_show_copy(uint64_t done, uint64_t total, void *unused);

/* The last release came to its end; it is to be repeated before a restore if not. */
bool suspend_is_released(void);
void suspend_driver_is_back(void);

/* Contents of the module variables while suspended. */
struct copy_range *suspend_variables(size_t *count);
void suspend_forget_variables(void);

#endif
