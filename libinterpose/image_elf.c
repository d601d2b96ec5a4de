/* Cubins: where an ELF image ends, and the variables in its symbol table. */

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "image_parts.h"

/* More sections than any cubin has; their table is read in one piece. */
#define SECTIONS_MAX (1u << 24)

/* Section types of relocatable cubins that take no room in the image, whatever their size says. */
enum {
    SHT_CUDA_GLOBAL = 0x70000007,
    SHT_CUDA_LOCAL = 0x70000009,
    SHT_CUDA_SHARED = 0x7000000a,
};

static int header_check(const Elf64_Ehdr *header, struct error *err)
{
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB ||
        (header->e_shoff && header->e_shentsize != sizeof(Elf64_Shdr)) ||
        (header->e_phnum && header->e_phentsize != sizeof(Elf64_Phdr))) {
        error_set(err, ERROR_REFUSED, "a module's cubin is not a 64-bit ELF image with the usual headers");
        return -1;
    }
    return 0;
}

/* A count that does not fit into the header is in the first section header. */
static uint64_t section_count(const Elf64_Ehdr *header, const Elf64_Shdr *first)
{
    return header->e_shnum ? header->e_shnum : first->sh_size;
}

static bool section_takes_room(const Elf64_Shdr *section)
{
    switch (section->sh_type) {
    case SHT_NULL:
    case SHT_NOBITS:
    case SHT_CUDA_GLOBAL:
    case SHT_CUDA_LOCAL:
    case SHT_CUDA_SHARED:
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ extent */

static int extent_include(uint64_t *end, uint64_t offset, uint64_t size, struct error *err)
{
    uint64_t sum;

    if (__builtin_add_overflow(offset, size, &sum)) {
        error_set(err, ERROR_REFUSED, "the headers of a module's cubin point outside of memory");
        return -1;
    }
    if (size && sum > *end)
        *end = sum;
    return 0;
}

static int extent_of_sections(const void *image, const Elf64_Ehdr *header, uint64_t *end, struct error *err)
{
    cleanup_free Elf64_Shdr *sections = NULL;
    Elf64_Shdr first;
    uint64_t count;

    if (image_peek(&first, image, header->e_shoff, sizeof(first), err))
        return -1;
    count = section_count(header, &first);
    if (count > SECTIONS_MAX) {
        error_set(err, ERROR_REFUSED, "a module's cubin has more sections than a cubin can have");
        return -1;
    }
    sections = malloc(count * sizeof(*sections) + 1);
    if (!sections) {
        error_set(err, ERROR_MEMORY, "no memory for the section table of a module's cubin");
        return -1;
    }
    if (image_peek(sections, image, header->e_shoff, count * sizeof(*sections), err) ||
        extent_include(end, header->e_shoff, count * sizeof(*sections), err))
        return -1;
    for (uint64_t i = 0; i < count; i++)
        if (section_takes_room(&sections[i]) &&
            extent_include(end, sections[i].sh_offset, sections[i].sh_size, err))
            return -1;
    return 0;
}

static int extent_of_segments(const void *image, const Elf64_Ehdr *header, uint64_t *end, struct error *err)
{
    Elf64_Phdr segment;

    if (extent_include(end, header->e_phoff, header->e_phnum * sizeof(segment), err))
        return -1;
    for (unsigned int i = 0; i < header->e_phnum; i++)
        if (image_peek(&segment, image, header->e_phoff + i * sizeof(segment), sizeof(segment), err) ||
            extent_include(end, segment.p_offset, segment.p_filesz, err))
            return -1;
    return 0;
}

int image_elf_extent(const void *image, size_t *size, struct error *err)
{
    Elf64_Ehdr header;
    uint64_t end = sizeof(header);

    if (image_peek(&header, image, 0, sizeof(header), err) || header_check(&header, err))
        return -1;
    if (header.e_shoff && extent_of_sections(image, &header, &end, err))
        return -1;
    if (header.e_phnum && extent_of_segments(image, &header, &end, err))
        return -1;
    *size = end;
    return 0;
}

/* ------------------------------------------------------------------ names */

struct elf_sections {
    struct image_bytes image;
    uint64_t table; /* offset of the section headers */
    uint64_t count;
    struct image_bytes names;
};

static int refuse(struct error *err, const char *what)
{
    error_set(err, ERROR_REFUSED, "the %s of a module's cubin can't be read, so its variables can't be saved",
              what);
    return -1;
}

static Elf64_Shdr section_header(const struct elf_sections *sections, uint64_t index)
{
    Elf64_Shdr section;

    memcpy(&section, sections->image.data + sections->table + index * sizeof(section), sizeof(section));
    return section;
}

/* What a section holds; -1 if it lies outside of the image. */
static int section_bytes(const struct elf_sections *sections, const Elf64_Shdr *section,
                         struct image_bytes *bytes)
{
    if (!section_takes_room(section) ||
        !image_bytes_hold(sections->image, section->sh_offset, section->sh_size))
        return -1;
    bytes->data = sections->image.data + section->sh_offset;
    bytes->size = section->sh_size;
    return 0;
}

/* NULL if it does not end inside of the table. */
static const char *string_at(struct image_bytes table, uint64_t offset, size_t *length)
{
    const char *string;

    if (offset >= table.size)
        return NULL;
    string = (const char *)table.data + offset;
    *length = strnlen(string, table.size - offset);
    return *length < table.size - offset ? string : NULL;
}

static int sections_open(struct elf_sections *sections, struct image_bytes elf, struct error *err)
{
    Elf64_Ehdr header;
    Elf64_Shdr first, names;
    uint64_t names_index;

    if (elf.size < sizeof(header))
        return refuse(err, "header");
    memcpy(&header, elf.data, sizeof(header));
    if (header_check(&header, err))
        return -1;
    *sections = (struct elf_sections){.image = elf, .table = header.e_shoff};
    if (!header.e_shoff || !image_bytes_hold(elf, header.e_shoff, sizeof(first)))
        return refuse(err, "section table");
    first = section_header(sections, 0);
    sections->count = section_count(&header, &first);
    if (sections->count > elf.size / sizeof(first) ||
        !image_bytes_hold(elf, header.e_shoff, sections->count * sizeof(first)))
        return refuse(err, "section table");
    names_index = header.e_shstrndx == SHN_XINDEX ? first.sh_link : header.e_shstrndx;
    if (names_index >= sections->count)
        return refuse(err, "section names");
    names = section_header(sections, names_index);
    if (section_bytes(sections, &names, &sections->names))
        return refuse(err, "section names");
    return 0;
}

static bool name_is_or_extends(const char *name, const char *stem)
{
    size_t length = strlen(stem);

    return strncmp(name, stem, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

/*
 * .nv.global, .nv.global.init and .nv.constant3, bank 3 being the user's. Bank 0 holds kernel parameters, 2
 * the compiler's constants and 4 addresses: the loader fills them.
 */
static bool section_holds_variables(const char *name)
{
    return name_is_or_extends(name, ".nv.global") || name_is_or_extends(name, ".nv.constant3");
}

/* Relocatable cubins have a type of their own for variables of all memory spaces. */
#define STT_CUDA_OBJECT 13

static bool symbol_is_variable(const Elf64_Sym *symbol)
{
    unsigned int type = ELF64_ST_TYPE(symbol->st_info);

    return (type == STT_OBJECT || type == STT_CUDA_OBJECT) && symbol->st_shndx != SHN_UNDEF;
}

/* The indexes of sections that don't fit into a symbol of this table; left empty if there are none. */
static int extended_indexes(const struct elf_sections *sections, uint64_t symbol_table,
                            struct image_bytes *indexes)
{
    for (uint64_t i = 0; i < sections->count; i++) {
        Elf64_Shdr section = section_header(sections, i);

        if (section.sh_type == SHT_SYMTAB_SHNDX && section.sh_link == symbol_table)
            return section_bytes(sections, &section, indexes);
    }
    return 0;
}

static int symbols_read(const struct elf_sections *sections, uint64_t table_index, const bool *wanted,
                        struct image_names *names, struct error *err)
{
    Elf64_Shdr table = section_header(sections, table_index), strings_header;
    struct image_bytes symbols, strings, indexes = {0};

    if (section_bytes(sections, &table, &symbols) || table.sh_entsize != sizeof(Elf64_Sym) ||
        table.sh_link >= sections->count)
        return refuse(err, "symbol table");
    strings_header = section_header(sections, table.sh_link);
    if (section_bytes(sections, &strings_header, &strings) ||
        extended_indexes(sections, table_index, &indexes))
        return refuse(err, "symbol table");

    for (uint64_t i = 0; i < symbols.size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        uint32_t section;
        const char *name;
        size_t length;

        memcpy(&symbol, symbols.data + i * sizeof(symbol), sizeof(symbol));
        if (!symbol_is_variable(&symbol))
            continue;
        section = symbol.st_shndx;
        if (section == SHN_XINDEX) {
            if (!image_bytes_hold(indexes, i * sizeof(section), sizeof(section)))
                return refuse(err, "symbol table");
            memcpy(&section, indexes.data + i * sizeof(section), sizeof(section));
            if (section >= sections->count)
                return refuse(err, "symbol table");
        } else if (section >= SHN_LORESERVE) {
            if (section != SHN_COMMON)
                continue;
        } else if (section >= sections->count) {
            return refuse(err, "symbol table");
        }
        if (symbol.st_shndx != SHN_COMMON && !wanted[section])
            continue;
        name = string_at(strings, symbol.st_name, &length);
        if (!name)
            return refuse(err, "symbol table");
        if (length && image_names_add(names, name, length, err))
            return -1;
    }
    return 0;
}

int image_elf_names(struct image_bytes elf, struct image_names *names, struct error *err)
{
    struct elf_sections sections;
    cleanup_free bool *wanted = NULL;
    bool has_variables = false, has_symbols = false;

    if (sections_open(&sections, elf, err))
        return -1;
    wanted = calloc(sections.count + 1, sizeof(*wanted));
    if (!wanted) {
        error_set(err, ERROR_MEMORY, "no memory to read a module's cubin");
        return -1;
    }
    for (uint64_t i = 1; i < sections.count; i++) {
        Elf64_Shdr section = section_header(&sections, i);
        size_t length;
        const char *name = string_at(sections.names, section.sh_name, &length);

        if (!name)
            return refuse(err, "section names");
        wanted[i] = section_holds_variables(name);
        has_variables |= wanted[i] && section.sh_size;
        has_symbols |= section.sh_type == SHT_SYMTAB;
    }
    if (has_variables && !has_symbols) {
        error_set(err, ERROR_REFUSED,
                  "a module's cubin has device variables but no symbol table: they can't be saved "
                  "without names; don't strip the cubin");
        return -1;
    }
    for (uint64_t i = 1; i < sections.count; i++)
        if (section_header(&sections, i).sh_type == SHT_SYMTAB &&
            symbols_read(&sections, i, wanted, names, err))
            return -1;
    return 0;
}
