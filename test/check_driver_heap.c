/* The driver heap: blocks, what goes wrong with them, and places that come back after a reset. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_heap.h"

static struct error err;

static void set_up(void)
{
    error_clear(&err);
    ck_assert_msg(driver_heap_start(&err) == 0, "%s", err.text);
}

static void empty(void)
{
    ck_assert_int_eq(driver_heap_reset(NULL, 0, &err), 0);
}

static size_t resident(uint64_t address, size_t size)
{
    static unsigned char in_core[1 << 16];
    size_t pages = 0;

    ck_assert_uint_le(size / 4096, sizeof(in_core));
    ck_assert_int_eq(mincore((void *)address, size, in_core), 0);
    for (size_t i = 0; i < size / 4096; i++)
        pages += in_core[i] & 1;
    return pages * 4096;
}

static size_t resident_kib_of_process(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (size_t)pages * 4;
}

static struct driver_heap_stats stats(void)
{
    struct driver_heap_stats now;

    driver_heap_get_stats(&now);
    return now;
}

START_TEST(sizes_have_room_of_their_own)
{
    static const size_t sizes[] = {0,        1,     15,    16,    17,      128,
                                   129,      160,   161,   2047,  2048,    20480,
                                   32767,    32768, 32769, 65536, 1000000, (2ul << 20) + 1,
                                   3ul << 30};
    char *blocks[sizeof(sizes) / sizeof(sizes[0])];
    size_t count = sizeof(sizes) / sizeof(sizes[0]), bytes = 0;

    for (size_t i = 0; i < count; i++) {
        blocks[i] = driver_heap_alloc(sizes[i]);
        ck_assert_ptr_nonnull(blocks[i]);
        ck_assert_uint_eq((uintptr_t)blocks[i] % 16, 0);
        ck_assert(driver_heap_owns(blocks[i]));
        ck_assert_uint_eq(driver_heap_block_size(blocks[i]), sizes[i]);
        ck_assert_uint_ge(driver_heap_capacity(blocks[i]), sizes[i]);
        if (sizes[i] && sizes[i] < 1 << 21)
            memset(blocks[i], (int)i + 1, sizes[i]);
        bytes += sizes[i];
    }
    ck_assert_uint_eq(stats().blocks, count);
    ck_assert_uint_eq(stats().block_bytes, bytes);
    for (size_t i = 0; i < count; i++)
        if (sizes[i] && sizes[i] < 1 << 21)
            ck_assert(blocks[i][0] == (char)(i + 1) && !memcmp(blocks[i], blocks[i] + 1, sizes[i] - 1));
    for (size_t i = 0; i < count; i++)
        driver_heap_free(blocks[i]);
    ck_assert_uint_eq(stats().blocks, 0);
    ck_assert_uint_eq(stats().block_bytes, 0);
}
END_TEST

START_TEST(alignments_hold)
{
    for (size_t alignment = 1; alignment <= 2u << 20; alignment *= 2)
        for (size_t size = 0; size < 200000; size = size * 3 + 1) {
            char *block = driver_heap_alloc_aligned(alignment, size);

            ck_assert_ptr_nonnull(block);
            ck_assert_uint_eq((uintptr_t)block % alignment, 0);
            ck_assert_uint_eq((uintptr_t)block % 16, 0);
            memset(block, 1, size);
        }
    errno = 0;
    ck_assert_ptr_null(driver_heap_alloc_aligned(48, 1));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(driver_heap_alloc_aligned(0, 1));
    ck_assert_ptr_null(driver_heap_alloc_aligned(4u << 20, 1));
}
END_TEST

START_TEST(too_much_is_refused)
{
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, DRIVER_HEAP_SIZE, DRIVER_HEAP_SIZE + 1};

    for (size_t i = 0; i < 5; i++) {
        errno = 0;
        ck_assert_ptr_null(driver_heap_alloc(sizes[i]));
        ck_assert_int_eq(errno, ENOMEM);
        ck_assert_ptr_null(driver_heap_alloc_aligned(2u << 20, sizes[i]));
    }
    errno = 77;
    driver_heap_free(driver_heap_alloc(100));
    ck_assert_int_eq(errno, 77);
}
END_TEST

START_TEST(full_region_recovers)
{
    void *blocks[64];
    size_t count = 0;

    while ((blocks[count] = driver_heap_alloc(1ul << 30)))
        ck_assert_uint_lt(++count, 64);
    ck_assert_uint_gt(count, 40);
    while (count)
        driver_heap_free(blocks[--count]);
    ck_assert_ptr_nonnull(driver_heap_alloc(40ul << 30));
}
END_TEST

START_TEST(full_class_goes_on_in_the_next)
{
    /* A class holds 256 MiB. */
    size_t count = (300ul << 20) / 32768;
    uint64_t *blocks[(300ul << 20) / 32768];

    for (size_t i = 0; i < count; i++) {
        blocks[i] = driver_heap_alloc(32768);
        ck_assert_ptr_nonnull(blocks[i]);
        if (i % 16 == 0) /* to touch them all takes long */
            *blocks[i] = i;
    }
    for (size_t i = 0; i < count; i++) {
        if (i % 16 == 0)
            ck_assert_uint_eq(*blocks[i], i);
        driver_heap_free(blocks[i]);
    }
    ck_assert_uint_eq(stats().blocks, 0);
}
END_TEST

