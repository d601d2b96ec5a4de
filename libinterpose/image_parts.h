#ifndef CUDACKPT_IMAGE_PARTS_H
#define CUDACKPT_IMAGE_PARTS_H
/* Between image.c and the files that know one form each. All that they read may be wrong: every offset is
 * checked. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "image.h"

#define IMAGE_FATBIN_MAGIC  0xba55ed50u
#define IMAGE_WRAPPER_MAGIC 0x466243b1u

/* Memory with a known end, of any alignment. */
struct image_bytes {
    const unsigned char *data;
    size_t size;
};

static inline bool image_bytes_hold(struct image_bytes bytes, uint64_t offset, uint64_t size)
{
    return offset <= bytes.size && size <= bytes.size - offset;
}

/* A set of names: text holds them one after the other, slots is a hash table of their offsets + 1. */
struct image_names {
    char *text;
    size_t text_size, text_room;
    size_t *slots;
    size_t slot_count, count;
};

/* A name that is there already, and that of a string literal, is left out. */
int image_names_add(struct image_names *names, const char *name, size_t length, struct error *err);

/* memcpy from the program's memory, at an offset that may be nonsense; it fails where nothing is mapped. */
int image_peek(void *to, const void *image, uint64_t offset, size_t size, struct error *err);

/* Fails if the last byte is not there: asked before memory is taken for a copy, a size out of a broken header
 * is huge. */
int image_peek_end(const void *image, size_t size, struct error *err);

/* The extent of an image in the program's memory. */
int image_elf_extent(const void *image, size_t *size, struct error *err);
int image_fatbin_extent(const void *image, size_t *size, struct error *err);

int image_wrapper_copy(const void *image, struct image *copy, struct error *err);

/* The names of the variables. Nothing outside of the given bytes is read. */
int image_elf_names(struct image_bytes elf, struct image_names *names, struct error *err);
int image_ptx_names(struct image_bytes text, struct image_names *names, struct error *err);
int image_fatbin_names(struct image_bytes fatbin, struct image_names *names, struct error *err);
/* block: what image_wrapper_copy made. */
int image_wrapper_names(struct image_bytes block, struct image_names *names, struct error *err);

#endif
