/* The gate: entering, closing, time-outs, passing, restarts, threads that come and go, fork. */
#include "gate.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver_api.h"

#define NS_PER_MS 1000000ull

const char *driver_row_name(uint32_t row)
{
    static char names[64][16];

    if (row >= 64)
        return NULL;
    snprintf(names[row], sizeof(names[row]), "cuFunction%u", row);
    return names[row];
}

static uint32_t set_ups, resumes;
static pthread_once_t set_up_flag = PTHREAD_ONCE_INIT;

static void do_set_up(void)
{
    usleep(20000);
    __atomic_fetch_add(&set_ups, 1, __ATOMIC_SEQ_CST);
}

static void set_up(void)
{
    pthread_once(&set_up_flag, do_set_up);
}

static void resumed(struct gate_thread *self)
{
    ck_assert_ptr_eq(self, gate_self);
    ck_assert_uint_ne(self->inside, 0);
    __atomic_fetch_add(&resumes, 1, __ATOMIC_SEQ_CST);
}

const struct gate_hooks gate_default_hooks = {set_up, resumed};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint32_t load(uint32_t *value)
{
    return __atomic_load_n(value, __ATOMIC_SEQ_CST);
}

static void store(uint32_t *value, uint32_t to)
{
    __atomic_store_n(value, to, __ATOMIC_SEQ_CST);
}

/* Waits up to 2 s for a value. */
static bool becomes(uint32_t *value, uint32_t wanted)
{
    for (int i = 0; i < 2000; i++) {
        if (load(value) == wanted)
            return true;
        usleep(1000);
    }
    return false;
}

static void close_now(void)
{
    struct error err = {0};

    ck_assert_msg(gate_close(now_ns() + 2000 * NS_PER_MS, NULL, NULL, &err) == 0, "%s", err.text);
}

/* ---- one thread that does as it is told */

struct actor {
    pthread_t thread;
    uint32_t command, done; /* the number of the command to do, and of the last one done */
    enum { ENTER, LEAVE, NEST, PASS, UNPASS, VANISH, END } what;
    uint32_t outer, row;
    int errno_before, errno_after;
    pid_t tid;
    struct gate_thread *self;
};

static void *actor_run(void *arg)
{
    struct actor *actor = arg;
    uint32_t outer, next = 1;

    actor->tid = (pid_t)syscall(SYS_gettid);
    for (;; next++) {
        while (load(&actor->command) != next)
            usleep(200);
        errno = actor->errno_before;
        switch (actor->what) {
        case ENTER:
            actor->outer = gate_enter(actor->row);
            actor->self = gate_self;
            break;
        case LEAVE:
            gate_leave(actor->outer);
            break;
        case NEST:
            outer = gate_enter(actor->row + 1);
            gate_leave(outer);
            break;
        case PASS:
            gate_pass_begin();
            break;
        case UNPASS:
            gate_pass_end();
            break;
        case VANISH: /* without the destructors of thread-specific data */
            syscall(SYS_exit, 0);
            break;
        case END:
            store(&actor->done, next);
            return NULL;
        }
        actor->errno_after = errno;
        store(&actor->done, next);
    }
}

static void actor_start(struct actor *actor)
{
    memset(actor, 0, sizeof(*actor));
    ck_assert_int_eq(pthread_create(&actor->thread, NULL, actor_run, actor), 0);
}

static void actor_tell(struct actor *actor, int what)
{
    actor->what = what;
    actor->errno_before = 77;
    store(&actor->command, actor->command + 1);
}

static bool actor_did(struct actor *actor)
{
    return becomes(&actor->done, actor->command);
}

static void actor_do(struct actor *actor, int what)
{
    actor_tell(actor, what);
    ck_assert(actor_did(actor));
    ck_assert_int_eq(actor->errno_after, 77);
}

static void actor_end(struct actor *actor)
{
    actor_tell(actor, END);
    pthread_join(actor->thread, NULL);
}

static void count_thread(const struct gate_thread *thread, void *arg)
{
    ck_assert_int_ne(thread->tid, 0);
    ++*(uint32_t *)arg;
}

static uint32_t registered(void)
{
    uint32_t count = 0;

    gate_each_thread(count_thread, &count);
    return count;
}

