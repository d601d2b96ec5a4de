/*
 * Functions and kernels: settings, and loading. The first launch of one in a context loads its code there (lazy loading);
 * the order of loading decides device addresses, so each first launch is a record, replayed as cuFuncLoad.
 */
#include "kind_code.h"

#include <pthread.h>
#include <stdlib.h>

#include "driver_api.h"
#include "kinds.h"
#include "tracked.h"
#include "unsaveable.h"
#include "used_set.h"

struct first_use {
    struct record record;
    CUfunction function; /* or a kernel's handle */
};

/* Launches take a kernel's handle as well; cuFuncLoad does not. */
static bool is_kernel(const struct record *use, CUfunction function)
{
    return use->owner ? use->owner->kind == &kernel_kind : !journal_find(&function_kind, (uint64_t)function);
}

static CUresult load(CUfunction function, bool of_kernel)
{
    CUfunction in_context;

    if (of_kernel && driver.cuKernelGetFunction(&in_context, (CUkernel)function) == CUDA_SUCCESS)
        function = in_context;
    return driver.cuFuncLoad(function);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    const struct first_use *one = container_of(record, struct first_use, record);
    CUfunction function = (CUfunction)journal_object(record, (uint64_t)one->function);
    CUresult result = load(function, is_kernel(record, function));

    *handle = record->handle;
    /* A driver before 12.4 has no cuFuncLoad, and no other way to load without a launch. */
    return result == CUDA_ERROR_NOT_FOUND && !driver_api_has(ROW_cuFuncLoad) ? CUDA_SUCCESS : result;
}

static const struct record_kind first_use_kind = {.name = "loaded function", .replay = replay, .order_matters = true};

/* A function is loaded into each context that a kernel's handle is launched in. */
static uint64_t use_key(CUfunction function)
{
    return used_set_key((uint64_t)function, (uint64_t)context_current());
}

static struct record *find_code(CUfunction function)
{
    struct record *record = journal_find(&function_kind, (uint64_t)function);

    return record ? record : journal_find(&kernel_kind, (uint64_t)function);
}

/* function -> kernel -> library, or function -> module, or kernel -> library */
static void mark_library(struct record *record)
{
    for (; record; record = record->owner)
        if (record->kind == &library_kind)
            library_used(record);
}

static void keep_first_use(CUfunction function)
{
    uint64_t key = use_key(function);
    struct record *code = find_code(function);
    struct first_use *one = journal_record_new(&first_use_kind, sizeof *one);

    if (one)
        one->function = function;
    journal_commit(one ? &one->record : NULL, key, code); /* another thread's first launch at the same time: merged */
    if (used_set_add(key))
        unsaveable_note("no memory to note the launch of a function");
    mark_library(code);
}

/*
 * Every launch passes here. The set is read without a lock; a function that is not in it yet is launched with its
 * placement noted.
 */
#define LAUNCH(function, call)                                                                               \
    CUresult result_;                                                                                        \
    if (__builtin_expect(used_set_has(use_key(function)), 1))                                                \
        return call;                                                                                         \
    journal_note();                                                                                          \
    result_ = call;                                                                                          \
    if (result_ != CUDA_SUCCESS)                                                                             \
        return journal_discard(result_);                                                                     \
    keep_first_use(function);                                                                                \
    return result_

CUresult track_cuLaunch(CUfunction f)
{
    LAUNCH(f, driver.cuLaunch(f));
}

CUresult track_cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    LAUNCH(f, driver.cuLaunchGrid(f, grid_width, grid_height));
}

CUresult track_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    LAUNCH(f, driver.cuLaunchGridAsync(f, grid_width, grid_height, hStream));
}

#define GRID_PARAMETERS                                                                                      \
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,            \
        unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream
#define GRID_ARGUMENTS gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream

CUresult track_cuLaunchKernel(CUfunction f, GRID_PARAMETERS, void **kernelParams, void **extra)
{
    LAUNCH(f, driver.cuLaunchKernel(f, GRID_ARGUMENTS, kernelParams, extra));
}

CUresult track_cuLaunchKernel_ptsz(CUfunction f, GRID_PARAMETERS, void **kernelParams, void **extra)
{
    LAUNCH(f, driver.cuLaunchKernel_ptsz(f, GRID_ARGUMENTS, kernelParams, extra));
}

