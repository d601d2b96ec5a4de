/* The journal: records, what they own, tombstones, and the replay, with a small driver of the test's own. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "journal.h"
#include "unsaveable.h"

static struct error err;
static size_t released;
static CUcontext current;

/* ---- the driver: objects are heap blocks, or the lowest free number */

static bool slots[64];
static bool first_done; /* the first object of a "lasting" kind makes a block that stays */

struct thing {
    struct record record;
    size_t size;
    uint64_t object; /* what the call is made on: the owner's handle when it was made first */
    CUresult fails;
    void *owned;
};

static struct thing *thing_of(struct record *record)
{
    return container_of(record, struct thing, record);
}

static char order[4096]; /* what the replay did: + made, - undone, with the last digit of size */

static void log_step(char what, const struct record *record)
{
    size_t length = strlen(order);

    if (length + 3 < sizeof(order)) {
        order[length] = what;
        order[length + 1] = (char)('0' + container_of(record, struct thing, record)->size % 10);
    }
}

static CUresult make_block(struct record *record, uint64_t *handle)
{
    struct thing *thing = thing_of(record);

    log_step('+', record);
    ck_assert_ptr_eq(current, record->context);
    if (thing->fails)
        return thing->fails;
    *handle = (uint64_t)placement_heap_alloc(thing->size);
    return CUDA_SUCCESS;
}

static CUresult make_lasting(struct record *record, uint64_t *handle)
{
    if (!first_done)
        placement_heap_alloc(thing_of(record)->size);
    first_done = true;
    return make_block(record, handle);
}

static CUresult free_block(struct record *record, uint64_t handle)
{
    log_step('-', record);
    driver_heap_free((void *)handle);
    return CUDA_SUCCESS;
}

static CUresult make_slot(struct record *record, uint64_t *handle)
{
    uint64_t slot = 0;

    log_step('+', record);
    while (slots[slot])
        slot++;
    slots[slot] = true;
    *handle = slot + 1;
    return thing_of(record)->fails;
}

static CUresult free_slot(struct record *record, uint64_t handle)
{
    log_step('-', record);
    ck_assert(slots[handle - 1]);
    slots[handle - 1] = false;
    return CUDA_SUCCESS;
}

static void release(struct record *record)
{
    free(thing_of(record)->owned);
    released++;
}

static const struct record_kind block_kind = {
    .name = "block", .replay = make_block, .undo = free_block, .release = release};
static const struct record_kind other_kind = {.name = "other", .replay = make_block, .release = release};
static const struct record_kind lasting_kind = {
    .name = "lasting", .replay = make_lasting, .undo = free_block, .release = release, .warm_up = true};
static const struct record_kind slot_kind = {
    .name = "slot", .replay = make_slot, .undo = free_slot, .release = release, .order_matters = true};

/*
 * Modules: blocks that begin with the address of a variable; device memory is units that the module takes
 * first fit when it is loaded and for each launch of one of its symbols. A symbol is a place in its module's
 * block, with the module's handle in it.
 */
static uint64_t units[1000]; /* handle of the module that has it; 0: free */

static uint64_t units_take(uint64_t module, size_t count)
{
    size_t first = 0, found = 0;

    while (found < count) {
        ck_assert_uint_lt(first + found, 1000);
        if (!units[first + found]) {
            found++;
        } else {
            first += found + 1;
            found = 0;
        }
    }
    for (size_t i = 0; i < count; i++)
        units[first + i] = module;
    return first + 1;
}

static CUresult make_module(struct record *record, uint64_t *handle)
{
    uint64_t *block = placement_heap_alloc(64);

    log_step('+', record);
    block[0] = units_take((uint64_t)block, thing_of(record)->size);
    *handle = (uint64_t)block;
    return CUDA_SUCCESS;
}

static CUresult unload_module(struct record *record, uint64_t handle)
{
    log_step('-', record);
    for (size_t i = 0; i < 1000; i++)
        if (units[i] == handle)
            units[i] = 0;
    memset((void *)handle, 0, 64);
    driver_heap_free((void *)handle);
    return CUDA_SUCCESS;
}

static CUresult make_variable(struct record *record, uint64_t *handle)
{
    log_step('+', record);
    *handle = *(uint64_t *)journal_object(record, thing_of(record)->object);
    return CUDA_SUCCESS;
}

