/* The ledger's threads: the driver's own, which pass the gate and are ended when the driver is restarted. */
#include "ledger.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"
#include "ledger_internal.h"
#include "stack.h"
#include "restart.h"
#include "unsaveable.h"
#define LOG_PREFIX "ledger"
#include "log.h"

#define THREADS_MAX        1024
#define END_TIMEOUT_SECOND 10

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t threads[THREADS_MAX];
static size_t thread_count;

enum thread_role { ROLE_PROGRAM, ROLE_DRIVER, ROLE_OURS };
static __thread enum thread_role role __attribute__((tls_model("initial-exec")));

struct start {
    void *(*function)(void *);
    void *argument;
};

/*
 * The start arguments cross to the new thread in a page of its own: they can't lie on the creator's stack, and malloc
 * is the program's.
 */
static void *thread_main(void *argument)
{
    struct start start = *(struct start *)argument;

    munmap(argument, sizeof start);
    role = ROLE_DRIVER;
    gate_pass_begin();
    return start.function(start.argument);
}

int ledger_thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                         void *argument)
{
    struct start *start =
        mmap(NULL, sizeof *start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int result;

    if (start == MAP_FAILED)
        return EAGAIN;
    *start = (struct start){function, argument};
    pthread_mutex_lock(&lock);
    result = thread_count < THREADS_MAX ? pthread_create(thread, attributes, thread_main, start) : EAGAIN;
    if (result == 0)
        threads[thread_count++] = *thread;
    pthread_mutex_unlock(&lock);
    if (result)
        munmap(start, sizeof *start);
    return result;
}

int ledger_thread_join(pthread_t thread, void **result)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < thread_count; i++)
        if (pthread_equal(threads[i], thread)) {
            threads[i] = threads[--thread_count];
            break;
        }
    pthread_mutex_unlock(&lock);
    return pthread_join(thread, result);
}

void ledger_thread_works_for_driver(bool does)
{
    static __thread enum thread_role before __attribute__((tls_model("initial-exec")));

    if (does)
        before = role;
    role = does ? ROLE_OURS : before;
}

bool ledger_thread_is_program(void)
{
    return role == ROLE_PROGRAM;
}

void ledger_thread_is_ours(void)
{
    role = ROLE_OURS;
}

void ledger_check_caller(void)
{
    const struct gate_thread *self = gate_self;
    const char *name;
    void *address;

    if ((self && self->inside) || role != ROLE_PROGRAM)
        return;
    /* Walking the stack allocates nothing, but the note may: mark this thread first, so that it happens once. */
    role = ROLE_OURS;
    name = restart_caller(&address);
    unsaveable_note("%s called the driver without passing through libcudackpt.so", name ? name : "unknown code");
    role = ROLE_PROGRAM;
}

unsigned ledger_threads_count(void)
{
    return thread_count;
}

/*
 * pthread_cancel needs libgcc_s.so.1 for unwinding, and glibc aborts the process if it can't be loaded. It is loaded early:
 * at a suspend a thread may wait at the gate inside of dlopen, with the loader's lock.
 */
static void *unwinder;

static void *wait_for_cancel(void *unused)
{
    for (;;)
        pause();
    return NULL;
}

/* The first cancellation of a process loads the unwinder, not only dlopen: let it be that of a thread of our own. */
void ledger_prepare(void)
{
    sigset_t all, before;
    pthread_t thread;

    unwinder = dlopen("libgcc_s.so.1", RTLD_NOW);
    if (!unwinder)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, wait_for_cancel, NULL) == 0) {
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int cancel_possible(struct error *err)
{
    if (unwinder)
        return 0;
    error_set(err, ERROR_REFUSED, "libgcc_s.so.1 is needed to end the driver's threads; install it (libgcc-s1)");
    return -1;
}

int ledger_threads_end(struct error *err)
{
    struct timespec deadline;

    if (thread_count > 0 && cancel_possible(err))
        return -1;
    for (size_t i = 0; i < thread_count; i++)
        pthread_cancel(threads[i]);
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += END_TIMEOUT_SECOND;
    while (thread_count > 0) {
        int result = pthread_timedjoin_np(threads[thread_count - 1], NULL, &deadline);

        if (result) {
            error_set_errno(err, ERROR_REFUSED, result, "a thread of the driver does not end; try again");
            return -1;
        }
        thread_count--;
    }
    return 0;
}

void ledger_threads_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ledger_threads_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void ledger_threads_forget(void)
{
    thread_count = 0;
}
