#ifndef CUDACKPT_CUDA_CHECKPOINT_H
#define CUDACKPT_CUDA_CHECKPOINT_H
/* The command line of NVIDIA's cuda-checkpoint: docs/cuda-checkpoint.md. */

#include <stdbool.h>

/* Is it meant: by the name of the tool, or by one of the options that only cuda-checkpoint has? */
bool cuda_checkpoint_is_meant(int argc, char **argv);

/* Returns the exit status: 0 or 1. */
int cuda_checkpoint_main(int argc, char **argv);

#endif
