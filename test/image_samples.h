#ifndef CUDACKPT_TEST_IMAGE_SAMPLES_H
#define CUDACKPT_TEST_IMAGE_SAMPLES_H
/* Writes small cubins and fatbins, for tests without nvcc. A test has little memory to lose: failures abort.
 */

#include <elf.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* ------------------------------------------------------------------ bytes that grow */

struct blob {
    unsigned char *data;
    size_t size;
};

static inline size_t blob_add(struct blob *blob, const void *data, size_t size)
{
    size_t offset = blob->size;

    blob->data = realloc(blob->data, blob->size + size + 1);
    if (!blob->data)
        abort();
    if (data)
        memcpy(blob->data + offset, data, size);
    else
        memset(blob->data + offset, 0, size);
    blob->size += size;
    return offset;
}

static inline void blob_align(struct blob *blob, size_t alignment)
{
    blob_add(blob, NULL, (alignment - blob->size % alignment) % alignment);
}

static inline void blob_free(struct blob *blob)
{
    free(blob->data);
    *blob = (struct blob){0};
}

/* ------------------------------------------------------------------ cubins */

/* The sections of every sample, in this order. */
enum sample_section {
    SAMPLE_NULL,
    SAMPLE_SHSTRTAB,
    SAMPLE_STRTAB,
    SAMPLE_SYMTAB,
    SAMPLE_SHNDX,
    SAMPLE_TEXT,
    SAMPLE_GLOBAL,
    SAMPLE_INIT,
    SAMPLE_CONSTANT3,
    SAMPLE_CONSTANT0,
    SAMPLE_SHARED,
    SAMPLE_SECTIONS
};

struct sample_symbol {
    const char *name;
    unsigned char type;
    uint16_t section; /* a sample_section, SHN_COMMON, or SHN_XINDEX for the one below */
    uint32_t extended;
};

/* The ways in which a sample can differ. */
struct sample_options {
    bool relocatable;      /* the section types of nvcc -rdc=true */
    bool stripped;         /* no symbol table */
    bool count_in_section; /* the number of sections is in the first section header, not in the ELF header */
    uint64_t global_size;  /* of .nv.global; takes no room in the image */
};

static inline void sample_cubin(struct blob *elf, const struct sample_symbol *symbols, size_t count,
                                struct sample_options options)
{
    static const char *const names[SAMPLE_SECTIONS] = {
        "",           ".shstrtab",       ".strtab",       ".symtab",         ".symtab_shndx", ".text.k",
        ".nv.global", ".nv.global.init", ".nv.constant3", ".nv.constant0.k", ".nv.shared.k",
    };
    Elf64_Ehdr header = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, 8},
        .e_type = options.relocatable ? ET_REL : ET_EXEC,
        .e_machine = 190, /* EM_CUDA */
        .e_version = 1,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 1,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = options.count_in_section ? 0 : SAMPLE_SECTIONS,
        .e_shstrndx = options.count_in_section ? SHN_XINDEX : SAMPLE_SHSTRTAB,
    };
    Elf64_Shdr sections[SAMPLE_SECTIONS] = {0};
    Elf64_Phdr segment = {.p_type = PT_LOAD};
    struct blob section_names = {0}, strings = {0}, table = {0}, indexes = {0};

    blob_add(&strings, "", 1);
    blob_add(&table, NULL, sizeof(Elf64_Sym));
    blob_add(&indexes, NULL, sizeof(uint32_t));
    for (size_t i = 0; i < count; i++) {
        Elf64_Sym symbol = {
            .st_name = blob_add(&strings, symbols[i].name, strlen(symbols[i].name) + 1),
            .st_info = ELF64_ST_INFO(STB_LOCAL, symbols[i].type),
            .st_shndx = symbols[i].section,
            .st_size = 4,
        };

        blob_add(&table, &symbol, sizeof(symbol));
        blob_add(&indexes, &symbols[i].extended, sizeof(symbols[i].extended));
    }

    *elf = (struct blob){0};
    blob_add(elf, &header, sizeof(header));
    for (int i = 0; i < SAMPLE_SECTIONS; i++) {
        Elf64_Shdr *section = &sections[i];
        size_t name = blob_add(&section_names, names[i], strlen(names[i]) + 1);

        section->sh_name = name;
        section->sh_type = SHT_PROGBITS;
        section->sh_size = 16;
        section->sh_addralign = 8;
    }
    sections[SAMPLE_NULL].sh_type = SHT_NULL;
    sections[SAMPLE_NULL].sh_size = options.count_in_section ? SAMPLE_SECTIONS : 0;
    sections[SAMPLE_NULL].sh_link = options.count_in_section ? SAMPLE_SHSTRTAB : 0;
    sections[SAMPLE_GLOBAL].sh_size = options.global_size;
    sections[SAMPLE_GLOBAL].sh_type = options.relocatable ? 0x70000007 : SHT_NOBITS;
    sections[SAMPLE_SHARED].sh_type = options.relocatable ? 0x7000000a : SHT_NOBITS;
    sections[SAMPLE_INIT].sh_type = options.relocatable ? 0x70000008 : SHT_PROGBITS;
    sections[SAMPLE_CONSTANT3].sh_type = options.relocatable ? 0x70000067 : SHT_PROGBITS;
    sections[SAMPLE_SHSTRTAB].sh_type = sections[SAMPLE_STRTAB].sh_type = SHT_STRTAB;
    sections[SAMPLE_SYMTAB].sh_type = options.stripped ? SHT_PROGBITS : SHT_SYMTAB;
    sections[SAMPLE_SYMTAB].sh_link = SAMPLE_STRTAB;
    sections[SAMPLE_SYMTAB].sh_entsize = sizeof(Elf64_Sym);
    sections[SAMPLE_SHNDX].sh_type = SHT_SYMTAB_SHNDX;
    sections[SAMPLE_SHNDX].sh_link = SAMPLE_SYMTAB;

    for (int i = 1; i < SAMPLE_SECTIONS; i++) {
        struct blob *content = i == SAMPLE_SHSTRTAB ? &section_names
                               : i == SAMPLE_STRTAB ? &strings
                               : i == SAMPLE_SYMTAB ? &table
                               : i == SAMPLE_SHNDX  ? &indexes
                                                    : NULL;

        blob_align(elf, 8);
        sections[i].sh_offset = elf->size;
        if (content)
            sections[i].sh_size = content->size;
        if (i != SAMPLE_GLOBAL && i != SAMPLE_SHARED)
            blob_add(elf, content ? content->data : NULL, sections[i].sh_size);
    }
    blob_align(elf, 8);
    header.e_shoff = blob_add(elf, sections, sizeof(sections));
    segment.p_offset = sections[SAMPLE_TEXT].sh_offset;
    segment.p_filesz = sections[SAMPLE_TEXT].sh_size;
    header.e_phoff = blob_add(elf, &segment, sizeof(segment)); /* at the end, where ptxas puts it */
    memcpy(elf->data, &header, sizeof(header));
    blob_free(&section_names);
    blob_free(&strings);
    blob_free(&table);
    blob_free(&indexes);
}

