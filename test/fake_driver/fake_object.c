/* The live handles: an open hash table from address to kind. */

#include <stdlib.h>

#include "fake.h"

static size_t slot_of(const struct object_table *table, const void *handle)
{
    size_t slot = ((uintptr_t)handle * 0x9e3779b97f4a7c15ull >> 20) & (table->size - 1);

    while (table->slots[slot].handle && table->slots[slot].handle != handle)
        slot = (slot + 1) & (table->size - 1);
    return slot;
}

void *object_find(const void *handle, enum object_kind kind)
{
    struct object_table *table = &fake.objects;
    size_t slot;

    if (!handle || !table->size)
        return NULL;
    slot = slot_of(table, handle);
    if (!table->slots[slot].handle || table->slots[slot].kind != kind)
        return NULL;
    return (void *)(uintptr_t)handle;
}

static int grow(struct object_table *table)
{
    struct object_table larger = {.size = table->size ? table->size * 2 : 1024, .used = table->used};

    larger.slots = calloc(larger.size, sizeof(*larger.slots));
    if (!larger.slots)
        return -1;
    for (size_t i = 0; i < table->size; i++) {
        if (table->slots[i].handle)
            larger.slots[slot_of(&larger, table->slots[i].handle)] = table->slots[i];
    }
    free(table->slots);
    *table = larger;
    return 0;
}

int object_add(const void *handle, enum object_kind kind)
{
    struct object_table *table = &fake.objects;
    size_t slot;

    if (table->used * 2 >= table->size && grow(table))
        return -1;
    slot = slot_of(table, handle);
    if (!table->slots[slot].handle)
        table->used++;
    table->slots[slot] = (struct object_slot){handle, kind};
    return 0;
}

void object_remove(const void *handle)
{
    struct object_table *table = &fake.objects;
    struct object_slot moved;
    size_t slot;

    if (!table->size)
        return;
    slot = slot_of(table, handle);
    if (!table->slots[slot].handle)
        return;
    table->slots[slot].handle = NULL;
    table->used--;
    /* Those behind it may have been pushed past this slot. */
    for (slot = (slot + 1) & (table->size - 1); table->slots[slot].handle;
         slot = (slot + 1) & (table->size - 1)) {
        moved = table->slots[slot];
        table->slots[slot].handle = NULL;
        table->slots[slot_of(table, moved.handle)] = moved;
    }
}
