#include "journal_internal.h"

struct list journal_dead = LIST_INIT(journal_dead);

/* Records whose order matters, in order: all, and the live ones. */
static struct list ordered = LIST_INIT(ordered), ordered_live = LIST_INIT(ordered_live);
/* Tombstones that stay for another tombstone only, those that came to it first in front. */
static struct list chained = LIST_INIT(chained);
static size_t chained_count;
static bool trimmed; /* since the chain was empty last */

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
    if (--chained_count == 0)
        trimmed = false;
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

static bool is_lost(const struct record *record)
{
    while (record->died && list_empty(&record->dead_node))
        record = record->owner; /* a part */
    return record->lost;
}

/* The record is live no more. Those that stayed because of it look for another live one: its neighbours are
 * the nearest. The others come to rest. */
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

/* What stayed because of what goes becomes an orphan. */
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

static void lose_guarded(struct record *record, struct list *lost)
{
    list_move_all(lost, &record->guarded);
    list_each (node, &record->owned) {
        struct record *owned = container_of(node, struct record, owner_node);

        if (list_empty(&owned->dead_node)) /* else a tombstone with a guard of its own */
            lose_guarded(owned, lost);
    }
}

/* The first that was born during the tombstone's life, is no part of it and has a reason to stay; NULL: none.
 */
static struct record *find_guard(const struct record *tombstone)
{
    for (struct list *node = tombstone->order_node.next; node != &ordered; node = node->next) {
        struct record *record = container_of(node, struct record, order_node);

        if (record->born > tombstone->died)
            return NULL;
        if (!is_part_of(record, tombstone) && !is_lost(record))
            return record;
    }
    return NULL;
}

static bool find_guards(struct list *lost)
{
    bool found = false;

    list_each (node, lost) {
        struct record *tombstone = tombstone_of(node), *guard = find_guard(tombstone);

        if (!guard)
            continue;
        tombstone->lost = false;
        guard_set(tombstone, guard);
        found = true;
    }
    return found;
}

/*
 * Tombstones whose guard is gone (they are linked by guard_node) find another one or go too. Two may have
 * parts that were born during each other's lives: a guard must not be one that stays because of the tombstone
 * itself. So all that stay because of these are lost at first.
 */
static void settle(struct list *lost)
{
    while (!list_empty(lost)) {
        struct list orphans = LIST_INIT(orphans);

        for (struct list *node = lost->next; node != lost; node = node->next) {
            tombstone_of(node)->lost = true;
            lose_guarded(tombstone_of(node), lost);
        }
        while (find_guards(lost))
            ;
        while (!list_empty(lost))
            take_out(tombstone_of(lost->next), &orphans);
        list_move_all(lost, &orphans);
    }
}

void journal_vanish(struct record *record)
{
    struct list orphans = LIST_INIT(orphans);

    take_out(record, &orphans);
    settle(&orphans);
}

static void chain_trim(void)
{
    while (chained_count > JOURNAL_CHAIN_MAX) {
        trimmed = true;
        journal_vanish(container_of(chained.next, struct record, life_node));
    }
}

bool journal_order_is_lost(void)
{
    return trimmed;
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

/* All that is there was born before now: what is live and was born after the record was born during its life.
 */
static struct record *find_live_guard(const struct record *record)
{
    for (struct list *node = record->life_node.next; node != &ordered_live; node = node->next)
        if (!is_part_of(live_neighbour(node), record))
            return live_neighbour(node);
    return NULL;
}

void tombstone_make(struct record *record)
{
    struct list lost = LIST_INIT(lost);
    struct record *guard = find_live_guard(record);

    bury(record, ++journal_position);
    list_insert(&journal_dead, &record->dead_node);
    if (guard) {
        guard_set(record, guard);
    } else {
        list_insert(&lost, &record->guard_node);
        settle(&lost);
    }
    chain_trim();
}

void tombstone_forget(void)
{
    list_init(&journal_dead);
    list_init(&ordered);
    list_init(&ordered_live);
    list_init(&chained);
    chained_count = 0;
}
