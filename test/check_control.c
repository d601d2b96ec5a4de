/*
 * The control thread with fake actions, over its real socket; then cudackpt-ctl against it (CUDACKPT_CTL
 * names the binary). Each test runs in a process of its own (Check forks), so each starts the control thread
 * anew.
 */

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control.h"
#include "control_peer.h"
#include "control_socket.h"
#include "io.h"
#include "protocol.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char folder[] = "/tmp/check_control.XXXXXX";
static char socket_path[128];

/* ---- fake actions: they write down that they were called, and do as they are told */

static const char *fake_state = "running";
static char calls[256];
static const char *fail_at = ""; /* the action that fails */
static const char *fail_state;   /* the state after that, NULL: unchanged */
static bool slow, exits, floods; /* checkpoint goes on until slow is cleared; it ends the process */
static bool in_slow;
static uint64_t seen_timeout;

static int fake(const char *name, const char *state_after, struct error *err)
{
    strcat(calls, name);
    strcat(calls, " ");
    if (!strcmp(fail_at, name)) {
        if (fail_state)
            fake_state = fail_state;
        error_set(err, ERROR_UNSAVEABLE, "%s does not work today", name);
        return -1;
    }
    fake_state = state_after;
    return 0;
}

static int fake_lock(uint64_t timeout_ms, struct error *err)
{
    seen_timeout = timeout_ms;
    return fake("lock", "locked", err);
}

static void go_slow(void)
{
    uint64_t done = 0, limit = io_now_ms() + 4000;

    while (__atomic_load_n(&slow, __ATOMIC_SEQ_CST) && io_now_ms() < limit) {
        __atomic_store_n(&in_slow, true, __ATOMIC_SEQ_CST);
        control_progress("copy-out", ++done, 100000);
        control_service();
        usleep(200);
    }
}

static int fake_checkpoint(struct error *err)
{
    go_slow();
    if (exits)
        _exit(0);
    return fake("checkpoint", "checkpointed", err);
}

static int fake_restore(struct error *err)
{
    go_slow();
    return fake("restore", "locked", err);
}

static int fake_unlock(struct error *err)
{
    return fake("unlock", "running", err);
}

static const char *fake_get_state(void)
{
    return fake_state;
}

static void fake_status(struct control_reply *reply)
{
    if (floods) {
        for (int i = 0; i < 2000; i++)
            control_reply_value(reply, "reason", "%d %01000d", i, 0);
        return;
    }
    control_reply_value(reply, "device memory", "%d", 8192);
    control_reply_value(reply, "driver version", "%s", "580.159");
    control_reply_value(reply, "reason", "a \"quoted\" \\ path\nand a line");
    control_reply_value(reply, "reason", "\xc3\xa9t\xc3\xa9 \xff \x1b[2J");
}

static const struct control_actions fake_actions = {
    .lock = fake_lock,
    .checkpoint = fake_checkpoint,
    .restore = fake_restore,
    .unlock = fake_unlock,
    .state = fake_get_state,
    .status = fake_status,
};

/* ---- a peer */

static void start(void)
{
    struct error err = {0};

    ck_assert_msg(control_start(&fake_actions, &err) == 0, "%s", err.text);
    ck_assert_int_eq(protocol_socket_path(socket_path, sizeof(socket_path), "", folder, geteuid(), getpid()),
                     0);
}

static int dial(void)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(io_unix_address(&address, socket_path), 0);
    ck_assert_msg(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect to %s: %s",
                  socket_path, strerror(errno));
    return fd;
}

static void say(int fd, const char *text, size_t length)
{
    ck_assert_int_eq(send(fd, text, length, MSG_NOSIGNAL), (ssize_t)length);
}

