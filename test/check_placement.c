/* Placement: what a call took is noted, and given to it again. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ledger.h"
#include "placement.h"

static struct error err;

static void set_up(void)
{
    error_clear(&err);
    ck_assert_msg(driver_heap_start(&err) == 0, "%s", err.text);
}

static bool mapped[256]; /* reservations that the driver has, by address >> 32 */

bool ledger_map_holds(uint64_t address, uint64_t size)
{
    return mapped[address >> 32];
}

/* The driver is restarted; the live blocks of one placement must come back. */
static void restart(struct placement *placement)
{
    struct heap_place *places = calloc(placement->heap_count + 1, sizeof(*places));

    placement_prune(placement);
    for (uint32_t i = 0; i < placement->heap_count; i++)
        places[i] = (struct heap_place){placement->heap[i].address, placement->heap[i].size};
    ck_assert_int_eq(driver_heap_reset(places, placement->heap_count, &err), 0);
    free(places);
}

static size_t reserved(void)
{
    struct driver_heap_stats stats;

    driver_heap_get_stats(&stats);
    return stats.reserved;
}

START_TEST(nothing_is_noted_outside)
{
    struct placement placement;

    placement_heap_alloc(5);
    placement_map_got(0x1000, 0x1000);
    ck_assert_uint_eq(placement_map_wanted(0x1000), 0);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 0);
    placement_discard();
    placement_note();
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 0);
    ck_assert_uint_eq(placement.map_count, 0);
}
END_TEST

START_TEST(a_call_gets_the_same_blocks)
{
    static const size_t sizes[] = {40, 40, 3000, 40, 100000, 0, 40};
    void *blocks[7], *again[7];
    struct placement placement, replayed;

    placement_note();
    for (int i = 0; i < 7; i++)
        blocks[i] = placement_heap_alloc(sizes[i]);
    driver_heap_free(blocks[1]);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 7);
    ck_assert_uint_eq(placement.heap[1].size, 40);
    ck_assert_uint_eq(placement.heap[4].address, (uint64_t)blocks[4]);
    restart(&placement);
    ck_assert_uint_eq(placement.heap[1].address, 0);
    ck_assert_uint_eq(placement.heap[1].size, 40);
    ck_assert_uint_eq(reserved(), 6);

    for (int i = 0; i < 100; i++) /* others in between must not get them */
        driver_heap_alloc(40);
    placement_replay(&placement);
    for (int i = 6; i >= 0; i--)
        again[i] = placement_heap_alloc(sizes[i]);
    /* By size, and in order within a size: asked for in reverse here. */
    ck_assert_ptr_eq(again[6], blocks[0]);
    ck_assert_ptr_ne(again[3], blocks[1]);
    ck_assert_ptr_eq(again[1], blocks[3]);
    ck_assert_ptr_eq(again[0], blocks[6]);
    ck_assert_ptr_eq(again[2], blocks[2]);
    ck_assert_ptr_eq(again[4], blocks[4]);
    ck_assert_ptr_eq(again[5], blocks[5]);
    ck_assert_ptr_ne(placement_heap_alloc(40), NULL); /* one more than before: fresh */
    ck_assert_int_eq(placement_take(&replayed), 0);
    ck_assert_uint_eq(replayed.heap_count, 8);
    ck_assert_uint_eq(reserved(), 0);
    placement_free(&placement);
    placement_free(&replayed);
    ck_assert_ptr_null(replayed.heap);
}
END_TEST

