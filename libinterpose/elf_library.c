#include "elf_library.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t page_down(uint64_t address)
{
    return address & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
}


static void read_segments(struct elf_library *library, const ElfW(Phdr) *header, size_t count)
{
    for (; count > 0; count--, header++) {
        uint64_t start = library->base + header->p_vaddr, end = start + header->p_memsz;

        if (header->p_type == PT_GNU_RELRO)
            library->relro = (struct elf_range){page_down(start), page_down(end)};
        if (header->p_type != PT_LOAD)
            continue;
        if (header->p_flags & PF_X) {
            if (!library->text.start)
                library->text.start = start;
            library->text.end = end;
        }
        if ((header->p_flags & PF_W) && library->writable_count < ELF_WRITABLE_MAX)
            library->writable[library->writable_count++] = (struct elf_range){start, end};
    }
}

int elf_library_open(void *handle, struct elf_library *library, struct error *err)
{
    /* A handle of glibc is the link map; dlinfo would take the loader's lock. */
    const struct link_map *map = handle;
    const ElfW(Ehdr) *header = (const void *)map->l_addr;

    *library = (struct elf_library){.path = map->l_name, .base = map->l_addr, .dynamic = map->l_ld};
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64) {
        error_set(err, ERROR_REFUSED, "%s is not a 64-bit ELF library", map->l_name);
        return -1;
    }
    read_segments(library, (const void *)(library->base + header->e_phoff), header->e_phnum);
    if (!library->writable_count || !library->text.end) {
        error_set(err, ERROR_REFUSED, "%s has no writable or no executable segment", map->l_name);
        return -1;
    }
    return 0;
}

/* glibc has relocated the pointers in the dynamic section of libraries on x86-64. */
static uint64_t dynamic_value(const struct elf_library *library, int64_t tag)
{
    for (const ElfW(Dyn) *entry = library->dynamic; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return entry->d_un.d_val;
    return 0;
}

bool elf_library_is_named(const struct elf_library *library, const char *soname)
{
    const char *strings = (const void *)dynamic_value(library, DT_STRTAB);
    uint64_t name = dynamic_value(library, DT_SONAME);

    return strings && name && !strcmp(strings + name, soname);
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;

    while (*name)
        hash = hash * 33 + (unsigned char)*name++;
    return hash;
}

void *elf_library_symbol(const struct elf_library *library, const char *name)
{
    const uint32_t *table = (const void *)dynamic_value(library, DT_GNU_HASH);
    const ElfW(Sym) *symbols = (const void *)dynamic_value(library, DT_SYMTAB);
    const char *strings = (const void *)dynamic_value(library, DT_STRTAB);
    const uint32_t *buckets, *chain;
    uint32_t hash = gnu_hash(name), index;

    if (!table || !symbols || !strings)
        return NULL;
    /* header: number of buckets, first symbol, bloom words (64-bit), bloom shift */
    buckets = table + 4 + table[2] * 2;
    chain = buckets + table[0];
    index = buckets[hash % table[0]];
    if (index < table[1])
        return NULL;
    for (;; index++) {
        uint32_t entry = chain[index - table[1]];

        if ((entry | 1) == (hash | 1) && symbols[index].st_shndx != SHN_UNDEF &&
            !strcmp(strings + symbols[index].st_name, name))
            return (void *)(library->base + symbols[index].st_value);
        if (entry & 1)
            return NULL;
    }
}

int elf_library_protect_relro(const struct elf_library *library, bool writable, struct error *err)
{
    const struct elf_range *relro = &library->relro;

    if (relro->start >= relro->end)
        return 0;
    if (mprotect((void *)relro->start, relro->end - relro->start, writable ? PROT_READ | PROT_WRITE : PROT_READ)) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't change the protection of %s", library->path);
        return -1;
    }
    return 0;
}

struct visit {
    void (*f)(const char *name, void **place, void *arg);
    void *arg;
};

static void visit_table(const struct elf_library *library, const ElfW(Rela) *entry, size_t size,
                        const struct visit *visit)
{
    const ElfW(Sym) *symbols = (const void *)dynamic_value(library, DT_SYMTAB);
    const char *strings = (const void *)dynamic_value(library, DT_STRTAB);

    for (size_t count = size / sizeof *entry; count > 0; count--, entry++) {
        uint32_t type = ELF64_R_TYPE(entry->r_info);
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(entry->r_info)];

        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64)
            continue;
        if (symbol->st_shndx == SHN_UNDEF && symbol->st_name)
            visit->f(strings + symbol->st_name, (void **)(library->base + entry->r_offset), visit->arg);
    }
}

int elf_library_each_import(const struct elf_library *library,
                            void (*f)(const char *name, void **place, void *arg), void *arg, struct error *err)
{
    const struct visit visit = {f, arg};

    if (elf_library_protect_relro(library, true, err))
        return -1;
    visit_table(library, (const void *)dynamic_value(library, DT_RELA), dynamic_value(library, DT_RELASZ), &visit);
    visit_table(library, (const void *)dynamic_value(library, DT_JMPREL), dynamic_value(library, DT_PLTRELSZ),
                &visit);
    return elf_library_protect_relro(library, false, err);
}