/* Everything up to the end of the connection, which must come within two seconds; closes it. */
static const char *hear(int fd)
{
    static char text[65536];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t length = 0;
    ssize_t got;

    for (;;) {
        ck_assert_msg(poll(&ready, 1, 2000) == 1, "no answer in 2 s after \"%.*s\"", (int)length, text);
        got = recv(fd, text + length, sizeof(text) - 1 - length, 0);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    return text;
}

static const char *ask(const char *request)
{
    int fd = dial();

    say(fd, request, strlen(request));
    return hear(fd);
}

static void wait_until(const bool *flag)
{
    for (int i = 0; i < 2000 && !__atomic_load_n(flag, __ATOMIC_SEQ_CST); i++)
        usleep(1000);
    ck_assert(__atomic_load_n(flag, __ATOMIC_SEQ_CST));
}

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* ---- answers */

START_TEST(queries)
{
    char text[4096], path[64];
    uint64_t mask = 0;
    int tid = 0;

    start();
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    ck_assert_str_eq(ask("status\n"),
                     "value state running\nvalue protocol 1\nvalue device_memory 8192\n"
                     "value driver_version 580.159\nvalue reason a \"quoted\" \\ path and a line\n"
                     "value reason \xc3\xa9t\xc3\xa9 \xff  [2J\nok\n");
    ck_assert_int_eq(sscanf(ask("restore-tid\n"), "value tid %d\nok\n", &tid), 1);
    ck_assert_int_eq(tid, control_tid());
    ck_assert_int_ne(tid, getpid());

    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
    ck_assert_int_gt(io_read_file(path, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "cudackpt\n");
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
    ck_assert_int_gt(io_read_file(path, text, sizeof(text)), 0);
    mask = strtoull(strstr(text, "SigBlk:") + strlen("SigBlk:"), NULL, 16);
    for (int number = 1; number < 32; number++) {
        bool fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;

        if (fault) /* the thread's own: whoever handles them in the program shall get them */
            ck_assert_msg(!(mask >> (number - 1) & 1), "signal %d is blocked", number);
        else if (number != SIGKILL && number != SIGSTOP)
            ck_assert_msg(mask >> (number - 1) & 1, "signal %d is not blocked", number);
    }
    ck_assert_str_eq(calls, "");
}
END_TEST

START_TEST(caller_is_left_alone)
{
    struct error err = {0};
    sigset_t before, after;
    mode_t mask = umask(027);

    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = 77;
    start();
    ck_assert_int_eq(errno, 77);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++)
        ck_assert_int_eq(sigismember(&after, number), number == SIGUSR1);
    ck_assert_int_eq(umask(mask), 027);
    ck_assert_int_eq(control_start(&fake_actions, &err), 0); /* a second time does nothing */
    control_service();                                       /* not on the control thread: does nothing */
    control_progress("x", 1, 2);
    errno = 78;
    control_stop();
    ck_assert_int_eq(errno, 78);
    ck_assert_int_ne(access(socket_path, F_OK), 0);
}
END_TEST

/* ---- actions */

static const struct action_case {
    const char *state, *request, *calls, *state_after;
    const char *error; /* how the error line begins, NULL: ok */
} action_cases[] = {
    {"running", "suspend", "lock checkpoint ", "checkpointed", NULL},
    {"locked", "suspend", "checkpoint ", "checkpointed", NULL},
    {"checkpointed", "suspend", "", "checkpointed",
     "error 4 can't suspend: the program is checkpointed; resume it"},
    {"failed", "suspend", "", "failed", "error 4 can't suspend: the program is failed; its data is safe"},
    {"running", "resume", "", "running", "error 4 can't resume: the program is running; suspend it"},
    {"locked", "resume", "unlock ", "running", NULL},
    {"checkpointed", "resume", "restore unlock ", "running", NULL},
    {"failed", "resume", "restore unlock ", "running", NULL},
    {"running", "toggle", "lock checkpoint ", "checkpointed", NULL},
    {"locked", "toggle", "", "locked",
     "error 4 can't toggle: the program is locked; checkpoint or unlock it"},
    {"checkpointed", "toggle", "restore unlock ", "running", NULL},
    {"failed", "toggle", "restore unlock ", "running", NULL},
    {"running", "lock", "lock ", "locked", NULL},
    {"locked", "lock", "", "locked", "error 4 can't lock: the program is locked"},
    {"checkpointed", "lock", "", "checkpointed", "error 4 "},
    {"failed", "lock", "", "failed", "error 4 "},
    {"running", "checkpoint", "", "running",
     "error 4 can't checkpoint: the program is running; suspend it, or lock"},
    {"locked", "checkpoint", "checkpoint ", "checkpointed", NULL},
    {"checkpointed", "checkpoint", "", "checkpointed", "error 4 "},
    {"failed", "checkpoint", "", "failed", "error 4 "},
    {"running", "restore", "", "running", "error 4 "},
    {"locked", "restore", "", "locked", "error 4 "},
    {"checkpointed", "restore", "restore ", "locked", NULL},
    {"failed", "restore", "restore ", "locked", NULL},
    {"running", "unlock", "", "running", "error 4 "},
    {"locked", "unlock", "unlock ", "running", NULL},
    {"checkpointed", "unlock", "", "checkpointed",
     "error 4 can't unlock: the program is checkpointed; resume it"},
    {"failed", "unlock", "", "failed", "error 4 "},
    {"odd", "toggle", "", "odd", "error 4 can't toggle: the program is odd; look at its status"},
};

START_TEST(action_in_state)
{
    const struct action_case *c = &action_cases[_i];
    char request[64], last[512];
    const char *reply;

    fake_state = c->state;
    start();
    snprintf(request, sizeof(request), "%s\n", c->request);
    reply = ask(request);
    snprintf(last, sizeof(last), "progress %s 0 0\nvalue state %s\n%s", c->request, c->state_after,
             c->error ? c->error : "ok\n");
    ck_assert_msg(!strncmp(reply, last, strlen(last)), "%s while %s: %s", c->request, c->state, reply);
    ck_assert_str_eq(calls, c->calls);
    ck_assert_str_eq(fake_state, c->state_after);
}
END_TEST

/* A deep lock is a suspend that calls itself locked: what follows has nothing left to do, or does it all. */
static const struct deep_case {
    const char *request, *calls, *shown;
} deep_cases[] = {
    {"state\n", "lock checkpoint ", "locked"},
    {"checkpoint\n", "lock checkpoint ", "checkpointed"},
    {"suspend\n", "lock checkpoint ", "checkpointed"},
    {"unlock\n", "lock checkpoint restore unlock ", "running"},
    {"resume\n", "lock checkpoint restore unlock ", "running"},
    {"restore\n", "lock checkpoint ", "locked"}, /* refused, as from locked */
    {"toggle\n", "lock checkpoint ", "locked"},  /* likewise */
    {"lock\n", "lock checkpoint ", "locked"},    /* likewise */
};

START_TEST(deep_lock)
{
    const struct deep_case *c = &deep_cases[_i];
    char shown[64];

    start();
    snprintf(shown, sizeof(shown), "value state %s\n", c->shown);
    ck_assert_ptr_nonnull(strstr(ask("lock timeout=1234 deep=1\n"), "value state locked\nok\n"));
    ck_assert_uint_eq(seen_timeout, 1234);
    ask(c->request);
    ck_assert_str_eq(calls, c->calls);
    ck_assert_ptr_nonnull(strstr(ask("state\n"), shown));
    ck_assert_ptr_nonnull(strstr(ask("status\n"), shown));
}
END_TEST

START_TEST(deep_lock_fails)
{
    start();
    fail_at = "checkpoint";
    ck_assert_ptr_nonnull(strstr(ask("lock deep=1\n"), "value state running\nerror 6 "));
    ck_assert_str_eq(calls, "lock checkpoint unlock ");
    /* The way back fails: for lack of memory, say, or for good. */
    fail_at = "restore";
    ck_assert_ptr_nonnull(strstr(ask("lock deep=1\n"), "value state locked\nok\n"));
    ck_assert_ptr_nonnull(strstr(ask("unlock\n"), "value state locked\nerror 6 "));
    fail_state = "failed";
    ck_assert_ptr_nonnull(strstr(ask("unlock\n"), "value state failed\nerror 6 "));
    fail_at = "";
    ck_assert_ptr_nonnull(strstr(ask("resume\n"), "value state running\nok\n"));
}
END_TEST

/* The unlock comes while the restore is under way, and who sent it does not stay: it is carried out all the
 * same. */
START_TEST(unlock_waits_for_restore)
{
    int restore, unlock;

    fake_state = "checkpointed";
    slow = true;
    start();
    restore = dial();
    say(restore, "restore\n", 8);
    while (!__atomic_load_n(&in_slow, __ATOMIC_SEQ_CST))
        usleep(1000);
    unlock = dial();
    say(unlock, "unlock\n", 7);
    close(unlock);
    usleep(50 * 1000);
    ck_assert_ptr_nonnull(strstr(ask("checkpoint\n"), "error 4 busy: a restore is under way"));
    __atomic_store_n(&slow, false, __ATOMIC_SEQ_CST);
    close(restore);
    for (int i = 0; i < 200 && strcmp(calls, "restore unlock "); i++)
        usleep(10 * 1000);
    ck_assert_str_eq(calls, "restore unlock ");
    ck_assert_ptr_nonnull(strstr(ask("state\n"), "value state running\n"));
}
END_TEST

START_TEST(timeout_arrives)
{
    start();
    ck_assert_ptr_nonnull(strstr(ask("lock timeout=1234\n"), "\nok\n"));
    ck_assert_uint_eq(seen_timeout, 1234);
}
END_TEST

static const struct failure_case {
    const char *state, *request, *fail_at, *fail_state, *calls, *state_after;
} failure_cases[] = {
    {"running", "suspend\n", "lock", NULL, "lock ", "running"},
    {"running", "suspend\n", "checkpoint", NULL, "lock checkpoint unlock ", "running"},
    {"running", "suspend\n", "checkpoint", "failed", "lock checkpoint ", "failed"},
    {"running", "toggle\n", "checkpoint", NULL, "lock checkpoint unlock ", "running"},
    {"locked", "suspend\n", "checkpoint", NULL, "checkpoint ", "locked"}, /* somebody else's lock stays */
    {"checkpointed", "resume\n", "restore", "failed", "restore ", "failed"},
    {"failed", "toggle\n", "restore", NULL, "restore ", "failed"},
    {"checkpointed", "resume\n", "unlock", NULL, "restore unlock ", "locked"},
};

START_TEST(action_fails)
{
    const struct failure_case *c = &failure_cases[_i];
    char sentence[64];
    const char *reply;

    fake_state = c->state;
    fail_at = c->fail_at;
    fail_state = c->fail_state;
    start();
    reply = ask(c->request);
    snprintf(sentence, sizeof(sentence), "\nerror 6 %s does not work today\n", c->fail_at);
    ck_assert_msg(strstr(reply, sentence), "%s", reply);
    ck_assert_str_eq(calls, c->calls);
    ck_assert_str_eq(fake_state, c->state_after);
    ck_assert_ptr_nonnull(strstr(ask("state\n"), c->state_after));
}
END_TEST

START_TEST(busy)
{
    const char *reply;
    int fd, others[3];

    slow = true;
    start();
    fd = dial();
    say(fd, "suspend\n", 8);
    wait_until(&in_slow);
    ck_assert_str_eq(ask("state\n"), "value state locked\nok\n");
    reply = ask("status\n");
    ck_assert_msg(!strncmp(reply, "value state locked\nvalue busy suspend\nvalue phase copy-out\n", 58), "%s",
                  reply);
    ck_assert_ptr_nonnull(strstr(reply, "value device_memory 8192\n"));
    reply = ask("resume\n");
    ck_assert_str_eq(reply, "error 4 busy: a suspend is under way; try again when it is done\n");
    ck_assert_str_eq(ask("nonsense\n"),
                     "error 2 unknown action \"nonsense\"; this library knows version 1 of the "
                     "protocol\n");
    ck_assert_ptr_nonnull(strstr(ask("restore-tid\n"), "value tid "));
    /* Peers that came during the action and speak after it. */
    for (size_t i = 0; i < COUNT(others); i++)
        others[i] = dial();
    usleep(150 * 1000); /* longer than the least time between two progress lines */
    __atomic_store_n(&slow, false, __ATOMIC_SEQ_CST);
    reply = hear(fd);
    ck_assert_msg(!strncmp(reply, "progress suspend 0 0\nprogress copy-out 1 100000\nprogress copy-out ", 66),
                  "%s", reply);
    ck_assert_ptr_nonnull(strstr(reply, "\nvalue state checkpointed\nok\n"));
    ck_assert_str_eq(calls, "lock checkpoint ");
    for (size_t i = 0; i < COUNT(others); i++) {
        say(others[i], "state\n", 6);
        ck_assert_str_eq(hear(others[i]), "value state checkpointed\nok\n");
    }
}
END_TEST

START_TEST(two_actions_at_once)
{
    int first, second;
    const char *reply;

    slow = true;
    start();
    first = dial();
    second = dial();
    say(first, "suspend\n", 8);
    say(second, "suspend\n", 8);
    wait_until(&in_slow);
    usleep(20 * 1000);
    __atomic_store_n(&slow, false, __ATOMIC_SEQ_CST);
    reply = hear(first);
    ck_assert_ptr_nonnull(strstr(reply, "\nok\n"));
    ck_assert_ptr_nonnull(strstr(hear(second), "error 4 busy: a suspend is under way"));
    ck_assert_str_eq(calls, "lock checkpoint ");
}
END_TEST

START_TEST(peer_goes_away_during_action)
{
    int fd;

    slow = true;
    start();
    fd = dial();
    say(fd, "suspend\n", 8);
    wait_until(&in_slow);
    close(fd);
    usleep(250 * 1000); /* progress lines meet the closed end */
    ck_assert_ptr_nonnull(strstr(ask("status\n"), "value busy suspend\n"));
    __atomic_store_n(&slow, false, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 1000 && strcmp(ask("state\n"), "value state checkpointed\nok\n"); i++)
        usleep(1000);
    ck_assert_str_eq(calls, "lock checkpoint ");
    ck_assert_ptr_nonnull(strstr(ask("resume\n"), "\nok\n"));
    ck_assert_str_eq(calls, "lock checkpoint restore unlock ");
}
END_TEST

START_TEST(request_without_waiting)
{
    int fd;

    start();
    fd = dial();
    say(fd, "suspend\n", 8);
    close(fd);
    for (int i = 0; i < 1000 && strcmp(ask("state\n"), "value state checkpointed\nok\n"); i++)
        usleep(1000);
    ck_assert_str_eq(calls, "lock checkpoint ");
}
END_TEST

/* ---- peers that mean no good */

static const struct junk {
    const char *bytes;
    size_t length;
    const char *error;
} junk[] = {
#define JUNK(bytes, error)                                                                                   \
    {                                                                                                        \
        bytes, sizeof(bytes) - 1, error                                                                      \
    }
    JUNK("\n", "error 2 unknown action \"\""),
    JUNK("state\nstate\n", "error 2 more than one line"),
    JUNK("state\nx", "error 2 more than one line"),
    JUNK("state\0\n", "error 2 the request contains a byte"),
    JUNK("\0\0\0\0\n", "error 2 the request contains a byte"),
    JUNK("\xff\xfe\x80\n", "error 2 the request contains a byte"),
    JUNK("GET / HTTP/1.1\r\n", "error 2 the request contains a byte"),
    JUNK("state", "error 2 the request ended before its newline"),
    JUNK("%n%s%p\n", "error 2 unknown action \"%n%s%p\""),
    JUNK("suspend timeout=99999999999999999999\n", "error 2 the time-out"),
};

START_TEST(peer_sends_junk)
{
    const char *reply;
    int fd;

    start();
    fd = dial();
    say(fd, junk[_i].bytes, junk[_i].length);
    shutdown(fd, SHUT_WR);
    reply = hear(fd);
    ck_assert_msg(!strncmp(reply, junk[_i].error, strlen(junk[_i].error)), "%s", reply);
    ck_assert_ptr_eq(strchr(reply, '\n'), reply + strlen(reply) - 1);
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    ck_assert_str_eq(calls, "");
}
END_TEST

START_TEST(peer_sends_too_much)
{
    char bytes[100000];
    const char *reply;
    int fd;

    start();
    memset(bytes, 'a', sizeof(bytes));
    fd = dial();
    /* It may be refused while this still writes. */
    ck_assert_int_gt(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), PROTOCOL_REQUEST_MAX);
    reply = hear(fd);
    ck_assert_str_eq(reply, "error 2 the request is longer than 256 bytes\n");
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
}
END_TEST