START_TEST(freed_and_taken_again_counts_once)
{
    struct placement placement, replayed;
    void *first, *second;

    placement_note();
    first = placement_heap_alloc(64);
    driver_heap_free(first);
    second = placement_heap_alloc(64);
    ck_assert_ptr_eq(first, second);
    ck_assert_int_eq(placement_take(&placement), 0);
    restart(&placement);
    ck_assert_uint_eq(placement.heap[0].address, 0);
    ck_assert_uint_eq(placement.heap[1].address, (uint64_t)second);
    placement_replay(&placement);
    first = placement_heap_alloc(64);
    ck_assert_ptr_ne(first, second);
    driver_heap_free(first);
    ck_assert_ptr_eq(placement_heap_alloc(64), second);
    ck_assert_int_eq(placement_take(&replayed), 0);
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

START_TEST(what_is_not_asked_for_again_becomes_free)
{
    struct placement placement, replayed;

    placement_note();
    placement_heap_alloc(64);
    placement_heap_alloc(64);
    placement_heap_alloc(1u << 20);
    ck_assert_int_eq(placement_take(&placement), 0);
    restart(&placement);
    ck_assert_uint_eq(reserved(), 3);
    placement_replay(&placement);
    ck_assert_ptr_eq(placement_heap_alloc(64), (void *)placement.heap[0].address);
    ck_assert_uint_eq(reserved(), 2);
    ck_assert_int_eq(placement_take(&replayed), 0);
    ck_assert_uint_eq(reserved(), 0);
    ck_assert_uint_eq(replayed.heap_count, 1);

    restart(&placement); /* the restore failed later on: once more, with the places of before */
    ck_assert_uint_eq(reserved(), 3);
    placement_replay(&placement);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq((uint64_t)placement_heap_alloc(placement.heap[i].size), placement.heap[i].address);
    placement_discard();
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

START_TEST(aligned_requests_find_their_own)
{
    struct placement placement, replayed;
    void *plain, *aligned, *large;

    /* The first of each kind of place is aligned to more than was asked for. */
    driver_heap_alloc(200);
    driver_heap_alloc_aligned(4096, 200);
    placement_note();
    plain = placement_heap_alloc(200);
    aligned = placement_heap_alloc_aligned(4096, 200);
    large = placement_heap_alloc_aligned(1u << 20, 200);
    ck_assert_int_eq(placement_take(&placement), 0);
    restart(&placement);
    placement_replay(&placement);
    ck_assert_ptr_eq(placement_heap_alloc_aligned(1u << 20, 200), large);
    ck_assert_ptr_eq(placement_heap_alloc_aligned(4096, 200), aligned);
    ck_assert_ptr_eq(placement_heap_alloc(200), plain);
    ck_assert_ptr_ne(placement_heap_alloc(200), plain);
    ck_assert_int_eq(placement_take(&replayed), 0);
    errno = 0;
    ck_assert_ptr_null(placement_heap_alloc_aligned(3, 1));
    ck_assert_int_eq(errno, EINVAL);
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

START_TEST(realloc_counts_when_it_moves)
{
    struct placement placement, replayed;
    char *block, *again;

    placement_note();
    block = placement_heap_realloc(NULL, 100);
    memset(block, 3, 100);
    ck_assert_ptr_eq(placement_heap_realloc(block, 110), block);
    block = placement_heap_realloc(block, 5000);
    ck_assert_int_eq(block[99], 3);
    ck_assert_ptr_eq(placement_heap_realloc(block, 4900), block);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 2);
    ck_assert_uint_eq(placement.heap[0].size, 100);
    ck_assert_uint_eq(placement.heap[1].size, 5000);
    restart(&placement);
    ck_assert_uint_eq(reserved(), 1);
    placement_replay(&placement);
    again = placement_heap_realloc(placement_heap_realloc(NULL, 100), 110);
    again = placement_heap_realloc(placement_heap_realloc(again, 5000), 4900);
    ck_assert_ptr_eq(again, block);
    ck_assert_ptr_null(placement_heap_realloc(again, 0));
    ck_assert_ptr_null(placement_heap_realloc(&placement, 10));
    ck_assert_int_eq(placement_take(&replayed), 0);
    ck_assert_uint_eq(replayed.heap_count, 2);
    block = placement_heap_realloc(NULL, 10); /* not noting */
    ck_assert_ptr_nonnull(placement_heap_realloc(block, 10000));
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

START_TEST(maps_come_back)
{
    struct placement placement, replayed;

    placement_note();
    ck_assert_uint_eq(placement_map_wanted(0x200000), 0);
    for (uint64_t i = 1; i <= 10; i++)
        placement_map_got(i << 32, i == 3 ? 0x400000 : 0x200000);
    ck_assert_int_eq(placement_take(&placement), 0);
    placement_replay(&placement);
    ck_assert_uint_eq(placement_map_wanted(0x200000), 1ull << 32);
    ck_assert_uint_eq(placement_map_wanted(0x200000), 2ull << 32);
    ck_assert_uint_eq(placement_map_wanted(0x400000), 3ull << 32);
    ck_assert_uint_eq(placement_map_wanted(0x400000), 0);
    ck_assert_uint_eq(placement_map_wanted(0x600000), 0);
    ck_assert_uint_eq(placement_map_wanted(0x200000), 4ull << 32);
    placement_map_got(4ull << 32, 0x200000);
    ck_assert_int_eq(placement_take(&replayed), 0);
    ck_assert_uint_eq(replayed.map_count, 1);
    ck_assert_uint_eq(replayed.maps[0].address, 4ull << 32);
    ck_assert_uint_eq(placement_map_wanted(0x200000), 0);
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

START_TEST(reservations_that_are_gone_only_count)
{
    struct placement placement;

    placement_note();
    for (uint64_t i = 1; i <= 3; i++) {
        placement_map_got(i << 32, 4096);
        mapped[i] = true;
    }
    ck_assert_int_eq(placement_take(&placement), 0);
    mapped[2] = false;
    restart(&placement);
    ck_assert_uint_eq(placement.maps[1].address, 0);
    mapped[1] = mapped[3] = false; /* the driver is gone: that tells nothing about the next restore */
    restart(&placement);
    placement_replay(&placement);
    ck_assert_uint_eq(placement_map_wanted(4096), 1ull << 32);
    ck_assert_uint_eq(placement_map_wanted(4096), 0);
    ck_assert_uint_eq(placement_map_wanted(4096), 3ull << 32);
    placement_discard();
    placement_free(&placement);
}
END_TEST

START_TEST(an_inner_begin_changes_nothing)
{
    struct placement placement, inner;

    placement_note();
    placement_heap_alloc(10);
    placement_note();
    placement_heap_alloc(20);
    ck_assert_int_eq(placement_take(&inner), 0);
    ck_assert_uint_eq(inner.heap_count, 0);
    placement_note();
    placement_discard();
    placement_heap_alloc(30);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 3);
    restart(&placement);
    placement_replay(&placement);
    placement_replay(&inner);
    ck_assert_ptr_eq(placement_heap_alloc(20), (void *)placement.heap[1].address);
    placement_discard();
    ck_assert_ptr_eq(placement_heap_alloc(30), (void *)placement.heap[2].address);
    placement_discard();
    placement_free(&placement);
}
END_TEST

START_TEST(a_pause_takes_nothing_of_it)
{
    struct placement placement, replayed;
    void *first, *second;

    placement_note();
    first = placement_heap_alloc(40);
    placement_pause();
    placement_pause();
    driver_heap_free(placement_heap_alloc(40));
    placement_map_got(1ull << 32, 4096);
    placement_resume();
    ck_assert(!placement_is_noting());
    placement_resume();
    ck_assert(placement_is_noting());
    second = placement_heap_alloc(40);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 2);
    ck_assert_uint_eq(placement.map_count, 0);
    restart(&placement);
    placement_replay(&placement);
    placement_pause();
    ck_assert_ptr_ne(placement_heap_alloc(40), first);
    placement_resume();
    ck_assert_ptr_eq(placement_heap_alloc(40), first);
    ck_assert_ptr_eq(placement_heap_alloc(40), second);
    ck_assert_int_eq(placement_take(&replayed), 0);
    ck_assert_uint_eq(replayed.heap_count, 2);
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

START_TEST(twenty_thousand_blocks)
{
    struct placement placement, replayed;
    struct timespec begin, end;
    uint32_t moved = 0;

    placement_note();
    for (uint32_t i = 0; i < 20000; i++)
        ck_assert_ptr_nonnull(placement_heap_alloc(i % 3 ? 48 : i % 4000));
    for (uint32_t i = 0; i < 1000; i++)
        placement_map_got((uint64_t)(i + 1) << 30, 4096);
    ck_assert_int_eq(placement_take(&placement), 0);
    restart(&placement);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    placement_replay(&placement);
    for (uint32_t i = 0; i < 20000; i++)
        moved += placement_heap_alloc(i % 3 ? 48 : i % 4000) != (void *)placement.heap[i].address;
    ck_assert_int_eq(placement_take(&replayed), 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_uint_eq(moved, 0);
    ck_assert_uint_eq(replayed.heap_count, 20000);
    /* It takes a few milliseconds; a search through all entries would take more than a second. */
    ck_assert_int_lt((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000, 500);
    placement_free(&placement);
    placement_free(&replayed);
}
END_TEST

static void *other_thread(void *arg)
{
    struct placement *placement = arg;

    placement_note();
    placement_heap_alloc(1000);
    placement_take(placement);
    return NULL;
}

START_TEST(each_thread_has_its_own)
{
    struct placement placement, other;
    pthread_t thread;

    placement_note();
    placement_heap_alloc(10);
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, &other), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(placement_take(&placement), 0);
    ck_assert_uint_eq(placement.heap_count, 1);
    ck_assert_uint_eq(placement.heap[0].size, 10);
    ck_assert_uint_eq(other.heap_count, 1);
    ck_assert_uint_eq(other.heap[0].size, 1000);
    placement_free(&placement);
    placement_free(&other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement");
    TCase *tests = tcase_create("placement");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, set_up, NULL); /* each test is a process of its own */
    tcase_add_test(tests, nothing_is_noted_outside);
    tcase_add_test(tests, a_call_gets_the_same_blocks);
    tcase_add_test(tests, freed_and_taken_again_counts_once);
    tcase_add_test(tests, what_is_not_asked_for_again_becomes_free);
    tcase_add_test(tests, aligned_requests_find_their_own);
    tcase_add_test(tests, realloc_counts_when_it_moves);
    tcase_add_test(tests, maps_come_back);
    tcase_add_test(tests, reservations_that_are_gone_only_count);
    tcase_add_test(tests, an_inner_begin_changes_nothing);
    tcase_add_test(tests, a_pause_takes_nothing_of_it);
    tcase_add_test(tests, twenty_thousand_blocks);
    tcase_add_test(tests, each_thread_has_its_own);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_FORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
