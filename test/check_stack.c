/* Where threads are. */
#include "stack.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The driver's text, for these tests: the functions in a section of their own. */
#define DRIVER __attribute__((noinline, noclone, section("driver_text")))
extern const char __start_driver_text[], __stop_driver_text[];

static const char *found;
static void *found_address;

__attribute__((noinline)) static void import_hook(void)
{
    found = stack_caller_outside(__start_driver_text, __stop_driver_text, &found_address);
}

DRIVER static int driver_inner(int x)
{
    import_hook();
    return x + 1;
}

DRIVER static int driver_entry(int x)
{
    return driver_inner(x) * 2;
}

__attribute__((noinline)) static int program_function(int x)
{
    int result = driver_entry(x);

    __asm__ volatile("" : "+r"(result)); /* not a tail call */
    return result;
}

START_TEST(the_caller_of_the_driver_is_found)
{
    ck_assert_int_eq(program_function(20), 42);
    ck_assert_ptr_nonnull(found);
    ck_assert_ptr_nonnull(strstr(found, "check_stack"));
    ck_assert_uint_gt((uintptr_t)found_address, (uintptr_t)program_function);
    ck_assert_uint_lt((uintptr_t)found_address, (uintptr_t)program_function + 500);
}
END_TEST

START_TEST(no_caller_where_the_driver_is_not_on_the_stack)
{
    import_hook();
    ck_assert_ptr_null(found);
    ck_assert_ptr_null(found_address);
}
END_TEST

START_TEST(own_stack_is_named_and_bounded)
{
    char text[1000], small[10];

    stack_of_self(text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "check_stack"));
    ck_assert_ptr_nonnull(strstr(text, " < "));
    memset(small, 'x', sizeof(small));
    stack_of_self(small, sizeof(small));
    ck_assert_uint_lt(strlen(small), sizeof(small));
}
END_TEST

static int pipe_ends[2];
static pid_t reader_tid;

static void *read_pipe(void *arg)
{
    char byte;

    prctl(PR_SET_NAME, "a ) R (name");
    __atomic_store_n(&reader_tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    while (read(pipe_ends[0], &byte, 1) < 0)
        ;
    return NULL;
}

START_TEST(other_threads_are_described)
{
    pthread_t thread;
    char text[300], small[12];

    ck_assert_int_eq(pipe(pipe_ends), 0);
    pthread_create(&thread, NULL, read_pipe, NULL);
    while (!__atomic_load_n(&reader_tid, __ATOMIC_SEQ_CST))
        usleep(1000);
    usleep(50000);
    errno = 77;
    ck_assert_int_eq(stack_of_thread(reader_tid, text, sizeof(text)), 0);
    ck_assert_int_eq(errno, 77);
    ck_assert_msg(strstr(text, "a ) R (name, sleeping") == text, "%s", text);

    /* Not every kernel tells more; where it does, the function must be right. */
    if (strstr(text, " from "))
        ck_assert_msg(strstr(text, "read") || strstr(text, "libc") || strstr(text, "lib"), "%s", text);

    ck_assert_int_eq(stack_of_thread(reader_tid, small, sizeof(small)), 0);
    ck_assert_uint_lt(strlen(small), sizeof(small));
    ck_assert_int_eq(write(pipe_ends[1], "x", 1), 1);
    pthread_join(thread, NULL);

    ck_assert_int_eq(stack_of_thread(reader_tid, text, sizeof(text)), -1);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(stack_of_thread((pid_t)syscall(SYS_gettid), text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(strstr(text, ", running"));
}
END_TEST

START_TEST(symbols)
{
    char text[200], small[4];

    stack_symbol((const void *)malloc, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, " ("));
    stack_symbol(NULL, text, sizeof(text));
    ck_assert_str_eq(text, "");
    stack_symbol((const void *)16, text, sizeof(text));
    ck_assert_str_eq(text, "");
    stack_symbol((const void *)malloc, small, sizeof(small));
    ck_assert_uint_eq(strlen(small), 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stack");
    TCase *tcase = tcase_create("stack");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, the_caller_of_the_driver_is_found);
    tcase_add_test(tcase, no_caller_where_the_driver_is_not_on_the_stack);
    tcase_add_test(tcase, own_stack_is_named_and_bounded);
    tcase_add_test(tcase, other_threads_are_described);
    tcase_add_test(tcase, symbols);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
