#ifndef FAKE_MODULE_H
#define FAKE_MODULE_H
/* Modules, libraries, kernels. */

#include "fake_base.h"

/* ---- modules (fake_image.c, fake_module.c, fake_library.c, fake_function.c) */

struct image_parameter {
    uint32_t offset, size;
};

struct image_function {
    char *name;
    bool entry; /* a kernel, not a device function */
    struct image_parameter *parameters;
    uint32_t parameter_count, parameters_size;
};

struct image_variable {
    char *name;
    uint64_t size;
    uint32_t alignment;
    uint8_t *initial; /* NULL: zeros */
};

struct image {
    struct image_function *functions; /* entries first */
    struct image_variable *variables;
    uint32_t function_count, entry_count, variable_count;
};

/* Parses PTX text or a fat binary that holds some. */
CUresult image_parse(const void *data, struct image **image);
void image_free(struct image *image);

enum { FUNCTION_ATTRIBUTES = 16 };

struct function {
    enum object_kind kind;
    struct module *module;
    const struct image_function *image;
    struct kernel *kernel; /* NULL: of a module of its own */
    uint64_t code;         /* device address, 0: not loaded */
    uint64_t code_size;
    int attributes[FUNCTION_ATTRIBUTES];
    bool attribute_set[FUNCTION_ATTRIBUTES];
    CUfunc_cache cache_config;
};

struct variable {
    const struct image_variable *image;
    uint64_t address; /* 0: not loaded */
};

struct module {
    enum object_kind kind;
    struct context *context;
    struct image *image;
    struct library *library; /* NULL: it owns its image */
    struct function *functions;
    struct variable *variables;
    uint64_t device_code, device_code_size; /* of the device functions, all of them */
    struct list node;                       /* in context->modules */
    struct list library_node;               /* in library->modules */
};

struct kernel {
    enum object_kind kind;
    struct library *library;
    const struct image_function *image;
    uint32_t index;
    int attributes[MAX_DEVICES][FUNCTION_ATTRIBUTES];
    bool attribute_set[MAX_DEVICES][FUNCTION_ATTRIBUTES];
    CUfunc_cache cache_config[MAX_DEVICES];
};

struct library {
    enum object_kind kind;
    struct image *image;
    struct kernel *kernels;
    struct list modules; /* one per context that uses it */
    struct list node;    /* in fake.libraries */
};

CUresult module_new(struct thread *self, struct context *context, struct image *image,
                    struct library *library, struct module **module);
void module_delete(struct module *module);
/* Gives all variables their place and first value. */
CUresult module_load_variables(struct module *module);
struct variable *module_find_variable(struct module *module, const char *name);
/* Address of a device function, 0: none of that name or not loaded. */
uint64_t module_device_function(const struct module *module, const char *name);
/* The library's module in a context, made at first use. */
CUresult library_module(struct thread *self, struct library *library, struct context *context,
                        struct module **module);
CUresult read_file(const char *path, char **data); /* malloc'd, with a 0 at the end */

/* The function that a handle (function or kernel) means in a context. */
CUresult function_find(struct thread *self, struct context *context, CUfunction handle,
                       struct function **function);
CUresult function_load(struct function *function);
/* Parameters from the two ways to give them. */
CUresult kernel_work_parameters(struct kernel_work *kernel, void **parameters, void **extra);
CUresult kernel_work_check(const struct kernel_work *kernel);

/* ---- kernels (kernels.c): C twins of what test/programs/kernels.ptx.h holds */

struct kernel_call {
    struct context *context;
    struct function *function;
    const uint32_t *grid, *block;
    uint32_t shared;
    bool cooperative;
    const uint8_t *parameters;
    const struct image_function *image;
    CUresult error;
};

typedef void (*kernel_twin)(struct kernel_call *call);
kernel_twin kernel_twin_find(const char *name); /* NULL: none */

#endif
