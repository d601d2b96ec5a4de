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

/* The driver does not know every name: variables of another architecture, or ones that nothing uses. */
static int find_in(struct code *code, CUcontext context, bool library, struct search *search)
{
    if (code_find_variables(code, search->err))
        return -1;
    for (size_t i = 0; i < code->variable_count; i++) {
        CUdeviceptr address;
        size_t size;
        CUresult result =
            library
                ? driver.cuLibraryGetGlobal(&address, &size, (CUlibrary)code->record.handle, code->variables[i])
                : driver.cuModuleGetGlobal_v2(&address, &size, (CUmodule)code->record.handle, code->variables[i]);

        if (result == CUDA_SUCCESS && size > 0 && add_range(search, address, size, context))
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

/*
 * Variables that the program never asked for have no record that would notice if they came back elsewhere, and kernels
 * may hold their addresses.
 */
int variables_check(const struct copy_range *ranges, size_t count, struct error *err)
{
    struct copy_range *now;
    size_t now_count;
    int result = 0;

    if (variables_find(&now, &now_count, err))
        return -1;
    if (now_count != count) {
        error_set(err, ERROR_MISMATCH, "%zu module variables were saved and %zu came back", count, now_count);
        result = -1;
    }
    for (size_t i = 0; i < count && result == 0; i++)
        if (now[i].device != ranges[i].device || now[i].size != ranges[i].size) {
            error_set(err, ERROR_MISMATCH, "a module variable came back at %#llx instead of %#llx",
                      (unsigned long long)now[i].device, (unsigned long long)ranges[i].device);
            result = -1;
        }
    variables_release(now, now_count);
    return result;
}

void variables_release(struct copy_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        copy_host_free(ranges[i].host, ranges[i].size);
    free(ranges);
}