START_TEST(wrong_frees_are_ignored)
{
    static const size_t sizes[] = {48, 5000, 32768, 100000, 8u << 20};
    char on_stack[64];

    for (size_t i = 0; i < 5; i++) {
        char *block = driver_heap_alloc(sizes[i]), *other = driver_heap_alloc(sizes[i]), *again;

        memset(other, 7, sizes[i]);
        driver_heap_free(block + 1);
        driver_heap_free(block + 16);
        driver_heap_free(block + 4096);
        ck_assert_uint_eq(driver_heap_block_size(block), sizes[i]);
        driver_heap_free(block);
        driver_heap_free(block);
        again = driver_heap_alloc(sizes[i]);
        block = driver_heap_alloc(sizes[i]);
        ck_assert_ptr_ne(again, block);
        ck_assert_ptr_ne(other, block);
        ck_assert_ptr_ne(other, again);
        ck_assert_int_eq(other[sizes[i] - 1], 7);
    }
    driver_heap_free(NULL);
    driver_heap_free(on_stack);
    driver_heap_free((void *)DRIVER_HEAP_BASE);
    driver_heap_free((void *)(DRIVER_HEAP_BASE + DRIVER_HEAP_SIZE - 1));
    ck_assert_ptr_null(driver_heap_realloc(on_stack, 5));
    ck_assert_uint_eq(stats().blocks, 15);
}
END_TEST

START_TEST(realloc_keeps_contents)
{
    char *block = driver_heap_realloc(NULL, 100), *same;
    uint64_t serial = driver_heap_serial(block);

    for (int i = 0; i < 100; i++)
        block[i] = (char)i;
    same = driver_heap_realloc(block, 112); /* its class */
    ck_assert_ptr_eq(block, same);
    ck_assert_uint_eq(driver_heap_serial(block), serial);
    ck_assert_uint_eq(driver_heap_block_size(block), 112);
    for (size_t size = 200; size < 20u << 20; size *= 3) {
        block = driver_heap_realloc(block, size);
        for (int i = 0; i < 100; i++)
            ck_assert_int_eq(block[i], i);
        block[size - 1] = 1;
    }
    ck_assert_uint_ne(driver_heap_serial(block), serial);
    same = driver_heap_realloc(block, 100);
    ck_assert_ptr_eq(block, same);
    ck_assert_uint_lt(resident((uint64_t)block, 8u << 20), 64u << 10);
    ck_assert_int_eq(block[99], 99);
    ck_assert_ptr_null(driver_heap_realloc(block, SIZE_MAX));
    ck_assert_int_eq(block[99], 99);
    ck_assert_ptr_null(driver_heap_realloc(block, 0));
    ck_assert_uint_eq(stats().blocks, 0);
}
END_TEST

START_TEST(a_block_is_found_by_what_lies_in_it)
{
    static const size_t sizes[] = {1, 16, 40, 3000, 32768, 100000, 5000000};
    struct heap_place block;

    for (int i = 0; i < 7; i++) {
        char *start = driver_heap_alloc(sizes[i]);

        driver_heap_alloc(sizes[i]); /* a neighbour */
        for (int at = 0; at < 3; at++) {
            ck_assert(driver_heap_block_of(start + (sizes[i] - 1) * (size_t)at / 2, &block));
            ck_assert_uint_eq(block.address, (uint64_t)start);
            ck_assert_uint_eq(block.size, sizes[i]);
        }
        if (sizes[i] != 16 && sizes[i] != 32768) /* else the neighbour begins there */
            ck_assert(!driver_heap_block_of(start + sizes[i], &block));
        driver_heap_free(start);
        ck_assert(!driver_heap_block_of(start, &block));
        ck_assert(!driver_heap_block_of(start + sizes[i] / 2, &block));
    }
    ck_assert(!driver_heap_block_of(&block, &block));
    ck_assert(!driver_heap_block_of((void *)(DRIVER_HEAP_BASE + DRIVER_HEAP_SIZE - 1), &block));
}
END_TEST

