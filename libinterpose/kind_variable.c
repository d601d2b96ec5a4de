/*
 * Contents of module variables (__device__, __constant__, static ones too): device memory of the driver's, found by the
 * names in the images. Each is a range of its own; a copy past its end is refused. A library that was never used in a
 * context has none there.
 */
#include "kinds.h"

#include <stdlib.h>

#include "driver_api.h"
#include "kind_code.h"

struct search {
    struct copy_range *ranges;
    size_t count, capacity;
    struct error *err;
    int result;
};

static int add_range(struct search *search, CUdeviceptr address, size_t size, CUcontext context)
{
    unsigned managed = 0;
    void *host;

    driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    if (managed) {
        error_set(search->err, ERROR_UNSAVEABLE, "a module has a __managed__ variable, which is not supported yet");
        return -1;
    }
    if (search->count == search->capacity) {
        size_t capacity = search->capacity ? search->capacity * 2 : 64;
        struct copy_range *grown = realloc(search->ranges, capacity * sizeof *grown);

        if (!grown) {
            error_set(search->err, ERROR_MEMORY, "no memory to note the variables of modules");
            return -1;
        }
        search->ranges = grown;
        search->capacity = capacity;
    }
    host = copy_host_alloc(size, search->err);
    if (!host)
        return -1;
    search->ranges[search->count++] = (struct copy_range){address, host, size, context};
    return 0;
}

/*
 * Asking for a variable may make the driver load it, so it becomes a record like a lookup of the program's: from then on
 * it comes back in its place. The driver does not know every name: some are of another architecture, or nothing uses them.
 */
static CUresult look_up(struct code *code, CUcontext context, bool library, const char *name, CUdeviceptr *address,
                        size_t *size)
{
    uint64_t handle = code->record.handle;
    CUresult result;

    journal_note();
    result = library ? driver.cuLibraryGetGlobal(address, size, (CUlibrary)handle, name)
                     : driver.cuModuleGetGlobal_v2(address, size, (CUmodule)handle, name);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    return lookup_keep_in(context, &variable_kind, library ? LOOKUP_LIBRARY_VARIABLE : LOOKUP_MODULE_VARIABLE, handle,
                          name, *address, &code->record);
}

static int find_in(struct code *code, CUcontext context, bool library, struct search *search)
{
    if (code_find_variables(code, search->err))
        return -1;
    for (size_t i = 0; i < code->variable_count; i++) {
        CUdeviceptr address;
        size_t size;

        if (look_up(code, context, library, code->variables[i], &address, &size) == CUDA_SUCCESS && size > 0 &&
            add_range(search, address, size, context))
            return -1;
    }
    return 0;
}

static int find_in_module(struct record *record, void *arg)
{
    struct search *search = arg;

    driver.cuCtxSetCurrent(record->context);
    search->result = find_in(container_of(record, struct code, record), record->context, false, search);
    return search->result;
}

static int find_in_library(struct record *record, void *arg)
{
    struct search *search = arg;
    struct library *library = container_of(record, struct library, code.record);

    for (unsigned i = 0; i < library->context_count && search->result == 0; i++) {
        /* a context that was destroyed since is no longer in the journal */
        if (!journal_find(&context_kind, (uint64_t)library->contexts[i]))
            continue;
        driver.cuCtxSetCurrent(library->contexts[i]);
        search->result = find_in(&library->code, library->contexts[i], true, search);
    }
    return search->result;
}

int variables_find(struct copy_range **ranges, size_t *count, struct error *err)
{
    struct search search = {.err = err};

    journal_each(&module_kind, find_in_module, &search);
    if (search.result == 0)
        journal_each(&library_kind, find_in_library, &search);
    driver.cuCtxSetCurrent(NULL);
    *ranges = search.ranges;
    *count = search.count;
    if (search.result == 0)
        return 0;
    variables_release(*ranges, *count);
    *ranges = NULL;
    *count = 0;
    return -1;
}

void variables_release(struct copy_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        copy_host_free(ranges[i].host, ranges[i].size);
    free(ranges);
}
