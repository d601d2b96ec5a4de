/* Every entry point that nothing else defines: weak, so that a definition elsewhere takes its place. */

#include "fake.h"

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    __attribute__((weak)) CUresult symbol parameters                                                         \
    {                                                                                                        \
        CALL(symbol, NEEDS_INIT);                                                                            \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                     \
    }
#include "driver_api.inc"
#undef ENTRY

#define ENTRY_RAW(symbol, reason)                                                                            \
    __attribute__((visibility("default"))) CUresult symbol(void);                                            \
    CUresult symbol(void)                                                                                    \
    {                                                                                                        \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                     \
    }
#include "driver_raw.inc"
#undef ENTRY_RAW
