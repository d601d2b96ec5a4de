#include "nvml.h"

#include <string.h>

#include "gate.h"
#include "journal.h"
#include "ledger.h"
#include "lifecycle.h"
#include "restart.h"
#include "thunk.h"
#include "unsaveable.h"

typedef int nvmlReturn; /* 0: success */

static nvmlReturn (*real_init)(void);
static nvmlReturn (*real_init_v2)(void);
static nvmlReturn (*real_init_with_flags)(unsigned flags);
static nvmlReturn (*real_shutdown)(void);

/* One record for each initialisation that is not shut down yet. */
struct initialisation {
    struct record record;
    enum { INIT, INIT_V2, INIT_WITH_FLAGS } how;
    unsigned flags;
};

static nvmlReturn initialise(int how, unsigned flags)
{
    struct ledger_devices before;
    nvmlReturn result;

    ledger_devices_before(&before);
    if (how == INIT)
        result = real_init();
    else if (how == INIT_V2)
        result = real_init_v2();
    else
        result = real_init_with_flags(flags);
    ledger_devices_after(&before);
    return result;
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct initialisation *one = container_of(record, struct initialisation, record);

    return initialise(one->how, one->flags) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static const struct record_kind nvml_kind = {.name = "nvml", .replay = replay};

static nvmlReturn enter(int how, unsigned flags)
{
    uint32_t outer = gate_enter(thunk_row("nvmlInit"));
    struct initialisation *one;
    nvmlReturn result;

    journal_note();
    result = initialise(how, flags);
    if (result) {
        journal_discard(CUDA_SUCCESS);
    } else {
        one = journal_record_new(&nvml_kind, sizeof *one);
        if (one) {
            one->how = how;
            one->flags = flags;
        }
        journal_commit(one ? &one->record : NULL, 0, NULL);
    }
    gate_leave(outer);
    return result;
}

static nvmlReturn hook_init(void)
{
    return enter(INIT, 0);
}

static nvmlReturn hook_init_v2(void)
{
    return enter(INIT_V2, 0);
}

static nvmlReturn hook_init_with_flags(unsigned flags)
{
    return enter(INIT_WITH_FLAGS, flags);
}

static int drop_one(struct record *record, void *arg)
{
    journal_drop(record);
    return 1;
}

/* Which of several initialisations ends is all the same: they count. */
static nvmlReturn hook_shutdown(void)
{
    uint32_t outer = gate_enter(thunk_row("nvmlShutdown"));
    nvmlReturn result = real_shutdown();

    if (result == 0)
        journal_each(&nvml_kind, drop_one, NULL);
    gate_leave(outer);
    return result;
}

void *nvml_handle(void)
{
    return restart_adopted(RESTART_NVML) ? lifecycle_nvml_handle() : NULL;
}

void *nvml_function(const char *symbol)
{
    static const struct {
        const char *name;
        void **real;
        void *hook;
    } hooks[] = {
        {"nvmlInit", (void **)&real_init, (void *)hook_init},
        {"nvmlInit_v2", (void **)&real_init_v2, (void *)hook_init_v2},
        {"nvmlInitWithFlags", (void **)&real_init_with_flags, (void *)hook_init_with_flags},
        {"nvmlShutdown", (void **)&real_shutdown, (void *)hook_shutdown},
    };
    void *real;

    if (strncmp(symbol, "nvml", 4))
        return NULL;
    real = elf_library_symbol(restart_library(RESTART_NVML), symbol);
    if (!real)
        return NULL;
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(symbol, hooks[i].name)) {
            *hooks[i].real = real;
            return hooks[i].hook;
        }
    return thunk_make(real, symbol);
}
