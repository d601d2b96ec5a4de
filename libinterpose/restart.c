#include "restart.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "import_hooks.h"
#include "stack.h"
#define LOG_PREFIX "restart"
#include "log.h"

struct adopted {
    struct elf_library library;
    char *pristine[ELF_WRITABLE_MAX]; /* NULL until sealed */
    uint64_t *outside[ELF_WRITABLE_MAX]; /* pointers out of the library, sorted */
    size_t outside_count[ELF_WRITABLE_MAX];
    bool adopted;
};
static struct adopted all[RESTART_COUNT];

/* Counts in *arg how many imports were replaced. */
static void patch_import(const char *name, void **place, void *arg)
{
    void *hook = import_hook(name);

    if (hook) {
        *place = hook;
        ++*(unsigned *)arg;
    }
}

int restart_adopt(enum restart_which which, void *handle, struct error *err)
{
    struct adopted *one = &all[which];
    unsigned patched = 0;

    if (elf_library_open(handle, &one->library, err) ||
        elf_library_each_import(&one->library, patch_import, &patched, err))
        return -1;
    one->adopted = true;
    log_info("%s: %u imports patched", one->library.path, patched);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/*
 * Words of the segment that may be blocks which its constructors took from libc: aligned as malloc aligns, and not inside
 * of the library itself. Sorted, since every free of a block that is not the driver heap's looks here.
 */
static int note_outside(struct adopted *one, struct error *err)
{
    for (size_t i = 0; i < one->library.writable_count; i++) {
        const struct elf_range *range = &one->library.writable[i];
        size_t words = (range->end - range->start) / sizeof(uint64_t);
        uint64_t *noted = mmap(NULL, words * sizeof *noted, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (noted == MAP_FAILED) {
            error_set_errno(err, ERROR_MEMORY, errno, "no memory to note the pointers of %s", one->library.path);
            return -1;
        }
        one->outside[i] = noted;
        for (uint64_t at = (range->start + 7) & ~7ull; at + sizeof(uint64_t) <= range->end; at += sizeof(uint64_t)) {
            uint64_t value = *(const uint64_t *)at;

            if (value % 16 == 0 && value >= 0x10000 && value < 1ull << 47 &&
                (value < one->library.base || value >= range->end))
                noted[one->outside_count[i]++] = value;
        }
        qsort(noted, one->outside_count[i], sizeof *noted, by_value);
    }
    return 0;
}

/*
 * The copy is sparse: pages that are all zero (most of .bss: 13 MiB in NVML) are not touched in it, and zeroed, not
 * copied, at a rewind.
 */
int restart_seal(enum restart_which which, struct error *err)
{
    struct adopted *one = &all[which];

    for (size_t i = 0; i < one->library.writable_count; i++) {
        const struct elf_range *range = &one->library.writable[i];
        size_t size = range->end - range->start;
        char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (copy == MAP_FAILED) {
            error_set_errno(err, ERROR_MEMORY, errno, "no memory for a copy of the data of %s", one->library.path);
            return -1;
        }
        for (size_t at = 0; at < size; at += 4096) {
            const char *page = (const char *)range->start + at;
            size_t length = size - at < 4096 ? size - at : 4096;

            if (page[0] || memcmp(page, page + 1, length - 1))
                memcpy(copy + at, page, length);
        }
        one->pristine[i] = copy;
    }
    return note_outside(one, err);
}

bool restart_adopted(enum restart_which which)
{
    return all[which].adopted;
}

const struct elf_library *restart_library(enum restart_which which)
{
    return &all[which].library;
}

int restart_patch(enum restart_which which, void **place, void *value, struct error *err)
{
    struct adopted *one = &all[which];

    if (elf_library_protect_relro(&one->library, true, err))
        return -1;
    *place = value;
    for (size_t i = 0; i < one->library.writable_count; i++) {
        const struct elf_range *range = &one->library.writable[i];
        uint64_t at = (uint64_t)place;

        if (one->pristine[i] && at >= range->start && at + sizeof value <= range->end)
            memcpy(one->pristine[i] + (at - range->start), &value, sizeof value);
    }
    return elf_library_protect_relro(&one->library, false, err);
}

int restart_rewind(struct error *err)
{
    for (int which = 0; which < RESTART_COUNT; which++) {
        struct adopted *one = &all[which];

        if (!one->adopted)
            continue;
        if (elf_library_protect_relro(&one->library, true, err))
            return -1;
        for (size_t i = 0; i < one->library.writable_count; i++)
            memcpy((void *)one->library.writable[i].start, one->pristine[i],
                   one->library.writable[i].end - one->library.writable[i].start);
        if (elf_library_protect_relro(&one->library, false, err))
            return -1;
    }
    return 0;
}

bool restart_pristine_holds(const void *value)
{
    uint64_t wanted = (uint64_t)value;

    for (int which = 0; which < RESTART_COUNT; which++)
        for (size_t i = 0; i < all[which].library.writable_count; i++)
            if (all[which].outside[i] && bsearch(&wanted, all[which].outside[i], all[which].outside_count[i],
                                                 sizeof wanted, by_value))
                return true;
    return false;
}

const char *restart_caller(void **address)
{
    for (int which = 0; which < RESTART_COUNT; which++) {
        const struct elf_range *text = &all[which].library.text;
        const char *name =
            all[which].adopted ? stack_caller_outside((void *)text->start, (void *)text->end, address) : NULL;

        if (name)
            return name;
    }
    return NULL;
}
