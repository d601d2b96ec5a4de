/* Module images: copies, files, and the set of variable names. */

#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cleanup.h"
#include "image_parts.h"

#define FILE_SIZE_MAX  (8ull << 30) /* in case that it is a device without end */
#define NAMES_TEXT_MAX (256u << 20) /* all names together: broken tables make them overlap */

/* ------------------------------------------------------------------ memory of the program */

int image_peek(void *to, const void *image, uint64_t offset, size_t size, struct error *err)
{
    uintptr_t from;

    if (__builtin_add_overflow((uintptr_t)image, offset, &from))
        from = UINTPTR_MAX; /* nothing is mapped there */
    while (size) {
        struct iovec local = {to, size}, remote = {(void *)from, size};
        ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

        /* Not allowed in some containers: then as the driver does it. */
        if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
            memcpy(to, (const void *)from, size);
            return 0;
        }
        if (n <= 0) {
            error_set(err, ERROR_REFUSED, "a module image points at memory that can't be read (%p)",
                      (void *)from);
            return -1;
        }
        to = (char *)to + n;
        from += n;
        size -= n;
    }
    return 0;
}

int image_peek_end(const void *image, size_t size, struct error *err)
{
    char last;

    return image_peek(&last, image, size - 1, 1, err);
}

/* ------------------------------------------------------------------ copies */

/* The driver takes text for PTX; it starts with a comment, a line of a preprocessor, or .version. */
static bool starts_ptx(unsigned char c)
{
    return c == '.' || c == '/' || c == '#' || c == ' ' || (c >= '\t' && c <= '\r');
}

/* first: the first bytes, at least one. */
static int form_of(struct image_bytes first, enum image_form *form, struct error *err)
{
    uint32_t magic = 0;

    if (starts_ptx(first.data[0])) {
        *form = IMAGE_PTX;
        return 0;
    }
    if (first.size >= sizeof(magic))
        memcpy(&magic, first.data, sizeof(magic));
    if (memcmp(&magic, "\177ELF", sizeof(magic)) == 0)
        *form = IMAGE_ELF;
    else if (magic == IMAGE_FATBIN_MAGIC)
        *form = IMAGE_FATBIN;
    else if (magic == IMAGE_WRAPPER_MAGIC)
        *form = IMAGE_WRAPPER;
    else {
        error_set(err, ERROR_REFUSED,
                  "a module image is neither a cubin nor PTX nor a fatbin (it starts with 0x%08x)", magic);
        return -1;
    }
    return 0;
}

static int copy_block(const void *image, size_t size, struct image *copy, struct error *err)
{
    if (image_peek_end(image, size, err))
        return -1;
    copy->data = malloc(size);
    if (!copy->data) {
        error_set(err, ERROR_MEMORY, "no memory to copy a module image of %zu bytes", size);
        return -1;
    }
    if (image_peek(copy->data, image, 0, size, err)) {
        free(copy->data);
        copy->data = NULL;
        return -1;
    }
    copy->size = size;
    return 0;
}

static int copy_any(const void *image, struct image *copy, struct error *err)
{
    unsigned char first[sizeof(uint32_t)];
    struct image_bytes known = {first, 1};
    size_t size;

    /* One byte first: a very short text may end where its mapping ends. */
    if (image_peek(first, image, 0, 1, err))
        return -1;
    if (!starts_ptx(first[0])) {
        known.size = sizeof(first);
        if (image_peek(first, image, 0, sizeof(first), err))
            return -1;
    }
    if (form_of(known, &copy->form, err))
        return -1;
    switch (copy->form) {
    case IMAGE_ELF:
        return image_elf_extent(image, &size, err) ? -1 : copy_block(image, size, copy, err);
    case IMAGE_PTX:
        return copy_block(image, strlen(image) + 1, copy, err);
    case IMAGE_FATBIN:
        return image_fatbin_extent(image, &size, err) ? -1 : copy_block(image, size, copy, err);
    case IMAGE_WRAPPER:
        return image_wrapper_copy(image, copy, err);
    }
    return -1;
}

int image_copy(const void *image, struct image *copy, struct error *err)
{
    int saved = errno, rc;

    *copy = (struct image){0};
    rc = copy_any(image, copy, err);
    errno = saved;
    return rc;
}

void image_free(struct image *image)
{
    free(image->data);
    *image = (struct image){0};
}

/* ------------------------------------------------------------------ files */

/* Reads to the end, and puts a NUL there: PTX files have none. *size is without it. */
static int read_all(int fd, const char *path, unsigned char **data, size_t *size, struct error *err)
{
    struct stat status;
    size_t room = 65536;

    if (fstat(fd, &status) == 0 && status.st_size > 0)
        room = status.st_size + 2; /* one for the NUL, one for the read that finds the end */
    for (*size = 0;;) {
        ssize_t n;

        if (!*data || room - *size < 2) {
            unsigned char *larger;

            if (*data)
                room *= 2;
            larger = realloc(*data, room);
            if (!larger) {
                error_set(err, ERROR_MEMORY, "no memory to read the module file %s", path);
                return -1;
            }
            *data = larger;
        }
        n = read(fd, *data + *size, room - *size - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            error_set_errno(err, ERROR_REFUSED, errno, "the module file %s can't be read", path);
            return -1;
        }
        if (n == 0)
            break;
        *size += n;
        if (*size > FILE_SIZE_MAX) {
            error_set(err, ERROR_REFUSED, "the module file %s is too large", path);
            return -1;
        }
    }
    (*data)[*size] = '\0';
    return 0;
}

