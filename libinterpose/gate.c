#include "gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver_api.h"
#include "stack.h"

/*
 * Why no other thread is inside while the gate is closed. Entering and closing are the two halves of Dekker's
 * algorithm:
 *
 *     thread                                closer
 *     E1  inside = row + 1                  C1  gate_word = closed
 *     E2  load gate_word                    C2  membarrier
 *     E3  open: go in                       C3  load inside of every thread; not 0: C3 again
 *         closed: inside = 0, wait, E1
 *
 * E1 and E2 have no fence between them, so that the processor may perform E2 first. C2 makes every running
 * thread of the process execute a full fence at some point between C1 and C3 (a thread that does not run had
 * one when it was switched away). If that point lies before E2, E2 sees C1 and the thread waits. If it lies
 * after E2, then also after E1, so C3 sees the mark and waits for the thread to leave. There is no third
 * place. The same holds for a thread that registers: it is linked into the registry under registry_lock
 * before E1, and C3 reads the registry under that lock; a thread linked after C3 took the lock has C1 before
 * its E2, through the lock.
 *
 * Why no wake-up is lost. A waiter sleeps with FUTEX_WAIT on the low half of gate_word, where the closed bit
 * is, and only while it holds the value that the waiter saw closed. gate_open changes the word first and
 * wakes then: a waiter that comes to sleep after the change is refused by the kernel's compare, one that
 * slept before it is woken. If the gate was opened and closed again in between without a restart, the word is
 * the same and sleeping on is right: the next gate_open wakes it.
 *
 * Why threads that enter without pause don't keep the closer out: from C2 on each may finish the call that it
 * is in, and its next E2 sees the gate closed. A waiter marks itself again only after it saw the word open.
 *
 * Without MEMBARRIER_CMD_PRIVATE_EXPEDITED the closer uses MEMBARRIER_CMD_GLOBAL (slow, needs no
 * registration). Without that either, gate_thread.word is never set, so that every entry takes the slow path,
 * which has a real fence between E1 and E2.
 */

#define WORD_CLOSED     1ull
#define WORD_GENERATION 2ull /* generation 1 */

#define SLAB_SIZE    (64 << 10)
#define NS_PER_MS    1000000ull
#define POLL_MIN_NS  20000ull
#define POLL_MAX_NS  NS_PER_MS
#define INSIDE_NAMED 4 /* threads that a time-out names */

enum barrier { BARRIER_EXPEDITED, BARRIER_GLOBAL, BARRIER_FENCES };

uint64_t gate_word __attribute__((aligned(64))) = WORD_GENERATION;
__thread struct gate_thread *gate_self;

/*
 * registry_lock covers the list of records, their tid, and gate_start. Nothing is called under it but system
 * calls.
 */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate_thread *registry, *free_records;
static uint32_t used_records, sweep_at = 64;

/*
 * For threads without a record: its mark is never taken back, so that the gate can't close on a thread it
 * can't see.
 */
static struct gate_thread shared_record;
static bool shared_used; /* atomic */

static const struct gate_hooks *hooks; /* atomic; set once */
static enum barrier barrier;
static pthread_key_t exit_key;
static bool exit_key_made;

_Static_assert(offsetof(struct gate_thread, inside) == 0, "the assembly leaves through offset 0");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the closed bit is in the first half of gate_word");