/* ---- entering */

START_TEST(entering_marks_and_sets_up)
{
    uint32_t outer, inner;

    errno = 77;
    outer = gate_enter(5); /* gate_start was not called: the default hooks */
    ck_assert_int_eq(errno, 77);
    ck_assert_uint_eq(set_ups, 1);
    ck_assert_uint_eq(outer, 0);
    ck_assert_uint_eq(gate_self->inside, 6);
    ck_assert_int_eq(gate_self->tid, getpid());
    ck_assert_uint_eq(gate_self->word, gate_word);

    inner = gate_enter(9);
    ck_assert_uint_eq(inner, 6);
    ck_assert_uint_eq(gate_self->inside, 10);
    gate_leave(inner);
    ck_assert_uint_eq(gate_self->inside, 6);
    gate_leave(outer);
    ck_assert_uint_eq(gate_self->inside, 0);
    ck_assert_ptr_eq(gate_thread_self(), gate_self);
    ck_assert_uint_eq(registered(), 1);
    ck_assert_uint_eq(resumes, 0);
}
END_TEST

static void *enter_and_see_set_up(void *arg)
{
    uint32_t outer = gate_enter(1);

    *(uint32_t *)arg = load(&set_ups);
    gate_leave(outer);
    return NULL;
}

START_TEST(nobody_enters_before_the_set_up_is_done)
{
    pthread_t threads[8];
    uint32_t seen[8];

    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, enter_and_see_set_up, &seen[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(seen[i], 1);
    }
}
END_TEST

/* ---- closing */

static void on_signal(int number)
{
}

START_TEST(a_closed_gate_holds_threads_until_it_opens)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: the wait gets EINTR */
    struct actor actor;
    uint64_t word;

    sigaction(SIGUSR1, &action, NULL);
    actor_start(&actor);
    actor_do(&actor, ENTER);
    actor_do(&actor, LEAVE);
    word = gate_word;

    close_now();
    ck_assert(gate_is_closed());
    actor_tell(&actor, ENTER);
    while (!__atomic_load_n(&actor.self->waiting, __ATOMIC_SEQ_CST))
        usleep(100);
    for (int i = 0; i < 50; i++) {
        pthread_kill(actor.thread, SIGUSR1);
        usleep(500);
    }
    ck_assert_uint_ne(load(&actor.done), actor.command);
    ck_assert_uint_eq(load(&actor.self->inside), 0);

    gate_open(false);
    ck_assert(actor_did(&actor));
    ck_assert_int_eq(actor.errno_after, 77);
    ck_assert_uint_eq(gate_word, word);
    ck_assert_uint_eq(resumes, 0);
    actor_do(&actor, LEAVE);
    actor_end(&actor);
}
END_TEST

static void *close_in_thread(void *arg)
{
    struct error err = {0};

    if (gate_close(0, NULL, NULL, &err) == 0)
        store(arg, 1);
    return NULL;
}

START_TEST(closing_waits_for_those_inside)
{
    struct actor actor;
    pthread_t closer;
    uint32_t closed = 0;

    actor_start(&actor);
    actor_do(&actor, ENTER);
    pthread_create(&closer, NULL, close_in_thread, &closed);
    usleep(50000);
    ck_assert_uint_eq(load(&closed), 0);
    actor_do(&actor, NEST); /* nested calls don't wait, else nobody would ever leave */
    ck_assert_uint_eq(load(&closed), 0);
    actor_do(&actor, LEAVE);
    ck_assert(becomes(&closed, 1));
    pthread_join(closer, NULL);
    gate_open(false);
    actor_end(&actor);
}
END_TEST

START_TEST(the_caller_of_close_may_be_inside)
{
    uint32_t outer = gate_enter(3);

    close_now();
    gate_open(false);
    gate_leave(outer);
}
END_TEST

