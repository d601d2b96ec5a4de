/* Functions: how they are found, what they need, and launches. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"

enum { SHARED_MAX = 232448, THREADS_MAX = 1024, PARAMETERS_MAX = 32764 };

CUresult function_find(struct thread *self, struct context *context, CUfunction handle, struct function **out)
{
    struct function *function = object_find(handle, OBJECT_FUNCTION);
    struct kernel *kernel = object_find(handle, OBJECT_KERNEL);
    struct module *module;
    CUresult result;

    if (!function && !kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!function) {
        result = library_module(self, kernel->library, context, &module);
        if (result != CUDA_SUCCESS)
            return result;
        function = &module->functions[kernel->index];
    }
    *out = function;
    return CUDA_SUCCESS;
}

static bool may_set(CUfunction_attribute attribute)
{
    return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
           attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
           (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
            attribute <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
}

static CUresult attribute_check(CUfunction_attribute attribute, int value)
{
    if (attribute < 0 || attribute >= FUNCTION_ATTRIBUTES || !may_set(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && (value < 0 || value > SHARED_MAX))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && (value < -1 || value > 100))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* What was set for its kernel counts unless it was set for the function itself. */
static CUresult function_attribute(const struct function *function, CUfunction_attribute attribute,
                                   int *value)
{
    const struct kernel *kernel = function->kernel;
    int device = function->module->context->device->ordinal;

    if (!value || attribute < 0 || attribute >= FUNCTION_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    *value = function->attributes[attribute];
    if (!function->attribute_set[attribute] && kernel && kernel->attribute_set[device][attribute])
        *value = kernel->attributes[device][attribute];
    return CUDA_SUCCESS;
}

/* ---- launches */

CUresult kernel_work_parameters(struct kernel_work *kernel, void **parameters, void **extra)
{
    const struct image_function *image = kernel->function->image;
    const void *buffer = NULL;
    size_t size = 0;

    kernel->parameters_size = image->parameters_size;
    kernel->parameters = calloc(1, image->parameters_size + 1u);
    if (!kernel->parameters)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; !parameters && extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(const size_t *)extra[i + 1];
    }
    if (buffer) {
        memcpy(kernel->parameters, buffer, size < image->parameters_size ? size : image->parameters_size);
        return CUDA_SUCCESS;
    }
    if (!parameters && image->parameter_count) {
        free(kernel->parameters);
        kernel->parameters = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < image->parameter_count; i++)
        memcpy(kernel->parameters + image->parameters[i].offset, parameters[i], image->parameters[i].size);
    return CUDA_SUCCESS;
}

CUresult kernel_work_check(const struct kernel_work *kernel)
{
    uint64_t threads = (uint64_t)kernel->block[0] * kernel->block[1] * kernel->block[2];
    uint64_t blocks = (uint64_t)kernel->grid[0] * kernel->grid[1] * kernel->grid[2];
    int shared;

    if (!threads || !blocks || threads > THREADS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    function_attribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &shared);
    if (kernel->shared > (uint32_t)shared)
        return CUDA_ERROR_INVALID_VALUE;
    return kernel_twin_find(kernel->function->image->name) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult launch(struct thread *self, struct stream *stream, CUfunction handle, const uint32_t grid[3],
                       const uint32_t block[3], uint32_t shared, bool cooperative, void **parameters,
                       void **extra)
{
    struct work work = {.kind = WORK_KERNEL,
                        .kernel = {.handle = handle, .shared = shared, .cooperative = cooperative}};
    CUresult result = function_find(self, stream->context, handle, &work.kernel.function);

    if (result != CUDA_SUCCESS)
        return result;
    if (work.kernel.function->module->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    memcpy(work.kernel.grid, grid, sizeof(work.kernel.grid));
    memcpy(work.kernel.block, block, sizeof(work.kernel.block));
    result = kernel_work_check(&work.kernel);
    if (result == CUDA_SUCCESS)
        result = function_load(work.kernel.function);
    if (result == CUDA_SUCCESS)
        result = kernel_work_parameters(&work.kernel, parameters, extra);
    return result == CUDA_SUCCESS ? stream_submit(stream, &work) : result;
}

#define GRID  unsigned int grid_x, unsigned int grid_y, unsigned int grid_z
#define BLOCK unsigned int block_x, unsigned int block_y, unsigned int block_z
#define SHAPE                                                                                                \
    (const uint32_t[3]){grid_x, grid_y, grid_z}, (const uint32_t[3])                                         \
    {                                                                                                        \
        block_x, block_y, block_z                                                                            \
    }

BOTH(cuLaunchKernel, launch,
     (CUfunction function, GRID, BLOCK, unsigned int shared, CUstream handle, void **parameters,
      void **extra),
     (self, stream, function, SHAPE, shared, false, parameters, extra))
BOTH(cuLaunchCooperativeKernel, launch,
     (CUfunction function, GRID, BLOCK, unsigned int shared, CUstream handle, void **parameters),
     (self, stream, function, SHAPE, shared, true, parameters, NULL))

static CUresult launch_ex(struct thread *self, struct context *context, const CUlaunchConfig *config,
                          CUstream handle, CUfunction function, void **parameters, void **extra)
{
    struct stream *stream = stream_find(self, context, handle);
    bool cooperative = false;

    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            cooperative = config->attrs[i].value.cooperative;
    }
    return launch(self, stream, function,
                  (const uint32_t[3]){config->gridDimX, config->gridDimY, config->gridDimZ},
                  (const uint32_t[3]){config->blockDimX, config->blockDimY, config->blockDimZ},
                  config->sharedMemBytes, cooperative, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    CALL(cuLaunchKernelEx, NEEDS_CONTEXT);
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return launch_ex(self, context, config, config->hStream, function, parameters, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters,
                               void **extra)
{
    CALL(cuLaunchKernelEx_ptsz, NEEDS_CONTEXT);
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return launch_ex(self, context, config, per_thread(config->hStream), function, parameters, extra);
}

/* ---- what functions tell about themselves */

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    CALL(cuFuncGetAttribute, NEEDS_CONTEXT);
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);

    return result == CUDA_SUCCESS ? function_attribute(function, attribute, value) : result;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    CALL(cuFuncSetAttribute, NEEDS_CONTEXT);
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);

    if (result == CUDA_SUCCESS)
        result = attribute_check(attribute, value);
    if (result != CUDA_SUCCESS)
        return result;
    function->attributes[attribute] = value;
    function->attribute_set[attribute] = true;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
    CALL(cuFuncSetCacheConfig, NEEDS_CONTEXT);
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);

    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        function->cache_config = config;
    return result;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    CALL(cuFuncGetModule, NEEDS_CONTEXT);
    const struct function *function = object_find(handle, OBJECT_FUNCTION);

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    *module = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    CALL(cuFuncGetName, NEEDS_CONTEXT);
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);

    if (result == CUDA_SUCCESS)
        *name = function->image->name;
    return result;
}

