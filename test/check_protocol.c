/* The lines of the protocol: what is written is read back, and nothing else is accepted. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(request_round_trip)
{
    for (int action = 0; action < ACTION_COUNT; action++) {
        struct protocol_request in = {.action = (enum protocol_action)action}, out;
        struct error err = {0};
        char line[PROTOCOL_REQUEST_MAX];

        in.timeout_ms = protocol_takes_timeout(in.action) ? PROTOCOL_TIMEOUT_MAX : 0;
        ck_assert_int_eq(protocol_request_format(&in, line, sizeof(line)), 0);
        ck_assert_int_eq(line[strlen(line) - 1], '\n');
        ck_assert_int_eq(protocol_request_parse(line, &out, &err), 0);
        ck_assert_int_eq(out.action, in.action);
        ck_assert_uint_eq(out.timeout_ms, in.timeout_ms);
        line[strlen(line) - 1] = '\0';
        ck_assert_int_eq(protocol_request_parse(line, &out, &err), 0);
        ck_assert_int_eq(err.code, ERROR_NONE);
    }
}
END_TEST

START_TEST(deep_lock)
{
    struct protocol_request in = {.action = ACTION_LOCK, .timeout_ms = 70, .deep = true}, out;
    struct error err = {0};
    char line[PROTOCOL_REQUEST_MAX];

    ck_assert_int_eq(protocol_request_format(&in, line, sizeof(line)), 0);
    ck_assert_str_eq(line, "lock timeout=70 deep=1\n");
    ck_assert_int_eq(protocol_request_parse(line, &out, &err), 0);
    ck_assert(out.deep && out.timeout_ms == 70);
    in.timeout_ms = 0;
    ck_assert_int_eq(protocol_request_format(&in, line, sizeof(line)), 0);
    ck_assert_str_eq(line, "lock deep=1\n");
    ck_assert_int_eq(protocol_request_parse("lock\n", &out, &err), 0);
    ck_assert(!out.deep);
}
END_TEST

START_TEST(request_format_fits_or_fails)
{
    struct protocol_request request = {.action = ACTION_SUSPEND, .timeout_ms = 5};
    const char whole[] = "suspend timeout=5\n";
    char line[64];

    ck_assert_int_eq(protocol_request_format(&request, line, sizeof(whole)), 0);
    ck_assert_str_eq(line, whole);
    ck_assert_int_eq(protocol_request_format(&request, line, sizeof(whole) - 1), -1);
}
END_TEST

static const char *const bad_requests[] = {
    "",
    "\n",
    " ",
    "suspen",
    "suspendx",
    "SUSPEND",
    " suspend",
    "suspend ",
    "suspend  timeout=5",
    "suspend\n\n",
    "suspend\nresume\n",
    "suspend\r\n",
    "suspend\ttimeout=5",
    "suspend timeout",
    "suspend timeout=",
    "suspend timeout=-1",
    "suspend timeout=+1",
    "suspend timeout= 1",
    "suspend timeout=1s",
    "suspend timeout=0x10",
    "suspend timeout=1000000001",
    "suspend timeout=18446744073709551617",
    "suspend time=5",
    "suspend 5",
    "state timeout=5",
    "suspend deep=1",
    "lock deep=2",
    "lock deep",
    "lock deep=1 deep=0",
    "resume timeout=5",
    "suspend \x01",
    "suspend \x7f",
    "suspend \xff\xfe",
    "\xc3\xa9tat",
    "%s%n",
};

START_TEST(request_malformed)
{
    struct protocol_request request;
    struct error err = {0};

    ck_assert_int_eq(protocol_request_parse(bad_requests[_i], &request, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_uint_gt(strlen(err.text), 10);
    ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

START_TEST(request_too_long)
{
    char line[PROTOCOL_REQUEST_MAX + 2];
    struct protocol_request request;
    struct error err = {0};

    memset(line, 'a', sizeof(line));
    line[PROTOCOL_REQUEST_MAX] = '\n';
    line[PROTOCOL_REQUEST_MAX + 1] = '\0';
    ck_assert_int_eq(protocol_request_parse(line, &request, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.text, "longer than"));
    /* One byte less is only an unknown action. */
    error_clear(&err);
    line[PROTOCOL_REQUEST_MAX - 1] = '\n';
    line[PROTOCOL_REQUEST_MAX] = '\0';
    ck_assert_int_eq(protocol_request_parse(line, &request, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.text, "unknown action"));
}
END_TEST