START_TEST(peer_sends_byte_by_byte)
{
    const char request[] = "lock timeout=5\n";
    int fd;

    start();
    fd = dial();
    for (size_t i = 0; i < sizeof(request) - 1; i++) {
        say(fd, request + i, 1);
        usleep(2000);
        if (i % 5 == 0) /* nobody else waits for it */
            ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    }
    ck_assert_ptr_nonnull(strstr(hear(fd), "\nok\n"));
}
END_TEST

START_TEST(peer_does_not_read)
{
    uint64_t before;
    int fd;

    floods = true;
    start();
    fd = dial();
    say(fd, "status\n", 7);
    before = io_now_ms();
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    ck_assert_uint_lt(io_now_ms() - before, 1000);
    /* What had been taken comes, then the end, and no last line. */
    ck_assert_uint_gt(strlen(hear(fd)), 1000);
}
END_TEST

START_TEST(too_many_peers)
{
    int waiting[8];
    const char *reply;

    start();
    for (size_t i = 0; i < COUNT(waiting); i++)
        waiting[i] = dial();
    /* The ninth: nobody reads it; it is told and closed. */
    reply = hear(dial());
    ck_assert_msg(!strncmp(reply, "error 1 8 other requests", 24), "\"%s\"", reply);
    close(waiting[0]);
    for (int i = 0; i < 1000 && strcmp(ask("state\n"), "value state running\nok\n"); i++)
        usleep(1000);
    for (size_t i = 1; i < COUNT(waiting); i++) {
        say(waiting[i], "state\n", 6);
        ck_assert_str_eq(hear(waiting[i]), "value state running\nok\n");
    }
}
END_TEST