static int read_file(const char *path, struct image *copy, struct error *err)
{
    cleanup_free unsigned char *data = NULL;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size;

    if (fd < 0) {
        error_set_errno(err, ERROR_NOT_FOUND, errno, "the module file %s can't be opened", path);
        return -1;
    }
    if (read_all(fd, path, &data, &size, err))
        return -1;
    if (size == 0) {
        error_set(err, ERROR_REFUSED, "the module file %s is empty", path);
        return -1;
    }
    if (form_of((struct image_bytes){data, size}, &copy->form, err))
        return -1;
    if (copy->form == IMAGE_WRAPPER) { /* it holds pointers of some process */
        error_set(err, ERROR_REFUSED, "the module file %s is neither a cubin nor PTX nor a fatbin", path);
        return -1;
    }
    copy->data = data;
    copy->size = copy->form == IMAGE_PTX ? size + 1 : size;
    data = NULL;
    return 0;
}

int image_read_file(const char *path, struct image *copy, struct error *err)
{
    int saved = errno, rc;

    *copy = (struct image){0};
    rc = read_file(path, copy, err);
    errno = saved;
    return rc;
}

/* ------------------------------------------------------------------ names */

static uint64_t name_hash(const char *name, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

/* The slot that holds the name, or the empty one where it belongs. */
static size_t *names_slot(const struct image_names *names, const char *name, size_t length)
{
    size_t i = name_hash(name, length) & (names->slot_count - 1);

    while (names->slots[i]) {
        const char *other = names->text + names->slots[i] - 1;

        if (strncmp(other, name, length) == 0 && other[length] == '\0')
            break;
        i = (i + 1) & (names->slot_count - 1);
    }
    return &names->slots[i];
}

/* Doubles the table. */
static int names_rehash(struct image_names *names)
{
    struct image_names larger = *names;

    larger.slot_count = names->slot_count ? 2 * names->slot_count : 64;
    larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
    if (!larger.slots)
        return -1;
    for (size_t offset = 0; offset < names->text_size;) {
        const char *name = names->text + offset;
        size_t length = strlen(name);

        *names_slot(&larger, name, length) = offset + 1;
        offset += length + 1;
    }
    free(names->slots);
    *names = larger;
    return 0;
}

/* Makes room for one more name of the given length. */
static int names_reserve(struct image_names *names, size_t length)
{
    size_t room = names->text_room ? names->text_room : 1024;
    char *text;

    if (names->count >= names->slot_count / 2 && names_rehash(names))
        return -1;
    while (room - names->text_size < length + 1)
        room *= 2;
    if (room == names->text_room)
        return 0;
    text = realloc(names->text, room);
    if (!text)
        return -1;
    names->text = text;
    names->text_room = room;
    return 0;
}

/*
 * nvcc calls string literals $str, $str$1, $str$2...: there are thousands, nothing writes them, and loading
 * the module brings them back. Other names with $, or with __nv_, are variables like any other: static ones
 * of relocatable code are called __nv_static_..., ones declared inside of PTX functions $__name__N.
 */
static bool name_is_literal(const char *name, size_t length)
{
    if (length < 4 || memcmp(name, "$str", 4) != 0)
        return false;
    if (length == 4)
        return true;
    if (length == 5 || name[4] != '$')
        return false;
    for (size_t i = 5; i < length; i++)
        if (name[i] < '0' || name[i] > '9')
            return false;
    return true;
}

int image_names_add(struct image_names *names, const char *name, size_t length, struct error *err)
{
    size_t *slot;

    if (name_is_literal(name, length))
        return 0;
    if (length > NAMES_TEXT_MAX - names->text_size) {
        error_set(err, ERROR_REFUSED,
                  "the names of a module's variables are longer than %u MiB, so they can't be saved",
                  NAMES_TEXT_MAX >> 20);
        return -1;
    }
    if (names_reserve(names, length)) {
        error_set(err, ERROR_MEMORY, "no memory for the names of a module's variables");
        return -1;
    }
    slot = names_slot(names, name, length);
    if (*slot)
        return 0;
    *slot = names->text_size + 1;
    memcpy(names->text + names->text_size, name, length);
    names->text[names->text_size + length] = '\0';
    names->text_size += length + 1;
    names->count++;
    return 0;
}

static int names_read(const struct image *image, struct image_names *names, struct error *err)
{
    struct image_bytes bytes = {image->data, image->size};

    switch (image->form) {
    case IMAGE_ELF:
        return image_elf_names(bytes, names, err);
    case IMAGE_PTX:
        return image_ptx_names(bytes, names, err);
    case IMAGE_FATBIN:
        return image_fatbin_names(bytes, names, err);
    case IMAGE_WRAPPER:
        return image_wrapper_names(bytes, names, err);
    }
    return -1;
}

int image_each_variable(const struct image *image, void (*f)(const char *name, void *arg), void *arg,
                        struct error *err)
{
    struct image_names names = {0};
    int saved = errno, rc;

    rc = names_read(image, &names, err);
    errno = saved;
    for (size_t offset = 0; rc == 0 && offset < names.text_size; offset += strlen(names.text + offset) + 1)
        f(names.text + offset, arg);
    free(names.slots);
    free(names.text);
    return rc;
}
