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

static struct record *next_in_order(struct record *record)
{
    struct list *next = record->order_node.next;

    return next == &ordered ? NULL : container_of(next, struct record, order_node);
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

/* Tombstones that stayed because of the record find another guard or go too. */
void journal_vanish(struct record *record)
{
    struct list orphans = LIST_INIT(orphans);

    if (record->died)
        chain_leave(record);
    list_remove(&record->node);
    list_remove(&record->owner_node);
    list_remove(&record->order_node);
    list_remove(&record->life_node);
    list_remove(&record->guard_node);
    list_remove(&record->dead_node);
    list_move_all(&orphans, &record->guarded);
    journal_record_free(record);
    while (!list_empty(&orphans)) {
        struct record *tombstone = container_of(orphans.next, struct record, guard_node);
        struct record *next = next_in_order(tombstone); /* if this one was born too late, all others were */

        if (next && next->born < tombstone->died)
            guard_set(tombstone, next);
        else
            journal_vanish(tombstone);
    }
}

static void chain_trim(void)
{
    while (chained_count > JOURNAL_CHAIN_MAX)
        journal_vanish(container_of(chained.next, struct record, life_node));
}

bool tombstone_make(struct record *record)
{
    struct list others = LIST_INIT(others);
    struct record *before = live_neighbour(record->life_node.prev),
                  *after = live_neighbour(record->life_node.next);
    struct record *guard = after ? after : next_in_order(record);

    /* All that is there was born before now: what was born after the record was born during its life. */
    if (!guard)
        return false;
    list_remove(&record->life_node);
    record->died = ++journal_position;
    placement_forget_blocks(&record->placement); /* others have them by now */
    list_insert(&journal_dead, &record->dead_node);
    guard_set(record, guard);
    /* Those that stayed for it look for a live one: the neighbours are the nearest. Else it keeps them. */
    list_move_all(&others, &record->guarded);
    while (!list_empty(&others)) {
        struct record *tombstone = container_of(others.next, struct record, guard_node);

        if (after && after->born < tombstone->died)
            guard_set(tombstone, after);
        else if (before && before->born > tombstone->born)
            guard_set(tombstone, before);
        else
            guard_set(tombstone, record);
    }
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
