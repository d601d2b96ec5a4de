/*
 * How the program finds the driver's functions: dlopen and dlsym (the stubs in arch_x86_64.S ask the filters here),
 * cuGetProcAddress. All ways lead to our wrappers.
 */
#include "symbol_lookup.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "lifecycle.h"
#include "loader_hooks.h"
#include "nvml.h"
#include "restart.h"
#include "thunk.h"
#include "unsaveable.h"
#include "wrappers.h"

void *(*loader_real_dlopen)(const char *, int);
void *(*loader_real_dlsym)(void *, const char *);

/* The next definition after ours: of libc, or of another preloaded library that interposes it as well. */
static void *next_function(const char *name)
{
    void *function = dlvsym(RTLD_NEXT, name, "GLIBC_2.34"); /* where glibc has libdl in libc */

    return function ? function : dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
}

void loader_resolve(void)
{
    if (!loader_real_dlsym)
        loader_real_dlsym = (void *(*)(void *, const char *))next_function("dlsym");
    if (!loader_real_dlopen)
        loader_real_dlopen = (void *(*)(const char *, int))next_function("dlopen");
}

/* name is the library, or a versioned name of it: libcuda.so, libcuda.so.1, libcuda.so.580.65.06 */
static bool names_library(const char *name, const char *library)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    size_t length = strlen(library);

    return !strncmp(base, library, length) &&
           (base[length] == '\0' || (base[length] == '.' && base[length + 1] >= '0' && base[length + 1] <= '9'));
}

static void *own_handle(void)
{
    Dl_info info;

    if (!dladdr((void *)own_handle, &info))
        return NULL;
    return loader_real_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

static bool is_driver(void *handle)
{
    struct elf_library library;
    struct error err = {0};

    if (handle == lifecycle_driver_handle())
        return true;
    /* opened under a name that does not tell: a symbolic link */
    return !lifecycle_driver_handle() && !elf_library_open(handle, &library, &err) &&
           elf_library_is_named(&library, "libcuda.so.1") && lifecycle_set_up_from(library.path);
}

static bool in_nvml(const void *caller)
{
    const struct elf_range *text = &restart_library(RESTART_NVML)->text;

    return (uint64_t)caller >= text->start && (uint64_t)caller < text->end;
}

static bool in_driver(const void *caller)
{
    const struct elf_range *text = &lifecycle_driver_library()->text;

    return (uint64_t)caller >= text->start && (uint64_t)caller < text->end;
}

void *loader_dlopen_filter(const char *name, int flags, void *caller)
{
    if (!name)
        return NULL;
    if (names_library(name, "libnvidia-ml.so")) {
        if (!(flags & RTLD_NOLOAD))
            lifecycle_set_up_nvml(name); /* imports are patched before the program has the handle */
        return NULL;
    }
    if (!names_library(name, "libcuda.so") || in_driver(caller))
        return NULL;
    /* A program that only asks whether the driver is loaded must not load it. */
    if ((flags & RTLD_NOLOAD) && !lifecycle_driver_handle()) {
        void *loaded = loader_real_dlopen(name, flags);

        if (!loaded)
            return NULL;
        dlclose(loaded);
    }
    return lifecycle_set_up_from(name) ? own_handle() : NULL;
}

/*
 * A function of the driver that was asked for by name: ours, or for one that we don't know a thunk; NULL where the
 * driver lacks it, even if we have a row.
 */
static void *driver_function(const char *symbol)
{
    int row = driver_row_by_symbol(symbol);
    void *real;

    if (row >= 0)
        return driver_api_has(row) ? wrappers[row] : NULL;
    real = elf_library_symbol(lifecycle_driver_library(), symbol);
    if (!real || !in_driver(real))
        return NULL; /* not there, or data of the debugger interface: the real library answers */
    return thunk_unknown(real, symbol);
}

void *loader_dlsym_filter(void **handle, const char **symbol, void *caller)
{
    static void *self;
    void *function;

    if (!*handle || *handle == RTLD_NEXT || !*symbol)
        return NULL;
    if (*handle == nvml_handle())
        return nvml_function(*symbol);
    if (strncmp(*symbol, "cu", 2) || in_driver(caller) || in_nvml(caller))
        return NULL;
    if (!self && lifecycle_driver_handle()) {
        self = own_handle();
        if (self)
            dlclose(self);
    }
    if (*handle != self && !is_driver(*handle))
        return NULL;
    function = driver_function(*symbol);
    if (!function)
        *handle = lifecycle_driver_handle(); /* the real dlsym then finds it, or sets dlerror as it would have */
    return function;
}

/* What we hand out instead of a function of the driver that cuGetProcAddress gave. */
void *symbol_wrapper(void *real, const char *name, int version, uint64_t flags)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int row = driver_row_by_version(name, version, per_thread);

    /* Several symbols may share an address, so the row that the name leads to counts if the address agrees. */
    if (row >= 0 && driver_row_real(row) == real)
        return wrappers[row];
    row = driver_row_by_address(real);
    if (row >= 0)
        return wrappers[row];
    if (!in_driver(real))
        return real;
    return thunk_unknown(real, name);
}