/* ------------------------------------------------------------------ fatbins */

enum sample_packing { PACK_NONE, PACK_LZ4, PACK_ZSTD };
enum { SAMPLE_KIND_PTX = 1, SAMPLE_KIND_ELF = 2, SAMPLE_KIND_LTO = 8 };

static inline void sample_fatbin_begin(struct blob *fatbin)
{
    static const unsigned char header[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};

    *fatbin = (struct blob){0};
    blob_add(fatbin, header, sizeof(header));
}

/* Appends an entry; returns its offset. */
static inline size_t sample_fatbin_add(struct blob *fatbin, unsigned int kind, enum sample_packing packing,
                                       const void *content, size_t size)
{
    struct {
        uint16_t kind, version;
        uint32_t header_size;
        uint64_t payload_size;
        uint32_t packed_size, options;
        uint16_t minor, major;
        uint32_t arch, name, name_size;
        uint64_t flags, zero, unpacked_size;
    } entry = {.kind = kind, .version = 0x101, .header_size = 64, .arch = 90, .flags = 0x11};
    unsigned char *packed = NULL;
    size_t room = size + size / 2 + 1024, offset, payload;

    if (packing != PACK_NONE) {
        packed = malloc(room);
        if (!packed)
            abort();
        entry.unpacked_size = size;
        entry.flags |= packing == PACK_LZ4 ? 0x2000 : 0x8000;
        entry.packed_size = packing == PACK_LZ4
                                ? (size_t)LZ4_compress_default(content, (char *)packed, (int)size, (int)room)
                                : ZSTD_compress(packed, room, content, size, 3);
        content = packed;
        size = entry.packed_size;
    }
    entry.payload_size = (size + 7) / 8 * 8;
    offset = blob_add(fatbin, &entry, sizeof(entry));
    blob_add(fatbin, content, size);
    blob_align(fatbin, 8);
    free(packed);
    payload = fatbin->size - 16;
    memcpy(fatbin->data + 8, &payload, sizeof(payload));
    return offset;
}

/* As nvcc writes it. */
struct sample_wrapper {
    uint32_t magic, version;
    const void *fatbin;
    const void *more;
};

#define SAMPLE_WRAPPER_MAGIC 0x466243b1u

#endif
