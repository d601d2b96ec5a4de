/* Named fault points. */
#include "fault.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void start_with(const char *value)
{
    if (value)
        setenv("CUDACKPT_FAULT", value, 1);
    else
        unsetenv("CUDACKPT_FAULT");
    fault_start();
}

/* At which of the first ten times the point fails, 0: at none. It must not fail twice. */
static int fails_at(enum fault_point point)
{
    int when = 0;

    for (int i = 1; i <= 10; i++) {
        struct error err = {0};

        if (fault_here(point, &err)) {
            ck_assert_int_eq(when, 0);
            when = i;
        }
    }
    return when;
}

START_TEST(nothing_fails_unasked)
{
    start_with(NULL);
    for (int i = 0; i < FAULT_COUNT; i++)
        ck_assert_int_eq(fails_at((enum fault_point)i), 0);
}
END_TEST

START_TEST(each_point_fails_once)
{
    for (int i = 0; i < FAULT_COUNT; i++) {
        struct error err = {0};

        start_with(fault_names[i]);
        ck_assert(fault_here((enum fault_point)i, &err));
        ck_assert_int_eq(err.code, ERROR_REFUSED);
        ck_assert_ptr_nonnull(strstr(err.text, fault_names[i]));
        ck_assert_int_eq(fails_at((enum fault_point)i), 0);
    }
}
END_TEST

START_TEST(the_nth_time_and_several)
{
    start_with("copy_in@3,lock_drain,,copy_out@10");
    ck_assert_int_eq(fails_at(FAULT_copy_in), 3);
    ck_assert_int_eq(fails_at(FAULT_lock_drain), 1);
    ck_assert_int_eq(fails_at(FAULT_copy_out), 10);
    ck_assert_int_eq(fails_at(FAULT_copy_out_memory), 0);
}
END_TEST

START_TEST(nonsense_arms_nothing)
{
    static const char *const nonsense[] = {
        "copy", "copy_in@", "copy_in@0", "copy_in@x", "copy_in@1x", "copy_in@99999999999999999999",
        "@1",   "@",        ",",         "",          "copy_in_",   "COPY_IN",
    };

    for (size_t n = 0; n < sizeof(nonsense) / sizeof(nonsense[0]); n++) {
        start_with(nonsense[n]);
        for (int i = 0; i < FAULT_COUNT; i++)
            ck_assert_int_eq(fails_at((enum fault_point)i), 0);
    }
    start_with("nonsense,copy_in,more");
    ck_assert_int_eq(fails_at(FAULT_copy_in), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault");
    TCase *tcase = tcase_create("points");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, nothing_fails_unasked);
    tcase_add_test(tcase, each_point_fails_once);
    tcase_add_test(tcase, the_nth_time_and_several);
    tcase_add_test(tcase, nonsense_arms_nothing);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
