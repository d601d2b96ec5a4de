#ifndef CUDACKPT_JOURNAL_H
#define CUDACKPT_JOURNAL_H
/*
 * The journal: one record for each call that created or shaped something that still exists, in the order of
 * the calls. A restore replays it; each call must give the handle that the program holds.
 *
 * A hook (track_<symbol>) makes the record:
 *
 *     journal_note();                                   placement of what follows is noted
 *     result = driver.cuEventCreate(event, flags);
 *     if (result != CUDA_SUCCESS)
 *         return journal_discard(result);
 *     record = journal_record_new(&event_kind, sizeof(struct event));
 *     ...fill the arguments...
 *     journal_commit(&record->record, handle, owner);
 *
 * The journal has one lock, taken inside these functions only. During suspend and resume the gate is closed
 * and the control thread is the only user.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "error.h"
#include "list.h"
#include "placement.h"

#define JOURNAL_CHAIN_MAX 1024

struct record;

/* What is common to all records of one kind. */
struct record_kind {
    const char *name; /* in messages and in the counts that status prints: "stream" */
    /*
     * Makes the call again. *handle starts as 0 and must hold the new handle when record->handle is not 0.
     * Runs on the control thread with the record's context current.
     */
    CUresult (*replay)(struct record *record, uint64_t *handle);
    /* Undoes a replay: of a warm-up, of a tombstone. */
    CUresult (*undo)(struct record *record, uint64_t handle);
    void (*release)(struct record *record); /* frees what the record owns besides itself; may be NULL */
    /*
     * The first of this kind in a context also makes things that stay (in the driver's heap). They could take
     * the places of the record's own blocks, so the first replay of the kind in a context is made twice, the
     * first time without places and undone. If the recorded call was the first one itself, what stayed of it
     * is left out of its placement.
     */
    bool warm_up;
    /*
     * The driver chooses something by what exists at the time that no placement steers (device addresses of
     * module variables and code). A dead record of such a kind stays as a tombstone (made and undone again at
     * replay) while another one that was made during its life is there, live or a tombstone itself: what is
     * live may lie where a dead one left room, and that one where it did because of a third. Of those that
     * stay for a tombstone only, the journal keeps JOURNAL_CHAIN_MAX; a program that replaces modules for
     * ever must not grow.
     *
     * What the record owns becomes part of its tombstone: records whose order matters (code that was
     * launched, variables that were looked up: each took device memory at a time of its own) and those that
     * they are owned by. Each is made again at its own place in the order, on the handle that its owner has
     * in this replay, and undoing the first one must undo them all. The rest goes.
     *
     * Needs undo; without it a record is only ever part of its owner's tombstone. A record that goes because
     * its owner goes without leaving a tombstone (a module of a destroyed context) leaves none either.
     */
    bool order_matters;
    /* Its replay can look for the addresses of what it owns when record->steer is set (kind_module.c). */
    bool can_steer;
};

struct record {
    struct list node;       /* in the journal */
    struct list owned;      /* records that go when this one goes */
    struct list owner_node; /* in owner->owned */
    struct record *hash_next;
    const struct record_kind *kind;
    struct record *owner; /* context, module, library; NULL */
    uint64_t handle;      /* what the program holds; 0: a setting, not an object */
    uint64_t now;         /* what the replay under way made: handle, unless it is in a tombstone */
    CUcontext context;    /* current when the call was made; NULL: none */
    bool steer;                     /* what it owns came back elsewhere at the last try */
    uint64_t born, died;  /* positions in the journal's order; died not 0: a tombstone, or a part of one */
    struct placement placement;
    struct placement replayed; /* of the replay under way; becomes placement when the restore is complete */

    /* journal.c's own; the first four only where the order matters */
    struct list order_node; /* in the list of all that are there, tombstones too */
    struct list life_node;  /* live: in the list of those; tombstone: in the chained ones, if it is one */
    struct list guarded;    /* tombstones that stay because of this record */
    struct list guard_node; /* tombstone: in its guard's guarded; a part of one has no guard of its own */
    struct list dead_node;  /* tombstone: in the list of those, in the order of their deaths */
    bool lost;              /* tombstone: nothing is known yet that it stays for */
    bool hashed, detached, orphaned;
};

int journal_start(struct error *err);

/* The calling thread's current context: kept with each new record, and set for its replay. */
void journal_use(CUcontext (*get_current)(void), void (*set_current)(CUcontext context));

void journal_note(void);
CUresult journal_discard(CUresult result);

/* A zeroed record of size bytes (struct record first) with its context filled in. NULL without memory. */
void *journal_record_new(const struct record_kind *kind, size_t size);

/*
 * Appends the record with the placement noted since journal_note. record NULL (no memory): the process is
 * noted as unsaveable instead. If a live record of the same kind with the same handle exists (a getter called
 * again) the new one is dropped; the one that counts is returned.
 */
struct record *journal_commit(struct record *record, uint64_t handle, struct record *owner);
/* Instead of a commit, when the record is there already: what was noted since journal_note belongs to it as well. */
void journal_merge(struct record *record);

/*
 * For replay functions: the object that the call is made on, if that is the record's owner. In a tombstone it
 * is another one than the program held. otherwise: what the program held; for a record without an owner.
 */
static inline uint64_t journal_object(const struct record *record, uint64_t otherwise)
{
    return record->owner ? record->owner->now : otherwise;
}

/* The live record of a kind with the handle, or NULL. The caller knows that nobody destroys it meanwhile. */
struct record *journal_find(const struct record_kind *kind, uint64_t handle);

/*
 * Destroying: detach before the driver call, so that a new object with the same handle can't be mixed up with
 * it; then drop (with all that it owns) if the call succeeded, else attach again. NULL records are ignored.
 */
struct record *journal_detach(const struct record_kind *kind, uint64_t handle);
void journal_attach(struct record *record);
void journal_drop(struct record *record);

/*
 * Calls f for each live record in order, of one kind or of all (NULL), until f returns non-zero. f may drop
 * the record that it gets. Detached records are left out. The journal is locked meanwhile (for this thread's
 * own calls it is not): f must not wait for what another thread may hold while it calls the journal.
 */
void journal_each(const struct record_kind *kind, int (*f)(struct record *record, void *arg), void *arg);
size_t journal_count(const struct record_kind *kind);

/* Dead blocks are forgotten; *places gets every heap block (malloc'd array) that must keep its address. */
int journal_places(struct heap_place **places, size_t *count, struct error *err);
/* Calls f for every address reservation that a record holds, those of tombstones too; ranges may overlap. */
void journal_each_map(void (*f)(uint64_t address, uint64_t size, void *arg), void *arg);

/*
 * Replays everything in order, on the control thread with the gate closed; tick (may be NULL) after each
 * record. ERROR_MISMATCH names the record that came back different. After a failure the driver must be
 * released again; placements are those of before.
 */
int journal_replay(void (*tick)(size_t done, size_t total), struct error *err);
/*
 * After ERROR_MISMATCH: the owner of what came back elsewhere looks for its place at the next replay. False if it has done
 * so already, or can't.
 */
bool journal_steer_moved(void);
/* The restore is complete: the placements of the replay count from now on. */
void journal_replay_done(void);

/*
 * The order of dead modules that live ones depend on grew too long to be kept (JOURNAL_CHAIN_MAX): addresses might not
 * come back. It ends when the modules that overlapped are gone.
 */
bool journal_order_is_lost(void);

void journal_before_fork(void);
void journal_after_fork(bool child);

#endif
