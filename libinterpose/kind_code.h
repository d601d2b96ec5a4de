#ifndef CUDACKPT_KIND_CODE_H
#define CUDACKPT_KIND_CODE_H
/* What modules and libraries have in common: the image, JIT options, and things looked up in them by name. */

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "image.h"
#include "journal.h"

/* ---- the image (kind_code.c) */

struct code {
    struct record record;
    struct image image;
    bool in_place;           /* image.data is the program's own, in a shared library or the executable: not freed */
    char **variables;        /* names in the image, found at the first suspend; NULL: not looked for yet */
    size_t variable_count;
};

void code_keep(struct code *code, const void *image);
void code_release(struct code *code);
/* Fills code->variables. */
int code_find_variables(struct code *code, struct error *err);

struct jit_options {
    CUjit_option *options;
    void **values;
    unsigned count;
};
void jit_options_keep(struct jit_options *kept, unsigned count, const CUjit_option *options, void *const *values);
void jit_options_release(struct jit_options *kept);

/* ---- modules and libraries */

struct module {
    struct code code;
    struct jit_options jit;
    bool fat_binary; /* loaded by cuModuleLoadFatBinary */
};

#define LIBRARY_CONTEXTS_MAX 8

struct library {
    struct code code;
    struct jit_options jit;
    CUlibraryOption *options;
    void **option_values;
    unsigned option_count;
    CUcontext contexts[LIBRARY_CONTEXTS_MAX]; /* where something of it was used */
    unsigned context_count;
};
void library_used(struct record *record);

/* ---- lookups (kind_lookup.c): getters that make what they return when it is first asked for */

enum lookup_call {
    LOOKUP_MODULE_FUNCTION,  /* module, name */
    LOOKUP_MODULE_VARIABLE,  /* module, name */
    LOOKUP_LIBRARY_KERNEL,   /* library, name */
    LOOKUP_LIBRARY_MODULE,   /* library */
    LOOKUP_LIBRARY_VARIABLE, /* library, name */
    LOOKUP_KERNEL_FUNCTION,  /* kernel */
};
extern const struct record_kind function_kind, kernel_kind, variable_kind, library_module_kind;

/* What was looked up. */
const char *lookup_name(const struct record *record);

/* Commits the lookup that was just made; CUDA_SUCCESS. */
CUresult lookup_keep(const struct record_kind *kind, enum lookup_call call, uint64_t object, const char *name,
                     uint64_t handle, struct record *owner);
/* The same for a lookup that was made with another context current than the one in the thread's stack. */
CUresult lookup_keep_in(CUcontext context, const struct record_kind *kind, enum lookup_call call, uint64_t object,
                        const char *name, uint64_t handle, struct record *owner);

/* ---- kind_function.c */
/* The functions and kernels of a module or library that goes: a new one may get their handles. */
void function_forget_owned(struct record *record);

#endif
