#include "journal_internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "unsaveable.h"

#define LOG_PREFIX "journal"
#include "log.h"

#define BUCKETS_AT_FIRST 256

struct list journal_records = LIST_INIT(journal_records);
void (*journal_set_current)(CUcontext context);

static CUcontext (*get_current)(void);

uint64_t journal_position;

static struct record **buckets;
static size_t bucket_count, hashed_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Times that this thread has locked it: what journal_each calls may use the journal. Not a recursive mutex,
 * which a forked child can't unlock, as it is another thread by its id.
 */
static __thread unsigned lock_depth __attribute__((tls_model("initial-exec")));

static void journal_lock(void)
{
    if (!lock_depth++)
        pthread_mutex_lock(&lock);
}

static void journal_unlock(void)
{
    if (!--lock_depth)
        pthread_mutex_unlock(&lock);
}

void journal_use(CUcontext (*get)(void), void (*set)(CUcontext context))
{
    get_current = get;
    journal_set_current = set;
}

/* ---- finding by handle */

static struct record **bucket_of(const struct record_kind *kind, uint64_t handle)
{
    uint64_t mixed = (handle ^ (uint64_t)kind >> 4) * 0x9e3779b97f4a7c15ull;

    return &buckets[(mixed >> 32) & (bucket_count - 1)];
}

/* Without memory for it the old one goes on, only slower. */
static void hash_grow(void)
{
    struct record **before = buckets, **grown;
    size_t count = bucket_count, wanted = count ? count * 2 : BUCKETS_AT_FIRST;

    grown = calloc(wanted, sizeof(*grown));
    if (!grown)
        return;
    buckets = grown;
    bucket_count = wanted;
    for (size_t i = 0; i < count; i++)
        for (struct record *record = before[i], *next; record; record = next) {
            struct record **bucket = bucket_of(record->kind, record->handle);

            next = record->hash_next;
            record->hash_next = *bucket;
            *bucket = record;
        }
    free(before);
}

int journal_start(struct error *err)
{
    hash_grow();
    if (bucket_count)
        return 0;
    error_set(err, ERROR_MEMORY, "no memory for the journal");
    return -1;
}

static void hash_add(struct record *record)
{
    struct record **bucket;

    if (!record->handle)
        return;
    if (hashed_count >= bucket_count)
        hash_grow();
    if (!bucket_count) /* journal_start failed, and said so */
        return;
    bucket = bucket_of(record->kind, record->handle);
    record->hash_next = *bucket;
    *bucket = record;
    record->hashed = true;
    hashed_count++;
}

static void hash_remove(struct record *record)
{
    struct record **link;

    if (!record->hashed)
        return;
    for (link = bucket_of(record->kind, record->handle); *link != record; link = &(*link)->hash_next)
        ;
    *link = record->hash_next;
    record->hashed = false;
    hashed_count--;
}

static struct record *hash_find(const struct record_kind *kind, uint64_t handle)
{
    struct record *record = handle && bucket_count ? *bucket_of(kind, handle) : NULL;

    while (record && (record->kind != kind || record->handle != handle))
        record = record->hash_next;
    return record;
}

struct record *journal_find(const struct record_kind *kind, uint64_t handle)
{
    struct record *record;

    journal_lock();
    record = hash_find(kind, handle);
    journal_unlock();
    return record;
}

/* ---- making records */

void journal_note(void)
{
    placement_note();
}

CUresult journal_discard(CUresult result)
{
    placement_discard();
    return result;
}

void *journal_record_new(const struct record_kind *kind, size_t size)
{
    struct record *record = calloc(1, size);

    if (!record)
        return NULL;
    record->kind = kind;
    record->context = get_current ? get_current() : NULL;
    list_init(&record->node);
    list_init(&record->owned);
    list_init(&record->owner_node);
    list_init(&record->order_node);
    list_init(&record->life_node);
    list_init(&record->guarded);
    list_init(&record->guard_node);
    list_init(&record->dead_node);
    return record;
}

void journal_record_free(struct record *record)
{
    if (record->kind->release)
        record->kind->release(record);
    placement_free(&record->placement);
    placement_free(&record->replayed);
    free(record);
}

/* Of two threads that make the same thing one does the work, and the other may be first here. */
static void merge(struct record *record, const struct placement *notes)
{
    journal_lock();
    if ((notes->heap_count || notes->map_count) && placement_add(&record->placement, notes))
        unsaveable_note("no memory to note where the memory of a %s lies", record->kind->name);
    journal_unlock();
}

void journal_merge(struct record *record)
{
    struct placement notes;

    if (placement_take(&notes))
        unsaveable_note("no memory to note where the memory of a %s lies", record->kind->name);
    merge(record, &notes);
    placement_free(&notes);
}

struct record *journal_commit(struct record *record, uint64_t handle, struct record *owner)
{
    struct record *known;

