#include "journal_internal.h"

#include <stdlib.h>

#include "fault.h"

#define LOG_PREFIX "journal"
#include "log.h"

/* A kind that was warmed up in a context. */
struct warm {
    const struct record_kind *kind;
    CUcontext context;
};

struct replay {
    struct warm *warm;
    size_t warm_count, warm_room;
    struct error *err;
};

static int refused(struct replay *replay, const struct record *record, const char *what, CUresult result)
{
    error_set(replay->err, result == CUDA_ERROR_OUT_OF_MEMORY ? ERROR_MEMORY : ERROR_REFUSED,
              "the driver can't %s %s (record %lu, handle %#lx): CUDA error %d%s", what, record->kind->name,
              record->born, record->handle, (int)result,
              result == CUDA_ERROR_OUT_OF_MEMORY ? ", out of memory; restore again when there is more" : "");
    return -1;
}

static int no_memory(struct replay *replay, const struct record *record)
{
    error_set(replay->err, ERROR_MEMORY,
              "no host memory to restore %s (record %lu); restore again when there is more",
              record->kind->name, record->born);
    return -1;
}

static void make_current(const struct record *record)
{
    if (journal_set_current)
        journal_set_current(record->context);
}

/* ---- warming up */

static bool is_warm(const struct replay *replay, const struct record *record)
{
    for (size_t i = 0; i < replay->warm_count; i++)
        if (replay->warm[i].kind == record->kind && replay->warm[i].context == record->context)
            return true;
    return false;
}

static int warm_add(struct replay *replay, const struct record *record)
{
    if (replay->warm_count == replay->warm_room) {
        size_t room = replay->warm_room ? replay->warm_room * 2 : 16;
        struct warm *grown = realloc(replay->warm, room * sizeof(*grown));

        if (!grown)
            return no_memory(replay, record);
        replay->warm = grown;
        replay->warm_room = room;
    }
    replay->warm[replay->warm_count++] = (struct warm){record->kind, record->context};
    return 0;
}

static bool same_sizes(const struct placement *a, const struct placement *b)
{
    if (a->heap_count != b->heap_count)
        return false;
    for (uint32_t i = 0; i < a->heap_count; i++)
        if (a->heap[i].size != b->heap[i].size)
            return false;
    return true;
}

/*
 * If the recorded call was itself the first of its kind, its placement has the blocks that stay too; the call
 * that follows the warm-up does not ask for them, and must not get them for its own of the same size. The
 * first call shows which they are: those that are still there after it was undone. *rest: the record's
 * placement without them.
 */
static int without_lasting(const struct placement *recorded, struct placement *first, struct placement *rest)
{
    *rest = (struct placement){.maps = recorded->maps, .map_count = recorded->map_count};
    rest->heap = malloc((recorded->heap_count + 1) * sizeof(*rest->heap));
    if (!rest->heap)
        return -1;
    placement_prune(first);
    for (uint32_t i = 0; i < recorded->heap_count; i++) {
        if (!first->heap[i].address)
            rest->heap[rest->heap_count++] = recorded->heap[i];
        else if (recorded->heap[i].address)
            driver_heap_unreserve(recorded->heap[i].address);
    }
    return 0;
}

/* Makes the record once without places and undoes it. rest->heap is set (malloc) if rest is to be used
 * afterwards. */
static int warm_up(struct replay *replay, struct record *record, struct placement *rest)
{
    struct placement first;
    uint64_t handle = 0;
    CUresult result;
    int failed = 0;

    placement_note();
    result = record->kind->replay(record, &handle);
    if (placement_take(&first))
        return no_memory(replay, record);
    if (result != CUDA_SUCCESS)
        failed = refused(replay, record, "make", result);
    else if (record->kind->undo && (result = record->kind->undo(record, handle)) != CUDA_SUCCESS)
        failed = refused(replay, record, "undo the first try of", result);
    else if (same_sizes(&record->placement, &first) && without_lasting(&record->placement, &first, rest))
        failed = no_memory(replay, record);
    placement_free(&first);
    return failed;
}

