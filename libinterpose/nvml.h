#ifndef CUDACKPT_NVML_H
#define CUDACKPT_NVML_H
/*
 * libnvidia-ml.so.1: restarted together with the driver, since it holds device descriptors. Its functions are handed out
 * as gated thunks; initialisations are records, as they nest. Device handles point into its writable segment and keep
 * their value.
 */

/* The library's handle if it was taken over, else NULL. */
void *nvml_handle(void);

/* What dlsym answers for a symbol of it; NULL: let the real dlsym answer. */
void *nvml_function(const char *symbol);

#endif