static pid_t thread_id(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- records */

/* Under registry_lock. */
static void record_release(struct gate_thread *record)
{
    record->tid = 0;
    record->word = 0;
    record->context_depth = 0;
    __atomic_store_n(&record->passes, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&record->waiting, false, __ATOMIC_RELAXED);
    __atomic_store_n(&record->inside, 0, __ATOMIC_RELEASE);
    record->next_free = free_records;
    free_records = record;
    used_records--;
}

static bool thread_is_gone(pid_t tid)
{
    return syscall(SYS_tgkill, getpid(), tid, 0) < 0 && errno == ESRCH;
}

/*
 * Under registry_lock. A thread can end without its key destructor: by a bare exit system call, or when a
 * destructor of the last round called the driver once more.
 */
static void records_sweep(void)
{
    for (struct gate_thread *record = registry; record; record = record->next)
        if (record->tid && record != gate_self && thread_is_gone(record->tid))
            record_release(record);
    sweep_at = used_records * 2 > 64 ? used_records * 2 : 64;
}

/* Under registry_lock. Records come from mmap: the program's malloc may call the driver itself. */
static bool records_add(void)
{
    struct gate_thread *slab =
        mmap(NULL, SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (slab == MAP_FAILED)
        return false;
    for (size_t i = SLAB_SIZE / sizeof(*slab); i-- > 0;) {
        slab[i].next = registry;
        registry = &slab[i];
        slab[i].next_free = free_records;
        free_records = &slab[i];
    }
    return true;
}

static struct gate_thread *thread_register(void)
{
    struct gate_thread *record = NULL;

    pthread_mutex_lock(&registry_lock);
    if (used_records >= sweep_at)
        records_sweep();
    if (free_records || records_add()) {
        record = free_records;
        free_records = record->next_free;
        used_records++;
        record->tid = thread_id();
        /* A new thread has no contexts that a restart could have taken away. */
        record->generation = gate_generation();
    }
    pthread_mutex_unlock(&registry_lock);

    if (!record) {
        record = &shared_record;
        __atomic_store_n(&record->inside, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&shared_used, true, __ATOMIC_SEQ_CST);
    }
    /* Before pthread_setspecific: that may call the program's calloc, and that the driver. */
    gate_self = record;
    if (record != &shared_record && exit_key_made)
        pthread_setspecific(exit_key, record);
    return record;
}

/*
 * Key destructor. If a later destructor of the thread calls the driver, the thread is registered once more.
 */
static void thread_exit(void *record)
{
    gate_self = NULL;
    pthread_mutex_lock(&registry_lock);
    record_release(record);
    pthread_mutex_unlock(&registry_lock);
}

/* ---- entering */

/* E1 with the fence: sequentially consistent, as are the load of gate_word after it, C1 and C3. */
static void mark_inside(struct gate_thread *self, uint32_t row)
{
    __atomic_store_n(&self->inside, row + 1, __ATOMIC_SEQ_CST);
}

/* The shared record keeps its mark. */
static void mark_outside(struct gate_thread *self)
{
    if (self != &shared_record)
        __atomic_store_n(&self->inside, 0, __ATOMIC_RELEASE);
}

static bool passes(const struct gate_thread *self)
{
    return __atomic_load_n(&self->passes, __ATOMIC_RELAXED) != 0;
}

/* Sleeps until gate_word may differ from the given closed one; the thread is outside meanwhile. */
static void wait_outside(struct gate_thread *self, uint64_t word)
{
    mark_outside(self);
    __atomic_store_n(&self->waiting, true, __ATOMIC_RELAXED);
    /* Any return (a signal, a value that changed) only means: look again. */
    syscall(SYS_futex, &gate_word, FUTEX_WAIT_PRIVATE, (uint32_t)word, NULL, NULL, 0);
    __atomic_store_n(&self->waiting, false, __ATOMIC_RELAXED);
}

static const struct gate_hooks *hooks_active(void)
{
    const struct gate_hooks *active = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);

    if (!active && &gate_default_hooks) {
        gate_start(&gate_default_hooks);
        active = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);
    }
    return active;
}

void gate_enter_slow(uint32_t row)
{
    int saved_errno = errno;
    const struct gate_hooks *active = hooks_active();
    struct gate_thread *self = gate_self ? gate_self : thread_register();
    uint64_t word;

    mark_inside(self, row);
    if (active && active->set_up)
        active->set_up();

    for (;;) {
        mark_inside(self, row);
        word = __atomic_load_n(&gate_word, __ATOMIC_SEQ_CST);
        if (!(word & WORD_CLOSED) || passes(self))
            break;
        do {
            wait_outside(self, word);
            word = __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE);
        } while (word & WORD_CLOSED);
    }

    if (!(word & WORD_CLOSED) && active && self != &shared_record) {
        if (self->generation != word >> 1) {
            self->generation = word >> 1;
            if (active->thread_resumed)
                active->thread_resumed(self);
        }
        /* Where nothing but the fence above orders E1 and E2, every entry must come here. */
        if (barrier != BARRIER_FENCES)
            self->word = word;
    }
    errno = saved_errno;
}

