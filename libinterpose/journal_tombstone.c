#include "journal_internal.h"

struct list journal_dead = LIST_INIT(journal_dead);

/* Records whose order matters, in order: all, and the live ones. */
static struct list ordered = LIST_INIT(ordered), ordered_live = LIST_INIT(ordered_live);
/* Tombstones that stay for another tombstone only, those that came to it first in front. */
static struct list chained = LIST_INIT(chained);
static size_t chained_count;

void tombstone_note_birth(struct record *record)
{
    list_insert(&ordered, &record->order_node);
    list_insert(&ordered_live, &record->life_node);
}

static struct record *live_neighbour(struct list *node)
{
    return node == &ordered_live ? NULL : container_of(node, struct record, life_node);
}

static void chain_leave(struct record *tombstone)
{
    if (list_empty(&tombstone->life_node))
        return;
    list_remove(&tombstone->life_node);
    chained_count--;
}

/* The tombstone stays because of guard, which was born during its life. */
static void guard_set(struct record *tombstone, struct record *guard)
{
    list_remove(&tombstone->guard_node);
    list_insert(&guard->guarded, &tombstone->guard_node);
    chain_leave(tombstone);
    if (!guard->died)
        return;
    list_insert(&chained, &tombstone->life_node);
    chained_count++;
}

static void list_move_all(struct list *to, struct list *from)
{
    while (!list_empty(from)) {
        struct list *node = from->next;

        list_remove(node);
        list_insert(to, node);
    }
}

static struct record *tombstone_of(struct list *guard_node)
{
    return container_of(guard_node, struct record, guard_node);
}

static bool is_part_of(const struct record *record, const struct record *root)
{
    while (record && record != root)
        record = record->owner;
    return record;
}

/* The first that was born during the life of a record that is dead, and is no part of it; NULL if none was. */
static struct record *find_guard(const struct record *dead)
{
    for (struct list *node = dead->order_node.next; node != &ordered; node = node->next) {
        struct record *next = container_of(node, struct record, order_node);

        if (next->born > dead->died)
            return NULL;
        if (!is_part_of(next, dead))
            return next;
    }
    return NULL;
}

/* The record is live no more. Those that stayed because of it look for another live one: its neighbours are the
 * nearest. The others come to rest. */
static void leave_live(struct record *record, struct list *rest)
{
    struct record *before = live_neighbour(record->life_node.prev),
                  *after = live_neighbour(record->life_node.next);

    list_remove(&record->life_node);
    while (!list_empty(&record->guarded)) {
        struct record *tombstone = tombstone_of(record->guarded.next);

        if (after && after->born < tombstone->died) {
            guard_set(tombstone, after);
        } else if (before && before->born > tombstone->born) {
            guard_set(tombstone, before);
        } else {
            list_remove(&tombstone->guard_node);
            list_insert(rest, &tombstone->guard_node);
        }
    }
}

/* ---- going */

static void take_out(struct record *record, struct list *orphans)
{
    list_each (node, &record->owned)
        take_out(container_of(node, struct record, owner_node), orphans);
    if (record->died)
        chain_leave(record);
    else if (record->kind->order_matters)
        leave_live(record, orphans);
    list_move_all(orphans, &record->guarded);
    list_remove(&record->node);
    list_remove(&record->owner_node);
    list_remove(&record->order_node);
    list_remove(&record->guard_node); /* of its guard's, or one of the orphans */
    list_remove(&record->dead_node);
    journal_record_free(record);
}

/* Tombstones that stayed because of what goes find another guard or go too. */
void journal_vanish(struct record *record)
{
    struct list orphans = LIST_INIT(orphans);

    take_out(record, &orphans);
    while (!list_empty(&orphans)) {
        struct record *tombstone = tombstone_of(orphans.next), *guard = find_guard(tombstone);

        if (guard)
            guard_set(tombstone, guard);
        else
            take_out(tombstone, &orphans);
    }
}

static void chain_trim(void)
{
    while (chained_count > JOURNAL_CHAIN_MAX)
        journal_vanish(container_of(chained.next, struct record, life_node));
}

/* ---- staying */

static void bury(struct record *record, uint64_t died);

/* What needs no order and owns nothing that does is not made again. */
static void bury_owned(struct record *owner)
{
    list_each (node, &owner->owned) {
        struct record *owned = container_of(node, struct record, owner_node);

        if (owned->died) /* a tombstone before its owner is one */
            continue;
        bury(owned, owner->died);
        if (!owned->kind->order_matters && list_empty(&owned->owned))
            journal_vanish(owned);
    }
}

static void bury(struct record *record, uint64_t died)
{
    struct list rest = LIST_INIT(rest);

    record->died = died;
    placement_forget_blocks(&record->placement); /* others have them by now */
    bury_owned(record);
    if (!record->kind->order_matters)
        return;
    leave_live(record, &rest);
    while (!list_empty(&rest))
        guard_set(tombstone_of(rest.next), record); /* it keeps them */
}

bool tombstone_make(struct record *record)
{
    struct record *guard;
    struct list *live;

    record->died = journal_position + 1;
    guard = find_guard(record);
    if (!guard) {
        record->died = 0;
        return false;
    }
    /* All that is there was born before now: what is live and was born after the record guards it best. */
    for (live = record->life_node.next; live != &ordered_live; live = live->next)
        if (!is_part_of(live_neighbour(live), record)) {
            guard = live_neighbour(live);
            break;
        }
    bury(record, ++journal_position);
    list_insert(&journal_dead, &record->dead_node);
    guard_set(record, guard);
    chain_trim();
    return true;
}

void tombstone_forget(void)
{
    list_init(&journal_dead);
    list_init(&ordered);
    list_init(&ordered_live);
    list_init(&chained);
    chained_count = 0;
}