START_TEST(numbers)
{
    uint64_t number = 7;

    ck_assert_int_eq(protocol_parse_number("0", 0, &number), 0);
    ck_assert_uint_eq(number, 0);
    ck_assert_int_eq(protocol_parse_number("18446744073709551615", UINT64_MAX, &number), 0);
    ck_assert(number == UINT64_MAX);
    ck_assert_int_eq(protocol_parse_number("18446744073709551616", UINT64_MAX, &number), -1);
    ck_assert_int_eq(protocol_parse_number("255", 255, &number), 0);
    ck_assert_int_eq(protocol_parse_number("256", 255, &number), -1);
    ck_assert_int_eq(protocol_parse_number("1", 0, &number), -1);
    ck_assert_int_eq(protocol_parse_number("1 ", 255, &number), -1);
    ck_assert_int_eq(protocol_parse_number("", 255, &number), -1);
    ck_assert_uint_eq(number, 255);
}
END_TEST

START_TEST(reply_round_trip)
{
    struct protocol_reply reply;
    struct error none = {0}, err = {0};
    char line[PROTOCOL_LINE_MAX];

    ck_assert_uint_eq(protocol_format_progress(line, sizeof(line), "copy out", 5, UINT64_MAX), strlen(line));
    ck_assert_int_eq(protocol_reply_parse(line, &reply), 0);
    ck_assert_int_eq(reply.kind, REPLY_PROGRESS);
    ck_assert_str_eq(reply.name, "copy_out");
    ck_assert_uint_eq(reply.done, 5);
    ck_assert(reply.total == UINT64_MAX);

    protocol_format_value(line, sizeof(line), "device memory", "8 GiB, more\nthan enough");
    ck_assert_int_eq(protocol_reply_parse(line, &reply), 0);
    ck_assert_int_eq(reply.kind, REPLY_VALUE);
    ck_assert_str_eq(reply.name, "device_memory");
    ck_assert_str_eq(reply.text, "8 GiB, more than enough");

    protocol_format_value(line, sizeof(line), "", "");
    ck_assert_int_eq(protocol_reply_parse(line, &reply), 0);
    ck_assert_str_eq(reply.name, "_");
    ck_assert_str_eq(reply.text, "");

    protocol_format_end(line, sizeof(line), &none);
    ck_assert_str_eq(line, "ok\n");
    ck_assert_int_eq(protocol_reply_parse(line, &reply), 0);
    ck_assert_int_eq(reply.kind, REPLY_OK);

    error_set(&err, ERROR_TIMEOUT, "it took\ntoo long");
    protocol_format_end(line, sizeof(line), &err);
    ck_assert_str_eq(line, "error 5 it took too long\n");
    ck_assert_int_eq(protocol_reply_parse(line, &reply), 0);
    ck_assert_int_eq(reply.kind, REPLY_ERROR);
    ck_assert_int_eq(reply.code, ERROR_TIMEOUT);
    ck_assert_str_eq(reply.text, "it took too long");
}
END_TEST

START_TEST(reply_too_long_is_cut)
{
    char text[4 * PROTOCOL_LINE_MAX], line[PROTOCOL_LINE_MAX];
    struct protocol_reply reply;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ck_assert_uint_eq(protocol_format_value(line, sizeof(line), text, text), sizeof(line) - 1);
    ck_assert_int_eq(line[sizeof(line) - 2], '\n');
    ck_assert_int_eq(protocol_reply_parse(line, &reply), 0);
    ck_assert_uint_eq(strlen(reply.name), 63);
    ck_assert_uint_lt(protocol_format_progress(line, sizeof(line), text, 1, 2), 100);
}
END_TEST