struct gate_thread *gate_thread_self(void)
{
    int saved_errno;

    if (!gate_self) {
        saved_errno = errno;
        hooks_active(); /* makes the key with which the registration ends */
        thread_register();
        errno = saved_errno;
    }
    return gate_self;
}

void gate_pass_begin(void)
{
    struct gate_thread *self = gate_thread_self();

    __atomic_store_n(&self->passes, self->passes + 1, __ATOMIC_RELAXED);
}

void gate_pass_end(void)
{
    struct gate_thread *self = gate_thread_self();

    if (self->passes)
        __atomic_store_n(&self->passes, self->passes - 1, __ATOMIC_RELAXED);
}

/* ---- closing */

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

static enum barrier barrier_choose(void)
{
    int commands = membarrier(MEMBARRIER_CMD_QUERY);

    if (commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED &&
        !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
        return BARRIER_EXPEDITED;
    if (commands > 0 && commands & MEMBARRIER_CMD_GLOBAL && !membarrier(MEMBARRIER_CMD_GLOBAL))
        return BARRIER_GLOBAL;
    return BARRIER_FENCES;
}

void gate_start(const struct gate_hooks *start_hooks)
{
    int saved_errno = errno;

    pthread_mutex_lock(&registry_lock);
    if (!hooks) {
        barrier = barrier_choose();
        exit_key_made = !pthread_key_create(&exit_key, thread_exit);
        __atomic_store_n(&hooks, start_hooks, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&registry_lock);
    errno = saved_errno;
}

/* Step C2 above. */
static int barrier_all_threads(void)
{
    switch (barrier) {
    case BARRIER_EXPEDITED:
        if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
            return 0;
        /* A process that CRIU restored may have lost its registration. */
        if (errno == EPERM && !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
            !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
            return 0;
        return membarrier(MEMBARRIER_CMD_GLOBAL);
    case BARRIER_GLOBAL:
        return membarrier(MEMBARRIER_CMD_GLOBAL);
    case BARRIER_FENCES:
        break;
    }
    return 0;
}

struct inside_note {
    pid_t tid;
    uint32_t row;
    const void *caller;
};

/*
 * Step C3: how many other threads are inside; the first few are noted. reap: ask the kernel whether they
 * live.
 */
static uint32_t count_inside(struct inside_note notes[INSIDE_NAMED], bool reap)
{
    uint32_t count = 0;

    pthread_mutex_lock(&registry_lock);
    for (struct gate_thread *record = registry; record; record = record->next) {
        uint32_t inside = __atomic_load_n(&record->inside, __ATOMIC_SEQ_CST);

        if (!inside || record == gate_self || passes(record))
            continue;
        if (reap && thread_is_gone(record->tid)) {
            record_release(record);
            continue;
        }
        if (count < INSIDE_NAMED)
            notes[count] = (struct inside_note){record->tid, inside - 1,
                                                __atomic_load_n(&record->caller, __ATOMIC_RELAXED)};
        count++;
    }
    pthread_mutex_unlock(&registry_lock);
    return count;
}

static void open_with(uint64_t word)
{
    __atomic_store_n(&gate_word, word, __ATOMIC_RELEASE);
    syscall(SYS_futex, &gate_word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/*
 * After the gate is open again: naming functions takes the dynamic linker's lock, which a waiter may have
 * held.
 */
static void error_set_inside(struct error *err, const struct inside_note *notes, uint32_t count)
{
    char text[sizeof(err->text) - 160], doing[120], caller[100];
    size_t used = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < count && i < INSIDE_NAMED && used < sizeof(text); i++) {
        const char *name = driver_row_name(notes[i].row);

        stack_symbol(notes[i].caller, caller, sizeof(caller));
        stack_of_thread(notes[i].tid, doing, sizeof(doing));
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s thread %d%s%s%s is in %s%s%s",
                                 i ? ";" : "", (int)notes[i].tid, doing[0] ? " (" : "", doing,
                                 doing[0] ? ")" : "", name ? name : "an unknown entry point",
                                 caller[0] ? ", called by " : "", caller);
    }
    error_set(
        err, ERROR_TIMEOUT,
        "%u threads did not leave the driver in time, the program runs on (a longer time-out may help):%s%s",
        count, text, count > INSIDE_NAMED ? "; and others" : "");
}

/* Waits until the others are out. -1: the deadline passed, or tick said so (err is set then). */
static int wait_until_empty(uint64_t deadline, int (*tick)(void *arg, struct error *err), void *arg,
                            struct inside_note notes[INSIDE_NAMED], uint32_t *count, struct error *err)
{
    uint64_t pause = POLL_MIN_NS, next_tick = now_ns() + NS_PER_MS;

    while ((*count = count_inside(notes, pause >= POLL_MAX_NS)) != 0) {
        struct timespec sleep = {0, (long)pause};
        uint64_t now = now_ns();

        if (deadline && now >= deadline)
            return -1;
        if (tick && now >= next_tick) {
            if (tick(arg, err))
                return -1;
            next_tick = now + NS_PER_MS;
        }
        /* Leaving is a plain store that wakes nobody, so the closer looks again and again. */
        clock_nanosleep(CLOCK_MONOTONIC, 0, &sleep, NULL);
        pause = pause * 2 < POLL_MAX_NS ? pause * 2 : POLL_MAX_NS;
    }
    return 0;
}

int gate_close(uint64_t deadline, int (*tick)(void *arg, struct error *err), void *arg, struct error *err)
{
    uint64_t open_word = __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE);
    struct inside_note notes[INSIDE_NAMED];
    uint32_t count = 0;

    if (open_word & WORD_CLOSED) {
        error_set(err, ERROR_STATE, "the gate is closed already");
        return -1;
    }
    __atomic_store_n(&gate_word, open_word | WORD_CLOSED, __ATOMIC_SEQ_CST);
    if (barrier_all_threads() < 0) {
        int number = errno;

        open_with(open_word);
        error_set_errno(err, ERROR_REFUSED, number, "the program's threads can't be held: membarrier failed");
        return -1;
    }
    if (__atomic_load_n(&shared_used, __ATOMIC_SEQ_CST)) {
        open_with(open_word);
        error_set(err, ERROR_MEMORY,
                  "the program's threads can't be held: there was no memory to register one");
        return -1;
    }
    if (wait_until_empty(deadline, tick, arg, notes, &count, err) < 0) {
        open_with(open_word);
        error_set_inside(err, notes, count); /* ignored if tick has told the cause */
        return -1;
    }
    return 0;
}

void gate_open(bool restarted)
{
    uint64_t word = __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE) & ~WORD_CLOSED;

    open_with(restarted ? word + WORD_GENERATION : word);
}

bool gate_is_closed(void)
{
    return __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE) & WORD_CLOSED;
}