static CUresult parameter_info(const struct image_function *image, size_t index, size_t *offset, size_t *size)
{
    if (!offset || index >= image->parameter_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = image->parameters[index].offset;
    if (size)
        *size = image->parameters[index].size;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
    CALL(cuFuncGetParamInfo, NEEDS_CONTEXT);
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);

    return result == CUDA_SUCCESS ? parameter_info(function->image, index, offset, size) : result;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    CALL(cuFuncIsLoaded, NEEDS_CONTEXT);
    const struct function *function = object_find(handle, OBJECT_FUNCTION);

    if (!function || !state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = function->code != 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle)
{
    CALL(cuFuncLoad, NEEDS_CONTEXT);
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);

    return result == CUDA_SUCCESS ? function_load(function) : result;
}

/* ---- occupancy: one simple rule */

static CUresult occupancy(struct thread *self, struct context *context, int *blocks, CUfunction handle,
                          int block_size, size_t shared)
{
    struct function *function;
    CUresult result = function_find(self, context, handle, &function);
    uint64_t by_threads, by_shared;

    if (result != CUDA_SUCCESS)
        return result;
    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    by_threads = block_size > THREADS_MAX ? 0 : 2048u / (unsigned int)block_size;
    by_shared = (uint64_t)SHARED_MAX / (shared + 1024);
    *blocks = (int)(by_threads < by_shared ? by_threads : by_shared);
    if (*blocks > 32)
        *blocks = 32;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t shared)
{
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, NEEDS_CONTEXT);
    return occupancy(self, context, blocks, function, block_size, shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_size, size_t shared,
                                                              unsigned int flags)
{
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, NEEDS_CONTEXT);
    return occupancy(self, context, blocks, function, block_size, shared);
}

/* ---- the same of kernels */

CUresult cuKernelGetFunction(CUfunction *function, CUkernel handle)
{
    CALL(cuKernelGetFunction, NEEDS_CONTEXT);
    struct function *found;
    CUresult result;

    if (!function || !object_find(handle, OBJECT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    result = function_find(self, context, (CUfunction)handle, &found);
    if (result == CUDA_SUCCESS)
        *function = (CUfunction)found;
    return result;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice device)
{
    CALL(cuKernelGetAttribute, NEEDS_INIT);
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || attribute < 0 || attribute >= FUNCTION_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    *value = kernel->attributes[device][attribute];
    return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device)
{
    CALL(cuKernelSetAttribute, NEEDS_INIT);
    struct kernel *kernel = object_find(handle, OBJECT_KERNEL);
    CUresult result;

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    result = attribute_check(attribute, value);
    if (result != CUDA_SUCCESS)
        return result;
    kernel->attributes[device][attribute] = value;
    kernel->attribute_set[device][attribute] = true;
    return CUDA_SUCCESS;
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device)
{
    CALL(cuKernelSetCacheConfig, NEEDS_INIT);
    struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    kernel->cache_config[device] = config;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel handle)
{
    CALL(cuKernelGetName, NEEDS_INIT);
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel->image->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
    CALL(cuKernelGetParamInfo, NEEDS_INIT);
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    return kernel ? parameter_info(kernel->image, index, offset, size) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel handle)
{
    CALL(cuKernelGetLibrary, NEEDS_INIT);
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *library = (CUlibrary)kernel->library;
    return CUDA_SUCCESS;
}
