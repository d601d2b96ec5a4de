#include "private_tables.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kind_private.h"
#include "restart.h"
#include "thunk.h"
#include "unsaveable.h"
#define LOG_PREFIX "private tables"
#include "log.h"

/* An entry that was seen called and is understood: it passes (no hook), or is a record. */
struct known_entry {
    unsigned char table[4]; /* first bytes of the table's UUID */
    unsigned index;
    void *hook;
    void **real; /* where the hook finds the driver's function */
};

#define PASSES(a, b, c, d, index)                                                                            \
    {                                                                                                        \
        {0x##a, 0x##b, 0x##c, 0x##d}, index, NULL, NULL                                                      \
    }
#define RECORD(a, b, c, d, index, function)                                                                  \
    {                                                                                                        \
        {0x##a, 0x##b, 0x##c, 0x##d}, index, (void *)private_##function, (void **)&private_real.function     \
    }

static const struct known_entry known_entries[] = {
    RECORD(6b, d5, fb, 6c, 2, context_of_device),
    PASSES(a0, 94, 79, 8c, 2), /* tool callbacks: pointers into the driver's data, which stays where it is */
    PASSES(a0, 94, 79, 8c, 6),
    PASSES(42, d8, 5a, 81, 2), /* thread-local data */
    RECORD(c6, 93, 33, 6e, 0, storage_put),
    RECORD(c6, 93, 33, 6e, 1, storage_delete),
    PASSES(c6, 93, 33, 6e, 2), /* storage get */
    PASSES(26, 3e, 88, 60, 2), /* context query */
    RECORD(26, 3e, 88, 60, 3, register_callbacks),
    PASSES(69, a2, 8e, 9f, 19), /* NVML */
    PASSES(69, a2, 8e, 9f, 21),
    PASSES(69, a2, 8e, 9f, 24),
    PASSES(69, a2, 8e, 9f, 25),
    PASSES(21, 31, 8c, 60, 4),
    PASSES(17, 34, dc, 26, 4), /* cuBLASLt */
    PASSES(17, 34, dc, 26, 13),
    PASSES(6e, 16, 3f, be, 7), /* cuFFT */
    PASSES(da, 91, 51, d3, 1),
    PASSES(da, 91, 51, d3, 2),
    PASSES(da, 91, 51, d3, 3),
    PASSES(da, 91, 51, d3, 6),
};

static const unsigned char integrity_table[4] = {0xd4, 0x08, 0x20, 0x55};
static const unsigned char storage_table[4] = {0xc6, 0x93, 0x33, 0x6e}; /* has no size word: four entries */
#define STORAGE_ENTRIES 4

static const struct known_entry *find_known(const CUuuid *id, unsigned index)
{
    for (size_t i = 0; i < sizeof known_entries / sizeof *known_entries; i++)
        if (!memcmp(known_entries[i].table, id->bytes, 4) && known_entries[i].index == index)
            return &known_entries[i];
    return NULL;
}

static void patch_entry(void **place, const CUuuid *id, unsigned index)
{
    const struct elf_range *text = &restart_library(RESTART_DRIVER)->text;
    const struct known_entry *known = find_known(id, index);
    const unsigned char *b = (const unsigned char *)id->bytes;
    struct error err = {0};
    char name[64];
    void *hook;

    if ((uint64_t)*place < text->start || (uint64_t)*place >= text->end)
        return;
    snprintf(name, sizeof name, "private table %02x%02x%02x%02x[%u]", b[0], b[1], b[2], b[3], index);
    if (known && known->hook) {
        *known->real = *place;
        hook = known->hook;
    } else {
        hook = known ? thunk_make(*place, name) : thunk_unknown(*place, name);
    }
    if (!hook || restart_patch(RESTART_DRIVER, place, hook, &err))
        unsaveable_note("%s can't be watched%s%s", name, err.code ? ": " : "", err.text);
}

static void patch_table(void **table, const CUuuid *id)
{
    const unsigned char *b = (const unsigned char *)id->bytes;
    uint64_t bytes = (uint64_t)table[0];
    unsigned first = 1, count;

    if (!memcmp(b, integrity_table, 4))
        return;
    if (!memcmp(b, storage_table, 4)) {
        first = 0;
        count = STORAGE_ENTRIES;
    } else if (bytes >= 8 && bytes <= 4096 && bytes % 8 == 0) {
        count = bytes / 8;
    } else {
        unsaveable_note("private table %02x%02x%02x%02x is of an unknown form", b[0], b[1], b[2], b[3]);
        return;
    }
    for (unsigned index = first; index < count; index++)
        patch_entry(&table[index], id, index);
    log_debug("table %02x%02x%02x%02x: %u entries", b[0], b[1], b[2], b[3], count - first);
}

void private_table_patch(void **table, const CUuuid *id)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void **patched[64];
    static unsigned patched_count;
    bool seen = false;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < patched_count; i++)
        seen |= patched[i] == table;
    if (!seen) {
        patch_table(table, id);
        if (patched_count < sizeof patched / sizeof *patched)
            patched[patched_count++] = table;
    }
    pthread_mutex_unlock(&lock);
}
