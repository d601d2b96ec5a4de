#include "used_set.h"

#include <pthread.h>
#include <stdlib.h>

#define EMPTY   0
#define REMOVED 1

struct table {
    uint64_t mask; /* size - 1, a power of two */
    uint64_t filled; /* places that are not empty */
    uint64_t places[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* writers */
static struct table *table;

static uint64_t first_place(const struct table *in, uint64_t key)
{
    return (key >> 20) & in->mask;
}

bool used_set_has(uint64_t key)
{
    const struct table *in = __atomic_load_n(&table, __ATOMIC_ACQUIRE);

    if (!in)
        return false;
    for (uint64_t at = first_place(in, key);; at = (at + 1) & in->mask) {
        uint64_t value = __atomic_load_n(&in->places[at], __ATOMIC_RELAXED);

        if (value == key)
            return true;
        if (value == EMPTY)
            return false;
    }
}

/* Takes a removed place where there is one: what comes and goes must not make the table grow. */
static void put(struct table *in, uint64_t key)
{
    uint64_t at = first_place(in, key);

    while (in->places[at] > REMOVED)
        at = (at + 1) & in->mask;
    in->filled += in->places[at] == EMPTY;
    __atomic_store_n(&in->places[at], key, __ATOMIC_RELAXED);
}

/* Less than half full, so that searches are short and always end. */
static int make_room(void)
{
    uint64_t live = 0, size = 1024;
    struct table *larger;

    if (table && table->filled * 2 < table->mask)
        return 0;
    for (uint64_t at = 0; table && at <= table->mask; at++)
        live += table->places[at] > REMOVED;
    while (size < live * 4)
        size *= 2;
    larger = calloc(1, sizeof *larger + size * sizeof larger->places[0]);
    if (!larger)
        return -1;
    larger->mask = size - 1;
    for (uint64_t at = 0; table && at <= table->mask; at++)
        if (table->places[at] > REMOVED)
            put(larger, table->places[at]);
    __atomic_store_n(&table, larger, __ATOMIC_RELEASE);
    return 0;
}

int used_set_add(uint64_t key)
{
    int result;

    pthread_mutex_lock(&lock);
    result = make_room();
    if (result == 0 && !used_set_has(key))
        put(table, key);
    pthread_mutex_unlock(&lock);
    return result;
}

void used_set_remove(uint64_t key)
{
    pthread_mutex_lock(&lock);
    for (uint64_t at = table ? first_place(table, key) : 0; table && table->places[at] != EMPTY;
         at = (at + 1) & table->mask)
        if (table->places[at] == key) {
            __atomic_store_n(&table->places[at], REMOVED, __ATOMIC_RELAXED);
            break;
        }
    pthread_mutex_unlock(&lock);
}
