#ifndef CUDACKPT_TEST_DEVICE_H
#define CUDACKPT_TEST_DEVICE_H
/*
 * What the test programs do on the device: a context, the test kernels (kernels.ptx.h), memory with known
 * contents. All inline, so that a program that finds the driver by itself can use the types without being
 * linked with it.
 */

#include "cuda_abi.h"
#include "kernels.ptx.h"
#include "program.h"

/* The driver's functions, straight from the table of entry points. */
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) CUresult symbol parameters;
#include "driver_api.inc"
#undef ENTRY

/* cuInit and the primary context of device 0, current. */
static inline CUcontext device_start(void)
{
    CUcontext context;

    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

struct kernels {
    CUmodule module;
    CUfunction fill, check, increment, bump, read_const, spin_until, sleep_ns, copy_words;
    CUdeviceptr bad; /* what check counts in */
};

static inline CUfunction kernel_get(CUmodule module, const char *name)
{
    CUfunction function = NULL;

    program_expect_result(__FILE__, __LINE__, name, cuModuleGetFunction(&function, module, name),
                          CUDA_SUCCESS);
    return function;
}

static inline void kernels_load(struct kernels *kernels)
{
    CUmodule module;

    CHECK(cuModuleLoadData(&module, kernels_ptx));
    *kernels = (struct kernels){
        .module = module,
        .fill = kernel_get(module, "fill"),
        .check = kernel_get(module, "check"),
        .increment = kernel_get(module, "increment"),
        .bump = kernel_get(module, "bump"),
        .read_const = kernel_get(module, "read_const"),
        .spin_until = kernel_get(module, "spin_until"),
        .sleep_ns = kernel_get(module, "sleep_ns"),
        .copy_words = kernel_get(module, "copy_words"),
    };
    CHECK(cuMemAlloc_v2(&kernels->bad, sizeof(uint64_t)));
    CHECK(cuMemsetD32_v2(kernels->bad, 0, 2));
}

static inline void kernels_unload(struct kernels *kernels)
{
    CHECK(cuMemFree_v2(kernels->bad));
    CHECK(cuModuleUnload(kernels->module));
}

/* A launch with the addresses of the arguments: LAUNCH(f, grid, block, stream, &pointer, &count). */
#define LAUNCH(function, grid, block, stream, ...)                                                           \
    do {                                                                                                     \
        void *arguments_[] = {__VA_ARGS__};                                                                  \
        CHECK(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, arguments_, NULL));               \
    } while (0)
#define LAUNCH_PLAIN(function, stream)                                                                       \
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL))

static inline unsigned kernel_grid(uint64_t elements)
{
    uint64_t blocks = (elements + 255) / 256;

    return blocks < 1 ? 1 : blocks > 1024 ? 1024 : (unsigned)blocks;
}

static inline void words_fill(const struct kernels *kernels, CUdeviceptr words, uint64_t count, uint32_t seed,
                              CUstream stream)
{
    LAUNCH(kernels->fill, kernel_grid(count), 256, stream, &words, &count, &seed);
}

/* Adds to kernels->bad; words_checked tells. */
static inline void words_check(const struct kernels *kernels, CUdeviceptr words, uint64_t count,
                               uint32_t seed, CUstream stream)
{
    CUdeviceptr bad = kernels->bad;

    LAUNCH(kernels->check, kernel_grid(count), 256, stream, &words, &count, &seed, &bad);
}

/* Waits for all checks of the current context; what names them in the message. */
static inline void words_checked(const struct kernels *kernels, const char *what)
{
    uint64_t bad = 0;

    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&bad, kernels->bad, sizeof bad));
    if (bad)
        FAIL("%s: %llu elements differ", what, (unsigned long long)bad);
}

static inline uint32_t word_get(CUdeviceptr address)
{
    uint32_t value = 0xdeadbeef;

    CHECK(cuMemcpyDtoH_v2(&value, address, sizeof value));
    return value;
}

static inline void word_set(CUdeviceptr address, uint32_t value)
{
    CHECK(cuMemcpyHtoD_v2(address, &value, sizeof value));
}

static inline CUdeviceptr global_get(CUmodule module, const char *name, size_t size)
{
    CUdeviceptr address = 0;
    size_t found = 0;

    program_expect_result(__FILE__, __LINE__, name, cuModuleGetGlobal_v2(&address, &found, module, name),
                          CUDA_SUCCESS);
    EXPECT_EQ(found, size);
    return address;
}

static inline int device_attribute(CUdevice_attribute attribute)
{
    int value = 0;

    CHECK(cuDeviceGetAttribute(&value, attribute, 0));
    return value;
}

#endif
