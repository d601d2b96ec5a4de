/* Images and options of modules and libraries. */
#include "kind_code.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "unsaveable.h"

/*
 * Images that nvcc puts into programs and shared libraries (cuBLAS: hundreds of MiB) stay where they are as long as the
 * module is loaded: they are not copied. Others may be freed as soon as the driver has loaded them.
 */
static bool lies_in_object(const void *image)
{
    Dl_info info;

    return dladdr(image, &info) != 0;
}

void code_keep(struct code *code, const void *image)
{
    struct error err = {0};

    if (lies_in_object(image)) {
        code->image.data = (void *)image;
        code->in_place = true;
    } else if (image_copy(image, &code->image, &err)) {
        unsaveable_note("a module's image can't be kept: %s", err.text);
    }
}

void code_release(struct code *code)
{
    for (size_t i = 0; i < code->variable_count; i++)
        free(code->variables[i]);
    free(code->variables);
    if (!code->in_place)
        image_free(&code->image);
}

struct names {
    struct code *code;
    size_t capacity;
    bool failed;
};

static void add_name(const char *name, void *arg)
{
    struct names *names = arg;
    struct code *code = names->code;

    if (code->variable_count == names->capacity) {
        size_t capacity = names->capacity * 2;
        char **grown = realloc(code->variables, capacity * sizeof *grown);

        if (!grown) {
            names->failed = true;
            return;
        }
        code->variables = grown;
        names->capacity = capacity;
    }
    code->variables[code->variable_count] = strdup(name);
    if (code->variables[code->variable_count])
        code->variable_count++;
    else
        names->failed = true;
}

static int read_names(const struct code *code, struct names *names, struct error *err)
{
    struct image copy;
    int result;

    if (!code->in_place)
        return image_each_variable(&code->image, add_name, names, err);
    if (image_copy(code->image.data, &copy, err))
        return -1;
    result = image_each_variable(&copy, add_name, names, err);
    image_free(&copy);
    return result;
}

int code_find_variables(struct code *code, struct error *err)
{
    struct names names = {.code = code, .capacity = 8};

    if (code->variables)
        return 0;
    if (!code->image.data) {
        error_set(err, ERROR_UNSAVEABLE, "a module's image was not kept");
        return -1;
    }
    code->variables = malloc(names.capacity * sizeof *code->variables);
    if (!code->variables) {
        error_set(err, ERROR_MEMORY, "no memory for the names of a module's variables");
        return -1;
    }
    if (read_names(code, &names, err) == 0 && !names.failed)
        return 0;
    error_set(err, ERROR_MEMORY, "no memory for the names of a module's variables");
    for (size_t i = 0; i < code->variable_count; i++)
        free(code->variables[i]);
    free(code->variables);
    code->variables = NULL;
    code->variable_count = 0;
    return -1;
}

/* ---- JIT options: kept without those that make the driver write into the caller's memory, gone by the replay */

static bool option_is_output(CUjit_option option)
{
    switch (option) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        return true;
    default:
        return false;
    }
}

static bool option_is_pointer(CUjit_option option)
{
    return option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES;
}

void jit_options_keep(struct jit_options *kept, unsigned count, const CUjit_option *options, void *const *values)
{
    if (!count || !options)
        return;
    kept->options = malloc(count * sizeof *options);
    kept->values = malloc(count * sizeof *values);
    if (!kept->options || !kept->values) {
        unsaveable_note("no memory to note the options of a module");
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        if (option_is_pointer(options[i]))
            unsaveable_note("cuModuleLoadDataEx: symbol addresses given as options are not supported");
        if (option_is_output(options[i]))
            continue;
        kept->options[kept->count] = options[i];
        kept->values[kept->count++] = values ? values[i] : NULL;
    }
}

void jit_options_release(struct jit_options *kept)
{
    free(kept->options);
    free(kept->values);
}