CUresult track_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    LAUNCH(f, driver.cuLaunchKernelEx(config, f, kernelParams, extra));
}

CUresult track_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    LAUNCH(f, driver.cuLaunchKernelEx_ptsz(config, f, kernelParams, extra));
}

CUresult track_cuLaunchCooperativeKernel(CUfunction f, GRID_PARAMETERS, void **kernelParams)
{
    LAUNCH(f, driver.cuLaunchCooperativeKernel(f, GRID_ARGUMENTS, kernelParams));
}

CUresult track_cuLaunchCooperativeKernel_ptsz(CUfunction f, GRID_PARAMETERS, void **kernelParams)
{
    LAUNCH(f, driver.cuLaunchCooperativeKernel_ptsz(f, GRID_ARGUMENTS, kernelParams));
}

CUresult track_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
                                                    unsigned int flags)
{
    CUresult result = driver.cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);

    /* Each function of the list loads in a context that is not the current one. */
    if (result == CUDA_SUCCESS)
        unsaveable_note("cuLaunchCooperativeKernelMultiDevice is not supported");
    return result;
}

CUresult track_cuFuncLoad(CUfunction function)
{
    LAUNCH(function, driver.cuFuncLoad(function));
}

/* ---- for graphs: their kernels are loaded when a graph is instantiated */

void function_used(CUfunction function)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (used_set_has(use_key(function)))
        return;
    /* Loading waits for the device, which another thread's capture could forbid. */
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    journal_note();
    if (load(function, !journal_find(&function_kind, (uint64_t)function)) == CUDA_SUCCESS)
        keep_first_use(function);
    else
        journal_discard(CUDA_SUCCESS); /* the instantiation says what is wrong */
    driver.cuThreadExchangeStreamCaptureMode(&mode);
}

bool function_is_known(CUfunction function)
{
    return find_code(function);
}

struct search {
    CUfunction function;
    CUkernel kernel;
};

static int is_kernel_of(struct record *record, void *arg)
{
    struct search *search = arg;
    CUfunction function;

    /* Only what was launched has a function already: the question must not make one. */
    if (used_set_has(use_key((CUfunction)record->handle)) &&
        driver.cuKernelGetFunction(&function, (CUkernel)record->handle) == CUDA_SUCCESS && function == search->function)
        search->kernel = (CUkernel)record->handle;
    return search->kernel != NULL;
}

CUkernel kernel_of_function(CUfunction function)
{
    struct search search = {.function = function};

    journal_each(&kernel_kind, is_kernel_of, &search);
    return search.kernel;
}

/* ---- when code goes: a new function may get the same handle */

static void forget(struct record *record)
{
    if (record->kind == &first_use_kind)
        used_set_remove(record->handle);
    list_each(node, &record->owned)
        forget(container_of(node, struct record, owner_node));
}

void function_forget_owned(struct record *record)
{
    if (record)
        forget(record);
}

/* ---- settings */

CUresult track_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    return setting(SETTING_FUNCTION_ATTRIBUTE, find_code(hfunc), (uint64_t)hfunc, (uint64_t)attrib,
                   (uint64_t)value);
}

CUresult track_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    return setting(SETTING_FUNCTION_CACHE, find_code(hfunc), (uint64_t)hfunc, (uint64_t)config);
}

CUresult track_cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    return setting(SETTING_FUNCTION_SHARED_MEMORY, find_code(hfunc), (uint64_t)hfunc, (uint64_t)config);
}

CUresult track_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    return setting(SETTING_FUNCTION_BLOCK_SHAPE, find_code(hfunc), (uint64_t)hfunc, (uint64_t)x, (uint64_t)y,
                   (uint64_t)z);
}

CUresult track_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    return setting(SETTING_FUNCTION_SHARED_SIZE, find_code(hfunc), (uint64_t)hfunc, bytes);
}

CUresult track_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    return setting(SETTING_KERNEL_ATTRIBUTE, find_code((CUfunction)kernel), (uint64_t)attrib, (uint64_t)val,
                   (uint64_t)kernel, (uint64_t)dev);
}

CUresult track_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    return setting(SETTING_KERNEL_CACHE, find_code((CUfunction)kernel), (uint64_t)kernel, (uint64_t)config,
                   (uint64_t)dev);
}