static CUresult make_symbol(struct record *record, uint64_t *handle)
{
    uint64_t module = journal_object(record, thing_of(record)->object);

    log_step('+', record);
    *handle = module + 8 * (1 + thing_of(record)->size % 7);
    *(uint64_t *)*handle = module;
    return CUDA_SUCCESS;
}

static CUresult make_launch(struct record *record, uint64_t *handle)
{
    uint64_t module = *(uint64_t *)journal_object(record, thing_of(record)->object);

    log_step('+', record);
    ck_assert_uint_ne(module, 0); /* or it was unloaded */
    *handle = units_take(module, thing_of(record)->size);
    return CUDA_SUCCESS;
}

static const struct record_kind module_kind = {.name = "module",
                                               .replay = make_module,
                                               .undo = unload_module,
                                               .release = release,
                                               .order_matters = true};
static const struct record_kind variable_kind = {
    .name = "variable", .replay = make_variable, .release = release, .order_matters = true};
static const struct record_kind symbol_kind = {.name = "symbol", .replay = make_symbol, .release = release};
static const struct record_kind launch_kind = {
    .name = "launch", .replay = make_launch, .release = release, .order_matters = true};

/* ---- the program */

static CUcontext get_current(void)
{
    return current;
}

static void set_current(CUcontext context)
{
    current = context;
}

static void set_up(void)
{
    error_clear(&err);
    fault_start();
    ck_assert_msg(driver_heap_start(&err) == 0, "%s", err.text);
    ck_assert_int_eq(journal_start(&err), 0);
    journal_use(get_current, set_current);
}

static struct record *create(const struct record_kind *kind, size_t size, struct record *owner)
{
    struct thing *thing = journal_record_new(kind, sizeof(*thing));
    uint64_t handle = 0;

    thing->size = size;
    thing->object = owner ? owner->handle : 0;
    thing->owned = malloc(10);
    journal_note();
    ck_assert_int_eq(kind->replay(&thing->record, &handle), CUDA_SUCCESS);
    return journal_commit(&thing->record, handle, owner);
}

static void destroy(struct record *record)
{
    uint64_t handle = record->handle;
    const struct record_kind *kind = record->kind;

    ck_assert_ptr_eq(journal_detach(kind, handle), record);
    kind->undo(record, handle);
    journal_drop(record);
}

static void release_driver(void)
{
    struct heap_place *places;
    size_t count;

    ck_assert_int_eq(journal_places(&places, &count, &err), 0);
    ck_assert_int_eq(driver_heap_reset(places, count, &err), 0);
    free(places);
    memset(slots, 0, sizeof(slots));
    memset(units, 0, sizeof(units));
    memset(order, 0, sizeof(order));
    first_done = false;
}

static void restart(void)
{
    release_driver();
    ck_assert_msg(journal_replay(NULL, &err) == 0, "%s", err.text);
    journal_replay_done();
}

static size_t reserved(void)
{
    struct driver_heap_stats stats;

    driver_heap_get_stats(&stats);
    return stats.reserved;
}

/* ---- records */

START_TEST(records_are_found_by_handle)
{
    static struct record *records[5000];

    for (size_t i = 0; i < 5000; i++)
        records[i] = create(i % 2 ? &block_kind : &other_kind, 32, NULL);
    for (size_t i = 0; i < 5000; i++) {
        ck_assert_ptr_eq(journal_find(records[i]->kind, records[i]->handle), records[i]);
        ck_assert_ptr_null(journal_find(i % 2 ? &other_kind : &block_kind, records[i]->handle));
    }
    ck_assert_uint_eq(journal_count(&block_kind), 2500);
    ck_assert_uint_eq(journal_count(NULL), 5000);
    for (size_t i = 0; i < 5000; i += 3)
        journal_drop(records[i]);
    for (size_t i = 1; i < 5000; i += 3)
        ck_assert_ptr_eq(journal_find(records[i]->kind, records[i]->handle), records[i]);
    ck_assert_uint_eq(released, 1667);
    ck_assert_uint_eq(journal_count(NULL), 5000 - 1667);
    ck_assert_ptr_null(journal_find(&block_kind, 0));
    ck_assert_ptr_null(journal_detach(&block_kind, 0));
}
END_TEST