START_TEST(closing_twice_is_refused)
{
    struct error err = {0};

    gate_start(&gate_default_hooks);
    close_now();
    ck_assert_int_eq(gate_close(0, NULL, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_STATE);
    ck_assert(gate_is_closed());
    gate_open(false);
}
END_TEST

START_TEST(a_time_out_leaves_all_as_before)
{
    struct actor actors[6], outside;
    struct error err = {0};
    uint64_t word, before;
    char text[64];

    for (int i = 0; i < 6; i++) {
        actor_start(&actors[i]);
        actors[i].row = (uint32_t)i;
        actor_do(&actors[i], ENTER);
    }
    actor_start(&outside);
    actor_do(&outside, ENTER);
    actor_do(&outside, LEAVE);
    word = gate_word;
    before = now_ns();
    ck_assert_int_eq(gate_close(before + 100 * NS_PER_MS, NULL, NULL, &err), -1);
    ck_assert_uint_ge(now_ns() - before, 100 * NS_PER_MS);
    ck_assert_uint_le(now_ns() - before, 1000 * NS_PER_MS);

    ck_assert_int_eq(err.code, ERROR_TIMEOUT);
    ck_assert_msg(strstr(err.text, "6 threads") != NULL, "%s", err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "and others"));
    ck_assert_ptr_nonnull(strstr(err.text, "check_gate"));
    for (int i = 0, named = 0; i < 6; i++) {
        snprintf(text, sizeof(text), "thread %d (", actors[i].tid);
        named += strstr(err.text, text) != NULL;
        ck_assert(i < 5 || named == 4);
    }
    ck_assert_ptr_nonnull(strstr(err.text, "cuFunction"));

    ck_assert(!gate_is_closed());
    ck_assert_uint_eq(gate_word, word);
    actor_do(&outside, ENTER);
    actor_do(&outside, LEAVE);
    for (int i = 0; i < 6; i++) {
        actor_do(&actors[i], LEAVE);
        actor_end(&actors[i]);
    }
    actor_end(&outside);
    close_now();
    gate_open(false);
}
END_TEST

START_TEST(a_time_out_wakes_those_who_came_meanwhile)
{
    struct actor inside, late;
    pthread_t closer;
    struct error err = {0};
    uint32_t closed = 0;

    actor_start(&inside);
    actor_start(&late);
    actor_do(&inside, ENTER);
    pthread_create(&closer, NULL, close_in_thread, &closed); /* so that late finds it closed */
    while (!gate_is_closed())
        usleep(100);
    actor_tell(&late, ENTER);
    usleep(20000);
    ck_assert_uint_ne(load(&late.done), late.command);
    actor_do(&inside, LEAVE);
    ck_assert(becomes(&closed, 1));
    pthread_join(closer, NULL);
    gate_open(false);
    ck_assert(actor_did(&late));

    ck_assert_int_eq(gate_close(now_ns() + 10 * NS_PER_MS, NULL, NULL, &err), -1);
    actor_do(&inside, ENTER);
    actor_do(&inside, LEAVE);
    actor_do(&late, LEAVE);
    actor_end(&late);
    actor_end(&inside);
}
END_TEST

static int tick(void *arg, struct error *err)
{
    if (++*(uint32_t *)arg < 20)
        return 0;
    error_set(err, ERROR_REFUSED, "ticked");
    return -1;
}

START_TEST(tick_can_end_the_wait)
{
    struct actor actor;
    struct error err = {0};
    uint32_t ticks = 0;
    uint64_t before = now_ns();

    actor_start(&actor);
    actor_do(&actor, ENTER);
    ck_assert_int_eq(gate_close(0, tick, &ticks, &err), -1);
    ck_assert_uint_eq(ticks, 20);
    ck_assert_uint_ge(now_ns() - before, 19 * NS_PER_MS);
    ck_assert_int_eq(err.code, ERROR_REFUSED);
    ck_assert_str_eq(err.text, "ticked");
    ck_assert(!gate_is_closed());
    actor_do(&actor, LEAVE);
    actor_end(&actor);
}
END_TEST

START_TEST(some_threads_pass)
{
    struct actor driver_thread, other;

    actor_start(&driver_thread);
    actor_start(&other);
    actor_do(&driver_thread, PASS);
    actor_do(&driver_thread, PASS);
    actor_do(&driver_thread, ENTER);
    close_now(); /* does not wait for a thread that passes */
    actor_do(&driver_thread, LEAVE);
    actor_do(&driver_thread, ENTER);
    actor_do(&driver_thread, LEAVE);
    actor_do(&driver_thread, UNPASS);
    actor_do(&driver_thread, ENTER);
    actor_do(&driver_thread, LEAVE);
    actor_do(&driver_thread, UNPASS);
    actor_tell(&driver_thread, ENTER);
    usleep(20000);
    ck_assert_uint_ne(load(&driver_thread.done), driver_thread.command);
    gate_open(false);
    ck_assert(actor_did(&driver_thread));
    actor_do(&driver_thread, LEAVE);
    actor_end(&driver_thread);
    actor_end(&other);
}
END_TEST

