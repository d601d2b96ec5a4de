#ifndef CUDACKPT_GATE_H
#define CUDACKPT_GATE_H
/*
 * The gate: every entry point passes it; a suspend closes it and waits until all threads are out.
 *
 * Entering is a thread-local store, a load of gate_word and a compare; no atomic read-modify-write. The
 * closer pays: it changes gate_word, calls membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) and then reads every
 * thread's mark.
 *
 * gate_word holds the generation (how often the driver was restarted, from 1) and whether the gate is closed.
 * A thread keeps the word that it last passed with; when they differ it takes the slow path, which waits
 * while the gate is closed and, if the generation changed, puts the thread's contexts back
 * (gate_hooks.thread_resumed).
 *
 * Some threads pass a closed gate: the driver's own threads (stream callbacks run on them: they are part of
 * the drain), the control thread while it suspends or resumes, and a thread that is inside already (nested
 * call).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"
#include "cuda_abi.h"

#define GATE_STACK_DEPTH 32

/* One per thread that has called the driver. Read by the closer, written by its own thread only. */
struct gate_thread {
    uint32_t inside;     /* row of driver_api.inc + 1 that the thread is in, 0: outside. arch_*.S uses it */
    uint32_t passes;     /* the thread passes a closed gate */
    uint64_t word;       /* the gate_word that it last passed with, 0: none */
    uint64_t generation; /* of the driver that the context stack below was last put into */
    pid_t tid;           /* 0: the record is free */
    bool waiting;        /* blocked at the gate */
    /* The thread's context stack as the driver has it; the last one is current (kind_context.c). */
    uint32_t context_depth;
    const void *caller; /* return address of the outermost entry point that the thread is in; for messages */
    CUcontext context_stack[GATE_STACK_DEPTH];
    struct gate_thread *next;      /* all records, used or free; never unlinked */
    struct gate_thread *next_free; /* under gate.c's lock, as tid and next */
} __attribute__((aligned(64)));    /* a mark shares no cache line with another thread's */

extern uint64_t gate_word;
extern __thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

/*
 * The slow path, for a thread outside: registers the thread, asks for the set-up of the process, waits while
 * the gate is closed, puts the thread's contexts back. The mark holds row when it returns. Keeps errno.
 */
void gate_enter_slow(uint32_t row);

/*
 * Enters; returns what gate_leave needs. row is the entry point's index in driver_api.inc, caller the return
 * address of the entry point.
 */
static inline __attribute__((always_inline)) uint32_t gate_enter_from(uint32_t row, const void *caller)
{
    struct gate_thread *self = gate_self;
    uint32_t outer;

    if (__builtin_expect(!self, 0)) {
        gate_enter_slow(row); /* registers the thread */
        __atomic_store_n(&gate_self->caller, caller, __ATOMIC_RELAXED);
        return 0;
    }
    outer = self->inside;
    if (__builtin_expect(!outer, 1))
        __atomic_store_n(&self->caller, caller, __ATOMIC_RELAXED);
    __atomic_store_n(&self->inside, row + 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* membarrier orders it for the closer */
    if (__builtin_expect(self->word != __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE), 0) && !outer)
        gate_enter_slow(row);
    return outer;
}

/* The same, called by the entry point itself. */
static inline __attribute__((always_inline)) uint32_t gate_enter(uint32_t row)
{
    return gate_enter_from(row, __builtin_return_address(0));
}

static inline void gate_leave(uint32_t outer)
{
    __atomic_store_n(&gate_self->inside, outer, __ATOMIC_RELEASE);
}

/*
 * The calling thread's registration, made if need be. Never NULL: without memory a shared one is given, and
 * the gate can't be closed any more.
 */
struct gate_thread *gate_thread_self(void);

struct gate_hooks {
    /*
     * On every slow entry, before anything is waited for: returns when the process is set up, at once if it
     * is or if this thread is the one that sets it up. The gate does not hold others meanwhile: a thread that
     * comes from inside of dlopen would keep the linker's lock that the set-up needs.
     */
    void (*set_up)(void);
    /* The first entry of a thread after a restart of the driver; the thread is inside. */
    void (*thread_resumed)(struct gate_thread *self);
};
/* Either hook may be NULL. A second call changes nothing. */
void gate_start(const struct gate_hooks *hooks);

/*
 * Where it is defined, a thread that enters before gate_start was called starts the gate with these:
 * constructors of other libraries may call the driver before ours runs.
 */
extern const struct gate_hooks gate_default_hooks __attribute__((weak));

/*
 * From now on the calling thread passes a closed gate (or no longer does). Counts. Outside of the gate only.
 */
void gate_pass_begin(void);
void gate_pass_end(void);

/*
 * Closes the gate and waits until every other thread is out. The caller does not pass by itself: see
 * gate_pass_begin. ERROR_TIMEOUT after the deadline (CLOCK_MONOTONIC, nanoseconds; 0: no deadline): the gate
 * is open again and the error names up to four threads still inside, their entry points, who called those,
 * and what the threads do. tick, if not NULL, is called about every millisecond; when it returns non-zero the
 * wait is given up like a time-out with err set by tick. ERROR_STATE if it is closed already. One thread at a
 * time closes and opens.
 */
int gate_close(uint64_t deadline, int (*tick)(void *arg, struct error *err), void *arg, struct error *err);

/* Opens the gate. restarted: the driver was restarted since it closed; a new generation begins. */
void gate_open(bool restarted);

bool gate_is_closed(void);
uint64_t gate_generation(void);

/* Calls f for every registered thread. For diagnostics; the registry is locked meanwhile. */
void gate_each_thread(void (*f)(const struct gate_thread *thread, void *arg), void *arg);

/*
 * Around fork(): only the calling thread exists in the child, outside of the gate and with an empty stack;
 * the gate is open there. Between before and after no thread registers or ends.
 */
void gate_before_fork(void);
void gate_after_fork_in_parent(void);
void gate_after_fork_in_child(void);

#endif
