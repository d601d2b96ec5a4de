#include "thunk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "driver_api.h"
#include "elf_library.h"
#include "gate.h"
#include "unsaveable.h"

#define NAME_SIZE 64

static const char unknown_reason[] = "a function that this version of cudackpt does not know";

/*
 * Slots are taken in order and never given back, by a compare-and-swap of real. So two threads that look for
 * the same function meet at the same first free slot: one takes it, the other finds it there. No lock that a
 * fork could break.
 */
static struct thunk {
    void *real;         /* atomic; NULL: free. The thunk calls it */
    const char *reason; /* why a call makes the process unsaveable; NULL: it does not. Atomic */
    bool noted;         /* the reason was told. Atomic */
    bool named;         /* name and reason are complete. Atomic */
    char name[NAME_SIZE];
} thunks[THUNK_INDEX_COUNT] = {
#define ENTRY_RAW(symbol, reason_) [THUNK_RAW_##symbol] = {.reason = reason_, .named = true, .name = #symbol},
#include "driver_raw.inc"
#undef ENTRY_RAW
};

#define ENTRY_RAW(symbol, reason) _Static_assert(sizeof(#symbol) <= NAME_SIZE, "the name is cut off");
#include "driver_raw.inc"
#undef ENTRY_RAW

extern char thunk_stubs[THUNK_COUNT][THUNK_STUB_SIZE]; /* arch_*.S */

static CUresult thunk_missing(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

static bool is_stub(const void *address)
{
    return (const char *)address >= thunk_stubs[0] && (const char *)address < thunk_stubs[THUNK_COUNT];
}

static void thunk_complete(struct thunk *thunk, const char *name, const char *reason)
{
    __atomic_store_n(&thunk->reason, reason, __ATOMIC_RELEASE);
    snprintf(thunk->name, sizeof(thunk->name), "%s", name);
    __atomic_store_n(&thunk->named, true, __ATOMIC_RELEASE);
}

/* Takes the slot if it is free. *real is what it holds if it was not. */
static bool thunk_take(struct thunk *thunk, void *wanted, void **real)
{
    *real = __atomic_load_n(&thunk->real, __ATOMIC_ACQUIRE);
    return !*real &&
           __atomic_compare_exchange_n(&thunk->real, real, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void *thunk_find(void *wanted, const char *name, const char *reason)
{
    void *real;

    if (!wanted || is_stub(wanted))
        return wanted;
    for (uint32_t i = 0; i < THUNK_COUNT; i++) {
        if (thunk_take(&thunks[i], wanted, &real)) {
            thunk_complete(&thunks[i], name, reason);
            return thunk_stubs[i];
        }
        if (real == wanted) {
            /*
             * The thread that took it has not come to the reason yet: this caller's first call must not slip
             * by.
             */
            if (reason && !__atomic_load_n(&thunks[i].named, __ATOMIC_ACQUIRE))
                __atomic_store_n(&thunks[i].reason, reason, __ATOMIC_RELEASE);
            return thunk_stubs[i];
        }
    }
    return NULL;
}

void *thunk_make(void *real, const char *name)
{
    return thunk_find(real, name, NULL);
}

void *thunk_unknown(void *real, const char *name)
{
    return thunk_find(real, name, unknown_reason);
}

uint32_t thunk_row(const char *name)
{
    uint32_t i;
    void *real;

    for (i = 0; i < THUNK_COUNT; i++) {
        if (thunk_take(&thunks[i], (void *)thunk_missing, &real)) {
            thunk_complete(&thunks[i], name, NULL);
            break;
        }
        if (real == (void *)thunk_missing && !strncmp(thunk_name(i), name, NAME_SIZE - 1))
            break;
    }
    /* All taken: the row of the first raw function. Only the name in a message is wrong then. */
    return ROW_COUNT + i;
}

const char *thunk_name(uint32_t index)
{
    if (index >= THUNK_INDEX_COUNT || !__atomic_load_n(&thunks[index].named, __ATOMIC_ACQUIRE))
        return "an unnamed function";
    return thunks[index].name;
}

void thunk_set_real(void *thunk, void *real)
{
    if (is_stub(thunk))
        __atomic_store_n(&thunks[((char *)thunk - thunk_stubs[0]) / THUNK_STUB_SIZE].real, real,
                         __ATOMIC_RELEASE);
}

void thunk_start(const struct elf_library *driver_library)
{
    for (uint32_t i = THUNK_COUNT; i < THUNK_INDEX_COUNT; i++)
        __atomic_store_n(&thunks[i].real, elf_library_symbol(driver_library, thunks[i].name),
                         __ATOMIC_RELEASE);
}

struct thunk_call thunk_enter(uint32_t index, const void *caller)
{
    struct thunk *thunk = &thunks[index];
    /* First the gate: a process that is not set up yet has no real functions. */
    uint32_t outer = gate_enter_from(ROW_COUNT + index, caller);
    void *real = __atomic_load_n(&thunk->real, __ATOMIC_ACQUIRE);
    const char *reason = __atomic_load_n(&thunk->reason, __ATOMIC_ACQUIRE);

    if (!real)
        real = (void *)thunk_missing;
    else if (__builtin_expect(reason != NULL, 0) &&
             !__atomic_exchange_n(&thunk->noted, true, __ATOMIC_RELAXED))
        unsaveable_note("%s: %s", thunk_name(index), reason);
    return (struct thunk_call){real, outer};
}