START_TEST(many_quick_connections)
{
    int before, fd;

    start();
    ask("state\n");
    before = descriptors();
    for (int i = 0; i < 200; i++) {
        switch (i % 4) {
        case 0:
            close(dial());
            break;
        case 1:
            fd = dial();
            say(fd, "sta", 3);
            close(fd);
            break;
        default:
            ask(i % 4 == 2 ? "status\n" : "junk\n");
        }
    }
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    usleep(20 * 1000);
    ck_assert_int_eq(descriptors(), before);
}
END_TEST

START_TEST(crowd_at_once)
{
    int fds[50], answered = 0;

    start();
    for (size_t i = 0; i < COUNT(fds); i++) {
        fds[i] = dial();
        send(fds[i], "state\n", 6, MSG_NOSIGNAL); /* a refused one may be closed already */
    }
    for (size_t i = 0; i < COUNT(fds); i++)
        answered += !strcmp(hear(fds[i]), "value state running\nok\n");
    ck_assert_int_ge(answered, 8);
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
}
END_TEST

/* ---- who may ask */

START_TEST(permission)
{
    struct error err = {0};

    ck_assert_int_eq(control_peer_check(0, 1000, &err), 0);
    ck_assert_int_eq(control_peer_check(1000, 1000, &err), 0);
    ck_assert_int_eq(control_peer_check(0, 0, &err), 0);
    ck_assert_int_eq(err.code, ERROR_NONE);
    ck_assert_int_eq(control_peer_check(1001, 1000, &err), -1);
    ck_assert_int_eq(err.code, ERROR_PERMISSION);
    error_clear(&err);
    ck_assert_int_eq(control_peer_check(1000, 0, &err), -1);
    ck_assert_int_eq(err.code, ERROR_PERMISSION);
}
END_TEST

