/* Module images: where they end, copies that stand on their own, names of variables. */
#include "image.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image_samples.h"

/* ------------------------------------------------------------------ helpers */

struct found {
    const char *name[256];
    size_t count;
};

static void found_add(const char *name, void *arg)
{
    struct found *found = arg;

    ck_assert_uint_lt(found->count, 256);
    found->name[found->count++] = strdup(name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names sorted, with a space after each; or "refused" (then err says why and nothing was reported). */
static const char *names_of(const struct image *image, struct error *err)
{
    static char joined[16384];
    struct found found = {0};

    joined[0] = '\0';
    *err = (struct error){0};
    if (image_each_variable(image, found_add, &found, err)) {
        ck_assert_int_ne(err->code, ERROR_NONE);
        ck_assert_uint_eq(found.count, 0);
        return "refused";
    }
    ck_assert_int_eq(err->code, ERROR_NONE);
    qsort(found.name, found.count, sizeof(found.name[0]), compare_names);
    for (size_t i = 0; i < found.count; i++) {
        ck_assert_uint_lt(strlen(joined) + strlen(found.name[i]) + 2, sizeof(joined));
        strcat(strcat(joined, found.name[i]), " ");
        free((void *)found.name[i]);
    }
    return joined;
}

/* A heap copy without a spare byte, so that the sanitizer sees any read past its end. */
static struct image exact(enum image_form form, const void *data, size_t size)
{
    struct image image = {.form = form, .data = malloc(size ? size : 1), .size = size};

    ck_assert_ptr_nonnull(image.data);
    memcpy(image.data, data, size);
    return image;
}

#define assert_names(form, bytes, length, expected)                                                          \
    do {                                                                                                     \
        struct image image_ = exact((form), (bytes), (length));                                              \
        struct error err_;                                                                                   \
        const char *names_ = names_of(&image_, &err_);                                                       \
        ck_assert_msg(strcmp(names_, (expected)) == 0, "got: %s (%s)", names_, err_.text);                   \
        image_free(&image_);                                                                                 \
    } while (0)

#define assert_refused(form, bytes, length, part_of_reason)                                                  \
    do {                                                                                                     \
        struct image image_ = exact((form), (bytes), (length));                                              \
        struct error err_;                                                                                   \
        ck_assert_str_eq(names_of(&image_, &err_), "refused");                                               \
        ck_assert_int_eq(err_.code, ERROR_REFUSED);                                                          \
        ck_assert_msg(strstr(err_.text, (part_of_reason)) != NULL, "got: %s", err_.text);                    \
        image_free(&image_);                                                                                 \
    } while (0)

/* Bytes whose last one is the last one of readable memory. */
struct edge {
    unsigned char *map;
    size_t map_size;
    unsigned char *data;
};

static struct edge edge_make(const void *data, size_t size)
{
    size_t page = sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
    struct edge edge = {.map_size = body + page};

    edge.map = mmap(NULL, edge.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(edge.map, MAP_FAILED);
    ck_assert_int_eq(mprotect(edge.map + body, page, PROT_NONE), 0);
    edge.data = edge.map + body - size;
    memcpy(edge.data, data, size);
    return edge;
}

static void assert_copies(const void *data, size_t size, enum image_form form)
{
    struct edge edge = edge_make(data, size);
    struct error err = {0};
    struct image copy;

    errno = 1234;
    ck_assert_msg(image_copy(edge.data, &copy, &err) == 0, "%s", err.text);
    ck_assert_int_eq(errno, 1234);
    ck_assert_int_eq(copy.form, form);
    ck_assert_uint_eq(copy.size, size);
    ck_assert_mem_eq(copy.data, data, size);
    image_free(&copy);
    ck_assert_ptr_null(copy.data);
    munmap(edge.map, edge.map_size);
}

static void assert_copy_fails(const void *data, size_t size, const char *part_of_reason)
{
    struct edge edge = edge_make(data, size);
    struct error err = {0};
    struct image copy;

    ck_assert_int_eq(image_copy(edge.data, &copy, &err), -1);
    ck_assert_int_eq(err.code, ERROR_REFUSED);
    ck_assert_msg(strstr(err.text, part_of_reason) != NULL, "got: %s", err.text);
    ck_assert_ptr_null(copy.data);
    munmap(edge.map, edge.map_size);
}

/* ------------------------------------------------------------------ cubins */

static const struct sample_symbol symbols[] = {
    {"", STT_SECTION, SAMPLE_GLOBAL, 0},
    {"k", STT_FUNC, SAMPLE_TEXT, 0},
    {"plain", STT_OBJECT, SAMPLE_GLOBAL, 0},
    {"with_value", STT_OBJECT, SAMPLE_INIT, 0},
    {"constant", STT_OBJECT, SAMPLE_CONSTANT3, 0},
    {"parameter", STT_OBJECT, SAMPLE_CONSTANT0, 0},
    {"in_shared", STT_OBJECT, SAMPLE_SHARED, 0},
    {"elsewhere", STT_OBJECT, SHN_UNDEF, 0},
    {"absolute", STT_OBJECT, SHN_ABS, 0},
    {"common", STT_OBJECT, SHN_COMMON, 0},
    {"__nv_static_19__8ff1dbaa_4_b_cu_same", STT_OBJECT, SAMPLE_GLOBAL, 0},
    {"$__inner__16", STT_OBJECT, SAMPLE_GLOBAL, 0},
    {"$str", STT_OBJECT, SAMPLE_INIT, 0},
    {"$str$12", STT_OBJECT, SAMPLE_INIT, 0},
    {"$str$", STT_OBJECT, SAMPLE_INIT, 0},
    {"$string", STT_OBJECT, SAMPLE_INIT, 0},
    {"alias_in_section", STT_NOTYPE, SAMPLE_GLOBAL, 0},
    {"plain", STT_OBJECT, SAMPLE_INIT, 0},
    {"far_section", STT_OBJECT, SHN_XINDEX, SAMPLE_INIT},
    {"far_shared", STT_OBJECT, SHN_XINDEX, SAMPLE_SHARED},
    {"object_of_rdc", 13, SAMPLE_GLOBAL, 0},
};
#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

static const char cubin_names[] =
    "$__inner__16 $str$ $string __nv_static_19__8ff1dbaa_4_b_cu_same common constant "
    "far_section object_of_rdc plain with_value ";

/* Anything large will do: if it were counted, the copy would fail at the edge of memory. */
static const struct sample_options executable = {.global_size = 1ull << 40};
static const struct sample_options relocatable = {.relocatable = true, .global_size = 1ull << 40};
static const struct sample_options many_sections = {.count_in_section = true, .global_size = 16};

START_TEST(cubin_copy_ends_with_its_headers)
{
    const struct sample_options *options[] = {&executable, &relocatable, &many_sections};

    for (int i = 0; i < 3; i++) {
        struct blob elf;

        sample_cubin(&elf, symbols, SYMBOLS, *options[i]);
        assert_copies(elf.data, elf.size, IMAGE_ELF);
        blob_free(&elf);
    }
}
END_TEST

START_TEST(cubin_copy_ends_with_its_last_part)
{
    struct blob elf;
    Elf64_Shdr section;
    Elf64_Phdr segment;
    Elf64_Ehdr header;

    sample_cubin(&elf, symbols, SYMBOLS, executable);
    memcpy(&header, elf.data, sizeof(header));
    memcpy(&section, elf.data + header.e_shoff + SAMPLE_TEXT * sizeof(section), sizeof(section));
    section.sh_offset = blob_add(&elf, "behind the headers", 18);
    section.sh_size = 18;
    memcpy(elf.data + header.e_shoff + SAMPLE_TEXT * sizeof(section), &section, sizeof(section));
    assert_copies(elf.data, elf.size, IMAGE_ELF);

    memcpy(&segment, elf.data + header.e_phoff, sizeof(segment));
    segment.p_offset = blob_add(&elf, "behind the section", 18);
    segment.p_filesz = 18;
    memcpy(elf.data + header.e_phoff, &segment, sizeof(segment));
    assert_copies(elf.data, elf.size, IMAGE_ELF);
    blob_free(&elf);
}
END_TEST

START_TEST(cubin_copy_with_wrong_headers_fails)
{
    struct blob elf;
    Elf64_Ehdr good, header;

    sample_cubin(&elf, symbols, SYMBOLS, executable);
    assert_copy_fails(elf.data, elf.size - 1, "can't be read");
    assert_copy_fails(elf.data, 40, "can't be read");
    memcpy(&good, elf.data, sizeof(good));

    header = good;
    header.e_shoff = UINT64_MAX - 8;
    memcpy(elf.data, &header, sizeof(header));
    assert_copy_fails(elf.data, elf.size, "");

    header = good;
    header.e_phoff = UINT64_MAX - 8;
    memcpy(elf.data, &header, sizeof(header));
    assert_copy_fails(elf.data, elf.size, "outside of memory");

    header = good;
    header.e_ident[EI_CLASS] = ELFCLASS32;
    memcpy(elf.data, &header, sizeof(header));
    assert_copy_fails(elf.data, elf.size, "64-bit");
    blob_free(&elf);
}
END_TEST

START_TEST(cubin_variables)
{
    const struct sample_options *options[] = {&executable, &relocatable, &many_sections};

    for (int i = 0; i < 3; i++) {
        struct blob elf;

        sample_cubin(&elf, symbols, SYMBOLS, *options[i]);
        assert_names(IMAGE_ELF, elf.data, elf.size, cubin_names);
        blob_free(&elf);
    }
}
END_TEST

START_TEST(cubin_without_symbols_is_refused)
{
    struct blob elf;

    sample_cubin(&elf, symbols, SYMBOLS, (struct sample_options){.stripped = true, .global_size = 4});
    assert_refused(IMAGE_ELF, elf.data, elf.size, "strip");
    blob_free(&elf);
}
END_TEST

START_TEST(cubin_with_a_name_outside_is_refused)
{
    struct blob elf;
    Elf64_Ehdr header;
    Elf64_Shdr table;
    Elf64_Sym symbol;
    uint64_t place;

    sample_cubin(&elf, symbols, SYMBOLS, executable);
    memcpy(&header, elf.data, sizeof(header));
    memcpy(&table, elf.data + header.e_shoff + SAMPLE_SYMTAB * sizeof(table), sizeof(table));
    place = table.sh_offset + 3 * sizeof(symbol); /* "plain"; the first is empty */
    memcpy(&symbol, elf.data + place, sizeof(symbol));
    symbol.st_name = 1u << 31;
    memcpy(elf.data + place, &symbol, sizeof(symbol));
    assert_refused(IMAGE_ELF, elf.data, elf.size, "symbol table");
    symbol.st_name = 1;
    symbol.st_shndx = SAMPLE_SECTIONS;
    memcpy(elf.data + place, &symbol, sizeof(symbol));
    assert_refused(IMAGE_ELF, elf.data, elf.size, "symbol table");
    blob_free(&elf);
}
END_TEST

/* All the shorter ones lack a part of the headers at the end. */
START_TEST(cubin_cut_short_is_refused)
{
    struct blob elf;

    sample_cubin(&elf, symbols, SYMBOLS, executable);
    for (size_t size = 0; size < elf.size - sizeof(Elf64_Phdr); size++)
        assert_refused(IMAGE_ELF, elf.data, size, "");
    blob_free(&elf);
}
END_TEST

/* ------------------------------------------------------------------ PTX */

static const char ptx[] =
    "\n//\n// Generated by hand: .global .u32 in_comment;\n/* .global .u32 in_comment2; */\n"
    "# 1 \"line marker { .global .u32 in_marker;\n"
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".file 1 \"a\\\"{b.cu\"\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 .ptr .global .align 8 a, .param .b64 b);\n"
    ".global .align 4 .u32 plain;\n"
    ".global.align 4 .b32 %percent, $dollar, _underscore;\n"
    ".visible .global .attribute(.managed) .align 8 .f64 managed = 0d4000000000000000;\n"
    ".visible .const .align 4 .b8 constant[64];\n"
    ".weak .global .u32 weak = 1;\n.common .global .align 8 .b8 common[12];\n"
    ".global .v4 .f32 vector;\n.global .u32 a1, a2[2][3], a3 = 5;\n"
    ".global .b8 unsized[] = {1, 2, 3};\n"
    ".global .u64 pointers[] = {generic(a1), a2+8, generic(unsized)+1};\n"
    ".global .u8 mask[] = {0xff(weak), 1}, behind_mask;\n"
    ".global .align 1 .b8 $str[2] = {104, 0};\n"
    ".extern .global .u32 not_here;\n"
    ".global .u32 numbered<3>;\n"
    ".const[3] .u32 old_bank;\n"
    ".global .texref texture;\n.global .surfref surface = { width = 3 };\n.global .samplerref s1, s2;\n"
    ".alias other, k;\n"
    ".section .debug_str { .b8 0x1,2\n .b32 .text\n}\n"
    ".visible .entry k(.param .u64 .ptr .global .align 8 p, .param .u32 q)\n.maxntid 128, 1, 1\n"
    "{\n .reg .b32 %r<3>;\n .shared .u32 in_shared;\n .const .u32 in_function = 3;\n .pragma \"nounroll "
    "{\";\n"
    " ld.global.u32 %r1, [plain]; // }\n { st.volatile.global.u32 [plain+4], %r1; }\n"
    " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [x], [y], 4, [z];\n"
    " ld.L2::128B.global.u32 %r1, [plain];\n ret;\n}\n"
    ".global .u32 last;";

static const char ptx_names[] =
    "$dollar %percent _underscore a1 a2 a3 behind_mask common constant last managed mask not_here numbered0 "
    "numbered1 numbered2 old_bank plain pointers unsized vector weak ";

START_TEST(ptx_copy_ends_with_its_nul)
{
    assert_copies(ptx, sizeof(ptx), IMAGE_PTX);
    assert_copies(".", 2, IMAGE_PTX);
    assert_copies("\t.version", 10, IMAGE_PTX);
}
END_TEST

START_TEST(ptx_variables)
{
    assert_names(IMAGE_PTX, ptx, sizeof(ptx), ptx_names);
    assert_names(IMAGE_PTX, ptx, sizeof(ptx) - 1, ptx_names);
    assert_names(IMAGE_PTX, "", 1, "");
    assert_names(IMAGE_PTX, ".global .u32 a;\0.global .u32 b;", 31, "a ");
    assert_names(IMAGE_PTX, ".global .u32 a; .global .u32 a;", 31, "a ");
}
END_TEST

static void assert_ptx_refused(const char *text, const char *part_of_reason)
{
    assert_refused(IMAGE_PTX, text, strlen(text), part_of_reason);
    assert_refused(IMAGE_PTX, text, strlen(text) + 1, part_of_reason);
}

START_TEST(ptx_that_is_broken_is_refused)
{
    assert_ptx_refused("/* no end", "ends too early");
    assert_ptx_refused("/*/", "ends too early");
    assert_ptx_refused(".file 1 \"no end", "ends too early");
    assert_ptx_refused(".file 1 \"no end\\", "ends too early");
    assert_ptx_refused(".entry k { ret;", "ends too early");
    assert_ptx_refused(".global .u32 a", "ends too early");
    assert_ptx_refused(".global .u32 a = {1, 2", "ends too early");
    assert_ptx_refused(".global .u32 a = 1 ", "ends too early");
    assert_ptx_refused(".global .u32", "ends too early");
    assert_ptx_refused(".global .u32 a,;", "can't be understood at \";\"");
    assert_ptx_refused(".global .u32 a b;", "can't be understood at \"b\"");
    assert_ptx_refused(".global .u32 ;", "can't be understood");
    assert_ptx_refused(".global .u32 r<99999999>;", "can't be understood");
    assert_ptx_refused(".global .u32 r<x>;", "can't be understood");
    assert_ptx_refused(".global .u32 r<2;", "can't be understood");
}
END_TEST

/* Its contents matter, but only ptxas knows its name. */
START_TEST(ptx_with_a_variable_in_a_function_is_refused)
{
    assert_ptx_refused(".entry k() { .global .u32 inner; ret; }", "inside of a function");
    assert_ptx_refused(".entry k() { ret; .global .u32 inner; }", "inside of a function");
    assert_ptx_refused(".func f() { .loc 1 2 3\n.global .u32 inner; ret; }", "inside of a function");
    assert_ptx_refused(".func f() { a: .global .u32 inner; ret; }", "inside of a function");
    assert_ptx_refused(".func f() { {.global .u32 inner; ret; } }", "inside of a function");
}
END_TEST

/* ------------------------------------------------------------------ fatbins */

static void sample_fatbin(struct blob *fatbin, enum sample_packing packing)
{
    struct blob elf;
    static const char more_ptx[] = ".version 8.0\n.global .u32 only_in_ptx, plain;\n";

    sample_cubin(&elf, symbols, SYMBOLS, executable);
    sample_fatbin_begin(fatbin);
    sample_fatbin_add(fatbin, SAMPLE_KIND_ELF, packing, elf.data, elf.size);
    sample_fatbin_add(fatbin, SAMPLE_KIND_LTO, PACK_NONE, "intermediate code", 17);
    sample_fatbin_add(fatbin, SAMPLE_KIND_PTX, packing, more_ptx, sizeof(more_ptx));
    blob_free(&elf);
}

static const char fatbin_names[] =
    "$__inner__16 $str$ $string __nv_static_19__8ff1dbaa_4_b_cu_same common constant "
    "far_section object_of_rdc only_in_ptx plain with_value ";

START_TEST(fatbin_copy_and_names)
{
    for (enum sample_packing packing = PACK_NONE; packing <= PACK_ZSTD; packing++) {
        struct blob fatbin;

        sample_fatbin(&fatbin, packing);
        assert_copies(fatbin.data, fatbin.size, IMAGE_FATBIN);
        assert_copy_fails(fatbin.data, fatbin.size - 1, "can't be read");
        assert_names(IMAGE_FATBIN, fatbin.data, fatbin.size, fatbin_names);
        blob_free(&fatbin);
    }
}
END_TEST

START_TEST(fatbin_without_entries_has_no_names)
{
    struct blob fatbin;

    sample_fatbin_begin(&fatbin);
    assert_copies(fatbin.data, fatbin.size, IMAGE_FATBIN);
    assert_names(IMAGE_FATBIN, fatbin.data, fatbin.size, "");
    blob_free(&fatbin);
}
END_TEST

START_TEST(fatbin_with_unreadable_kinds_is_refused)
{
    struct blob fatbin;

    sample_fatbin_begin(&fatbin);
    sample_fatbin_add(&fatbin, SAMPLE_KIND_LTO, PACK_NONE, "intermediate code", 17);
    assert_refused(IMAGE_FATBIN, fatbin.data, fatbin.size, "link-time");
    sample_fatbin_add(&fatbin, SAMPLE_KIND_PTX, PACK_NONE, ".global .u32 a;", 15);
    assert_names(IMAGE_FATBIN, fatbin.data, fatbin.size, "a ");
    sample_fatbin_add(&fatbin, 77, PACK_NONE, "?", 1);
    assert_refused(IMAGE_FATBIN, fatbin.data, fatbin.size, "kind 77");
    blob_free(&fatbin);
}
END_TEST

/* Changes size bytes at a place in an entry of a good fatbin and expects a refusal. */
static void assert_entry_refused(enum sample_packing packing, size_t place, uint64_t value, size_t size,
                                 const char *part_of_reason)
{
    struct blob fatbin;
    size_t entry;

    sample_fatbin_begin(&fatbin);
    entry = sample_fatbin_add(&fatbin, SAMPLE_KIND_PTX, packing, ptx, sizeof(ptx));
    memcpy(fatbin.data + entry + place, &value, size);
    assert_refused(IMAGE_FATBIN, fatbin.data, fatbin.size, part_of_reason);
    blob_free(&fatbin);
}

START_TEST(fatbin_with_a_wrong_entry_is_refused)
{
    assert_entry_refused(PACK_NONE, 4, 16, 4, "an entry");         /* header size: too small */
    assert_entry_refused(PACK_NONE, 4, UINT32_MAX, 4, "an entry"); /* outside */
    assert_entry_refused(PACK_NONE, 8, UINT64_MAX - 63, 8, "an entry");
    assert_entry_refused(PACK_NONE, 8, 8, 8, ""); /* a next entry out of the middle of the text */
    assert_entry_refused(PACK_LZ4, 16, UINT32_MAX, 4, "an entry");
    assert_entry_refused(PACK_LZ4, 40, 0xa011, 8, "a compressed entry");
    assert_entry_refused(PACK_LZ4, 40, 0x8011, 8, "a zstd entry");
    assert_entry_refused(PACK_ZSTD, 40, 0x2011, 8, "an LZ4 entry");
    assert_entry_refused(PACK_LZ4, 56, 8, 8, "an LZ4 entry");
    assert_entry_refused(PACK_ZSTD, 56, 8, 8, "a zstd entry");
    assert_entry_refused(PACK_LZ4, 56, 0, 8, "claims to hold 0 bytes");
    assert_entry_refused(PACK_ZSTD, 56, (1ull << 30) + 1, 8, "claims to hold 1073741825 bytes");
    assert_entry_refused(PACK_ZSTD, 56, UINT64_MAX, 8, "claims to hold");
}
END_TEST

START_TEST(fatbin_with_a_wrong_header_is_refused)
{
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 15, 1ull << 50};
    struct blob fatbin;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        sample_fatbin(&fatbin, PACK_NONE);
        memcpy(fatbin.data + 8, &sizes[i], 8);
        assert_refused(IMAGE_FATBIN, fatbin.data, fatbin.size, "fatbin");
        blob_free(&fatbin);
    }
    sample_fatbin(&fatbin, PACK_NONE);
    fatbin.data[6] = 15; /* header size */
    assert_copy_fails(fatbin.data, fatbin.size, "unknown form");
    fatbin.data[6] = 16;
    fatbin.data[4] = 2; /* version */
    assert_copy_fails(fatbin.data, fatbin.size, "unknown form");
    blob_free(&fatbin);
}
END_TEST

/* A cubin in a fatbin must lie within its entry, though more follows. */
START_TEST(fatbin_entry_does_not_reach_into_the_next)
{
    struct blob elf, fatbin;

    sample_cubin(&elf, symbols, SYMBOLS, executable);
    sample_fatbin_begin(&fatbin);
    sample_fatbin_add(&fatbin, SAMPLE_KIND_ELF, PACK_NONE, elf.data, elf.size - 256);
    sample_fatbin_add(&fatbin, SAMPLE_KIND_PTX, PACK_NONE, ptx, sizeof(ptx));
    assert_refused(IMAGE_FATBIN, fatbin.data, fatbin.size, "section table");
    blob_free(&elf);
    blob_free(&fatbin);
}
END_TEST

/* ------------------------------------------------------------------ wrappers */

static bool inside(const struct image *image, const void *pointer)
{
    return (const char *)pointer > (const char *)image->data &&
           (const char *)pointer < (const char *)image->data + image->size;
}

START_TEST(wrapper_copy_stands_alone)
{
    struct blob fatbin;
    struct sample_wrapper wrapper = {SAMPLE_WRAPPER_MAGIC, 1, NULL, "offline.bin"}, copied;
    struct error err = {0};
    struct image copy;

    sample_fatbin(&fatbin, PACK_ZSTD);
    wrapper.fatbin = fatbin.data;
    ck_assert_int_eq(image_copy(&wrapper, &copy, &err), 0);
    ck_assert_int_eq(copy.form, IMAGE_WRAPPER);
    memcpy(&copied, copy.data, sizeof(copied));
    ck_assert_uint_eq(copied.magic, SAMPLE_WRAPPER_MAGIC);
    ck_assert_uint_eq(copied.version, 1);
    ck_assert_ptr_null(copied.more);
    ck_assert(inside(&copy, copied.fatbin));
    ck_assert_uint_eq((uintptr_t)copied.fatbin % 8, 0);
    ck_assert_mem_eq(copied.fatbin, fatbin.data, fatbin.size);
    ck_assert_ptr_eq((const char *)copied.fatbin + fatbin.size, (const char *)copy.data + copy.size);
    blob_free(&fatbin);
    ck_assert_str_eq(names_of(&copy, &err), fatbin_names);
    image_free(&copy);
}
END_TEST

START_TEST(wrapper_copy_takes_the_linked_fatbins_along)
{
    struct blob fatbins[4];
    const void *list[4];
    struct sample_wrapper wrapper = {SAMPLE_WRAPPER_MAGIC, 2, NULL, list}, copied;
    const void *const *copied_list;
    struct error err = {0};
    struct image copy;

    for (int i = 0; i < 4; i++) {
        char text[32];
        int length = snprintf(text, sizeof(text), ".global .u32 v%d;%*s", i, i, "");

        sample_fatbin_begin(&fatbins[i]);
        sample_fatbin_add(&fatbins[i], SAMPLE_KIND_PTX, PACK_NONE, text, length);
    }
    wrapper.fatbin = fatbins[0].data;
    for (int i = 1; i < 4; i++)
        list[i - 1] = fatbins[i].data;
    list[3] = NULL;
    ck_assert_int_eq(image_copy(&wrapper, &copy, &err), 0);
    memcpy(&copied, copy.data, sizeof(copied));
    ck_assert_uint_eq(copied.version, 2);
    ck_assert(inside(&copy, copied.fatbin));
    ck_assert(inside(&copy, copied.more));
    ck_assert_mem_eq(copied.fatbin, fatbins[0].data, fatbins[0].size);
    copied_list = copied.more;
    for (int i = 1; i < 4; i++) {
        ck_assert(inside(&copy, copied_list[i - 1]));
        ck_assert_uint_eq((uintptr_t)copied_list[i - 1] % 8, 0);
        ck_assert_mem_eq(copied_list[i - 1], fatbins[i].data, fatbins[i].size);
    }
    ck_assert_ptr_null(copied_list[3]);
    for (int i = 0; i < 4; i++)
        blob_free(&fatbins[i]);
    ck_assert_str_eq(names_of(&copy, &err), "v0 v1 v2 v3 ");
    image_free(&copy);

    sample_fatbin(&fatbins[0], PACK_LZ4);
    wrapper = (struct sample_wrapper){SAMPLE_WRAPPER_MAGIC, 2, fatbins[0].data, NULL};
    ck_assert_int_eq(image_copy(&wrapper, &copy, &err), 0);
    ck_assert_str_eq(names_of(&copy, &err), fatbin_names);
    image_free(&copy);
    blob_free(&fatbins[0]);
}
END_TEST

START_TEST(wrapper_that_is_wrong_is_refused)
{
    struct sample_wrapper wrapper = {SAMPLE_WRAPPER_MAGIC, 1, NULL, NULL};
    const void **list = malloc(70000 * sizeof(*list));
    struct blob fatbin;

    sample_fatbin_begin(&fatbin);
    assert_copy_fails(&wrapper, sizeof(wrapper), "can't be read");
    wrapper.fatbin = "not a fatbin at all";
    assert_copy_fails(&wrapper, sizeof(wrapper), "unknown form");
    wrapper.version = 3;
    assert_copy_fails(&wrapper, sizeof(wrapper), "unknown version 3");
    wrapper = (struct sample_wrapper){SAMPLE_WRAPPER_MAGIC, 2, fatbin.data, (const void *)16};
    assert_copy_fails(&wrapper, sizeof(wrapper), "can't be read");
    for (int i = 0; i < 70000; i++)
        list[i] = fatbin.data;
    wrapper.more = list;
    assert_copy_fails(&wrapper, sizeof(wrapper), "no end");
    blob_free(&fatbin);
    free(list);
}
END_TEST

/* Only what image_copy made is looked at, but that lies in the program's memory too. */
START_TEST(wrapper_that_points_out_of_its_block_is_refused)
{
    struct {
        struct sample_wrapper wrapper;
        const void *list[2];
        unsigned char fatbin[16];
    } block = {{SAMPLE_WRAPPER_MAGIC, 2, NULL, NULL}, {NULL, NULL}, {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0}};
    struct image image = {IMAGE_WRAPPER, &block, sizeof(block)};
    struct error err;

    ck_assert_str_eq(names_of(&image, &err), "refused");
    block.wrapper.fatbin = block.fatbin;
    ck_assert_str_eq(names_of(&image, &err), "");
    block.wrapper.more = block.list;
    ck_assert_str_eq(names_of(&image, &err), "");
    block.list[0] = block.fatbin;
    ck_assert_str_eq(names_of(&image, &err), "");
    block.list[0] = &err;
    ck_assert_str_eq(names_of(&image, &err), "refused");
    block.list[0] = block.fatbin + 1;
    ck_assert_str_eq(names_of(&image, &err), "refused");
    block.wrapper.more = &err;
    ck_assert_str_eq(names_of(&image, &err), "refused");
    image.size = sizeof(block.wrapper) - 1;
    ck_assert_str_eq(names_of(&image, &err), "refused");
}
END_TEST

START_TEST(other_memory_is_refused)
{
    assert_copy_fails("MZ, perhaps?", 12, "neither a cubin nor PTX nor a fatbin");
    assert_copy_fails("", 1, "can't be read"); /* not PTX, and too short for a magic number */
}
END_TEST

/* ------------------------------------------------------------------ files */

static char directory[] = "/tmp/check_image.XXXXXX";

static const char *file_with(const void *data, size_t size)
{
    static char path[64];
    FILE *file;

    snprintf(path, sizeof(path), "%s/module", directory);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static void assert_file(const void *data, size_t size, enum image_form form, size_t image_size,
                        const char *names)
{
    const char *path = file_with(data, size);
    struct error err = {0};
    struct image image;

    errno = 1234;
    ck_assert_msg(image_read_file(path, &image, &err) == 0, "%s", err.text);
    ck_assert_int_eq(errno, 1234);
    unlink(path);
    ck_assert_int_eq(image.form, form);
    ck_assert_uint_eq(image.size, image_size);
    ck_assert_mem_eq(image.data, data, size);
    if (form == IMAGE_PTX)
        ck_assert_int_eq(((char *)image.data)[size], '\0');
    ck_assert_str_eq(names_of(&image, &err), names);
    image_free(&image);
}

static void assert_file_fails(const char *path, enum error_code code, const char *part_of_reason)
{
    struct error err = {0};
    struct image image;

    errno = 1234;
    ck_assert_int_eq(image_read_file(path, &image, &err), -1);
    ck_assert_int_eq(errno, 1234);
    ck_assert_int_eq(err.code, code);
    ck_assert_msg(strstr(err.text, part_of_reason) != NULL, "got: %s", err.text);
    ck_assert_ptr_null(image.data);
}

START_TEST(files)
{
    struct sample_wrapper wrapper = {SAMPLE_WRAPPER_MAGIC, 1, NULL, NULL};
    struct blob elf, fatbin;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    sample_cubin(&elf, symbols, SYMBOLS, executable);
    sample_fatbin(&fatbin, PACK_LZ4);
    assert_file(elf.data, elf.size, IMAGE_ELF, elf.size, cubin_names);
    assert_file(fatbin.data, fatbin.size, IMAGE_FATBIN, fatbin.size, fatbin_names);
    assert_file(ptx, sizeof(ptx) - 1, IMAGE_PTX, sizeof(ptx), ptx_names);
    assert_file(ptx, sizeof(ptx), IMAGE_PTX, sizeof(ptx) + 1, ptx_names);

    assert_file_fails(file_with("", 0), ERROR_REFUSED, "is empty");
    assert_file_fails(file_with("?", 1), ERROR_REFUSED, "neither");
    assert_file_fails(file_with(&wrapper, sizeof(wrapper)), ERROR_REFUSED, "neither");
    unlink(file_with("", 0));
    assert_file_fails(directory, ERROR_REFUSED, "can't be read");
    ck_assert_int_eq(rmdir(directory), 0);
    assert_file_fails(directory, ERROR_NOT_FOUND, directory);
    blob_free(&elf);
    blob_free(&fatbin);
}
END_TEST

/* A pipe has no size and gives its bytes in pieces. */
START_TEST(file_that_is_a_pipe)
{
    struct error err = {0};
    struct image image;
    char path[64];
    FILE *pipe;

    pipe = popen(
        "printf '.global .u32 early;'; head -c 200000 /dev/zero | tr '\\0' ' '; printf '.global .u32 late;'",
        "r");
    ck_assert_ptr_nonnull(pipe);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(pipe));
    ck_assert_msg(image_read_file(path, &image, &err) == 0, "%s", err.text);
    pclose(pipe);
    ck_assert_uint_eq(image.size, 19 + 200000 + 18 + 1);
    ck_assert_str_eq(names_of(&image, &err), "early late ");
    image_free(&image);
}
END_TEST

/* ------------------------------------------------------------------ with a compiler */

static const char source[] =
    "static __device__ int s_dev; __constant__ float c_arr[16]; __managed__ int man[4];\n"
    "namespace { __device__ int anon = 3; }\n"
    "__device__ const char *text = \"a literal\";\n"
    "__global__ void k(int *o) { __shared__ int sh[4]; sh[o[0] & 3] = (int)c_arr[o[1] & 15];\n"
    " o[2] = s_dev + man[0] + anon + text[o[3]] + sh[o[4] & 3]; s_dev = o[5]; anon = o[6]; }\n";

static bool has_nvcc(void)
{
    return system("nvcc --version >/dev/null 2>&1") == 0;
}

START_TEST(names_from_nvcc)
{
    char template[] = "/tmp/check_image.XXXXXX", path[64], command[512];
    struct error err = {0};
    struct image image;
    const char *names;
    FILE *file;

    ck_assert_ptr_nonnull(mkdtemp(template));
    snprintf(path, sizeof(path), "%s/a.cu", template);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(source, file);
    fclose(file);
    snprintf(command, sizeof(command), "cd %s && nvcc -fatbin -o a.fatbin a.cu >/dev/null 2>&1", template);
    ck_assert_msg(system(command) == 0, "nvcc does not compile the sample");
    snprintf(path, sizeof(path), "%s/a.fatbin", template);
    ck_assert_msg(image_read_file(path, &image, &err) == 0, "%s", err.text);
    names = names_of(&image, &err);
    ck_assert_msg(strncmp(names, "_ZN", 3) == 0, "got: %s (%s)", names, err.text);
    ck_assert_ptr_nonnull(strstr(names, "anonE"));
    ck_assert_str_eq(strchr(names, ' '), " c_arr man s_dev text ");
    image_free(&image);
    snprintf(command, sizeof(command), "rm -r %s", template);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

static Suite *image_suite(void)
{
    Suite *suite = suite_create("image");
    TCase *plain = tcase_create("samples");

    tcase_add_test(plain, cubin_copy_ends_with_its_headers);
    tcase_add_test(plain, cubin_copy_ends_with_its_last_part);
    tcase_add_test(plain, cubin_copy_with_wrong_headers_fails);
    tcase_add_test(plain, cubin_variables);
    tcase_add_test(plain, cubin_without_symbols_is_refused);
    tcase_add_test(plain, cubin_with_a_name_outside_is_refused);
    tcase_add_test(plain, cubin_cut_short_is_refused);
    tcase_add_test(plain, ptx_copy_ends_with_its_nul);
    tcase_add_test(plain, ptx_variables);
    tcase_add_test(plain, ptx_that_is_broken_is_refused);
    tcase_add_test(plain, ptx_with_a_variable_in_a_function_is_refused);
    tcase_add_test(plain, fatbin_copy_and_names);
    tcase_add_test(plain, fatbin_without_entries_has_no_names);
    tcase_add_test(plain, fatbin_with_unreadable_kinds_is_refused);
    tcase_add_test(plain, fatbin_with_a_wrong_entry_is_refused);
    tcase_add_test(plain, fatbin_with_a_wrong_header_is_refused);
    tcase_add_test(plain, fatbin_entry_does_not_reach_into_the_next);
    tcase_add_test(plain, wrapper_copy_stands_alone);
    tcase_add_test(plain, wrapper_copy_takes_the_linked_fatbins_along);
    tcase_add_test(plain, wrapper_that_is_wrong_is_refused);
    tcase_add_test(plain, wrapper_that_points_out_of_its_block_is_refused);
    tcase_add_test(plain, other_memory_is_refused);
    tcase_add_test(plain, files);
    tcase_add_test(plain, file_that_is_a_pipe);
    suite_add_tcase(suite, plain);

    if (has_nvcc()) {
        TCase *compiler = tcase_create("nvcc");

        tcase_set_timeout(compiler, 120);
        tcase_add_test(compiler, names_from_nvcc);
        suite_add_tcase(suite, compiler);
    } else {
        printf("image: nvcc is not on PATH: names_from_nvcc was left out\n");
    }
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(image_suite());
    int failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
