#ifndef CUDACKPT_WRAPPERS_H
#define CUDACKPT_WRAPPERS_H
/* The addresses of our exported functions, by row: what cuGetProcAddress and dlsym hand out. */

#include "driver_api.h"

extern void *const wrappers[ROW_COUNT];

#endif