uint64_t gate_generation(void)
{
    return __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE) >> 1;
}

void gate_each_thread(void (*f)(const struct gate_thread *thread, void *arg), void *arg)
{
    pthread_mutex_lock(&registry_lock);
    for (struct gate_thread *record = registry; record; record = record->next)
        if (record->tid)
            f(record, arg);
    pthread_mutex_unlock(&registry_lock);
}

/* ---- fork */

/* Without the lock the child could inherit it from another thread, or a list of records half changed. */
void gate_before_fork(void)
{
    pthread_mutex_lock(&registry_lock);
}

void gate_after_fork_in_parent(void)
{
    pthread_mutex_unlock(&registry_lock);
}

void gate_after_fork_in_child(void)
{
    struct gate_thread *self = gate_self;

    for (struct gate_thread *record = registry; record; record = record->next)
        if (record->tid && record != self)
            record_release(record);
    if (self) {
        if (self != &shared_record)
            self->tid = thread_id();
        mark_outside(self);
        self->context_depth = 0;
    }
    __atomic_store_n(&gate_word, __atomic_load_n(&gate_word, __ATOMIC_RELAXED) & ~WORD_CLOSED,
                     __ATOMIC_RELEASE);
    if (barrier == BARRIER_EXPEDITED)
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    pthread_mutex_unlock(&registry_lock);
}