static int prepare(struct replay *replay, struct record *record, struct placement *rest)
{
    if (!record->kind->warm_up || is_warm(replay, record))
        return 0;
    if (warm_add(replay, record))
        return -1;
    /* A tombstone is a warm-up itself: it has no places, and is undone. */
    return record->died ? 0 : warm_up(replay, record, rest);
}

/* ---- replaying */

/* The record that came back elsewhere, if its owner may look for the place another time. */
static struct record *moved;

static int check_handle(struct replay *replay, struct record *record, uint64_t handle)
{
    struct error fault = {0};

    if (!record->handle)
        return 0;
    if (fault_here(FAULT_replay_mismatch, &fault)) {
        error_set(replay->err, ERROR_MISMATCH, "%s (record %lu, handle %#lx): %s", record->kind->name,
                  record->born, record->handle, fault.text);
        return -1;
    }
    if (handle == record->handle)
        return 0;
    moved = record;
    error_set(replay->err, ERROR_MISMATCH,
              "%s (record %lu) came back as handle %#lx, but the program holds %#lx; it stays suspended",
              record->kind->name, record->born, handle, record->handle);
    return -1;
}

static int replay_record(struct replay *replay, struct record *record)
{
    struct placement rest = {0};
    const struct placement *from = &record->placement;
    uint64_t handle = 0;
    CUresult result;
    int taken;

    if (fault_here(FAULT_replay_record, replay->err))
        return -1;
    make_current(record);
    if (prepare(replay, record, &rest))
        return -1;
    if (rest.heap)
        from = &rest;
    placement_replay(from);
    result = record->kind->replay(record, &handle);
    taken = placement_take(&record->replayed);
    free(rest.heap);
    if (result != CUDA_SUCCESS)
        return refused(replay, record, "make", result);
    if (taken)
        return no_memory(replay, record);
    record->now = handle;
    return record->died ? 0 : check_handle(replay, record, handle);
}

static int undo_tombstone(struct replay *replay, struct record *record)
{
    CUresult result;

    make_current(record);
    result = record->kind->undo(record, record->now);
    return result == CUDA_SUCCESS ? 0 : refused(replay, record, "destroy again", result);
}

/* Undoes the tombstones that died before the position. */
static int undo_until(struct replay *replay, struct list **next_dead, uint64_t position)
{
    while (*next_dead != &journal_dead) {
        struct record *tombstone = container_of(*next_dead, struct record, dead_node);

        if (tombstone->died > position)
            return 0;
        if (undo_tombstone(replay, tombstone))
            return -1;
        *next_dead = (*next_dead)->next;
    }
    return 0;
}

static int replay_all(struct replay *replay, void (*tick)(size_t done, size_t total))
{
    struct list *next_dead = journal_dead.next;
    size_t done = 0, total = 0;

    list_each (node, &journal_records)
        total++;
    list_each (node, &journal_records) {
        struct record *record = container_of(node, struct record, node);

        if (undo_until(replay, &next_dead, record->born) || replay_record(replay, record))
            return -1;
        if (tick)
            tick(++done, total);
    }
    return undo_until(replay, &next_dead, UINT64_MAX);
}

int journal_replay(void (*tick)(size_t done, size_t total), struct error *err)
{
    struct replay replay = {.err = err};
    int failed = replay_all(&replay, tick);

    free(replay.warm);
    if (failed)
        list_each (node, &journal_records)
            placement_free(&container_of(node, struct record, node)->replayed);
    return failed;
}

void journal_replay_done(void)
{
    list_each (node, &journal_records) {
        struct record *record = container_of(node, struct record, node);

        if (record->died)
            placement_forget_blocks(&record->replayed);
        placement_free(&record->placement);
        record->placement = record->replayed;
        record->replayed = (struct placement){0};
    }
}

bool journal_steer_moved(void)
{
    struct record *record = moved;

    moved = NULL;
    if (!record || !record->owner || !record->owner->kind->can_steer || record->owner->steer)
        return false;
    record->owner->steer = true;
    log_info("%s (record %lu) shall look for its place", record->owner->kind->name, record->owner->born);
    return true;
}
