/* Libraries: an image without a context; what it needs in a context is made at first use there. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"

CUresult library_module(struct thread *self, struct library *library, struct context *context,
                        struct module **out)
{
    struct module *module;
    CUresult result;

    list_each(node, &library->modules)
    {
        module = container_of(node, struct module, library_node);
        if (module->context == context) {
            *out = module;
            return CUDA_SUCCESS;
        }
    }
    result = module_new(self, context, library->image, library, &module);
    if (result != CUDA_SUCCESS)
        return result;
    for (uint32_t i = 0; i < library->image->entry_count; i++)
        module->functions[i].kernel = &library->kernels[i];
    list_insert(&library->modules, &module->library_node);
    *out = module;
    return CUDA_SUCCESS;
}

static void kernel_start(struct kernel *kernel, struct library *library, uint32_t index)
{
    kernel->kind = OBJECT_KERNEL;
    kernel->library = library;
    kernel->image = &library->image->functions[index];
    kernel->index = index;
    for (int i = 0; i < MAX_DEVICES; i++) {
        kernel->attributes[i][CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
        kernel->attributes[i][CU_FUNC_ATTRIBUTE_NUM_REGS] = 16;
        kernel->attributes[i][CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
        kernel->attributes[i][CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
        kernel->attributes[i][CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
        kernel->attributes[i][CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    }
}

static CUresult load(struct thread *self, CUlibrary *handle, const void *data)
{
    struct library *library;
    struct image *image;
    CUresult result;

    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = image_parse(data, &image);
    if (result != CUDA_SUCCESS)
        return result;
    library = handle_alloc(self, sizeof(*library));
    if (!library) {
        image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->kind = OBJECT_LIBRARY;
    library->image = image;
    library->kernels = calloc(image->entry_count + 1u, sizeof(*library->kernels));
    if (!library->kernels || object_add(library, OBJECT_LIBRARY)) {
        free(library->kernels);
        free(library);
        image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    list_init(&library->modules);
    for (uint32_t i = 0; i < image->entry_count; i++) {
        kernel_start(&library->kernels[i], library, i);
        object_add(&library->kernels[i], OBJECT_KERNEL);
    }
    list_insert(&fake.libraries, &library->node);
    *handle = (CUlibrary)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *handle, const void *data, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values,
                           unsigned int count)
{
    CALL(cuLibraryLoadData, NEEDS_INIT);
    return load(self, handle, data);
}

CUresult cuLibraryLoadFromFile(CUlibrary *handle, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count)
{
    CALL(cuLibraryLoadFromFile, NEEDS_INIT);
    char *data;
    CUresult result = read_file(path, &data);

    if (result != CUDA_SUCCESS)
        return result;
    result = load(self, handle, data);
    free(data);
    return result;
}

CUresult cuLibraryUnload(CUlibrary handle)
{
    CALL(cuLibraryUnload, NEEDS_INIT);
    struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < fake.device_count; i++)
        device_wait(&fake.devices[i]);
    list_each(node, &library->modules) module_delete(container_of(node, struct module, library_node));
    for (uint32_t i = 0; i < library->image->entry_count; i++)
        object_remove(&library->kernels[i]);
    object_remove(library);
    list_remove(&library->node);
    image_free(library->image);
    free(library->kernels);
    free(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name)
{
    CALL(cuLibraryGetKernel, NEEDS_INIT);
    struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!kernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (uint32_t i = 0; i < library->image->entry_count; i++) {
        if (!strcmp(library->kernels[i].image->name, name)) {
            *kernel = (CUkernel)&library->kernels[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    CALL(cuLibraryGetKernelCount, NEEDS_INIT);
    const struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = library->image->entry_count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary handle)
{
    CALL(cuLibraryEnumerateKernels, NEEDS_INIT);
    struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned int i = 0; i < count && i < library->image->entry_count; i++)
        kernels[i] = (CUkernel)&library->kernels[i];
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *handle, CUlibrary library_handle)
{
    CALL(cuLibraryGetModule, NEEDS_CONTEXT);
    struct library *library = object_find(library_handle, OBJECT_LIBRARY);
    struct module *module;
    CUresult result;

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    result = library_module(self, library, context, &module);
    if (result == CUDA_SUCCESS)
        *handle = (CUmodule)module;
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary handle, const char *name)
{
    CALL(cuLibraryGetGlobal, NEEDS_CONTEXT);
    struct library *library = object_find(handle, OBJECT_LIBRARY);
    struct variable *variable;
    struct module *module;
    CUresult result;

    if (!name || (!address && !size))
        return CUDA_ERROR_INVALID_VALUE;
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    result = library_module(self, library, context, &module);
    if (result != CUDA_SUCCESS)
        return result;
    variable = module_find_variable(module, name);
    if (!variable)
        return CUDA_ERROR_NOT_FOUND;
    result = module_load_variables(module);
    if (result != CUDA_SUCCESS)
        return result;
    if (address)
        *address = variable->address;
    if (size)
        *size = variable->image->size;
    return CUDA_SUCCESS;
}
