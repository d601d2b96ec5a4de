/* The list of reasons why a process can't be suspended. */
#include "unsaveable.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define NOTES   5000

static void setup(void)
{
    unsaveable_clear();
}

struct seen {
    const char *wanted;
    uint64_t count; /* of the wanted one */
    uint64_t total;
    int reasons;
};

static void see(const char *reason, uint64_t count, void *arg)
{
    struct seen *seen = arg;

    seen->reasons++;
    seen->total += count;
    if (!strcmp(reason, seen->wanted))
        seen->count += count;
}

START_TEST(nothing_noted_is_saveable)
{
    struct error err = {0};
    struct seen seen = {.wanted = "x"};

    ck_assert(!unsaveable_any());
    ck_assert_int_eq(unsaveable_check(&err), 0);
    ck_assert_int_eq(err.code, ERROR_NONE);
    unsaveable_each(see, &seen);
    ck_assert_int_eq(seen.reasons, 0);
}
END_TEST

START_TEST(reasons_are_told_and_counted)
{
    struct error err = {0};
    struct seen seen = {.wanted = "cuIpcGetMemHandle: another process may hold this memory"};

    errno = 77;
    for (int i = 0; i < 3; i++)
        unsaveable_note("%s: another process may hold this memory", "cuIpcGetMemHandle");
    unsaveable_note("cuFoo: not known");
    ck_assert_int_eq(errno, 77);

    ck_assert(unsaveable_any());
    ck_assert_int_eq(unsaveable_check(&err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSAVEABLE);
    ck_assert_ptr_nonnull(
        strstr(err.text, "another process may hold this memory (3 times); cuFoo: not known"));
    ck_assert_ptr_null(strstr(err.text, "cuFoo: not known ("));
    ck_assert_ptr_null(strchr(err.text, '\n'));

    unsaveable_each(see, &seen);
    ck_assert_int_eq(seen.reasons, 2);
    ck_assert_uint_eq(seen.count, 3);

    unsaveable_clear();
    ck_assert(!unsaveable_any());
}
END_TEST

START_TEST(long_and_many_reasons_stay_bounded)
{
    struct error err = {0};
    struct seen seen = {.wanted = "other reasons, too many to list"};
    char text[1000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    for (int i = 0; i < 1000; i++)
        unsaveable_note("reason %d %s", i, text);
    ck_assert_int_eq(unsaveable_check(&err), -1);
    ck_assert_ptr_nonnull(strstr(err.text, "more reasons"));
    ck_assert_uint_lt(strlen(err.text), sizeof(err.text));

    unsaveable_each(see, &seen);
    ck_assert_int_lt(seen.reasons, 1000);
    ck_assert_uint_eq(seen.total, 1000);
    ck_assert_uint_eq(seen.count, 1000 - (uint64_t)(seen.reasons - 1));
}
END_TEST

static void *note_many(void *arg)
{
    for (int i = 0; i < NOTES; i++)
        unsaveable_note("reason %d", i % 10);
    return NULL;
}

START_TEST(threads_lose_no_note)
{
    pthread_t threads[THREADS];
    struct seen seen = {.wanted = "reason 3"};

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, note_many, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    unsaveable_each(see, &seen);
    ck_assert_int_eq(seen.reasons, 10);
    ck_assert_uint_eq(seen.count, THREADS * NOTES / 10);
    ck_assert_uint_eq(seen.total, THREADS * NOTES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unsaveable");
    TCase *tcase = tcase_create("reasons");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, nothing_noted_is_saveable);
    tcase_add_test(tcase, reasons_are_told_and_counted);
    tcase_add_test(tcase, long_and_many_reasons_stay_bounded);
    tcase_add_test(tcase, threads_lose_no_note);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
