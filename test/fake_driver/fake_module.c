/* Modules: variables have their place from the start, code from its first launch on. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

enum { VARIABLE_ALIGNMENT = 256, CODE_ALIGNMENT = 128, DEVICE_FUNCTION_SIZE = 128 };

/* ---- variables */

static CUresult variable_load(struct module *module, struct variable *variable)
{
    struct context *context = module->context;
    uint64_t size = variable->image->size;
    uint64_t alignment =
        variable->image->alignment > VARIABLE_ALIGNMENT ? variable->image->alignment : VARIABLE_ALIGNMENT;
    struct block *block = calloc(1, sizeof(*block));
    CUresult result;

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = arena_alloc(&context->internal, size, alignment, &variable->address);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    *block = (struct block){
        .range = {variable->address, size},
        .kind = BLOCK_VARIABLE,
        .context = context,
        .device = context->device,
        .id = fake.next_block_id++,
    };
    if (range_insert(&fake.blocks, &block->range)) {
        arena_free(&context->internal, variable->address, size);
        variable->address = 0;
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (variable->image->initial)
        memcpy((void *)(uintptr_t)variable->address, variable->image->initial, size);
    else
        memset((void *)(uintptr_t)variable->address, 0, size);
    return CUDA_SUCCESS;
}

static void variable_unload(struct module *module, struct variable *variable)
{
    struct range *range = range_find(&fake.blocks, variable->address);

    if (!variable->address || !range)
        return;
    range_remove(&fake.blocks, range);
    free(range);
    arena_free(&module->context->internal, variable->address, variable->image->size);
    variable->address = 0;
}

CUresult module_load_variables(struct module *module)
{
    for (uint32_t i = 0; i < module->image->variable_count; i++) {
        CUresult result =
            module->variables[i].address ? CUDA_SUCCESS : variable_load(module, &module->variables[i]);

        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

struct variable *module_find_variable(struct module *module, const char *name)
{
    for (uint32_t i = 0; i < module->image->variable_count; i++) {
        if (!strcmp(module->variables[i].image->name, name))
            return &module->variables[i];
    }
    return NULL;
}

/* ---- code */

static struct function *module_find_function(struct module *module, const char *name)
{
    for (uint32_t i = 0; i < module->image->entry_count; i++) {
        if (!strcmp(module->functions[i].image->name, name))
            return &module->functions[i];
    }
    return NULL;
}

uint64_t module_device_function(const struct module *module, const char *name)
{
    const struct image *image = module->image;

    for (uint32_t i = image->entry_count; module->device_code && i < image->function_count; i++) {
        if (!strcmp(image->functions[i].name, name))
            return module->device_code + (i - image->entry_count) * DEVICE_FUNCTION_SIZE;
    }
    return 0;
}

static uint64_t code_size(const struct image_function *function)
{
    return 512 + 256 * (strlen(function->name) % 5) + 16 * function->parameter_count;
}

/* The functions that others call come with the first of them. */
static CUresult load_device_functions(struct module *module)
{
    uint64_t count = module->image->function_count - module->image->entry_count;
    CUresult result;

    if (!count || module->device_code)
        return CUDA_SUCCESS;
    result = arena_alloc(&module->context->internal, count * DEVICE_FUNCTION_SIZE, CODE_ALIGNMENT,
                         &module->device_code);
    if (result == CUDA_SUCCESS)
        module->device_code_size = count * DEVICE_FUNCTION_SIZE;
    return result;
}

CUresult function_load(struct function *function)
{
    struct module *module = function->module;
    CUresult result;

    if (function->code)
        return CUDA_SUCCESS;
    result = module_load_variables(module);
    if (result == CUDA_SUCCESS)
        result = load_device_functions(module);
    if (result != CUDA_SUCCESS)
        return result;
    function->code_size = code_size(function->image);
    result = arena_alloc(&module->context->internal, function->code_size, CODE_ALIGNMENT, &function->code);
    if (result == CUDA_SUCCESS)
        memset((void *)(uintptr_t)function->code, 0xc0, function->code_size);
    return result;
}

static void function_start(struct function *function, struct module *module,
                           const struct image_function *image)
{
    *function = (struct function){.kind = OBJECT_FUNCTION, .module = module, .image = image};
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 16;
    function->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
    function->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    function->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

/* ---- modules */

CUresult module_new(struct thread *self, struct context *context, struct image *image,
                    struct library *library, struct module **out)
{
    struct module *module = handle_alloc(self, sizeof(*module));

    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->kind = OBJECT_MODULE;
    module->context = context;
    module->image = image;
    module->library = library;
    module->functions = calloc(image->entry_count + 1u, sizeof(*module->functions));
    module->variables = calloc(image->variable_count + 1u, sizeof(*module->variables));
    if (!module->functions || !module->variables || object_add(module, OBJECT_MODULE)) {
        free(module->functions);
        free(module->variables);
        free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < image->entry_count; i++) {
        function_start(&module->functions[i], module, &image->functions[i]);
        object_add(&module->functions[i], OBJECT_FUNCTION);
    }
    for (uint32_t i = 0; i < image->variable_count; i++)
        module->variables[i].image = &image->variables[i];
    list_init(&module->library_node);
    list_insert(&context->modules, &module->node);
    *out = module;
    return CUDA_SUCCESS;
}

void module_delete(struct module *module)
{
    struct arena *arena = &module->context->internal;

    for (uint32_t i = 0; i < module->image->entry_count; i++) {
        struct function *function = &module->functions[i];

        object_remove(function);
        if (function->code)
            arena_free(arena, function->code, function->code_size);
    }
    for (uint32_t i = 0; i < module->image->variable_count; i++)
        variable_unload(module, &module->variables[i]);
    if (module->device_code)
        arena_free(arena, module->device_code, module->device_code_size);
    object_remove(module);
    list_remove(&module->node);
    list_remove(&module->library_node);
    if (!module->library)
        image_free(module->image);
    free(module->functions);
    free(module->variables);
    free(module);
}

CUresult read_file(const char *path, char **data)
{
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    ssize_t got = text ? pread(file, text, (size_t)size, 0) : -1;

    if (file >= 0)
        close(file);
    if (got != size || got < 0) {
        free(text);
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    text[size] = 0;
    *data = text;
    return CUDA_SUCCESS;
}

/* ---- entry points */

static CUresult load(struct thread *self, struct context *context, CUmodule *handle, const void *data)
{
    struct image *image;
    struct module *module;
    CUresult result;

    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_check(self);
    if (result == CUDA_SUCCESS)
        result = image_parse(data, &image);
    if (result != CUDA_SUCCESS)
        return result;
    result = module_new(self, context, image, NULL, &module);
    if (result != CUDA_SUCCESS) {
        image_free(image);
        return result;
    }
    result = module_load_variables(module);
    if (result != CUDA_SUCCESS) {
        module_delete(module);
        return result;
    }
    *handle = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *handle, const void *data)
{
    CALL(cuModuleLoadData, NEEDS_CONTEXT);
    return load(self, context, handle, data);
}

CUresult cuModuleLoadDataEx(CUmodule *handle, const void *data, unsigned int count, CUjit_option *options,
                            void **values)
{
    CALL(cuModuleLoadDataEx, NEEDS_CONTEXT);
    for (unsigned int i = 0; i < count; i++) {
        /* Nothing to say: an empty log. Its size is written to the array of values itself. */
        if ((options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER) && values[i])
            *(char *)values[i] = 0;
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[i] = NULL;
    }
    return load(self, context, handle, data);
}

CUresult cuModuleLoadFatBinary(CUmodule *handle, const void *data)
{
    CALL(cuModuleLoadFatBinary, NEEDS_CONTEXT);
    return load(self, context, handle, data);
}

CUresult cuModuleLoad(CUmodule *handle, const char *path)
{
    CALL(cuModuleLoad, NEEDS_CONTEXT);
    char *data;
    CUresult result = read_file(path, &data);

    if (result != CUDA_SUCCESS)
        return result;
    result = load(self, context, handle, data);
    free(data);
    return result;
}

CUresult cuModuleUnload(CUmodule handle)
{
    CALL(cuModuleUnload, NEEDS_CONTEXT);
    struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module || module->library)
        return CUDA_ERROR_INVALID_HANDLE;
    context_wait(module->context);
    module_delete(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name)
{
    CALL(cuModuleGetFunction, NEEDS_CONTEXT);
    struct module *module = object_find(module_handle, OBJECT_MODULE);
    struct function *function;

    if (!handle || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    function = module_find_function(module, name);
    if (!function)
        return CUDA_ERROR_NOT_FOUND;
    *handle = (CUfunction)function;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule handle, const char *name)
{
    CALL(cuModuleGetGlobal_v2, NEEDS_CONTEXT);
    struct module *module = object_find(handle, OBJECT_MODULE);
    struct variable *variable;
    CUresult result;

    if (!name || (!address && !size))
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
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

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
    CALL(cuModuleGetFunctionCount, NEEDS_CONTEXT);
    const struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = module->image->entry_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule handle)
{
    CALL(cuModuleEnumerateFunctions, NEEDS_CONTEXT);
    struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned int i = 0; i < count && i < module->image->entry_count; i++)
        functions[i] = (CUfunction)&module->functions[i];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    CALL(cuModuleGetLoadingMode, NEEDS_INIT);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}