START_TEST(after_a_restart_each_thread_is_resumed_once)
{
    struct actor old, fresh;
    uint64_t generation;

    actor_start(&old);
    actor_start(&fresh);
    actor_do(&old, ENTER);
    actor_do(&old, LEAVE);
    generation = gate_generation();
    close_now();
    gate_open(true);
    ck_assert_uint_eq(gate_generation(), generation + 1);
    ck_assert(!gate_is_closed());
    ck_assert_uint_eq(load(&resumes), 0); /* lazily */

    actor_do(&old, ENTER);
    ck_assert_uint_eq(load(&resumes), 1);
    actor_do(&old, LEAVE);
    actor_do(&old, ENTER);
    actor_do(&old, LEAVE);
    ck_assert_uint_eq(load(&resumes), 1);

    actor_do(&fresh, ENTER); /* has nothing that the restart could have taken */
    actor_do(&fresh, LEAVE);
    ck_assert_uint_eq(load(&resumes), 1);

    close_now();
    gate_open(true);
    close_now();
    gate_open(true);
    actor_do(&old, ENTER);
    actor_do(&old, LEAVE);
    ck_assert_uint_eq(load(&resumes), 2);
    actor_end(&old);
    actor_end(&fresh);
}
END_TEST

/* ---- under load */

#define BUSY_THREADS 16

static uint32_t busy_stop;
static struct {
    uint32_t in;
    uint64_t calls;
} __attribute__((aligned(64))) busy[BUSY_THREADS];

static void *enter_without_pause(void *arg)
{
    uint32_t mine = (uint32_t)(uintptr_t)arg;

    while (!load(&busy_stop)) {
        uint32_t outer = gate_enter(mine), inner;

        __atomic_store_n(&busy[mine].in, 1, __ATOMIC_RELAXED);
        inner = gate_enter(mine);
        __atomic_store_n(&busy[mine].calls, busy[mine].calls + 1, __ATOMIC_RELAXED);
        gate_leave(inner);
        __atomic_store_n(&busy[mine].in, 0, __ATOMIC_RELAXED);
        gate_leave(outer);
    }
    return NULL;
}

/* Closes `rounds` times, each within 1 s; nobody may be inside, or get in, while it is closed. */
static void close_under_load(int rounds)
{
    pthread_t threads[BUSY_THREADS];
    uint64_t calls[BUSY_THREADS];

    for (uintptr_t i = 0; i < BUSY_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, enter_without_pause, (void *)i), 0);
    usleep(50000);
    for (int round = 0; round < rounds; round++) {
        struct error err = {0};

        ck_assert_msg(gate_close(now_ns() + 1000 * NS_PER_MS, NULL, NULL, &err) == 0, "round %d: %s", round,
                      err.text);
        for (int i = 0; i < BUSY_THREADS; i++) {
            ck_assert_uint_eq(__atomic_load_n(&busy[i].in, __ATOMIC_RELAXED), 0);
            calls[i] = __atomic_load_n(&busy[i].calls, __ATOMIC_RELAXED);
        }
        if (round % 50 == 0)
            usleep(1000);
        for (int i = 0; i < BUSY_THREADS; i++)
            ck_assert_uint_eq(__atomic_load_n(&busy[i].calls, __ATOMIC_RELAXED), calls[i]);
        gate_open(round % 3 == 0);
    }
    for (int i = 0; i < BUSY_THREADS; i++) { /* no wake-up was lost: each gets on */
        uint64_t deadline = now_ns() + 2000 * NS_PER_MS;

        while (__atomic_load_n(&busy[i].calls, __ATOMIC_RELAXED) == calls[i] && now_ns() < deadline)
            usleep(500);
        ck_assert_uint_gt(__atomic_load_n(&busy[i].calls, __ATOMIC_RELAXED), calls[i]);
    }
    store(&busy_stop, 1);
    for (int i = 0; i < BUSY_THREADS; i++)
        pthread_join(threads[i], NULL);
}

