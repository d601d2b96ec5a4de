/*
 * Fatbins, and the wrappers that nvcc puts around them.
 *
 *   fatbin   header, then entries up to the end of the payload; each is one ELF image or PTX text, plain or
 * packed wrapper  points to a fatbin. Version 2 (made by nvcc -dlink) also points to a list of further
 * fatbins, with NULL at its end: the relocatable ones, for the driver to link when the first has nothing for
 * the device
 */

#include <limits.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "cleanup.h"
#include "image_parts.h"

struct fatbin_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_size;
    uint64_t payload_size;
};

enum { KIND_PTX = 1, KIND_ELF = 2, KIND_LTO = 8 };

#define FLAG_LZ4  0x2000u
#define FLAG_ZSTD 0x8000u

struct fatbin_entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_size;
    uint64_t payload_size; /* padded */
    uint32_t packed_size;  /* 0: not packed */
    uint32_t unread[5];
    uint64_t flags;
    uint64_t unread2;
    uint64_t unpacked_size; /* 0: not packed */
};

_Static_assert(offsetof(struct fatbin_entry, flags) == 40 && sizeof(struct fatbin_entry) == 64,
               "layout of the entry");

#define UNPACKED_MAX (1ull << 30)

struct wrapper {
    uint32_t magic;
    uint32_t version;
    const void *fatbin;
    const void *more; /* version 2: the list; version 1: unused, once a file name */
};

#define WRAPPER_FATBINS_MAX 65536u /* in case that the list has no end */
#define WRAPPER_ALIGNMENT   16u

static int refuse(struct error *err, const char *what)
{
    error_set(err, ERROR_REFUSED, "%s of a module's fatbin can't be read, so its variables can't be saved",
              what);
    return -1;
}

/* ------------------------------------------------------------------ fatbin */

static int header_extent(const struct fatbin_header *header, size_t *size, struct error *err)
{
    if (header->magic != IMAGE_FATBIN_MAGIC || header->version != 1 ||
        header->header_size < sizeof(*header) ||
        __builtin_add_overflow(header->header_size, header->payload_size, size)) {
        error_set(err, ERROR_REFUSED, "a module's fatbin has a header of an unknown form");
        return -1;
    }
    return 0;
}

int image_fatbin_extent(const void *image, size_t *size, struct error *err)
{
    struct fatbin_header header;

    if (image_peek(&header, image, 0, sizeof(header), err))
        return -1;
    return header_extent(&header, size, err);
}

/* Unpacks an entry into memory that the caller frees. */
static int entry_unpack(const struct fatbin_entry *entry, struct image_bytes packed, unsigned char **unpacked,
                        size_t *size, struct error *err)
{
    bool is_lz4 = entry->flags & FLAG_LZ4;

    if (is_lz4 && (entry->flags & FLAG_ZSTD))
        return refuse(err, "a compressed entry");
    if (packed.size > INT_MAX || entry->unpacked_size == 0 || entry->unpacked_size > UNPACKED_MAX) {
        error_set(
            err, ERROR_REFUSED,
            "a compressed entry of a module's fatbin claims to hold %llu bytes, more than the %llu that are "
            "unpacked to find its variables",
            (unsigned long long)entry->unpacked_size, UNPACKED_MAX);
        return -1;
    }
    *unpacked = malloc(entry->unpacked_size);
    if (!*unpacked) {
        error_set(err, ERROR_MEMORY, "no memory to unpack a module's fatbin (%llu bytes)",
                  (unsigned long long)entry->unpacked_size);
        return -1;
    }
    if (is_lz4) {
        int n = LZ4_decompress_safe((const char *)packed.data, (char *)*unpacked, (int)packed.size,
                                    (int)entry->unpacked_size);

        if (n < 0)
            return refuse(err, "an LZ4 entry");
        *size = n;
    } else {
        *size = ZSTD_decompress(*unpacked, entry->unpacked_size, packed.data, packed.size);
        if (ZSTD_isError(*size))
            return refuse(err, "a zstd entry");
    }
    return 0;
}

static int entry_names(const struct fatbin_entry *entry, struct image_bytes content,
                       struct image_names *names, struct error *err)
{
    cleanup_free unsigned char *unpacked = NULL;