static const char *const bad_replies[] = {
    "",
    "\n",
    "okay",
    "ok ",
    "ok yes",
    "value",
    "value ",
    "value  x",
    "progress",
    "progress x",
    "progress x 1",
    "progress x 1 ",
    "progress x a 1",
    "progress x 1 2 3",
    "progress  1 2",
    "progress x -1 2",
    "error",
    "error ",
    "error 5",
    "error 5 ",
    "error 0 none",
    "error x y",
    "error 126 y",
    "error -1 y",
    "hello",
    "state running",
};

START_TEST(reply_malformed)
{
    char line[64];
    struct protocol_reply reply;

    snprintf(line, sizeof(line), "%s", bad_replies[_i]);
    ck_assert_int_eq(protocol_reply_parse(line, &reply), -1);
}
END_TEST

START_TEST(socket_path)
{
    char path[64];

    ck_assert_int_eq(protocol_socket_path(path, sizeof(path), "/proc/7/root", "/tmp", 1000, 42), 0);
    ck_assert_str_eq(path, "/proc/7/root/tmp/cudackpt-1000/42");
    ck_assert_int_eq(protocol_socket_path(path, 34, "/proc/7/root", "/tmp", 1000, 42), 0);
    ck_assert_int_eq(protocol_socket_path(path, 33, "/proc/7/root", "/tmp", 1000, 42), -1);
}
END_TEST

START_TEST(socket_directories)
{
    unsetenv("CUDACKPT_SOCKET_DIR");
    ck_assert_str_eq(protocol_directory(0), "/tmp");
    ck_assert_str_eq(protocol_directory(2), "/var/tmp");
    ck_assert_ptr_null(protocol_directory(3));
    ck_assert_ptr_null(protocol_directory(4));
    setenv("CUDACKPT_SOCKET_DIR", "/run/here", 1);
    ck_assert_str_eq(protocol_directory(0), "/run/here");
    ck_assert_str_eq(protocol_directory(1), "/tmp");
    ck_assert_ptr_null(protocol_directory(4));
    setenv("CUDACKPT_SOCKET_DIR", "run/here", 1);
    ck_assert_str_eq(protocol_directory(0), "/tmp");
    setenv("CUDACKPT_SOCKET_DIR", "", 1);
    ck_assert_str_eq(protocol_directory(0), "/tmp");
}
END_TEST

START_TEST(errors)
{
    struct error err = {0};
    char big[3000];

    error_prefix(&err, "nothing");
    ck_assert_int_eq(err.code, ERROR_NONE);
    error_set_errno(&err, ERROR_MEMORY, 12, "can't map %d bytes", 5);
    ck_assert_str_eq(err.text, "can't map 5 bytes: Cannot allocate memory");
    error_set(&err, ERROR_STATE, "later");
    ck_assert_int_eq(err.code, ERROR_MEMORY);
    error_prefix(&err, "device %d", 0);
    ck_assert_str_eq(err.text, "device 0: can't map 5 bytes: Cannot allocate memory");
    memset(big, 'y', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    error_prefix(&err, "%s", big);
    ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
    error_clear(&err);
    error_set_errno(&err, ERROR_REFUSED, 98765, "x\x1b[2J");
    ck_assert_str_eq(err.text, "x [2J: error number 98765");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("protocol");
    TCase *tests = tcase_create("lines");
    SRunner *runner;
    int failed;

    tcase_add_test(tests, request_round_trip);
    tcase_add_test(tests, request_format_fits_or_fails);
    tcase_add_test(tests, deep_lock);
    tcase_add_loop_test(tests, request_malformed, 0, COUNT(bad_requests));
    tcase_add_test(tests, request_too_long);
    tcase_add_test(tests, numbers);
    tcase_add_test(tests, reply_round_trip);
    tcase_add_test(tests, reply_too_long_is_cut);
    tcase_add_loop_test(tests, reply_malformed, 0, COUNT(bad_replies));
    tcase_add_test(tests, socket_path);
    tcase_add_test(tests, socket_directories);
    tcase_add_test(tests, errors);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