START_TEST(threads_without_pause_do_not_keep_the_closer_out)
{
    close_under_load(25); /* test/stress_gate.c does it 1000 times */
}
END_TEST

/* ---- kernels and sandboxes without membarrier */

/*
 * From now on the calling thread (and those that it starts) gets an error from the system call if argument
 * `which` is value.
 */
static void forbid_where(int call, int which, uint32_t value, int number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args) + (which < 0 ? 0 : 8 * (uint32_t)which)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, which < 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)number),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void forbid(int call, int number)
{
    forbid_where(call, -1, 0, number);
}

START_TEST(it_works_without_membarrier)
{
    forbid(SYS_membarrier, ENOSYS);
    close_under_load(8);
    gate_leave(gate_enter(1));
    ck_assert_uint_eq(gate_self->word, 0); /* every entry takes the slow path, where the fence is */
}
END_TEST

START_TEST(it_works_with_the_global_membarrier)
{
    forbid_where(SYS_membarrier, 0, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, EINVAL);
    close_under_load(5);
    gate_leave(gate_enter(1));
    ck_assert_uint_eq(gate_self->word, gate_word);
}
END_TEST

START_TEST(a_membarrier_that_goes_away_is_an_error)
{
    struct error err = {0};

    gate_leave(gate_enter(1));
    forbid(SYS_membarrier, EPERM);
    ck_assert_int_eq(gate_close(0, NULL, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.text, "membarrier"));
    ck_assert(!gate_is_closed());
}
END_TEST

/* ---- threads that come and go */

static void *enter_once(void *arg)
{
    gate_leave(gate_enter(1));
    return NULL;
}

static size_t mapped_pages(void)
{
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(statm);
    ck_assert_int_eq(fscanf(statm, "%zu", &pages), 1);
    fclose(statm);
    return pages;
}

#define SHORT_LIVED 1000 /* test/stress_gate.c has more */

START_TEST(short_lived_threads_leave_nothing)
{
    size_t before = 0;

    for (int i = 0; i < SHORT_LIVED; i++) {
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, enter_once, NULL), 0);
        pthread_join(thread, NULL);
        if (i == SHORT_LIVED / 4)
            before = mapped_pages();
    }
    ck_assert_uint_eq(registered(), 0);
    ck_assert_uint_le(mapped_pages(), before + SHORT_LIVED / 2 * sizeof(struct gate_thread) / 4096);
}
END_TEST

static pthread_key_t late_key;

static void enter_late(void *value)
{
    uintptr_t left = (uintptr_t)value - 1;

    gate_leave(gate_enter(2));
    if (left)
        pthread_setspecific(late_key, (void *)left);
}

static void *enter_in_destructors(void *arg)
{
    gate_leave(gate_enter(1));
    pthread_setspecific(late_key, (void *)PTHREAD_DESTRUCTOR_ITERATIONS);
    return NULL;
}

START_TEST(destructors_may_call_the_driver)
{
    gate_start(&gate_default_hooks);
    ck_assert_int_eq(pthread_key_create(&late_key, enter_late), 0); /* runs after the gate's in each round */
    for (int i = 0; i < 200; i++) {
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, enter_in_destructors, NULL), 0);
        pthread_join(thread, NULL);
    }
    /* The last round's registration is nobody's; they are swept up as new threads come. */
    ck_assert_uint_le(registered(), 64);
    close_now();
    gate_open(false);
}
END_TEST

START_TEST(a_thread_that_vanished_inside_does_not_block)
{
    struct actor actor;

    actor_start(&actor);
    actor_do(&actor, ENTER);
    actor_tell(&actor, VANISH);
    pthread_join(actor.thread, NULL);
    ck_assert_uint_eq(registered(), 1);
    close_now();
    ck_assert_uint_eq(registered(), 0);
    gate_open(false);
}
END_TEST

