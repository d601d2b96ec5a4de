#ifndef CUDACKPT_LOADER_HOOKS_H
#define CUDACKPT_LOADER_HOOKS_H
/*
 * dlopen and dlsym as the program calls them. The exported stubs (arch_x86_64.S) ask a filter first. If it
 * has no answer they jump to the real function, as if the program had called that itself: the search along
 * RPATH and RUNPATH and the meaning of RTLD_NEXT depend on the return address. Any thread; called where the
 * program may hold the dynamic linker's lock, so the filters must not wait for another thread.
 */

/*
 * What dlopen shall return instead of the real one's answer; NULL: let the real one do it. caller: return
 * address.
 */
void *loader_dlopen_filter(const char *name, int flags, void *caller);

/* The same for dlsym. The filter may change *handle and *symbol, that is what the real one then gets. */
void *loader_dlsym_filter(void **handle, const char **symbol, void *caller);

/*
 * The real ones. The stubs call loader_resolve while theirs is NULL, before the filter; it must not call
 * malloc.
 */
extern void *(*loader_real_dlopen)(const char *name, int flags);
extern void *(*loader_real_dlsym)(void *handle, const char *symbol);
void loader_resolve(void);

#endif
