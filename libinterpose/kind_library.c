/* Libraries (cuLibrary*): loaded into a context when something of them is first used there. */
#include "kind_code.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "kinds.h"
#include "tracked.h"
#include "unsaveable.h"

static struct library *library_of(struct record *record)
{
    return container_of(record, struct library, code.record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct library *library = library_of(record);
    CUlibrary made = NULL;
    CUresult result = driver.cuLibraryLoadData(&made, library->code.image.data, library->jit.options,
                                               library->jit.values, library->jit.count, library->options,
                                               library->option_values, library->option_count);

    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuLibraryUnload((CUlibrary)handle);
}

static void release(struct record *record)
{
    struct library *library = library_of(record);

    jit_options_release(&library->jit);
    code_release(&library->code);
    free(library->options);
    free(library->option_values);
}

const struct record_kind library_kind = {
    .name = "library", .replay = replay, .undo = undo, .release = release, .order_matters = true};

/*
 * The tables of host functions that nvcc's programs pass as an option: four words in the caller's frame (two arrays that
 * are static in the program, and their sizes).
 */
#define HOST_TABLE_BYTES (4 * sizeof(void *))

static void keep_options(struct library *library, unsigned count, const CUlibraryOption *options, void *const *values)
{
    /* host tables that options point to follow the values in their block */
    size_t bytes = count * (sizeof(void *) + HOST_TABLE_BYTES);
    char *tables;

    if (!count || !options)
        return;
    library->options = malloc(count * sizeof *options);
    library->option_values = calloc(1, bytes);
    if (!library->options || !library->option_values) {
        unsaveable_note("no memory to note the options of a library");
        return;
    }
    library->option_count = count;
    memcpy(library->options, options, count * sizeof *options);
    tables = (char *)(library->option_values + count);
    for (unsigned i = 0; i < count; i++) {
        library->option_values[i] = values ? values[i] : NULL;
        if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE && library->option_values[i]) {
            memcpy(tables + i * HOST_TABLE_BYTES, values[i], HOST_TABLE_BYTES);
            library->option_values[i] = tables + i * HOST_TABLE_BYTES;
        }
    }
}

CUresult track_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                 void **jitOptionsValues, unsigned int numJitOptions,
                                 CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                 unsigned int numLibraryOptions)
{
    struct library *kept;
    CUresult result;

    journal_note();
    result = driver.cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                                      libraryOptionValues, numLibraryOptions);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    kept = journal_record_new(&library_kind, sizeof *kept);
    if (kept) {
        code_keep(&kept->code, code);
        jit_options_keep(&kept->jit, numJitOptions, jitOptions, jitOptionsValues);
        keep_options(kept, numLibraryOptions, libraryOptions, libraryOptionValues);
    }
    journal_commit(kept ? &kept->code.record : NULL, (uint64_t)*library, NULL);
    return result;
}

/* The file may be gone when it is needed again: its bytes are loaded, and kept. */
CUresult track_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                                     void **jitOptionsValues, unsigned int numJitOptions,
                                     CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                     unsigned int numLibraryOptions)
{
    struct image image;
    struct error err = {0};
    struct library *kept;
    CUresult result;

    if (!fileName || image_read_file(fileName, &image, &err))
        return driver.cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues, numJitOptions,
                                            libraryOptions, libraryOptionValues, numLibraryOptions);
    journal_note();
    result = driver.cuLibraryLoadData(library, image.data, jitOptions, jitOptionsValues, numJitOptions,
                                      libraryOptions, libraryOptionValues, numLibraryOptions);
    if (result != CUDA_SUCCESS) {
        image_free(&image);
        return journal_discard(result);
    }
    kept = journal_record_new(&library_kind, sizeof *kept);
    if (kept) {
        kept->code.image = image;
        jit_options_keep(&kept->jit, numJitOptions, jitOptions, jitOptionsValues);
        keep_options(kept, numLibraryOptions, libraryOptions, libraryOptionValues);
    } else {
        image_free(&image);
    }
    journal_commit(kept ? &kept->code.record : NULL, (uint64_t)*library, NULL);
    return result;
}

CUresult track_cuLibraryUnload(CUlibrary library)
{
    struct record *record = journal_detach(&library_kind, (uint64_t)library);
    CUresult result = driver.cuLibraryUnload(library);

    if (result == CUDA_SUCCESS) {
        function_forget_owned(record);
        journal_drop(record);
    } else {
        journal_attach(record);
    }
    return result;
}

/* From now on its variables have contents in the current context. */
void library_used(struct record *record)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct library *library = library_of(record);
    CUcontext context = context_current();
    unsigned i;

    pthread_mutex_lock(&lock);
    for (i = 0; i < library->context_count && library->contexts[i] != context; i++)
        ;
    if (i == LIBRARY_CONTEXTS_MAX)
        unsaveable_note("a library is used in more than %d contexts", LIBRARY_CONTEXTS_MAX);
    else if (i == library->context_count)
        library->contexts[library->context_count++] = context;
    pthread_mutex_unlock(&lock);
}

/* ---- what is looked up in it */

CUresult track_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult result;

    journal_note();
    result = driver.cuLibraryGetKernel(pKernel, library, name);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    return lookup_keep(&kernel_kind, LOOKUP_LIBRARY_KERNEL, (uint64_t)library, name, (uint64_t)*pKernel,
                       journal_find(&library_kind, (uint64_t)library));
}

CUresult track_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    struct record *owner;
    CUresult result;

    journal_note();
    result = driver.cuLibraryGetModule(pMod, library);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    owner = journal_find(&library_kind, (uint64_t)library);
    if (owner)
        library_used(owner);
    return lookup_keep(&library_module_kind, LOOKUP_LIBRARY_MODULE, (uint64_t)library, NULL, (uint64_t)*pMod, owner);
}

CUresult track_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct record *owner;
    CUresult result;

    journal_note();
    result = driver.cuKernelGetFunction(pFunc, kernel);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    owner = journal_find(&kernel_kind, (uint64_t)kernel);
    if (owner && owner->owner)
        library_used(owner->owner);
    return lookup_keep(&function_kind, LOOKUP_KERNEL_FUNCTION, (uint64_t)kernel, NULL, (uint64_t)*pFunc, owner);
}

CUresult track_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    struct record *owner;
    CUdeviceptr address;
    size_t size;
    CUresult result;

    journal_note();
    if (!dptr && !bytes)
        return journal_discard(driver.cuLibraryGetGlobal(dptr, bytes, library, name));
    result = driver.cuLibraryGetGlobal(&address, &size, library, name);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    if (dptr)
        *dptr = address;
    if (bytes)
        *bytes = size;
    owner = journal_find(&library_kind, (uint64_t)library);
    if (owner)
        library_used(owner);
    return lookup_keep(&variable_kind, LOOKUP_LIBRARY_VARIABLE, (uint64_t)library, name, address, owner);
}
