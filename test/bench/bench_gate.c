/* What it costs to enter and leave the gate, against a bare call through a pointer: 1 thread and 8. */
#include "gate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver_api.h"
#include "thunk.h"

#define CALLS       20000000u
#define THREADS_MAX 8

/* As in the library, an entry point calls through a pointer, and nothing of it is known to the caller. */
static __attribute__((noinline, noclone)) int real_function(int a, int b)
{
    __asm__ volatile("");
    return a + b;
}

static int (*real)(int, int) = real_function;

static __attribute__((noinline, noclone)) int bare(int a, int b)
{
    return __atomic_load_n(&real, __ATOMIC_RELAXED)(a, b) + 1;
}

static __attribute__((noinline, noclone)) int gated(int a, int b)
{
    uint32_t outer = gate_enter(1);
    int result = __atomic_load_n(&real, __ATOMIC_RELAXED)(a, b);

    gate_leave(outer);
    return result;
}

static uint64_t thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* other programs on the machine don't count */
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

struct job {
    int (*function)(int, int);
    double ns;
};

static void *run_job(void *arg)
{
    struct job *job = arg;
    int (*volatile function)(int, int) = job->function;
    uint64_t begin;
    int sum = 0;

    gate_leave(gate_enter(1));
    begin = thread_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        sum = function(sum, 1);
    job->ns = (double)(thread_ns() - begin) / CALLS;
    __asm__ volatile("" ::"r"(sum));
    return NULL;
}

static double measure(int (*function)(int, int), int count)
{
    pthread_t threads[THREADS_MAX];
    struct job jobs[THREADS_MAX];
    double sum = 0;

    for (int i = 0; i < count; i++) {
        jobs[i] = (struct job){function, 0};
        pthread_create(&threads[i], NULL, run_job, &jobs[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += jobs[i].ns;
    }
    return sum / count;
}

int main(void)
{
    static const struct gate_hooks hooks;
    int (*thunk)(int, int);

    gate_start(&hooks);
    thunk = (int (*)(int, int))thunk_make((void *)real_function, "real_function");
    for (int count = 1; count <= THREADS_MAX; count *= THREADS_MAX) {
        double base = measure(bare, count);

        printf("%d thread%s: bare call %.2f ns, gated %+.2f ns, thunk %+.2f ns\n", count,
               count > 1 ? "s" : "", base, measure(gated, count) - base, measure(thunk, count) - base);
    }
    return EXIT_SUCCESS;
}