    if (!record) {
        placement_discard();
        unsaveable_note("no memory for a record of what a call created");
        return NULL;
    }
    if (placement_take(&record->placement))
        unsaveable_note("no memory to note where the memory of a %s lies", record->kind->name);
    record->handle = handle;
    journal_lock();
    known = hash_find(record->kind, handle);
    if (!known) {
        record->born = ++journal_position;
        record->owner = owner;
        list_insert(&journal_records, &record->node);
        if (owner)
            list_insert(&owner->owned, &record->owner_node);
        if (record->kind->order_matters)
            tombstone_note_birth(record);
        hash_add(record);
    }
    journal_unlock();
    if (known) {
        merge(known, &record->placement);
        journal_record_free(record);
        return known;
    }
    log_debug("%s %lu: handle %#lx, %u blocks, %u reservations", record->kind->name, record->born, handle,
              record->placement.heap_count, record->placement.map_count);
    return record;
}

/* ---- dropping records */

/* Nobody finds the record and what it owns any more. */
static void hide(struct record *record)
{
    hash_remove(record);
    record->detached = false;
    list_each (node, &record->owned) {
        struct record *owned = container_of(node, struct record, owner_node);

        if (!owned->detached) {
            hide(owned);
            continue;
        }
        list_remove(node); /* another thread is destroying it, and will drop it */
        owned->owner = NULL;
        owned->orphaned = true;
    }
}

static void drop(struct record *record, bool may_stay)
{
    hide(record);
    if (may_stay && record->kind->order_matters && record->kind->undo)
        tombstone_make(record);
    else
        journal_vanish(record);
}

struct record *journal_detach(const struct record_kind *kind, uint64_t handle)
{
    struct record *record;

    journal_lock();
    record = hash_find(kind, handle);
    if (record) {
        hash_remove(record);
        record->detached = true;
    }
    journal_unlock();
    return record;
}

void journal_attach(struct record *record)
{
    if (!record)
        return;
    journal_lock();
    if (record->orphaned) {
        drop(record, false);
    } else if (record->detached) {
        record->detached = false;
        hash_add(record);
    }
    journal_unlock();
}

void journal_drop(struct record *record)
{
    if (!record)
        return;
    journal_lock();
    drop(record, !record->orphaned);
    journal_unlock();
}

/* ---- walking */

static bool is_live(const struct record *record, const struct record_kind *kind)
{
    return record->kind && !record->died && !record->detached && (!kind || record->kind == kind);
}

void journal_each(const struct record_kind *kind, int (*f)(struct record *record, void *arg), void *arg)
{
    struct record mark = {0};
    struct list *next;
    uint64_t last;
    int stop = 0;

    journal_lock();
    last = journal_position; /* what f makes is not for f */
    for (struct list *node = journal_records.next; node != &journal_records && !stop; node = next) {
        struct record *record = container_of(node, struct record, node);

        next = node->next;
        if (!is_live(record, kind) || record->born > last)
            continue;
        /* f may drop any record, the next one too (an owner takes along what it owns): the mark stays. */
        list_insert(next, &mark.node);
        stop = f(record, arg);
        next = mark.node.next;
        list_remove(&mark.node);
    }
    journal_unlock();
}

size_t journal_count(const struct record_kind *kind)
{
    size_t count = 0;

    journal_lock();
    list_each (node, &journal_records)
        count += is_live(container_of(node, struct record, node), kind);
    journal_unlock();
    return count;
}

int journal_places(struct heap_place **places, size_t *count, struct error *err)
{
    struct heap_place *all;
    size_t room = 0, used = 0;

    list_each (node, &journal_records) {
        struct record *record = container_of(node, struct record, node);

        placement_prune(&record->placement);
        room += record->placement.heap_count;
    }
    all = malloc((room + 1) * sizeof(*all));
    if (!all) {
        error_set(err, ERROR_MEMORY, "no memory to list %zu places of the driver's memory", room);
        return -1;
    }
    list_each (node, &journal_records) {
        const struct placement *placement = &container_of(node, struct record, node)->placement;

        for (uint32_t i = 0; i < placement->heap_count; i++)
            if (placement->heap[i].address)
                all[used++] = (struct heap_place){placement->heap[i].address, placement->heap[i].size};
    }
    *places = all;
    *count = used;
    return 0;
}

void journal_each_map(void (*f)(uint64_t address, uint64_t size, void *arg), void *arg)
{
    list_each (node, &journal_records) {
        const struct placement *placement = &container_of(node, struct record, node)->placement;

        for (uint32_t i = 0; i < placement->map_count; i++)
            if (placement->maps[i].address)
                f(placement->maps[i].address, placement->maps[i].size, arg);
    }
}

/* ---- fork */

void journal_before_fork(void)
{
    journal_lock();
}

/* The child has no CUDA. The records are left where they are: to free them would only copy their pages. */
static void forget(void)
{
    list_init(&journal_records);
    tombstone_forget();
    for (size_t i = 0; i < bucket_count; i++)
        buckets[i] = NULL;
    hashed_count = 0;
}

void journal_after_fork(bool child)
{
    if (child)
        forget();
    journal_unlock();
}
