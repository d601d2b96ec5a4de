/* The driver itself: cuInit is the first record of the journal. */
#include "kinds.h"

#include "driver_api.h"
#include "fault.h"
#include "ledger.h"

struct initialisation {
    struct record record;
    unsigned flags;
};

static CUresult initialise(unsigned flags)
{
    struct ledger_devices before;
    CUresult result;

    ledger_devices_before(&before);
    result = driver.cuInit(flags);
    ledger_devices_after(&before);
    return result;
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct error err = {0};

    if (fault_here(FAULT_replay_init, &err))
        return CUDA_ERROR_UNKNOWN;
    return initialise(container_of(record, struct initialisation, record)->flags);
}

static const struct record_kind driver_kind = {.name = "driver", .replay = replay};

/* Only the first successful cuInit makes anything. Two threads may race for it: the second one's notes are dropped. */
CUresult driver_initialise(unsigned flags)
{
    static bool recorded;
    struct initialisation *one;
    CUresult result;

    if (__atomic_load_n(&recorded, __ATOMIC_ACQUIRE))
        return driver.cuInit(flags);
    journal_note();
    result = initialise(flags);
    if (result != CUDA_SUCCESS || __atomic_exchange_n(&recorded, true, __ATOMIC_ACQ_REL))
        return journal_discard(result);
    one = journal_record_new(&driver_kind, sizeof *one);
    if (one)
        one->flags = flags;
    journal_commit(one ? &one->record : NULL, 0, NULL);
    return result;
}
