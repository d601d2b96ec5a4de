/*
 * The ledger's handlers: thread-local keys, exit handlers and fork handlers of the driver. libc would call them at
 * times when the driver that they belong to may be gone, so libc gets ours and the driver's are kept here.
 */
#include "ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "gate.h"
#include "ledger_internal.h"
#include "unsaveable.h"
#define LOG_PREFIX "ledger"
#include "log.h"

/* Keys and handlers are few; the driver registers them in its initialisation. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- keys
 * A key's destructor is called by libc when a thread ends, outside of any entry point. It gets a trampoline of ours,
 * which passes the gate first. A key of an earlier driver is deleted, but a thread may have read its value just before
 * and call the destructor after the restart: so the keys of one generation of the driver use one bank of trampolines
 * and the next ones the other bank, and a trampoline whose bank is not the present one drops the value.
 */

#define KEYS_MAX 32
#define BANKS    2

static struct {
    pthread_key_t key;
    bool used;
    void (*destructor)(void *);
} keys[BANKS][KEYS_MAX];
static unsigned bank;

static void destroy_now(unsigned of_bank, unsigned slot, void *value)
{
    void (*destructor)(void *) = of_bank == bank ? keys[of_bank][slot].destructor : NULL;

    if (destructor)
        destructor(value);
}

static void destroy_value(unsigned of_bank, unsigned slot, void *value)
{
    uint32_t outer;

    /* Our own threads (copies) end while the gate is closed, and somebody waits for them; the driver's pass it. */
    if (!ledger_thread_is_program()) {
        destroy_now(of_bank, slot, value);
        return;
    }
    outer = gate_enter(ROW_cuCtxSynchronize); /* any row: the thread counts as inside */
    destroy_now(of_bank, slot, value);
    gate_leave(outer);
}

#define TRAMPOLINE(bank_, slot_)                                                                             \
    static void trampoline_##bank_##_##slot_(void *value)                                                    \
    {                                                                                                        \
        destroy_value(bank_, slot_, value);                                                                  \
    }
#define EIGHT(X, b, s0, s1, s2, s3, s4, s5, s6, s7)                                                          \
    X(b, s0) X(b, s1) X(b, s2) X(b, s3) X(b, s4) X(b, s5) X(b, s6) X(b, s7)
#define BANK(X, b)                                                                                           \
    EIGHT(X, b, 0, 1, 2, 3, 4, 5, 6, 7)                                                                      \
    EIGHT(X, b, 8, 9, 10, 11, 12, 13, 14, 15)                                                                \
    EIGHT(X, b, 16, 17, 18, 19, 20, 21, 22, 23)                                                              \
    EIGHT(X, b, 24, 25, 26, 27, 28, 29, 30, 31)
BANK(TRAMPOLINE, 0)
BANK(TRAMPOLINE, 1)
#define NAME(bank_, slot_) trampoline_##bank_##_##slot_,
static void (*const trampolines[BANKS][KEYS_MAX])(void *) = {{BANK(NAME, 0)}, {BANK(NAME, 1)}};

/*
 * A key number that the driver uses but did not get from here was made by a constructor, before the imports were patched
 * (libcuda 580 makes one). The number lives in the pristine segment, so it stays, and threads have values of an earlier
 * driver under it. Made anew under the same number, at each restart, it has no values. It has no destructor then, since
 * libc does not tell the original one; what that would free goes with the driver's heap.
 */
#define KEY_NUMBERS_MAX 1024 /* PTHREAD_KEYS_MAX */
static bool own[KEY_NUMBERS_MAX], foreign[KEY_NUMBERS_MAX];

static void note_key(pthread_key_t key)
{
    if (key < KEY_NUMBERS_MAX && !__atomic_load_n(&own[key], __ATOMIC_RELAXED) &&
        !__atomic_load_n(&foreign[key], __ATOMIC_RELAXED))
        __atomic_store_n(&foreign[key], true, __ATOMIC_RELAXED);
}

void *ledger_key_get(pthread_key_t key)
{
    note_key(key);
    return pthread_getspecific(key);
}

int ledger_key_set(pthread_key_t key, const void *value)
{
    note_key(key);
    return pthread_setspecific(key, value);
}

/* libc gives the lowest free number: what it gives before that one is handed back. */
static bool renew_key(pthread_key_t key)
{
    pthread_key_t others[KEY_NUMBERS_MAX];
    unsigned count = 0;
    bool renewed = false;

    pthread_key_delete(key);
    while (!renewed && count < KEY_NUMBERS_MAX && pthread_key_create(&others[count], NULL) == 0) {
        renewed = others[count] == key;
        count += !renewed;
    }
    while (count > 0)
        pthread_key_delete(others[--count]);
    return renewed;
}

