#include "driver_api.h"

#include <string.h>

#include "thunk.h"

/* Weak, so that a unit test can have the rows without the thunks and all that they need. */
#pragma weak thunk_name

/* Called in place of functions with arguments: a callee in C need not look at them. */
static CUresult not_found(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult disabled_result;

static CUresult disabled(void)
{
    return disabled_result;
}

struct driver_api driver = {
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) .symbol = (void *)not_found,
#include "driver_api.inc"
#undef ENTRY
};

const struct driver_entry driver_entries[ROW_COUNT] = {
#define ENTRY(treatment_, symbol_, base_, since_, flavour_, parameters_, arguments_)                         \
    [ROW_##symbol_].symbol = #symbol_, [ROW_##symbol_].base = #base_, [ROW_##symbol_].since = since_,        \
    [ROW_##symbol_].flavour = flavour_,
#include "driver_api.inc"
#undef ENTRY
#define REASON(symbol_, text_) [ROW_##symbol_].unsaveable = true, [ROW_##symbol_].reason = text_,
#include "driver_reasons.inc"
#undef REASON
};

/* ---- the driver's functions */

static void *real_functions[ROW_COUNT];

/* Open addressing: row + 1, or 0 for an empty slot. Sparse, so that searches are short and always end. */
#define ADDRESS_SLOTS 2048
static uint16_t rows_by_address[ADDRESS_SLOTS];
_Static_assert(ADDRESS_SLOTS >= 3 * ROW_COUNT, "the hash of addresses stays sparse");

/* The slot of an address, or the empty one where it belongs. */
static uint16_t *address_slot(const void *real)
{
    size_t i = ((uintptr_t)real * 0x9e3779b97f4a7c15ull) >> 53;

    while (rows_by_address[i] && real_functions[rows_by_address[i] - 1] != real)
        i = (i + 1) % ADDRESS_SLOTS;
    return &rows_by_address[i];
}

static void set_function(enum driver_row row, void *function)
{
    _Static_assert(sizeof(struct driver_api) == ROW_COUNT * sizeof(void *), "driver holds one pointer a row");
    memcpy((char *)&driver + row * sizeof(void *), &function, sizeof(void *));
}

int driver_api_load(void *(*lookup)(void *library, const char *symbol), void *library)
{
    int found = 0;

    memset(rows_by_address, 0, sizeof(rows_by_address));
    for (int row = 0; row < ROW_COUNT; row++) {
        void *real = lookup(library, driver_entries[row].symbol);

        real_functions[row] = real;
        set_function(row, real ? real : (void *)not_found);
        if (!real)
            continue;
        found++;
        uint16_t *slot = address_slot(real);
        if (!*slot)
            *slot = row + 1;
    }
    return found;
}

void driver_api_disable(CUresult result)
{
    enum { FORWARD, TRACKED, UNGATED, UNSAVEABLE, SPECIAL, UNREVIEWED };

    disabled_result = result;
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    if (treatment != UNGATED)                                                                                \
        driver.symbol = (void *)disabled;
#include "driver_api.inc"
#undef ENTRY
}

bool driver_api_has(enum driver_row row)
{
    return real_functions[row] != NULL;
}

void *driver_row_real(enum driver_row row)
{
    return real_functions[row];
}

/* ---- lookups */

/* The first row whose symbol is not less than the given one; ROW_COUNT if there is none. */
static int lower_bound(const char *symbol)
{
    int low = 0, high = ROW_COUNT;

    while (low < high) {
        int middle = (low + high) / 2;

        if (strcmp(driver_entries[middle].symbol, symbol) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int driver_row_by_symbol(const char *symbol)
{
    int row = lower_bound(symbol);

    return row < ROW_COUNT && strcmp(driver_entries[row].symbol, symbol) == 0 ? row : -1;
}

int driver_row_by_address(const void *real)
{
    return real ? *address_slot(real) - 1 : -1;
}

int driver_row_by_version(const char *base, uint32_t version, bool per_thread)
{
    size_t length = strlen(base);
    int best[2] = {-1, -1}; /* of the legacy rows and of the per-thread ones */
    bool has_per_thread = false;

    /* A symbol is its base name with something added, so the rows of a base name lie among those with that
     * prefix. */
    for (int row = lower_bound(base); row < ROW_COUNT; row++) {
        const struct driver_entry *entry = &driver_entries[row];
        bool own_stream = entry->flavour != LEGACY;

        if (strncmp(entry->symbol, base, length) != 0)
            break;
        if (strcmp(entry->base, base) != 0 || entry->since == 0)
            continue;
        has_per_thread |= own_stream;
        if (entry->since > version)
            continue;
        if (best[own_stream] < 0 || entry->since >= driver_entries[best[own_stream]].since)
            best[own_stream] = row;
    }
    return best[per_thread && has_per_thread];
}

const char *driver_row_name(uint32_t row)
{
    if (row < ROW_COUNT)
        return driver_entries[row].symbol;
    return thunk_name ? thunk_name(row - ROW_COUNT) : "a function without a row";
}