/* The directories opened up by hand, so that only the check of the peer is left. Needs root. */
START_TEST(stranger)
{
    char directory[128];
    int status;
    pid_t child;

    if (geteuid() != 0)
        return;
    start();
    snprintf(directory, sizeof(directory), "%s/cudackpt-0", folder);
    ck_assert_int_eq(chmod(folder, 0755) | chmod(directory, 0755) | chmod(socket_path, 0666), 0);
    child = fork();
    if (child == 0) {
        const char *reply;

        if (setuid(65534) < 0)
            _exit(2);
        reply = hear(dial());
        _exit(!strncmp(reply, "error 9 uid 65534 may not control", 33) ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
}
END_TEST

START_TEST(directory_is_checked)
{
    char path[128];
    struct error err = {0};
    struct stat status;

    snprintf(path, sizeof(path), "%s/made", folder);
    ck_assert_int_eq(control_directory_prepare(path, geteuid(), &err), 0);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_mode & 0777, 0700);
    ck_assert_int_eq(control_directory_prepare(path, geteuid() + 1, &err), -1);
    ck_assert_int_eq(err.code, ERROR_PERMISSION);
    error_clear(&err);
    chmod(path, 0701);
    ck_assert_int_eq(control_directory_prepare(path, geteuid(), &err), -1);
    chmod(path, 0700);
    error_clear(&err);
    snprintf(path, sizeof(path), "%s/link", folder);
    ck_assert_int_eq(symlink("made", path), 0);
    ck_assert_int_eq(control_directory_prepare(path, geteuid(), &err), -1);
    error_clear(&err);
    snprintf(path, sizeof(path), "%s/none/deeper", folder);
    ck_assert_int_eq(control_directory_prepare(path, geteuid(), &err), -1);
    ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
}
END_TEST

START_TEST(next_directory_is_tried)
{
    char path[128];
    struct error err = {0};

    snprintf(path, sizeof(path), "%s/cudackpt-%u", folder, geteuid());
    ck_assert_int_eq(symlink("/tmp", path), 0);
    ck_assert_msg(control_start(&fake_actions, &err) == 0, "%s", err.text);
    protocol_socket_path(socket_path, sizeof(socket_path), "", "/tmp", geteuid(), getpid());
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    control_stop();
    unlink(path);
}
END_TEST

START_TEST(stale_file_is_replaced)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/cudackpt-%u", folder, geteuid());
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/cudackpt-%u/%d", folder, geteuid(), getpid());
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    start();
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
}
END_TEST

