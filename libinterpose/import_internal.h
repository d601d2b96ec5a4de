#ifndef CUDACKPT_IMPORT_INTERNAL_H
#define CUDACKPT_IMPORT_INTERNAL_H
/* Between the files of the import hooks. Each table ends with a row without a name. */

#include <stdbool.h>
#include <stddef.h>

struct import_hook {
    const char *name; /* of libc's function */
    void *hook;
};

extern const struct import_hook import_memory[], import_descriptors[], import_maps[], import_loader[];

/* Records are being replayed. */
bool import_is_replay(void);

/* The process's own list of mappings, and a descriptor of it without the placeholders (import_maps.c). */
bool import_names_maps(const char *path);
int import_open_maps(int flags);

#endif
