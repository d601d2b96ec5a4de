#ifndef CUDACKPT_TEST_FOUND_H
#define CUDACKPT_TEST_FOUND_H
/*
 * A small program on driver functions that were found at run time: what programs do that are not linked with
 * the driver. How they are found is what the programs differ in.
 */

#include "device.h"

/* base name, exported symbol, CUDA version of that symbol */
#define FOUND_FUNCTIONS(X)                                                                                   \
    X(cuInit, cuInit, 2000)                                                                                  \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                                              \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)                                        \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                                                \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000)                                                              \
    X(cuModuleLoadData, cuModuleLoadData, 2000)                                                              \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000)                                                        \
    X(cuMemAlloc, cuMemAlloc_v2, 3020)                                                                       \
    X(cuMemFree, cuMemFree_v2, 3020)                                                                         \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020)                                                                  \
    X(cuMemFreeHost, cuMemFreeHost, 2000)                                                                    \
    X(cuStreamCreate, cuStreamCreate, 2000)                                                                  \
    X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                                             \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000)                                                        \
    X(cuEventCreate, cuEventCreate, 2000)                                                                    \
    X(cuEventDestroy, cuEventDestroy_v2, 4000)                                                               \
    X(cuEventRecord, cuEventRecord, 2000)                                                                    \
    X(cuEventSynchronize, cuEventSynchronize, 2000)                                                          \
    X(cuLaunchKernel, cuLaunchKernel, 4000)                                                                  \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020)                                                                   \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020)

struct found {
#define FOUND_MEMBER(base, symbol, version) __typeof__(symbol) *base;
    FOUND_FUNCTIONS(FOUND_MEMBER)
#undef FOUND_MEMBER
};

struct found_state {
    CUcontext context;
    CUmodule module;
    CUfunction increment;
    CUstream stream;
    CUevent event;
    CUdeviceptr word;
    uint32_t *pinned;
    uint32_t count;
};

static inline void found_set_up(const struct found *f, struct found_state *s)
{
    uint32_t zero = 0;

    CHECK(f->cuInit(0));
    CHECK(f->cuDevicePrimaryCtxRetain(&s->context, 0));
    CHECK(f->cuCtxSetCurrent(s->context));
    CHECK(f->cuModuleLoadData(&s->module, kernels_ptx));
    CHECK(f->cuModuleGetFunction(&s->increment, s->module, "increment"));
    CHECK(f->cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    CHECK(f->cuEventCreate(&s->event, CU_EVENT_DEFAULT));
    CHECK(f->cuMemAlloc(&s->word, 4));
    CHECK(f->cuMemcpyHtoD(s->word, &zero, 4));
    CHECK(f->cuMemHostAlloc((void **)&s->pinned, 4, 0));
    *s->pinned = 0;
}

/* One increment of device memory, one of pinned memory. */
static inline void found_round(const struct found *f, struct found_state *s)
{
    uint32_t one = 1;
    void *arguments[] = {&s->word, &one}, *pinned_arguments[] = {&s->pinned, &one};

    CHECK(f->cuLaunchKernel(s->increment, 1, 1, 1, 1, 1, 1, 0, s->stream, arguments, NULL));
    CHECK(f->cuLaunchKernel(s->increment, 1, 1, 1, 1, 1, 1, 0, s->stream, pinned_arguments, NULL));
    CHECK(f->cuEventRecord(s->event, s->stream));
    CHECK(f->cuEventSynchronize(s->event));
    s->count++;
}

static inline void found_check(const struct found *f, const struct found_state *s)
{
    uint32_t value;

    CHECK(f->cuStreamSynchronize(s->stream));
    CHECK(f->cuMemcpyDtoH(&value, s->word, 4));
    EXPECT_EQ(value, s->count);
    EXPECT_EQ(*s->pinned, s->count);
}

static inline void found_tear_down(const struct found *f, struct found_state *s)
{
    CHECK(f->cuMemFreeHost(s->pinned));
    CHECK(f->cuMemFree(s->word));
    CHECK(f->cuEventDestroy(s->event));
    CHECK(f->cuStreamDestroy(s->stream));
    CHECK(f->cuDevicePrimaryCtxRelease(0));
}

#endif