START_TEST(file_of_another_is_left)
{
    struct control_socket first = {.fd = -1}, second = {.fd = -1};
    struct error err = {0};

    /* Two namespaces that share a directory: the second process with this pid goes elsewhere. */
    ck_assert_int_eq(control_socket_open(&first, &err), 0);
    ck_assert_int_eq(control_socket_open(&second, &err), 0);
    ck_assert_str_ne(first.path, second.path);
    ck_assert(control_socket_is_open(&first) && control_socket_is_open(&second));
    control_socket_unlink(&first);
    control_socket_unlink(&second);
}
END_TEST

/* ---- what the program does to us */

static int listener_find(void)
{
    for (int fd = 3; fd < 64; fd++) {
        int listens = 0;
        socklen_t size = sizeof(listens);

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
            return fd;
    }
    return -1;
}

START_TEST(program_closes_the_socket)
{
    int fd, file;

    start();
    fd = listener_find();
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    /* The number goes to a file of the program: it must come to no harm. */
    file = open("/dev/null", O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(dup2(file, fd), fd);
    usleep(1200 * 1000);
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
    ck_assert_int_eq(write(fd, "x", 1), 1);
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
}
END_TEST

START_TEST(fork_leaves_nothing)
{
    int fd, before, status;
    pid_t child;

    start();
    before = descriptors();
    fd = dial();
    say(fd, "sta", 3);
    usleep(20 * 1000);
    child = fork();
    if (child == 0) {
        char parent_path[sizeof(socket_path)];
        bool good;

        control_after_fork_in_child();
        good = descriptors() == before - 1 + 1; /* less the listener, plus this test's own end */
        good = good && control_tid() == 0;
        control_stop();
        good = good && access(socket_path, F_OK) == 0;
        strcpy(parent_path, socket_path);
        start();
        good = good && strcmp(parent_path, socket_path) != 0;
        good = good && !strcmp(ask("state\n"), "value state running\nok\n");
        control_stop();
        _exit(good ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    say(fd, "te\n", 3);
    ck_assert_str_eq(hear(fd), "value state running\nok\n");
}
END_TEST

START_TEST(fork_without_handler)
{
    int status;
    pid_t child;

    start();
    child = fork();
    if (child == 0) {
        control_stop(); /* an exit handler in a copy of the process: the file is not its own */
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_str_eq(ask("state\n"), "value state running\nok\n");
}
END_TEST

/* ---- cudackpt-ctl */

static char output[65536];

/* Runs cudackpt-ctl with the words of arguments; %P is the process to control. Returns its exit status. */
static int tool(pid_t pid, const char *arguments)
{
    char command[1024], number[16];
    const char *mark;
    size_t length;
    FILE *pipe;
    int status;

    snprintf(number, sizeof(number), "%d", (int)pid);
    mark = strstr(arguments, "%P");
    if (mark)
        snprintf(command, sizeof(command), "exec \"$CUDACKPT_CTL\" %.*s%s%s 2>&1", (int)(mark - arguments),
                 arguments, number, mark + 2);
    else
        snprintf(command, sizeof(command), "exec \"$CUDACKPT_CTL\" %s 2>&1", arguments);
    pipe = popen(command, "re");
    ck_assert_ptr_nonnull(pipe);
    length = fread(output, 1, sizeof(output) - 1, pipe);
    output[length] = '\0';
    status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status), "%s: status %x", command, status);
    return WEXITSTATUS(status);
}

#define tool_gives(code, arguments, text)                                                                    \
    do {                                                                                                     \
        int status_ = tool(getpid(), arguments);                                                             \
        ck_assert_msg(status_ == (code) && !strcmp(output, text), "%s: exit %d, \"%s\"", arguments, status_, \
                      output);                                                                               \
    } while (0)
#define tool_says(code, arguments, part)                                                                     \
    do {                                                                                                     \
        int status_ = tool(getpid(), arguments);                                                             \
        ck_assert_msg(status_ == (code) && strstr(output, part), "%s: exit %d, \"%s\"", arguments, status_,  \
                      output);                                                                               \
    } while (0)

START_TEST(tool_actions)
{
    start();
    tool_gives(0, "state %P", "running\n");
    tool_gives(0, "suspend %P", "");
    tool_gives(0, "state %P", "checkpointed\n");
    tool_says(4, "suspend %P", "cudackpt-ctl: can't suspend: the program is checkpointed; resume it");
    tool_gives(0, "resume %P", "");
    tool_gives(0, "toggle --timeout 5s %P", "");
    ck_assert_uint_eq(seen_timeout, 5000);
    tool_gives(0, "toggle %P", "");
    tool_gives(0, "--timeout=70ms lock %P", "");
    ck_assert_uint_eq(seen_timeout, 70);
    tool_gives(0, "checkpoint %P", "");
    tool_gives(0, "restore %P", "");
    tool_gives(0, "unlock %P", "");
    tool_says(0, "suspend --json %P", "\"command\": \"suspend\", \"seconds\": 0.");
    ck_assert_ptr_nonnull(strstr(output, ", \"state\": \"checkpointed\"}\n"));
    tool_says(4, "lock --json --quiet %P", "\"code\": 4, \"error\": \"can't lock: ");
    tool_gives(4, "lock --quiet %P", "");
    fail_at = "restore";
    tool_gives(6, "resume %P", "cudackpt-ctl: restore does not work today\n");
}
END_TEST

START_TEST(tool_status)
{
    start();
    tool_gives(0, "status %P",
               "state:          running\nprotocol:       1\ndevice memory:  8192\ndriver version: 580.159\n"
               "reason:         a \"quoted\" \\ path and a line\nreason:         \xc3\xa9t\xc3\xa9 ?  [2J\n");
    tool_says(
        0, "status --json %P",
        "\"state\": \"running\", \"protocol\": 1, \"device_memory\": 8192, \"driver_version\": \"580.159\", "
        "\"reason\": [\"a \\\"quoted\\\" \\\\ path and a line\", \"\xc3\xa9t\xc3\xa9 ?  [2J\"]}\n");
}
END_TEST

START_TEST(tool_usage)
{
    tool_says(2, "", "no command given");
    tool_says(2, "foo %P", "there is no command \"foo\"");
    tool_says(2, "state", "needs the number of a process");
    tool_says(2, "state abc", "not the number of a process");
    tool_says(2, "state 0", "not the number of a process");
    tool_says(2, "state -- -1", "not the number of a process");
    tool_says(2, "state 1 2", "one argument too many");
    tool_says(2, "state %P --timeout 5", "takes no --timeout");
    tool_says(2, "lock %P --timeout 5m", "not a number of milliseconds");
    tool_says(2, "lock %P --timeout ''", "not a number of milliseconds");
    tool_says(2, "lock %P --timeout", "needs a value");
    tool_says(2, "lock %P -x", "unknown option -x");
    tool_says(2, "lock %P --bla", "--bla");
    tool_says(2, "help foo", "there is no command");
    tool_says(0, "--help", "Commands:");
    tool_says(0, "help suspend", "Usage: cudackpt-ctl suspend PID");
    tool_says(0, "--version", "cudackpt-ctl ");
    tool_says(1, "--help >/dev/full", "");
}
END_TEST

/* Makes this process look as if the library were loaded. */
static void library_map(void)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/libcudackpt.so.0", folder);
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_ptr_ne(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), MAP_FAILED);
    close(fd);
}

