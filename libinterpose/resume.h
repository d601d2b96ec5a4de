#ifndef CUDACKPT_RESUME_H
#define CUDACKPT_RESUME_H
/* The way back to the GPU: acquire, restore, copy-in. On the control thread; the gate stays closed. */

#include "error.h"

/*
 * On failure the driver is released again and the data stays in host memory: it may be tried again, for instance when
 * there is more device memory. ERROR_MISMATCH: something came back different.
 */
int resume_restore(struct error *err);

#endif