START_TEST(serials_are_never_used_again)
{
    uint64_t last = 0;

    for (int round = 0; round < 1000; round++) {
        void *block = driver_heap_alloc(round % 2 ? 40 : 50000);

        ck_assert_uint_gt(driver_heap_serial(block), last);
        last = driver_heap_serial(block);
        ck_assert_uint_eq(driver_heap_serial((char *)block + 16), 0);
        driver_heap_free(block);
        ck_assert_uint_eq(driver_heap_serial(block), 0);
        if (round % 100 == 0)
            empty();
    }
    ck_assert_uint_eq(driver_heap_serial(&last), 0);
}
END_TEST

START_TEST(freed_memory_goes_back)
{
    size_t size = 64u << 20;
    char *block = driver_heap_alloc(size);
    char *small[4000];

    memset(block, 1, size);
    ck_assert_uint_eq(resident((uint64_t)block, size), size);
    driver_heap_free(block);
    ck_assert_uint_eq(resident((uint64_t)block, size), 0);

    block = driver_heap_alloc(size); /* the same in pieces of less than the direct limit */
    driver_heap_free(block);
    for (int i = 0; i < 64 * 4; i++)
        memset(small[i] = driver_heap_alloc(256u << 10), 1, 256u << 10);
    for (int i = 0; i < 64 * 4; i++)
        driver_heap_free(small[i]);
    ck_assert_uint_le(resident((uint64_t)block, size), 17u << 20);

    for (int i = 0; i < 4000; i++)
        memset(small[i] = driver_heap_alloc(4096), 1, 4096);
    ck_assert_uint_ge(resident((uint64_t)small[0], 4000u * 4096), 4000u * 4096 - 65536);
    for (int i = 0; i < 4000; i++)
        driver_heap_free(small[i]);
    ck_assert_uint_le(resident((uint64_t)small[0] & ~0xffffull, 4000u * 4096), 65536);
    ck_assert_uint_le(stats().mapped, 65536);
}
END_TEST

START_TEST(small_blocks_cost_little)
{
    static void *blocks[100000];
    size_t before = resident_kib_of_process(), bytes = 0, grown;

    for (int i = 0; i < 100000; i++) {
        size_t size = 32 + (size_t)(i * 37) % 400;

        memset(blocks[i] = driver_heap_alloc(size), 1, size);
        bytes += size;
    }
    grown = resident_kib_of_process() - before;
#ifndef __SANITIZE_ADDRESS__
    ck_assert_uint_le(grown, bytes / 1024 * 5 / 4 + 1024 + sizeof(blocks) / 1024);
#endif
    ck_assert_uint_gt(grown, 0);
    ck_assert_uint_le(stats().mapped, bytes * 6 / 5);
}
END_TEST

START_TEST(reserved_places_wait_for_their_owner)
{
    static const size_t sizes[] = {0, 24, 24, 24, 500, 32768, 40000, 100000, 100000, 3u << 20};
    struct heap_place places[12];
    uint64_t taken[12];
    size_t count = 10;

    for (size_t i = 0; i < count; i++)
        places[i] = (struct heap_place){(uint64_t)driver_heap_alloc(sizes[i]), sizes[i]};
    places[count++] = (struct heap_place){(uint64_t)driver_heap_alloc_aligned(4096, 100), 100};
    places[count++] = (struct heap_place){(uint64_t)driver_heap_alloc_aligned(2u << 20, 100), 100};
    for (size_t i = 0; i < count; i++)
        taken[i] = places[i].address;
    *(uint64_t *)places[4].address = 1;
    driver_heap_free((void *)places[2].address);
    places[2].address = 0;
    ck_assert_int_eq(driver_heap_reset(places, count, &err), 0);
    ck_assert_uint_eq(stats().blocks, 0);
    ck_assert_uint_eq(stats().reserved, count - 1);
    ck_assert_uint_eq(*(uint64_t *)places[4].address, 0);
    ck_assert_uint_eq(driver_heap_serial((void *)places[4].address), 0);

    for (int i = 0; i < 5000; i++) {
        uint64_t block = (uint64_t)driver_heap_alloc(sizes[i % 9]);

        for (size_t k = 0; k < count; k++)
            ck_assert(!places[k].address || block != places[k].address);
        if (places[8].address < block)
            ck_assert_uint_ge(block, places[8].address + 100000);
    }
    driver_heap_free((void *)places[4].address); /* reserved is not live */
    ck_assert_ptr_null(driver_heap_alloc_at(taken[2] + 8, 24));
    ck_assert_ptr_null(driver_heap_alloc_at(places[1].address, 33));
    ck_assert_ptr_null(driver_heap_alloc_at(places[7].address, 200000));
    ck_assert_ptr_null(driver_heap_alloc_at(5, 1));
    for (size_t i = 0; i < count; i++) {
        if (!places[i].address)
            continue;
        ck_assert_ptr_eq(driver_heap_alloc_at(places[i].address, places[i].size), (void *)places[i].address);
        ck_assert_ptr_null(driver_heap_alloc_at(places[i].address, places[i].size));
        memset((void *)places[i].address, 1, places[i].size);
        ck_assert_uint_eq(driver_heap_block_size((void *)places[i].address), places[i].size);
    }
    ck_assert_uint_eq(stats().reserved, 0);
}
END_TEST