int ledger_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    int result = EAGAIN;

    pthread_mutex_lock(&lock);
    for (unsigned slot = 0; slot < KEYS_MAX; slot++) {
        if (keys[bank][slot].used)
            continue;
        result = pthread_key_create(key, destructor ? trampolines[bank][slot] : NULL);
        if (result == 0) {
            keys[bank][slot].key = *key;
            keys[bank][slot].destructor = destructor;
            keys[bank][slot].used = true;
            if (*key < KEY_NUMBERS_MAX)
                own[*key] = true;
        }
        break;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int ledger_key_delete(pthread_key_t key)
{
    pthread_mutex_lock(&lock);
    for (unsigned slot = 0; slot < KEYS_MAX; slot++)
        if (keys[bank][slot].used && keys[bank][slot].key == key)
            keys[bank][slot].used = false;
    if (key < KEY_NUMBERS_MAX)
        own[key] = foreign[key] = false;
    pthread_mutex_unlock(&lock);
    return pthread_key_delete(key);
}

unsigned ledger_keys_count(void)
{
    unsigned count = 0;

    for (unsigned slot = 0; slot < KEYS_MAX; slot++)
        count += keys[bank][slot].used;
    return count;
}

void ledger_keys_delete(void)
{
    for (pthread_key_t key = 0; key < KEY_NUMBERS_MAX; key++)
        if (foreign[key] && !renew_key(key)) {
            /* The number is the program's from now on. The driver can't tell, but this is the last restart. */
            foreign[key] = false;
            unsaveable_note("the program took a thread-local key of the CUDA driver's");
        }
    for (unsigned slot = 0; slot < KEYS_MAX; slot++) {
        if (keys[bank][slot].used)
            pthread_key_delete(keys[bank][slot].key);
        keys[bank][slot].used = false;
    }
    memset(own, 0, sizeof own);
    bank = !bank;
}

/* ---- exit handlers
 * One handler of ours is registered when the driver registers its first: libc then calls it at the point where the
 * driver expects its own to run. When the process ends while suspended there is nothing to call.
 */

#define HANDLERS_MAX 64

static struct {
    void (*function)(void *);
    void *argument;
} exit_handlers[HANDLERS_MAX];
static unsigned exit_count;

extern int __cxa_atexit(void (*function)(void *), void *argument, void *dso);

static void run_exit_handlers(void *unused)
{
    uint32_t outer;

    /* A closed gate would hold the ending program for ever; what is suspended has no driver to shut down. */
    if (gate_is_closed())
        return;
    outer = gate_enter(ROW_cuCtxSynchronize);
    while (exit_count > 0) {
        exit_count--;
        exit_handlers[exit_count].function(exit_handlers[exit_count].argument);
    }
    gate_leave(outer);
}

int ledger_exit_handler(void (*function)(void *), void *argument, void *dso)
{
    static bool registered;
    int result = 0;

    pthread_mutex_lock(&lock);
    if (!registered)
        result = __cxa_atexit(run_exit_handlers, NULL, dso);
    registered = result == 0;
    if (result == 0 && exit_count < HANDLERS_MAX) {
        exit_handlers[exit_count].function = function;
        exit_handlers[exit_count++].argument = argument;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- fork handlers: called from ours (lifecycle.c) */

static struct {
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
} fork_handlers[HANDLERS_MAX];
static unsigned fork_count;

int ledger_fork_handler(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    pthread_mutex_lock(&lock);
    if (fork_count < HANDLERS_MAX) {
        fork_handlers[fork_count].prepare = prepare;
        fork_handlers[fork_count].parent = parent;
        fork_handlers[fork_count++].child = child;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

void ledger_handlers_forget(void)
{
    exit_count = 0;
    fork_count = 0;
}

/*
 * A fork runs the driver's handlers, which are driver code, but can't pass the gate: it must not wait for a suspend. It
 * keeps the restart out instead. While a restart is under way there is no driver whose handlers could be run.
 */
static pthread_mutex_t restart_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool handlers_run __attribute__((tls_model("initial-exec")));

void ledger_restart_begin(void)
{
    pthread_mutex_lock(&restart_lock);
}

void ledger_restart_end(void)
{
    pthread_mutex_unlock(&restart_lock);
}

/* prepare handlers run in reverse order of their registration, the others in order: as pthread_atfork says */
void ledger_fork_prepare(void)
{
    handlers_run = pthread_mutex_trylock(&restart_lock) == 0;
    if (!handlers_run)
        return;
    ledger_thread_works_for_driver(true);
    for (unsigned i = fork_count; i > 0; i--)
        if (fork_handlers[i - 1].prepare)
            fork_handlers[i - 1].prepare();
    ledger_thread_works_for_driver(false);
}

static void run_after(bool child)
{
    if (!handlers_run)
        return;
    ledger_thread_works_for_driver(true);
    for (unsigned i = 0; i < fork_count; i++) {
        void (*handler)(void) = child ? fork_handlers[i].child : fork_handlers[i].parent;

        if (handler)
            handler();
    }
    ledger_thread_works_for_driver(false);
    pthread_mutex_unlock(&restart_lock);
}

void ledger_fork_parent(void)
{
    run_after(false);
}

void ledger_fork_child(void)
{
    if (!handlers_run)
        pthread_mutex_init(&restart_lock, NULL); /* of the control thread, which does not exist here */
    pthread_mutex_init(&lock, NULL);
    run_after(true);
}
