/*
 * The gate under many threads, for ThreadSanitizer and for long runs:
 *   stress_gate [CLOSES] [SHORT-LIVED THREADS]     1000 and 10000 if not given
 * Threads that enter without pause, nest, pass, come and go, while the gate is closed and opened, with and
 * without a restart, and with time-outs. Checks that each close gets in within a second, that nobody is
 * inside of a closed gate, that what the closer writes is seen by those who enter, and that records don't
 * pile up. Exit status 0: all well.
 */
#include "gate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "driver_api.h"

#define THREADS     16
#define LIMIT_NS    1000000000ull
#define SHORT_BATCH 8

const char *driver_row_name(uint32_t row)
{
    return "an entry point";
}

static bool stop;                  /* atomic */
static uint32_t failures, resumes; /* atomic */
static uint32_t inside;            /* atomic: threads between enter and leave that do not pass */
static pthread_once_t set_up_flag = PTHREAD_ONCE_INIT;

/* Plain memory on purpose: only the gate orders the closer's writes and the readers inside. */
static uint64_t guarded[8];
static uint32_t set_ups;

static void do_set_up(void)
{
    set_ups++;
}

static void set_up(void)
{
    pthread_once(&set_up_flag, do_set_up);
}

static void thread_resumed(struct gate_thread *self)
{
    self->context_depth = 0;
    __atomic_fetch_add(&resumes, 1, __ATOMIC_RELAXED);
}

static void fail(const char *what)
{
    fprintf(stderr, "stress_gate: %s\n", what);
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void call_driver(uint32_t row)
{
    uint32_t outer = gate_enter(row), inner;
    uint64_t first;

    __atomic_fetch_add(&inside, 1, __ATOMIC_RELAXED);
    if (set_ups != 1)
        fail("entered before the set-up");
    first = guarded[0];
    gate_self->context_depth = row % GATE_STACK_DEPTH;
    for (size_t i = 1; i < sizeof(guarded) / sizeof(guarded[0]); i++)
        if (guarded[i] != first)
            fail("the closer wrote while a thread was inside");
    inner = gate_enter(row + 1);
    gate_leave(inner);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_RELAXED);
    gate_leave(outer);
}

static void *enter_without_pause(void *arg)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        call_driver((uint32_t)(uintptr_t)arg);
    return NULL;
}

static void *pass_now_and_then(void *arg)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        gate_pass_begin();
        gate_leave(gate_enter(30));
        gate_pass_end();
        call_driver(31);
        usleep(100);
    }
    return NULL;
}

static void *enter_once(void *arg)
{
    call_driver(40);
    return NULL;
}

static void *come_and_go(void *arg)
{
    uint32_t left = *(uint32_t *)arg;

    while (left) {
        pthread_t threads[SHORT_BATCH];
        uint32_t count = left < SHORT_BATCH ? left : SHORT_BATCH;

        for (uint32_t i = 0; i < count; i++)
            if (pthread_create(&threads[i], NULL, enter_once, NULL)) {
                fail("no thread");
                return NULL;
            }
        for (uint32_t i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
        left -= count;
    }
    return NULL;
}

static void count_thread(const struct gate_thread *thread, void *arg)
{
    ++*(uint32_t *)arg;
}

static void close_and_open(uint32_t round, uint64_t *longest)
{
    struct error err = {0};
    uint64_t begin = now_ns(), took;

    if (round % 10 == 9 && gate_close(begin, NULL, NULL, &err)) /* a deadline that has passed */
        return;
    if (round % 10 != 9 && gate_close(begin + LIMIT_NS, NULL, NULL, &err)) {
        fail(err.text);
        return;
    }
    took = now_ns() - begin;
    if (took > *longest)
        *longest = took;
    if (__atomic_load_n(&inside, __ATOMIC_RELAXED))
        fail("a thread is inside of the closed gate");
    for (size_t i = 0; i < sizeof(guarded) / sizeof(guarded[0]); i++)
        guarded[i] = round + 1;
    gate_open(round % 3 == 0);
}

int main(int argc, char **argv)
{
    static const struct gate_hooks hooks = {set_up, thread_resumed};
    uint32_t closes = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000;
    uint32_t short_lived = argc > 2 ? (uint32_t)atoi(argv[2]) : 10000, left = 0;
    pthread_t threads[THREADS], passing, coming;
    uint64_t longest = 0;

    gate_start(&hooks);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, enter_without_pause, (void *)i);
    pthread_create(&passing, NULL, pass_now_and_then, NULL);
    pthread_create(&coming, NULL, come_and_go, &short_lived);
    usleep(20000);
    for (uint32_t round = 0; round < closes; round++)
        close_and_open(round, &longest);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(passing, NULL);
    pthread_join(coming, NULL);

    gate_each_thread(count_thread, &left);
    if (left)
        fail("records of threads that ended are left");
    if (!resumes)
        fail("no thread noticed a restart");
    printf("stress_gate: %u closes, the longest took %.3f ms; %u threads came and went; %u failures\n",
           closes, (double)longest / 1e6, short_lived, failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