static void *enter_without_memory(void *arg)
{
    uint32_t outer, *step = arg;

    forbid_where(SYS_mmap, 1, 64 << 10, ENOMEM); /* of this thread only: what the gate takes at a time */
    outer = gate_enter(4);
    ck_assert_ptr_nonnull(gate_thread_self());
    gate_leave(outer);
    outer = gate_enter(5);
    gate_leave(outer);
    store(step, 1);
    return NULL;
}

START_TEST(without_memory_calls_work_and_closing_is_refused)
{
    struct error err = {0};
    uint32_t step = 0;
    pthread_t thread;

    gate_start(&gate_default_hooks);
    set_up(); /* the thread itself can't */
    pthread_create(&thread, NULL, enter_without_memory, &step);
    ck_assert(becomes(&step, 1));
    ck_assert_int_eq(gate_close(0, NULL, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_MEMORY);
    ck_assert(!gate_is_closed());
    pthread_join(thread, NULL);
}
END_TEST

/* ---- fork */

/* The child's checks; which one failed is its exit status. */
static int child_checks(uint64_t generation)
{
    struct error err = {0};

    if (gate_is_closed())
        return 1;
    if (gate_generation() != generation)
        return 2;
    if (registered() != 1 || gate_self->tid != getpid())
        return 3;
    if (gate_self->context_depth || gate_self->inside)
        return 4;
    gate_leave(gate_enter(1));
    if (load(&resumes))
        return 5;
    if (gate_close(now_ns() + 1000 * NS_PER_MS, NULL, NULL, &err))
        return 6;
    gate_open(false);
    if (load(&set_ups) != 1)
        return 7;
    return 0;
}

START_TEST(a_forked_child_is_alone_and_free)
{
    struct actor inside, waiting;
    uint64_t generation;
    int status;
    pid_t pid;

    gate_leave(gate_enter(1));
    gate_thread_self()->context_depth = 3;
    actor_start(&inside);
    actor_start(&waiting);
    close_now();
    gate_open(true);
    gate_leave(gate_enter(1));
    store(&resumes, 0);
    generation = gate_generation();
    actor_do(&inside, PASS);
    actor_do(&inside, ENTER);
    close_now();
    actor_tell(&waiting, ENTER);
    usleep(5000);

    gate_before_fork();
    pid = fork();
    if (!pid) {
        gate_after_fork_in_child();
        _exit(child_checks(generation));
    }
    gate_after_fork_in_parent();
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);

    ck_assert(gate_is_closed());
    ck_assert_uint_eq(gate_self->context_depth, 3);
    gate_open(false);
    ck_assert(actor_did(&waiting));
    actor_do(&waiting, LEAVE);
    actor_do(&inside, LEAVE);
    actor_end(&waiting);
    actor_end(&inside);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gate");
    TCase *tcase = tcase_create("gate");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, entering_marks_and_sets_up);
    tcase_add_test(tcase, nobody_enters_before_the_set_up_is_done);
    tcase_add_test(tcase, a_closed_gate_holds_threads_until_it_opens);
    tcase_add_test(tcase, closing_waits_for_those_inside);
    tcase_add_test(tcase, the_caller_of_close_may_be_inside);
    tcase_add_test(tcase, closing_twice_is_refused);
    tcase_add_test(tcase, a_time_out_leaves_all_as_before);
    tcase_add_test(tcase, a_time_out_wakes_those_who_came_meanwhile);
    tcase_add_test(tcase, tick_can_end_the_wait);
    tcase_add_test(tcase, some_threads_pass);
    tcase_add_test(tcase, after_a_restart_each_thread_is_resumed_once);
    tcase_add_test(tcase, threads_without_pause_do_not_keep_the_closer_out);
    tcase_add_test(tcase, it_works_without_membarrier);
    tcase_add_test(tcase, it_works_with_the_global_membarrier);
    tcase_add_test(tcase, a_membarrier_that_goes_away_is_an_error);
    tcase_add_test(tcase, short_lived_threads_leave_nothing);
    tcase_add_test(tcase, destructors_may_call_the_driver);
    tcase_add_test(tcase, a_thread_that_vanished_inside_does_not_block);
    tcase_add_test(tcase, without_memory_calls_work_and_closing_is_refused);
    tcase_add_test(tcase, a_forked_child_is_alone_and_free);
    tcase_set_timeout(tcase, 20);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
