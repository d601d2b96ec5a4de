/*
 * Functions, kernels and variables: looked up by name. The driver makes them at the first lookup, so each first lookup is
 * a record; its handle is a place inside of its module's or library's blocks, or a device address.
 */
#include "kind_code.h"

#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "kinds.h"
#include "unsaveable.h"

struct lookup {
    struct record record;
    enum lookup_call call;
    uint64_t object;
    char *name;
};

static CUresult replay(struct record *record, uint64_t *handle)
{
    const struct lookup *one = container_of(record, struct lookup, record);
    uint64_t object = journal_object(record, one->object);
    size_t size;

    switch (one->call) {
    case LOOKUP_MODULE_FUNCTION:
        return driver.cuModuleGetFunction((CUfunction *)handle, (CUmodule)object, one->name);
    case LOOKUP_MODULE_VARIABLE:
        return driver.cuModuleGetGlobal_v2((CUdeviceptr *)handle, &size, (CUmodule)object, one->name);
    case LOOKUP_LIBRARY_KERNEL:
        return driver.cuLibraryGetKernel((CUkernel *)handle, (CUlibrary)object, one->name);
    case LOOKUP_LIBRARY_MODULE:
        return driver.cuLibraryGetModule((CUmodule *)handle, (CUlibrary)object);
    case LOOKUP_LIBRARY_VARIABLE:
        return driver.cuLibraryGetGlobal((CUdeviceptr *)handle, &size, (CUlibrary)object, one->name);
    case LOOKUP_KERNEL_FUNCTION:
        return driver.cuKernelGetFunction((CUfunction *)handle, (CUkernel)object);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

const char *lookup_name(const struct record *record)
{
    return container_of(record, struct lookup, record)->name;
}

static void release(struct record *record)
{
    free(container_of(record, struct lookup, record)->name);
}

/*
 * A lookup may load the module, or a library's module into the context, which gives device addresses in that order. A
 * kernel belongs to no context.
 */
#define LOOKUP_KIND(text, takes_memory)                                                                      \
    {                                                                                                        \
        .name = text, .replay = replay, .release = release, .order_matters = takes_memory                    \
    }
const struct record_kind function_kind = LOOKUP_KIND("function", true);
const struct record_kind kernel_kind = LOOKUP_KIND("kernel", false);
const struct record_kind library_module_kind = LOOKUP_KIND("library module", true);
const struct record_kind variable_kind = LOOKUP_KIND("variable", true);

CUresult lookup_keep(const struct record_kind *kind, enum lookup_call call, uint64_t object, const char *name,
                     uint64_t handle, struct record *owner)
{
    return lookup_keep_in(context_current(), kind, call, object, name, handle, owner);
}

CUresult lookup_keep_in(CUcontext context, const struct record_kind *kind, enum lookup_call call, uint64_t object,
                        const char *name, uint64_t handle, struct record *owner)
{
    struct record *known = journal_find(kind, handle);
    struct lookup *one;

    if (known) { /* looked up before, or by another thread at the same time */
        journal_merge(known);
        return CUDA_SUCCESS;
    }
    one = journal_record_new(kind, sizeof *one);
    if (one) {
        one->record.context = context;
        one->call = call;
        one->object = object;
        one->name = name ? strdup(name) : NULL;
        if (name && !one->name)
            unsaveable_note("no memory to note a lookup");
    }
    journal_commit(one ? &one->record : NULL, handle, owner);
    return CUDA_SUCCESS;
}
