#ifndef CUDACKPT_IMAGE_H
#define CUDACKPT_IMAGE_H
/*
 * Module images as programs hand them to cuModuleLoadData, cuLibraryLoadData and the like: cubin (ELF), PTX
 * text, fatbin, or the wrapper that nvcc puts around a fatbin. The caller gives only a pointer; how much lies
 * behind it is found in the image. Any thread may call; nothing is kept between calls, no lock is taken,
 * errno is kept.
 *
 * Errors: ERROR_MEMORY without host memory, ERROR_NOT_FOUND for a file that can't be opened, else
 * ERROR_REFUSED.
 */

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum image_form {
    IMAGE_ELF,
    IMAGE_PTX,
    IMAGE_FATBIN,
    IMAGE_WRAPPER, /* version 1: around one fatbin; version 2: a list of relocatable fatbins to link in as
                      well */
};

/* A copy of an image, in one block that free() frees. */
struct image {
    enum image_form form;
    void *data;  /* what to give to the driver again */
    size_t size; /* bytes of data, for accounting; the NUL at the end of PTX counts */
};

/*
 * Copies an image of this process's memory. Its end is where its own headers say, or the NUL of PTX: there is
 * nothing else to go by, for the driver neither. Headers that point at memory that isn't there give an error,
 * not a fault. The copy of a wrapper holds its fatbins too, and points at them.
 */
int image_copy(const void *image, struct image *copy, struct error *err);
void image_free(struct image *image); /* a zeroed image does no harm */

/* A whole file, as cuModuleLoad and cuLibraryLoadFromFile read it: an image for the ...LoadData call of the
 * same kind. */
int image_read_file(const char *path, struct image *copy, struct error *err);

/*
 * Calls f for the name of each device variable in a copy: __device__, __constant__ and __managed__ ones,
 * static ones too; of every architecture in a fatbin (LZ4 and zstd parts unpacked), each name once. The
 * driver may not know some of them (a variable of another architecture, or one that the compiler dropped). f
 * is called only if all parts were read.
 *
 * Fails with ERROR_REFUSED and a sentence if a part can't be read, or if it has a variable whose name can't
 * be known: then the contents of the module's variables can't be saved.
 */
int image_each_variable(const struct image *image, void (*f)(const char *name, void *arg), void *arg,
                        struct error *err);

#endif