START_TEST(tool_finds_nothing)
{
    pid_t child;
    int status;

    tool_says(3, "state 2147483647", "there is no process 2147483647");
    tool_says(3, "state %P", "does not run under libcudackpt.so: start it with LD_PRELOAD=libcudackpt.so");
    /* The library is mapped, but nobody has called cuInit. */
    library_map();
    tool_says(3, "state %P", "has not called cuInit yet");

    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    kill(child, SIGSTOP);
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert_int_eq(tool(child, "state %P"), 1);
    ck_assert_msg(strstr(output, "is stopped and can't answer"), "%s", output);
    kill(child, SIGKILL);
    usleep(20 * 1000); /* now it is a zombie */
    ck_assert_int_eq(tool(child, "state %P"), 3);
    ck_assert_msg(strstr(output, "has ended"), "%s", output);
    waitpid(child, &status, 0);
}
END_TEST

START_TEST(tool_meets_an_impostor)
{
    char path[128];
    struct sockaddr_un address;
    int fd = io_unix_socket();
    pid_t child = fork();

    if (child == 0) {
        pause();
        _exit(0);
    }
    /* This process listens where the child's socket would be. */
    snprintf(path, sizeof(path), "%s/cudackpt-%u", folder, geteuid());
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/cudackpt-%u/%d", folder, geteuid(), (int)child);
    ck_assert_int_eq(io_unix_address(&address, path), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 5), 0);
    ck_assert_int_eq(tool(child, "suspend %P"), 3);
    ck_assert_msg(strstr(output, "does not run under"), "%s", output);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(tool_sees_the_end)
{
    int ready[2], status;
    pid_t child;
    char byte;

    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        exits = true;
        start();
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(tool(child, "suspend %P"), 1);
    ck_assert_msg(strstr(output, "ended while the suspend was under way"), "%s", output);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
}
END_TEST