/* What the second call took is still live, so it belongs to the record: two threads may have made the thing at once. */
START_TEST(a_getter_called_again_makes_no_second_record)
{
    struct record *record = create(&block_kind, 16, NULL);
    struct thing *again = journal_record_new(&block_kind, sizeof(*again));

    journal_note();
    placement_heap_alloc(16);
    ck_assert_ptr_eq(journal_commit(&again->record, record->handle, NULL), record);
    ck_assert_uint_eq(released, 1);
    ck_assert_uint_eq(journal_count(NULL), 1);
    ck_assert_uint_eq(record->placement.heap_count, 2);
}
END_TEST

START_TEST(no_memory_for_a_record_is_unsaveable)
{
    struct placement placement;

    journal_note();
    placement_heap_alloc(16);
    ck_assert(!unsaveable_any());
    ck_assert_ptr_null(journal_commit(NULL, 5, NULL));
    ck_assert(unsaveable_any());
    journal_note();
    ck_assert_int_eq(journal_discard(CUDA_ERROR_OUT_OF_MEMORY), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 0);
}
END_TEST

START_TEST(a_detached_record_is_not_found)
{
    struct record *record = create(&block_kind, 16, NULL), *next;
    uint64_t handle = record->handle;

    ck_assert_ptr_eq(journal_detach(&block_kind, handle), record);
    ck_assert_ptr_null(journal_find(&block_kind, handle));
    ck_assert_ptr_null(journal_detach(&block_kind, handle));
    ck_assert_uint_eq(journal_count(NULL), 0);
    journal_attach(record); /* the call failed */
    ck_assert_ptr_eq(journal_find(&block_kind, handle), record);
    ck_assert_uint_eq(journal_count(NULL), 1);

    journal_detach(&block_kind, handle);
    driver_heap_free((void *)handle);
    next = create(&block_kind, 16, NULL); /* by another thread, before this one has dropped the old record */
    ck_assert_uint_eq(next->handle, handle);
    journal_drop(record);
    ck_assert_ptr_eq(journal_find(&block_kind, handle), next);
    journal_drop(NULL);
    journal_attach(NULL);
}
END_TEST

START_TEST(what_a_record_owns_goes_with_it)
{
    struct record *context = create(&block_kind, 16, NULL);
    struct record *module = create(&block_kind, 16, context), *detached;
    struct record *kept = create(&block_kind, 16, NULL);

    for (int i = 0; i < 10; i++) {
        create(&other_kind, 16, module);
        create(&other_kind, 16, context);
    }
    detached = create(&block_kind, 16, context);
    journal_detach(&block_kind, detached->handle); /* another thread destroys it at the same time */
    journal_drop(context);
    ck_assert_uint_eq(released, 22);
    ck_assert_uint_eq(journal_count(NULL), 1);
    journal_drop(detached);
    ck_assert_uint_eq(released, 23);

    detached = create(&block_kind, 16, kept);
    journal_detach(&block_kind, detached->handle);
    journal_drop(kept);
    journal_attach(detached); /* its owner is gone: it is too */
    ck_assert_uint_eq(released, 25);
    ck_assert_uint_eq(journal_count(NULL), 0);
}
END_TEST

static int drop_with_owner(struct record *record, void *arg)
{
    (*(int *)arg)++;
    create(&block_kind, 16, NULL); /* not visited */
    journal_drop(record);
    return 0;
}

static int stop_at_third(struct record *record, void *arg)
{
    return ++*(int *)arg == 3;
}

static int count_inside(struct record *record, void *arg)
{
    journal_each(&other_kind, stop_at_third, &(int){0});
    *(size_t *)arg += journal_count(&block_kind);
    return 0;
}

START_TEST(each_stands_drops)
{
    struct record *owner = create(&block_kind, 16, NULL);
    int seen = 0;
    size_t inside = 0;

    for (int i = 0; i < 5; i++) /* right behind the owner, and gone with it */
        create(&block_kind, 16, owner);
    create(&block_kind, 16, NULL);
    create(&other_kind, 16, NULL);
    journal_each(&block_kind, drop_with_owner, &seen);
    ck_assert_int_eq(seen, 2);
    ck_assert_uint_eq(journal_count(&block_kind), 2);
    for (int i = 0; i < 5; i++)
        create(&other_kind, 16, NULL);
    seen = 0;
    journal_each(NULL, stop_at_third, &seen);
    ck_assert_int_eq(seen, 3);
    journal_each(&block_kind, count_inside, &inside);
    ck_assert_uint_eq(inside, 4);
}
END_TEST

