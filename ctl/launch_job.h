#ifndef CUDACKPT_LAUNCH_JOB_H
#define CUDACKPT_LAUNCH_JOB_H
/* Starts a program under libcudackpt.so, in place of the calling one. */

#include "error.h"

/*
 * program: its name (looked for in PATH) and arguments, NULL at the end. The program finds our library in
 * LD_PRELOAD and in CUDA_CHECKPOINT_JOB_FILE the name of a file that no other job ever had. Returns only on
 * failure.
 */
int launch_job(char **program, struct error *err);

#endif