    if (entry->packed_size) {
        if (entry->packed_size > content.size)
            return refuse(err, "an entry");
        content.size = entry->packed_size;
    }
    if (entry->flags & (FLAG_LZ4 | FLAG_ZSTD)) {
        size_t size;

        if (entry_unpack(entry, content, &unpacked, &size, err))
            return -1;
        content = (struct image_bytes){unpacked, size};
    }
    return entry->kind == KIND_ELF ? image_elf_names(content, names, err)
                                   : image_ptx_names(content, names, err);
}

int image_fatbin_names(struct image_bytes fatbin, struct image_names *names, struct error *err)
{
    struct fatbin_header header;
    bool has_code = false, has_lto = false;
    size_t offset, end;

    if (fatbin.size < sizeof(header))
        return refuse(err, "the header");
    memcpy(&header, fatbin.data, sizeof(header));
    if (header_extent(&header, &end, err))
        return -1;
    if (end > fatbin.size)
        return refuse(err, "the end");

    for (offset = header.header_size; offset < end;) {
        struct fatbin_entry entry;
        struct image_bytes rest = {fatbin.data + offset, end - offset};

        if (rest.size < sizeof(entry))
            return refuse(err, "the last entry");
        memcpy(&entry, rest.data, sizeof(entry));
        if (entry.header_size < sizeof(entry) ||
            !image_bytes_hold(rest, entry.header_size, entry.payload_size))
            return refuse(err, "an entry");
        offset += entry.header_size + entry.payload_size;
        if (entry.kind == KIND_LTO) {
            has_lto = true;
            continue;
        }
        if (entry.kind != KIND_PTX && entry.kind != KIND_ELF) {
            error_set(
                err, ERROR_REFUSED,
                "a module's fatbin has an entry of kind %u, which is neither ELF nor PTX, so its variables "
                "can't be saved",
                entry.kind);
            return -1;
        }
        has_code = true;
        if (entry_names(&entry, (struct image_bytes){rest.data + entry.header_size, entry.payload_size},
                        names, err))
            return -1;
    }
    /* Beside code, the intermediate form is for linkers, and comes from the same source: nothing is missed.
     */
    if (has_lto && !has_code) {
        error_set(err, ERROR_REFUSED,
                  "a module's fatbin holds link-time optimization code only, so its variables "
                  "can't be saved; build it with PTX or device code as well");
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ wrapper */

/* A fatbin that goes into the copy of a wrapper. */
struct part {
    const void *image;
    size_t size;
    size_t offset; /* in the copy */
};

struct parts {
    struct part *part;
    size_t count, room;
    size_t end; /* of the copy so far */
};

static int out_of_memory(struct error *err)
{
    error_set(err, ERROR_MEMORY, "no memory to copy a module's fatbins");
    return -1;
}

/* Places size bytes at the end of the copy. */
static int parts_place(struct parts *parts, size_t size, size_t *offset, struct error *err)
{
    size_t start;

    if (__builtin_add_overflow(parts->end, WRAPPER_ALIGNMENT - 1, &start))
        return out_of_memory(err);
    start -= start % WRAPPER_ALIGNMENT;
    if (__builtin_add_overflow(start, size, &parts->end))
        return out_of_memory(err);
    *offset = start;
    return 0;
}

static int parts_add(struct parts *parts, const void *fatbin, struct error *err)
{
    struct part *part;

    if (parts->count == parts->room) {
        size_t room = parts->room ? 2 * parts->room : 4;
        struct part *larger = realloc(parts->part, room * sizeof(*larger));

        if (!larger)
            return out_of_memory(err);
        parts->part = larger;
        parts->room = room;
    }
    part = &parts->part[parts->count];
    *part = (struct part){.image = fatbin};
    if (image_fatbin_extent(fatbin, &part->size, err) || image_peek_end(fatbin, part->size, err))
        return -1;
    parts->count++;
    return 0;
}

static int parts_add_list(struct parts *parts, const void *list, struct error *err)
{
    const void *fatbin;

    for (size_t i = 0; i < WRAPPER_FATBINS_MAX; i++) {
        if (image_peek(&fatbin, list, i * sizeof(fatbin), sizeof(fatbin), err))
            return -1;
        if (!fatbin)
            return 0;
        if (parts_add(parts, fatbin, err))
            return -1;
    }
    error_set(err, ERROR_REFUSED, "the list of fatbins to link into a module has no end");
    return -1;
}

/*
 * One block: the wrapper, the list if there is one, the fatbins. The file name that a wrapper of version 1
 * might have is left out.
 */
static int parts_copy(struct parts *parts, const struct wrapper *wrapper, struct image *copy,
                      struct error *err)
{
    size_t list_size = wrapper->more ? parts->count * sizeof(void *) : 0, list_offset;
    struct wrapper new_wrapper = *wrapper;
    unsigned char *block;

    parts->end = sizeof(*wrapper);
    if (parts_place(parts, list_size, &list_offset, err))
        return -1;
    for (size_t i = 0; i < parts->count; i++)
        if (parts_place(parts, parts->part[i].size, &parts->part[i].offset, err))
            return -1;
    block = calloc(1, parts->end);
    if (!block)
        return out_of_memory(err);
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->part[i];
        const void *moved = block + part->offset;

        if (image_peek(block + part->offset, part->image, 0, part->size, err)) {
            free(block);
            return -1;
        }
        if (i > 0)
            memcpy(block + list_offset + (i - 1) * sizeof(moved), &moved, sizeof(moved));
    }
    new_wrapper.fatbin = block + parts->part[0].offset;
    new_wrapper.more = wrapper->more ? block + list_offset : NULL;
    memcpy(block, &new_wrapper, sizeof(new_wrapper));
    *copy = (struct image){.form = IMAGE_WRAPPER, .data = block, .size = parts->end};
    return 0;
}

int image_wrapper_copy(const void *image, struct image *copy, struct error *err)
{
    struct parts parts = {0};
    struct wrapper wrapper;
    int rc = -1;

    if (image_peek(&wrapper, image, 0, sizeof(wrapper), err))
        return -1;
    if (wrapper.version != 1 && wrapper.version != 2) {
        error_set(err, ERROR_REFUSED, "a module's fatbin wrapper has the unknown version %u",
                  wrapper.version);
        return -1;
    }
    if (wrapper.version == 1)
        wrapper.more = NULL;
    if (parts_add(&parts, wrapper.fatbin, err) || (wrapper.more && parts_add_list(&parts, wrapper.more, err)))
        goto end;
    rc = parts_copy(&parts, &wrapper, copy, err);
end:
    free(parts.part);
    return rc;
}

/* The block from a pointer into it on; -1 if the pointer points elsewhere. */
static int block_from(struct image_bytes block, const void *pointer, struct image_bytes *rest)
{
    uintptr_t offset = (uintptr_t)pointer - (uintptr_t)block.data;

    if (offset > block.size)
        return -1;
    *rest = (struct image_bytes){block.data + offset, block.size - offset};
    return 0;
}

int image_wrapper_names(struct image_bytes block, struct image_names *names, struct error *err)
{
    struct wrapper wrapper;
    struct image_bytes list, fatbin;
    const void *pointer;

    if (block.size < sizeof(wrapper))
        return refuse(err, "the wrapper");
    memcpy(&wrapper, block.data, sizeof(wrapper));
    if (block_from(block, wrapper.fatbin, &fatbin))
        return refuse(err, "the wrapper");
    if (image_fatbin_names(fatbin, names, err))
        return -1;
    if (!wrapper.more)
        return 0;
    if (block_from(block, wrapper.more, &list))
        return refuse(err, "the wrapper");
    for (size_t i = 0;; i++) {
        if (!image_bytes_hold(list, i * sizeof(pointer), sizeof(pointer)))
            return refuse(err, "the wrapper");
        memcpy(&pointer, list.data + i * sizeof(pointer), sizeof(pointer));
        if (!pointer)
            return 0;
        if (block_from(block, pointer, &fatbin))
            return refuse(err, "the wrapper");
        if (image_fatbin_names(fatbin, names, err))
            return -1;
    }
}
