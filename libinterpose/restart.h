#ifndef CUDACKPT_RESTART_H
#define CUDACKPT_RESTART_H
/*
 * Restart in place: libcuda.so.1 and libnvidia-ml.so.1 made as if they had just been loaded. A library is adopted (its
 * imports are patched: import_hooks.c), then sealed (a copy of its writable segment is kept, the pristine segment). A
 * rewind copies the pristine segment back, after ledger_release took away all that the library had from the system.
 *
 * Order: whatever else is patched inside the writable segment (private tables) must be patched before the seal, or
 * with restart_patch, or the first rewind undoes it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf_library.h"
#include "error.h"

enum restart_which { RESTART_DRIVER, RESTART_NVML, RESTART_COUNT };

/* handle: as dlopen gave it. Nothing of the library may have been used yet. */
int restart_adopt(enum restart_which which, void *handle, struct error *err);
int restart_seal(enum restart_which which, struct error *err);

bool restart_adopted(enum restart_which which);
const struct elf_library *restart_library(enum restart_which which);

/* Stores a pointer in the writable segment, in the pristine copy too if there is one. */
int restart_patch(enum restart_which which, void **place, void *value, struct error *err);

/* Copies every pristine segment back. Nobody is inside of the libraries, and they hold nothing. */
int restart_rewind(struct error *err);

/* The pristine segment holds this value: a block that the library's constructors took from libc must not be freed. */
bool restart_pristine_holds(const void *value);

/* The library that called the driver on this thread, or NULL; *address is where. For ledger_check_caller. */
const char *restart_caller(void **address);

#endif
