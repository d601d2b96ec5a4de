#ifndef CUDACKPT_LIFECYCLE_H
#define CUDACKPT_LIFECYCLE_H
/*
 * When things happen in the life of the process: set-up at the first use of the driver, the first cuInit, fork, exit.
 * Nothing happens in a program that never uses CUDA.
 */

#include <stdbool.h>

/*
 * Opens the real driver and takes it over (imports, pristine segment, struct driver). Once; any thread; cheap
 * afterwards. Where there is no driver the functions of struct driver return CUDA_ERROR_NOT_FOUND.
 */
void lifecycle_set_up(void);

/* Like lifecycle_set_up, for a program that opens the driver by a path of its own. False: there is no driver. */
bool lifecycle_set_up_from(const char *path);

/* The real driver's handle as dlopen gave it, NULL if there is none. */
void *lifecycle_driver_handle(void);

/* Takes libnvidia-ml.so.1 over; called when the program opens it. Its handle, NULL if there is none. */
void *lifecycle_set_up_nvml(const char *path);

void *lifecycle_nvml_handle(void);

/* After the first successful cuInit: the control thread starts. */
void lifecycle_driver_started(void);

#endif
