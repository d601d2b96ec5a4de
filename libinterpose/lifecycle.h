#ifndef CUDACKPT_LIFECYCLE_H
#define CUDACKPT_LIFECYCLE_H
/*
 * When things happen in the life of the process: set-up at the first use of the driver, the first cuInit, fork, exit.
 * Nothing happens in a program that never uses CUDA.
 */

#include <stdbool.h>

#include "elf_library.h"

/*
 * Opens the real driver and takes it over (imports, pristine segment, struct driver). Once; any thread; cheap
 * afterwards. Where there is no driver the functions of struct driver return CUDA_ERROR_NOT_FOUND.
 */
void lifecycle_set_up(void);

/* Like lifecycle_set_up, for a program that opens the driver by a path of its own. False: there is no driver. */
bool lifecycle_set_up_from(const char *path);

/* The real driver as it lies in memory; empty before the set-up. */
const struct elf_library *lifecycle_driver_library(void);

/* The real driver's handle as dlopen gave it, NULL if there is none. */
void *lifecycle_driver_handle(void);

/* Takes libnvidia-ml.so.1 over; called when the program opens it. Its handle, NULL if there is none. */
void *lifecycle_set_up_nvml(const char *path);

void *lifecycle_nvml_handle(void);

/*
 * The gate is closed from now on. If the program ends meanwhile, its exit handlers and destructors may call CUDA, which
 * would wait for ever: they get CUDA_ERROR_DEINITIALIZED.
 */
void lifecycle_watch_exit(void);

/* After the first successful cuInit: the control thread starts. */
void lifecycle_driver_started(void);

#endif
