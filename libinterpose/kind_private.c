/*
 * What private-table entries make: contexts made on demand, context-local storage (cudart keeps its state for a context
 * there), and a registration of callbacks. Arguments as seen on driver 580: docs/driver-notes.md.
 */
#include "kind_private.h"

#include "gate.h"
#include "kinds.h"
#include "thunk.h"

struct private_functions private_real;

/* These are entry points too: each passes the gate under the name of its table. */
#define ENTER(name) uint32_t outer_ = gate_enter(thunk_row(name))
#define LEAVE(result)                                                                                        \
    do {                                                                                                     \
        CUresult result_ = (result);                                                                         \
        gate_leave(outer_);                                                                                  \
        return result_;                                                                                      \
    } while (0)

CUresult private_context_of_device(CUcontext *context, CUdevice device)
{
    ENTER("private table 6bd5fb6c[2]");
    LEAVE(context_on_demand(context, device, private_real.context_of_device));
}

/* ---- context-local storage */

struct storage {
    struct record record;
    CUcontext context; /* as the program gave it: NULL means the current one */
    void *key, *value;
    void (*destructor)(CUcontext context, void *key, void *value);
};

static CUresult replay_storage(struct record *record, uint64_t *handle)
{
    struct storage *one = container_of(record, struct storage, record);

    *handle = record->handle;
    return private_real.storage_put(one->context, one->key, one->value, one->destructor);
}

static const struct record_kind storage_kind = {.name = "context storage", .replay = replay_storage};

/* One value per context and key: found in the journal by a mix of the two. */
static uint64_t storage_key(CUcontext context, const void *key)
{
    uint64_t effective = context ? (uint64_t)context : (uint64_t)context_current();

    /* the highest bit keeps it from being 0, which would mean no handle */
    return ((effective * 0x9e3779b97f4a7c15ull ^ (uint64_t)key) * 0xbf58476d1ce4e5b9ull) >> 1 | 1ull << 63;
}

CUresult private_storage_put(CUcontext context, void *key, void *value,
                             void (*destructor)(CUcontext context, void *key, void *value))
{
    uint64_t handle = storage_key(context, key);
    struct record *owner;
    struct storage *one;
    CUresult result;

    ENTER("private table c693336e[0]");
    journal_note();
    result = private_real.storage_put(context, key, value, destructor);
    if (result != CUDA_SUCCESS)
        LEAVE(journal_discard(result));
    journal_drop(journal_detach(&storage_kind, handle));
    one = journal_record_new(&storage_kind, sizeof *one);
    if (one) {
        one->context = context;
        one->key = key;
        one->value = value;
        one->destructor = destructor;
    }
    owner = context ? journal_find(&context_kind, (uint64_t)context) : context_owner();
    journal_commit(one ? &one->record : NULL, handle, owner);
    LEAVE(result);
}

CUresult private_storage_delete(CUcontext context, void *key)
{
    struct record *record;
    CUresult result;

    ENTER("private table c693336e[1]");
    record = journal_detach(&storage_kind, storage_key(context, key));
    result = private_real.storage_delete(context, key);
    if (result == CUDA_SUCCESS)
        journal_drop(record);
    else
        journal_attach(record);
    LEAVE(result);
}

/* ---- callbacks of cudart, registered once by each copy of it */

struct registration {
    struct record record;
    void *a, *b, *c, *d;
};

static CUresult replay_registration(struct record *record, uint64_t *handle)
{
    struct registration *one = container_of(record, struct registration, record);

    *handle = record->handle;
    return private_real.register_callbacks(one->a, one->b, one->c, one->d);
}

static const struct record_kind registration_kind = {.name = "callback registration", .replay = replay_registration};

CUresult private_register_callbacks(void *a, void *b, void *c, void *d)
{
    struct registration *one;
    CUresult result;

    ENTER("private table 263e8860[3]");
    journal_note();
    result = private_real.register_callbacks(a, b, c, d);
    if (result != CUDA_SUCCESS)
        LEAVE(journal_discard(result));
    one = journal_record_new(&registration_kind, sizeof *one);
    if (one) {
        one->a = a;
        one->b = b;
        one->c = c;
        one->d = d;
    }
    journal_commit(one ? &one->record : NULL, (uint64_t)a, NULL);
    LEAVE(result);
}
