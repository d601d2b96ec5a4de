#ifndef CUDACKPT_TEST_BENCH_H
#define CUDACKPT_TEST_BENCH_H
/* What the benchmarks' programs share: the driver's functions, and an end of the process at the first that fails. */

#include "cuda_abi.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels.ptx.h"

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) CUresult symbol parameters;
#include "driver_api.inc"
#undef ENTRY

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        CUresult result_ = (call);                                                                           \
        if (result_ != CUDA_SUCCESS) {                                                                       \
            fprintf(stderr, "%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, (int)result_);                \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The primary context of device 0, current, with the test kernels. */
static inline CUmodule bench_start(CUcontext *context)
{
    CUmodule module;

    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(context, 0));
    MUST(cuCtxSetCurrent(*context));
    MUST(cuModuleLoadData(&module, kernels_ptx));
    return module;
}

#endif