START_TEST(unreserved_places_are_free_space)
{
    struct heap_place places[2] = {{(uint64_t)driver_heap_alloc(64), 64},
                                   {(uint64_t)driver_heap_alloc(1u << 20), 1u << 20}};

    ck_assert_int_eq(driver_heap_reset(places, 2, &err), 0);
    for (int i = 0; i < 2; i++) {
        driver_heap_unreserve(places[i].address);
        driver_heap_unreserve(places[i].address);
        ck_assert_ptr_null(driver_heap_alloc_at(places[i].address, places[i].size));
        ck_assert_ptr_eq(driver_heap_alloc(places[i].size), (void *)places[i].address);
        driver_heap_unreserve(places[i].address); /* live: nothing happens */
        ck_assert_uint_eq(driver_heap_block_size((void *)places[i].address), places[i].size);
    }
    driver_heap_unreserve(0);
    driver_heap_unreserve(DRIVER_HEAP_BASE);
}
END_TEST

START_TEST(places_of_an_earlier_try_come_back)
{
    /* The first restore fails after the place was given up and its space used for something else. */
    struct heap_place places[2] = {{(uint64_t)driver_heap_alloc(200), 200},
                                   {(uint64_t)driver_heap_alloc(600000), 600000}};

    ck_assert_int_eq(driver_heap_reset(places, 2, &err), 0);
    driver_heap_unreserve(places[0].address);
    driver_heap_unreserve(places[1].address);
    for (int i = 0; i < 100; i++)
        driver_heap_alloc(36000);
    ck_assert_int_eq(driver_heap_reset(places, 2, &err), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_ptr_nonnull(driver_heap_alloc_at(places[i].address, places[i].size));
}
END_TEST

START_TEST(impossible_places_are_skipped)
{
    uint64_t large = (uint64_t)driver_heap_alloc(1u << 20), small = (uint64_t)driver_heap_alloc(32);
    struct heap_place places[] = {
        {0, 5},         {5, 5},
        {small, 32},    {small, 32},
        {small + 8, 8}, {small + 32, 5000},
        {large, 50000}, {large + 4096, 50000},
        {large + 1, 1}, {large, SIZE_MAX},
        {SIZE_MAX, 1},  {DRIVER_HEAP_BASE + DRIVER_HEAP_SIZE - 4096, 8192},
    };

    ck_assert_int_eq(driver_heap_reset(places, sizeof(places) / sizeof(places[0]), &err), 0);
    ck_assert_uint_eq(stats().reserved, 2);
    ck_assert_ptr_nonnull(driver_heap_alloc_at(small, 32));
    ck_assert_ptr_nonnull(driver_heap_alloc_at(large, 50000));
}
END_TEST

START_TEST(generations_stay_flat)
{
    static struct heap_place places[800];
    size_t mapped = 0, process = 0;

    for (int i = 0; i < 800; i++)
        places[i].size = i % 10 ? 16 + (size_t)i % 1000 : 40000 + (size_t)i;
    for (int generation = 0; generation < 200; generation++) {
        for (int i = 0; i < 800; i++) {
            if (places[i].address)
                ck_assert_ptr_nonnull(driver_heap_alloc_at(places[i].address, places[i].size));
            else if (i % 2 == 0)
                ck_assert_uint_ne(places[i].address = (uint64_t)driver_heap_alloc(places[i].size), 0);
            else
                memset(driver_heap_alloc(places[i].size), 1, places[i].size);
        }
        if (generation == 5) {
            mapped = stats().mapped;
            process = resident_kib_of_process();
        }
        if (generation > 5)
            ck_assert_uint_eq(stats().mapped, mapped);
        ck_assert_int_eq(driver_heap_reset(places, 800, &err), 0);
    }
#ifndef __SANITIZE_ADDRESS__
    ck_assert_uint_le(resident_kib_of_process(), process + 1024);
#endif
    ck_assert_uint_gt(process, 0);
}
END_TEST

static void *churn(void *arg)
{
    unsigned int seed = (unsigned int)(uintptr_t)arg;
    unsigned char *blocks[200] = {0}, mark = (unsigned char)seed;
    size_t sizes[200];

    for (int i = 0; i < 15000; i++) {
        int k = rand_r(&seed) % 200;

        if (blocks[k]) {
            ck_assert_uint_eq(blocks[k][0], mark);
            ck_assert_uint_eq(blocks[k][sizes[k] - 1], mark);
            driver_heap_free(blocks[k]);
        }
        sizes[k] = 1 + (size_t)rand_r(&seed) % (i % 50 ? 3000 : 200000);
        blocks[k] = driver_heap_alloc(sizes[k]);
        blocks[k][0] = blocks[k][sizes[k] - 1] = mark;
    }
    for (int k = 0; k < 200; k++)
        driver_heap_free(blocks[k]);
    return NULL;
}

START_TEST(threads_share_it)
{
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 20; i++) {
        pid_t child;
        int status;

        driver_heap_before_fork();
        child = fork();
        driver_heap_after_fork();
        if (!child) {
            void *block = driver_heap_alloc(100), *large = driver_heap_alloc(100000);

            driver_heap_free(block);
            driver_heap_free(large);
            _exit(!block || !large);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(stats().blocks, 0);
}
END_TEST

START_TEST(nothing_works_before_the_start)
{
    ck_assert_ptr_null(driver_heap_alloc(1));
    ck_assert_int_eq(errno, ENOMEM);
    ck_assert(!driver_heap_owns((void *)DRIVER_HEAP_BASE));
    driver_heap_free((void *)DRIVER_HEAP_BASE);
    driver_heap_unreserve(DRIVER_HEAP_BASE);
    ck_assert_uint_eq(driver_heap_serial((void *)DRIVER_HEAP_BASE), 0);
    ck_assert_uint_eq(stats().mapped, 0);
    ck_assert_int_eq(driver_heap_reset(NULL, 0, &err), -1);
}
END_TEST

START_TEST(taken_region_is_an_error)
{
    /* A second start finds the first one's region in its place. */
    ck_assert_int_eq(driver_heap_start(&err), -1);
    ck_assert_int_ne(err.code, ERROR_NONE);
    ck_assert_ptr_nonnull(driver_heap_alloc(1));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver_heap");
    TCase *tests = tcase_create("driver_heap"), *not_started = tcase_create("not started");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, set_up, NULL); /* each test is a process of its own */
    tcase_add_test(tests, sizes_have_room_of_their_own);
    tcase_add_test(tests, alignments_hold);
    tcase_add_test(tests, too_much_is_refused);
    tcase_add_test(tests, full_region_recovers);
    tcase_add_test(tests, full_class_goes_on_in_the_next);
    tcase_add_test(tests, wrong_frees_are_ignored);
    tcase_add_test(tests, realloc_keeps_contents);
    tcase_add_test(tests, a_block_is_found_by_what_lies_in_it);
    tcase_add_test(tests, serials_are_never_used_again);
    tcase_add_test(tests, freed_memory_goes_back);
    tcase_add_test(tests, small_blocks_cost_little);
    tcase_add_test(tests, reserved_places_wait_for_their_owner);
    tcase_add_test(tests, unreserved_places_are_free_space);
    tcase_add_test(tests, places_of_an_earlier_try_come_back);
    tcase_add_test(tests, impossible_places_are_skipped);
    tcase_add_test(tests, generations_stay_flat);
    tcase_add_test(tests, threads_share_it);
    tcase_add_test(tests, taken_region_is_an_error);
    suite_add_tcase(suite, tests);
    tcase_add_test(not_started, nothing_works_before_the_start);
    suite_add_tcase(suite, not_started);
    srunner_set_fork_status(runner, CK_FORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