static void *create_and_destroy(void *arg)
{
    for (int i = 0; i < 3000; i++)
        destroy(create(&block_kind, 24, NULL));
    return NULL;
}

START_TEST(threads_share_it)
{
    pthread_t threads[4];
    pid_t child;
    int status;

    create(&other_kind, 24, NULL);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, create_and_destroy, NULL), 0);
    for (int i = 0; i < 20; i++) {
        journal_before_fork();
        driver_heap_before_fork();
        child = fork();
        driver_heap_after_fork();
        journal_after_fork(!child);
        if (!child)
            _exit(journal_count(NULL) != 0 || journal_find(&block_kind, 16));
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(journal_count(NULL), 1);
}
END_TEST

START_TEST(many_events_leave_nothing)
{
    struct driver_heap_stats stats;

    create(&slot_kind, 1, NULL);
    for (int i = 0; i < 20000; i++)
        destroy(create(&block_kind, 24, NULL));
    driver_heap_get_stats(&stats);
    ck_assert_uint_eq(stats.blocks, 0);
    ck_assert_uint_eq(journal_count(NULL), 1);
    ck_assert_uint_eq(released, 20000);
}
END_TEST

/* ---- replay */

static size_t ticks;

static void tick(size_t done, size_t total)
{
    ck_assert_uint_eq(done, ++ticks);
    ck_assert_uint_eq(total, 300);
}

START_TEST(handles_come_back)
{
    struct record *records[300];
    uint64_t handles[300];

    for (int i = 0; i < 600; i++) {
        struct record *record;

        current = (CUcontext)(uintptr_t)(i % 3);
        record = create(&block_kind, (size_t)(i * 7 % 90), NULL);
        if (i < 300)
            records[i] = record;
        else
            destroy(record);
    }
    for (int i = 0; i < 300; i++)
        handles[i] = records[i]->handle;
    for (int round = 0; round < 3; round++) {
        release_driver();
        ck_assert_uint_eq(reserved(), 300);
        for (int i = 0; i < 50; i++)
            driver_heap_alloc(16); /* what the driver takes outside of records */
        ticks = 0;
        ck_assert_msg(journal_replay(tick, &err) == 0, "%s", err.text);
        journal_replay_done();
        ck_assert_uint_eq(ticks, 300);
        ck_assert_uint_eq(reserved(), 0);
        for (int i = 0; i < 300; i++) {
            ck_assert_uint_eq(records[i]->handle, handles[i]);
            ck_assert_uint_eq(driver_heap_serial((void *)handles[i]), records[i]->placement.heap[0].serial);
        }
    }
}
END_TEST

START_TEST(failures_name_the_record_and_can_be_tried_again)
{
    struct record *first = create(&block_kind, 100, NULL), *second = create(&block_kind, 100, NULL);

    thing_of(second)->fails = CUDA_ERROR_OUT_OF_MEMORY;
    release_driver();
    ck_assert_int_eq(journal_replay(NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "block (record 2"));
    ck_assert_ptr_null(first->replayed.heap);

    error_clear(&err);
    thing_of(second)->fails = 700;
    release_driver();
    ck_assert_int_eq(journal_replay(NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.text, "700"));

    error_clear(&err);
    thing_of(second)->fails = 0;
    thing_of(second)->size = 5000; /* asks for something else than it did: comes back elsewhere */
    release_driver();
    ck_assert_int_eq(journal_replay(NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "block (record 2)"));

    error_clear(&err);
    thing_of(second)->size = 100;
    release_driver();
    ck_assert_uint_eq(reserved(), 2);
    ck_assert_msg(journal_replay(NULL, &err) == 0, "%s", err.text);
    journal_replay_done();
    destroy(first);
    release_driver();
    ck_assert_uint_eq(reserved(), 1);
}
END_TEST

