#ifndef CUDACKPT_ELF_LIBRARY_H
#define CUDACKPT_ELF_LIBRARY_H
/*
 * A loaded shared library as its ELF headers in memory describe it: where its text and its writable segment lie, its
 * exported symbols, its imports. Reads memory only: no lock of the dynamic loader is taken (dlsym would take one), so
 * that set-up can't deadlock with a thread that is inside of dlopen.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

struct elf_range {
    uint64_t start, end;
};

#define ELF_WRITABLE_MAX 4

struct elf_library {
    const char *path;       /* the loader's string */
    uint64_t base;
    struct elf_range text;  /* from the first to the last executable byte */
    struct elf_range writable[ELF_WRITABLE_MAX];
    size_t writable_count;
    struct elf_range relro; /* made read-only by the loader; empty if none */
    const void *dynamic;
};

/* handle: as dlopen gave it. */
int elf_library_open(void *handle, struct elf_library *library, struct error *err);

/* Its DT_SONAME is this. */
bool elf_library_is_named(const struct elf_library *library, const char *soname);

/* Address of an exported symbol, NULL if there is none. */
void *elf_library_symbol(const struct elf_library *library, const char *name);

/*
 * Calls f for every import: name and the place that holds its address (writable when f is called). f may store another
 * address there. relro is made writable meanwhile and read-only again.
 */
int elf_library_each_import(const struct elf_library *library,
                            void (*f)(const char *name, void **place, void *arg), void *arg, struct error *err);

/* Changes the protection of relro, if there is one. */
int elf_library_protect_relro(const struct elf_library *library, bool writable, struct error *err);

#endif
