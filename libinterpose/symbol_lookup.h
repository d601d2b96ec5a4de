#ifndef CUDACKPT_SYMBOL_LOOKUP_H
#define CUDACKPT_SYMBOL_LOOKUP_H
/* What the program gets when it asks for a function of the driver. The filters for dlopen and dlsym: loader_hooks.h. */

#include <stdint.h>

/* Our function for what cuGetProcAddress(name, version, flags) of the real driver answered. */
void *symbol_wrapper(void *real, const char *name, int version, uint64_t flags);

#endif
