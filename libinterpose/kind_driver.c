/* The driver itself: cuInit is the first record of the journal. */
#include "kinds.h"

#include <pthread.h>

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

/* Only the first successful cuInit makes anything. Of two threads that race for it either may have done the work. */
CUresult driver_initialise(unsigned flags)
{
    static struct record *recorded;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct initialisation *one;
    CUresult result;

    if (__atomic_load_n(&recorded, __ATOMIC_ACQUIRE))
        return driver.cuInit(flags);
    journal_note();
    result = initialise(flags);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    pthread_mutex_lock(&lock);
    if (recorded) {
        journal_merge(recorded);
        pthread_mutex_unlock(&lock);
        return result;
    }
    one = journal_record_new(&driver_kind, sizeof *one);
    if (one)
        one->flags = flags;
    __atomic_store_n(&recorded, journal_commit(one ? &one->record : NULL, 0, NULL), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return result;
}
