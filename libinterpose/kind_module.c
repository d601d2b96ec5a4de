/* Modules (cuModule*): loaded into the context that is current. */
#include "kind_code.h"

#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "kinds.h"
#include "tracked.h"
#include "unsaveable.h"

static struct module *module_of(struct record *record)
{
    return container_of(record, struct module, code.record);
}

static CUresult load(struct module *module, CUmodule *made)
{
    if (module->jit.count > 0)
        return driver.cuModuleLoadDataEx(made, module->code.image.data, module->jit.count, module->jit.options,
                                         module->jit.values);
    if (module->fat_binary)
        return driver.cuModuleLoadFatBinary(made, module->code.image.data);
    return driver.cuModuleLoadData(made, module->code.image.data);
}

/* Its variables lie where the program knows them. */
static bool in_place(const struct record *record, CUmodule made)
{
    list_each (node, &record->owned) {
        const struct record *owned = container_of(node, struct record, owner_node);
        CUdeviceptr address;
        size_t size;

        if (owned->kind == &variable_kind &&
            (driver.cuModuleGetGlobal_v2(&address, &size, made, lookup_name(owned)) != CUDA_SUCCESS ||
             address != owned->handle))
            return false;
    }
    return true;
}

/*
 * The driver puts a module's variables where there is room, and the room depends on a history that can't always be made
 * again. Where they came back elsewhere, copies of the module are loaded until one lies in the right place: that one makes
 * way, and the others fill the places before it until the module is loaded. They must not take the module's heap blocks.
 */
#define FILLERS_MAX 64

static CUresult load_in_place(struct record *record, CUmodule *made)
{
    struct module *module = module_of(record);
    CUmodule fillers[FILLERS_MAX];
    unsigned count = 0;
    bool found = false;
    CUresult result = CUDA_SUCCESS;

    placement_pause();
    while (!found && count < FILLERS_MAX && (result = load(module, &fillers[count])) == CUDA_SUCCESS) {
        found = in_place(record, fillers[count]);
        if (found)
            driver.cuModuleUnload(fillers[count]);
        else
            count++;
    }
    placement_resume();
    if (result == CUDA_SUCCESS)
        result = load(module, made);
    placement_pause();
    while (count > 0)
        driver.cuModuleUnload(fillers[--count]);
    placement_resume();
    return result;
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    CUmodule made = NULL;
    CUresult result = record->steer ? load_in_place(record, &made) : load(module_of(record), &made);

    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuModuleUnload((CUmodule)handle);
}

static void release(struct record *record)
{
    struct module *module = module_of(record);

    jit_options_release(&module->jit);
    code_release(&module->code);
}

const struct record_kind module_kind = {
    .name = "module", .replay = replay, .undo = undo, .release = release, .order_matters = true, .can_steer = true};

/* image: as the program gave it, or read from its file. */
static CUresult loaded(CUresult result, CUmodule *handle, const void *image, bool fat_binary, unsigned option_count,
                       const CUjit_option *options, void *const *values)
{
    struct module *module;

    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    module = journal_record_new(&module_kind, sizeof *module);
    if (module) {
        module->fat_binary = fat_binary;
        code_keep(&module->code, image);
        jit_options_keep(&module->jit, option_count, options, values);
    }
    journal_commit(module ? &module->code.record : NULL, (uint64_t)*handle, context_owner());
    return result;
}

CUresult track_cuModuleLoadData(CUmodule *module, const void *image)
{
    journal_note();
    return loaded(driver.cuModuleLoadData(module, image), module, image, false, 0, NULL, NULL);
}

CUresult track_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                  CUjit_option *options, void **optionValues)
{
    journal_note();
    return loaded(driver.cuModuleLoadDataEx(module, image, numOptions, options, optionValues), module, image, false,
                  numOptions, options, optionValues);
}

CUresult track_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    journal_note();
    return loaded(driver.cuModuleLoadFatBinary(module, fatCubin), module, fatCubin, true, 0, NULL, NULL);
}

/* The file may be gone when it is needed again: its bytes are loaded, and kept. */
CUresult track_cuModuleLoad(CUmodule *module, const char *fname)
{
    struct image image;
    struct error err = {0};
    struct module *kept;
    CUresult result;

    if (!fname || image_read_file(fname, &image, &err))
        return driver.cuModuleLoad(module, fname); /* it fails as the driver fails */
    journal_note();
    result = driver.cuModuleLoadData(module, image.data);
    if (result != CUDA_SUCCESS) {
        image_free(&image);
        return journal_discard(result);
    }
    kept = journal_record_new(&module_kind, sizeof *kept);
    if (kept)
        kept->code.image = image;
    else
        image_free(&image);
    journal_commit(kept ? &kept->code.record : NULL, (uint64_t)*module, context_owner());
    return result;
}

CUresult track_cuModuleUnload(CUmodule hmod)
{
    struct record *record = journal_detach(&module_kind, (uint64_t)hmod);
    CUresult result = driver.cuModuleUnload(hmod);

    if (result == CUDA_SUCCESS) {
        function_forget_owned(record);
        journal_drop(record);
    } else {
        journal_attach(record);
    }
    return result;
}

/* ---- what is looked up in it */

/* A library's module is one too. */
static struct record *find_module(CUmodule module)
{
    struct record *record = journal_find(&module_kind, (uint64_t)module);

    return record ? record : journal_find(&library_module_kind, (uint64_t)module);
}

CUresult track_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    CUresult result;

    journal_note();
    result = driver.cuModuleGetFunction(hfunc, hmod, name);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    return lookup_keep(&function_kind, LOOKUP_MODULE_FUNCTION, (uint64_t)hmod, name, (uint64_t)*hfunc,
                       find_module(hmod));
}

CUresult track_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    CUdeviceptr address;
    size_t size;
    CUresult result;

    journal_note();
    if (!dptr && !bytes)
        return journal_discard(driver.cuModuleGetGlobal_v2(dptr, bytes, hmod, name));
    result = driver.cuModuleGetGlobal_v2(&address, &size, hmod, name);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    if (dptr)
        *dptr = address;
    if (bytes)
        *bytes = size;
    return lookup_keep(&variable_kind, LOOKUP_MODULE_VARIABLE, (uint64_t)hmod, name, address,
                       find_module(hmod));
}

/* Addresses of 32 bits: no 64-bit driver has variables there; it answers. */
CUresult track_cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod, const char *name)
{
    return driver.cuModuleGetGlobal(dptr, bytes, hmod, name);
}