START_TEST(tool_comes_again)
{
    int fd;

    library_map();
    start();
    fd = listener_find();
    ck_assert_int_eq(close(fd), 0);
    tool_gives(0, "state %P", "running\n");
}
END_TEST

START_TEST(tool_is_killed)
{
    char number[16];
    int status;
    pid_t child;

    slow = true;
    start();
    snprintf(number, sizeof(number), "%d", (int)getpid());
    child = fork();
    if (child == 0) {
        execl(getenv("CUDACKPT_CTL"), "cudackpt-ctl", "suspend", number, (char *)NULL);
        _exit(127);
    }
    wait_until(&in_slow);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    __atomic_store_n(&slow, false, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 1000 && strcmp(ask("state\n"), "value state checkpointed\nok\n"); i++)
        usleep(1000);
    tool_gives(0, "resume %P", "");
    tool_gives(0, "state %P", "running\n");
}
END_TEST

/* ---- suites */

static void folder_make(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("CUDACKPT_SOCKET_DIR", folder, 1);
}

static int entry_remove(const char *path, const struct stat *status, int type, struct FTW *place)
{
    return remove(path);
}

static void folder_remove(void)
{
    ck_assert_int_eq(nftw(folder, entry_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

int main(void)
{
    Suite *suite = suite_create("control");
    TCase *thread = tcase_create("thread"), *program;
    SRunner *runner;
    int failed;

    tcase_set_timeout(thread, 30);
    tcase_add_checked_fixture(thread, folder_make, folder_remove);
    tcase_add_test(thread, queries);
    tcase_add_test(thread, caller_is_left_alone);
    tcase_add_loop_test(thread, action_in_state, 0, COUNT(action_cases));
    tcase_add_loop_test(thread, deep_lock, 0, COUNT(deep_cases));
    tcase_add_test(thread, deep_lock_fails);
    tcase_add_test(thread, unlock_waits_for_restore);
    tcase_add_test(thread, timeout_arrives);
    tcase_add_loop_test(thread, action_fails, 0, COUNT(failure_cases));
    tcase_add_test(thread, busy);
    tcase_add_test(thread, two_actions_at_once);
    tcase_add_test(thread, peer_goes_away_during_action);
    tcase_add_test(thread, request_without_waiting);
    tcase_add_loop_test(thread, peer_sends_junk, 0, COUNT(junk));
    tcase_add_test(thread, peer_sends_too_much);
    tcase_add_test(thread, peer_sends_byte_by_byte);
    tcase_add_test(thread, peer_does_not_read);
    tcase_add_test(thread, too_many_peers);
    tcase_add_test(thread, many_quick_connections);
    tcase_add_test(thread, crowd_at_once);
    tcase_add_test(thread, permission);
    tcase_add_test(thread, stranger);
    tcase_add_test(thread, directory_is_checked);
    tcase_add_test(thread, next_directory_is_tried);
    tcase_add_test(thread, stale_file_is_replaced);
    tcase_add_test(thread, file_of_another_is_left);
    tcase_add_test(thread, program_closes_the_socket);
    tcase_add_test(thread, fork_leaves_nothing);
    tcase_add_test(thread, fork_without_handler);
    suite_add_tcase(suite, thread);

    if (getenv("CUDACKPT_CTL")) {
        program = tcase_create("tool");
        tcase_set_timeout(program, 30); /* longer than cudackpt-ctl waits for an answer */
        tcase_add_checked_fixture(program, folder_make, folder_remove);
        tcase_add_test(program, tool_actions);
        tcase_add_test(program, tool_status);
        tcase_add_test(program, tool_usage);
        tcase_add_test(program, tool_finds_nothing);
        tcase_add_test(program, tool_meets_an_impostor);
        tcase_add_test(program, tool_sees_the_end);
        tcase_add_test(program, tool_comes_again);
        tcase_add_test(program, tool_is_killed);
        suite_add_tcase(suite, program);
    } else {
        printf("CUDACKPT_CTL is not set: cudackpt-ctl itself is not tested\n");
    }
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