START_TEST(a_suspend_that_was_given_up_does_not_confuse_the_next)
{
    struct record *first = create(&block_kind, 100, NULL), *second;
    struct heap_place *places;
    size_t count;

    restart();
    ck_assert_int_eq(journal_places(&places, &count, &err), 0);
    free(places); /* and the program runs on */
    second = create(&block_kind, 100, NULL);
    destroy(first);
    restart();
    ck_assert_uint_eq(reserved(), 0);
    ck_assert_ptr_eq(journal_find(&block_kind, second->handle), second);
}
END_TEST

START_TEST(fault_points_fail)
{
    create(&block_kind, 16, NULL);
    create(&block_kind, 16, NULL);
    setenv("CUDACKPT_FAULT", "replay_record@2", 1);
    fault_start();
    release_driver();
    ck_assert_int_eq(journal_replay(NULL, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.text, "replay_record"));
    error_clear(&err);
    setenv("CUDACKPT_FAULT", "replay_mismatch", 1);
    fault_start();
    release_driver();
    ck_assert_int_eq(journal_replay(NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_MISMATCH);
    restart();
}
END_TEST

/* The first of a kind makes a block of the same size that stays; is the recorded call the first one, or not?
 */
START_TEST(one_time_blocks_do_not_take_places)
{
    struct record *first, *second;

    first = create(&lasting_kind, 64, NULL);
    second = create(&lasting_kind, 64, NULL);
    ck_assert_uint_eq(first->placement.heap_count, 2);
    restart();
    ck_assert_str_eq(order, "+4-4+4+4");
    ck_assert_uint_eq(first->placement.heap_count, 1);
    ck_assert_uint_eq(reserved(), 0);
    restart(); /* its placement now is that of a call that was not the first */
    destroy(first);
    restart(); /* and now the second one is replayed first */
    ck_assert_str_eq(order, "+4-4+4");
    ck_assert_ptr_eq(journal_find(&lasting_kind, second->handle), second);
    current = (CUcontext)16; /* once for each context */
    create(&lasting_kind, 65, NULL);
    restart();
    ck_assert_str_eq(order, "+4-4+4+5-5+5");
}
END_TEST

static void note_map(uint64_t address, uint64_t size, void *arg)
{
    *(uint64_t *)arg += address + size;
}

START_TEST(reservations_are_listed)
{
    struct thing *thing = journal_record_new(&block_kind, sizeof(*thing));
    uint64_t sum = 0;

    journal_note();
    placement_map_got(0x100000, 0x1000);
    placement_map_got(0x200000, 0x2000);
    journal_commit(&thing->record, 1, NULL);
    journal_each_map(note_map, &sum);
    ck_assert_uint_eq(sum, 0x303000);
}
END_TEST

/* ---- tombstones; sizes are names here */

START_TEST(dead_records_keep_the_numbering)
{
    struct record *a = create(&slot_kind, 1, NULL), *b = create(&slot_kind, 2, NULL), *c;

    destroy(a);
    ck_assert_uint_eq(journal_count(NULL), 1);
    ck_assert_ptr_null(journal_find(&slot_kind, 1));
    c = create(&slot_kind, 3, NULL); /* takes the first one's number */
    ck_assert_uint_eq(c->handle, 1);
    restart();
    ck_assert_str_eq(order, "+1+2-1+3");
    restart();
    destroy(b); /* c needs the room that a left while b was there: both stay, though c is the only live one */
    restart();
    ck_assert_str_eq(order, "+1+2-1+3-2");
    ck_assert_uint_eq(c->handle, 1);
    destroy(c);
    restart();
    ck_assert_str_eq(order, "");
    ck_assert_uint_eq(released, 3);
}
END_TEST

START_TEST(tombstones_move_to_another_guard)
{
    struct record *a = create(&slot_kind, 1, NULL), *b = create(&slot_kind, 2, NULL);
    struct record *c = create(&slot_kind, 3, NULL), *d = create(&slot_kind, 4, NULL), *e;

    destroy(a);
    e = create(&slot_kind, 5, NULL);
    destroy(c); /* guarded by d */
    restart();
    ck_assert_str_eq(order, "+1+2+3+4-1+5-3");
    destroy(b);
    restart();
    ck_assert_str_eq(order, "+1+2+3+4-1+5-3-2");
    destroy(d); /* b and c have e now, a has only dead ones */
    restart();
    ck_assert_str_eq(order, "+1+2+3+4-1+5-3-2-4");
    ck_assert_uint_eq(released, 0);
    destroy(e);
    restart();
    ck_assert_str_eq(order, "");
    ck_assert_uint_eq(released, 5);
}
END_TEST

START_TEST(tombstones_go_with_their_owner)
{
    struct record *context = create(&block_kind, 16, NULL);
    struct record *a = create(&slot_kind, 1, context), *b;

    create(&other_kind, 7, a);
    b = create(&slot_kind, 2, NULL);
    destroy(a);
    ck_assert_uint_eq(released, 1); /* what it owned */
    restart();
    ck_assert_str_eq(order, "+6+1+2-1");
    journal_drop(context);
    ck_assert_uint_eq(released, 3);
    slots[1] = false;
    b->handle = 1; /* the program does not see that; the test does */
    restart();
    ck_assert_str_eq(order, "+2");
}
END_TEST

START_TEST(loading_and_unloading_leaves_nothing)
{
    struct timespec begin, end;

    create(&slot_kind, 1, NULL);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 10000; i++)
        destroy(create(&slot_kind, 2, NULL));
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_uint_eq(released, 10000);
    ck_assert_int_lt((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000, 1000);
    memset(order, 0, sizeof(order));
    restart();
    ck_assert_str_eq(order, "+1");
}
END_TEST

/* Whatever was made and destroyed in whatever order: what is live keeps its number. */
START_TEST(any_history_is_repeated)
{
    struct record *live[30];
    size_t count = 0, room;
    unsigned seed = 1;

    for (int step = 0; step < 6000; step++) {
        room = step % 1000 < 500 ? 30 : 3; /* grows and shrinks */
        if (count < room && rand_r(&seed) % 2) {
            live[count++] = create(&slot_kind, 1, NULL);
        } else if (count) {
            size_t which = (size_t)rand_r(&seed) % count;

            destroy(live[which]);
            live[which] = live[--count];
        }
        if (step % 100 == 99)
            restart();
        for (size_t i = 0; step % 100 == 99 && i < count; i++)
            ck_assert(slots[live[i]->handle - 1]);
    }
    while (count)
        destroy(live[--count]);
    restart();
    ck_assert_str_eq(order, "");
}
END_TEST

START_TEST(a_chain_of_the_dead_ends)
{
    struct record *before = create(&slot_kind, 1, NULL), *last;

    for (int i = 0; i < 100; i++) { /* the next one is there before the last one goes, for ever */
        last = create(&slot_kind, 1, NULL);
        destroy(before);
        before = last;
    }
    ck_assert_uint_eq(released, 0);
    restart();
    for (int i = 0; i < 2000; i++) {
        last = create(&slot_kind, 1, NULL);
        destroy(before);
        before = last;
    }
    ck_assert_uint_ge(released, 2100 - JOURNAL_CHAIN_MAX - 2);
    destroy(last);
    ck_assert_uint_eq(released, 2101);
    ck_assert_uint_eq(journal_count(NULL), 0);
}
END_TEST

START_TEST(many_tombstones_are_undone_in_order)
{
    struct record *old[60];
    struct timespec begin, end;

    for (int i = 0; i < 40; i++)
        old[i] = create(&slot_kind, (size_t)i, NULL);
    create(&slot_kind, 9, NULL);
    for (int i = 0; i < 40; i += 3)
        destroy(old[i]);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 5000; i++)
        destroy(create(&slot_kind, 5, NULL)); /* takes a dead one's number and gives it back */
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_int_lt((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000, 1000);
    ck_assert_uint_eq(create(&slot_kind, 8, NULL)->handle, 1);
    for (int i = 0; i < 3; i++)
        restart();
    ck_assert_uint_eq(journal_count(NULL), 28);
}
END_TEST

/* ---- parts of tombstones */

START_TEST(what_a_dead_record_owned_is_made_again_with_it)
{
    struct record *a = create(&module_kind, 1, NULL), *symbol = create(&symbol_kind, 2, a);
    struct record *b = create(&module_kind, 3, NULL), *launch = create(&launch_kind, 4, symbol), *c, *d;
    uint64_t launched = launch->handle, found = symbol->handle;

    create(&other_kind, 5, symbol);
    create(&symbol_kind, 6, a);
    create(&variable_kind, 7, a);
    destroy(a);
    ck_assert_uint_eq(released, 2); /* what is needed to make nothing again */
    ck_assert_ptr_null(journal_find(&launch_kind, launched));
    ck_assert_ptr_null(journal_find(&symbol_kind, found));
    ck_assert_uint_eq(journal_count(NULL), 1);
    c = create(&module_kind, 4, NULL); /* where the launched code was, and */
    d = create(&module_kind, 1, NULL); /* the variable */
    ck_assert_uint_eq(*(uint64_t *)c->handle, launched);
    ck_assert_uint_eq(*(uint64_t *)d->handle, 1);
    for (int round = 0; round < 3; round++) {
        restart();
        ck_assert_str_eq(order, "+1+2+3+4+7-1+4+1");
        ck_assert_uint_eq(*(uint64_t *)c->handle, launched);
        ck_assert_uint_eq(*(uint64_t *)d->handle, 1);
    }
    destroy(b);
    destroy(c);
    destroy(d);
    ck_assert_uint_eq(released, 9);
    restart();
    ck_assert_str_eq(order, "");
}
END_TEST

START_TEST(its_own_parts_keep_no_tombstone)
{
    struct record *before = create(&module_kind, 1, NULL), *module;

    for (int i = 0; i < 100; i++) {
        module = create(&module_kind, 2, NULL);
        create(&variable_kind, 3, module);
        create(&launch_kind, 4, create(&symbol_kind, 5, module));
        destroy(module);
    }
    ck_assert_uint_eq(released, 400);
    create(&launch_kind, 6, create(&symbol_kind, 7, before));
    restart();
    ck_assert_str_eq(order, "+1+7+6");
}
END_TEST

START_TEST(parts_keep_other_tombstones)
{
    struct record *a = create(&module_kind, 1, NULL), *symbol = create(&symbol_kind, 2, a);
    struct record *b = create(&module_kind, 3, NULL), *launch = create(&launch_kind, 4, symbol), *c;
    uint64_t launched = launch->handle;

    destroy(b); /* the launch was during its life */
    restart();
    ck_assert_str_eq(order, "+1+2+3+4-3");
    ck_assert_uint_eq(launch->handle, launched);
    c = create(&module_kind, 5, NULL); /* behind the launched code */
    ck_assert_uint_eq(*(uint64_t *)c->handle, launched + 4);
    destroy(a);
    restart();
    ck_assert_str_eq(order, "+1+2+3+4-3+5-1");
    ck_assert_uint_eq(*(uint64_t *)c->handle, launched + 4);
    destroy(c);
    ck_assert_uint_eq(released, 5);
    restart();
    ck_assert_str_eq(order, "");
}
END_TEST

START_TEST(tombstones_find_a_live_guard_when_parts_die)
{
    struct record *before = create(&module_kind, 1, NULL), *a = create(&module_kind, 2, NULL), *last;

    create(&launch_kind, 3, create(&symbol_kind, 4, before));
    create(&launch_kind, 5, create(&symbol_kind, 6, a));
    last = create(&module_kind, 7, NULL);
    destroy(before); /* has a, its launch, and last */
    destroy(a);
    for (int i = 0; i < 2 * JOURNAL_CHAIN_MAX; i++) { /* would push out what is kept by the dead only */
        struct record *next = create(&module_kind, 8, NULL);

        destroy(create(&module_kind, 9, NULL));
        destroy(last);
        last = next;
        if (i == 0)
            create(&launch_kind, 1, create(&symbol_kind, 1, last));
    }
    restart();
    destroy(last);
    ck_assert_uint_eq(journal_count(NULL), 0);
    restart();
    ck_assert_str_eq(order, "");
}
END_TEST

START_TEST(a_context_takes_tombstones_and_parts_along)
{
    struct record *context = create(&block_kind, 16, NULL), *a = create(&module_kind, 1, context);
    struct record *b = create(&module_kind, 2, context), *other = create(&module_kind, 3, NULL);

    create(&launch_kind, 4, create(&symbol_kind, 5, a));
    create(&launch_kind, 6, create(&symbol_kind, 7, b));
    destroy(a);
    journal_drop(context); /* b leaves no tombstone, and a has none to stay for: other's memory is its own */
    ck_assert_uint_eq(released, 7);
    ck_assert_uint_eq(journal_count(NULL), 1);
    destroy(other);
    ck_assert_uint_eq(released, 8);
}
END_TEST

#define MODULES 12
#define SYMBOLS 5

struct program_module {
    struct record *record, *variable, *symbols[SYMBOLS], *launches[SYMBOLS];
};

static void use_module(struct program_module *module, unsigned *seed)
{
    unsigned which = (unsigned)rand_r(seed) % (SYMBOLS + 1);

    if (which == SYMBOLS) {
        if (!module->variable)
            module->variable = create(&variable_kind, 1, module->record);
    } else if (!module->symbols[which]) {
        module->symbols[which] = create(&symbol_kind, which, module->record);
    } else if (!module->launches[which]) {
        module->launches[which] = create(&launch_kind, 1 + (size_t)rand_r(seed) % 9, module->symbols[which]);
    } else {
        create(&other_kind, 8, module->symbols[which]);
    }
}

static void unload(struct program_module *module)
{
    if (module->record)
        destroy(module->record);
    *module = (struct program_module){0};
}

/* All that is live keeps its address (the replay compares), and what is taken is what was taken. */
static void restart_and_compare(void)
{
    uint64_t held[1000];

    memcpy(held, units, sizeof(held));
    restart();
    ck_assert_mem_eq(held, units, sizeof(held));
}

/* Modules are loaded, used and unloaded in any order. Now and then none is left: the chain of the dead ends.
 */
START_TEST(any_history_of_modules_is_repeated)
{
    struct program_module modules[MODULES] = {0};
    unsigned seed = 7;

    for (int step = 0; step < 4000; step++) {
        struct program_module *module = &modules[(unsigned)rand_r(&seed) % MODULES];

        if (!module->record)
            module->record = create(&module_kind, 1 + (size_t)rand_r(&seed) % 9, NULL);
        else if (rand_r(&seed) % 8)
            use_module(module, &seed);
        else
            unload(module);
        if (step % 60 == 59)
            restart_and_compare();
        if (step % 1000 != 999)
            continue;
        for (int i = 0; i < MODULES; i++)
            unload(&modules[i]);
        ck_assert_uint_eq(journal_count(NULL), 0);
        restart();
        ck_assert_str_eq(order, "");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal");
    TCase *tests = tcase_create("journal");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, set_up, NULL); /* each test is a process of its own */
    tcase_add_test(tests, records_are_found_by_handle);
    tcase_add_test(tests, a_getter_called_again_makes_no_second_record);
    tcase_add_test(tests, no_memory_for_a_record_is_unsaveable);
    tcase_add_test(tests, a_detached_record_is_not_found);
    tcase_add_test(tests, what_a_record_owns_goes_with_it);
    tcase_add_test(tests, each_stands_drops);
    tcase_add_test(tests, threads_share_it);
    tcase_add_test(tests, many_events_leave_nothing);
    tcase_add_test(tests, handles_come_back);
    tcase_add_test(tests, failures_name_the_record_and_can_be_tried_again);
    tcase_add_test(tests, a_suspend_that_was_given_up_does_not_confuse_the_next);
    tcase_add_test(tests, fault_points_fail);
    tcase_add_test(tests, one_time_blocks_do_not_take_places);
    tcase_add_test(tests, reservations_are_listed);
    tcase_add_test(tests, dead_records_keep_the_numbering);
    tcase_add_test(tests, tombstones_move_to_another_guard);
    tcase_add_test(tests, tombstones_go_with_their_owner);
    tcase_add_test(tests, loading_and_unloading_leaves_nothing);
    tcase_add_test(tests, any_history_is_repeated);
    tcase_add_test(tests, a_chain_of_the_dead_ends);
    tcase_add_test(tests, many_tombstones_are_undone_in_order);
    tcase_add_test(tests, what_a_dead_record_owned_is_made_again_with_it);
    tcase_add_test(tests, its_own_parts_keep_no_tombstone);
    tcase_add_test(tests, parts_keep_other_tombstones);
    tcase_add_test(tests, tombstones_find_a_live_guard_when_parts_die);
    tcase_add_test(tests, a_context_takes_tombstones_and_parts_along);
    tcase_add_test(tests, any_history_of_modules_is_repeated);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_FORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
