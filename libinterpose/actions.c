/*
 * The states of the process and the actions between them. All run on the control thread, one at a time.
 *
 *     running --lock--> locked --checkpoint--> checkpointed --restore--> locked --unlock--> running
 *
 * A lock that fails leaves the process running; a checkpoint that fails before anything was given up leaves it locked
 * (the control thread unlocks it again if the two were asked for in one). A restore that fails leaves it checkpointed, or
 * failed if something came back different: its data is in host memory in both, and it may be tried again.
 */
#include "actions.h"

#include <string.h>
#include <time.h>

#include "device_memory.h"
#include "driver_api.h"
#include "driver_heap.h"
#include "gate.h"
#include "journal.h"
#include "kinds.h"
#include "ledger.h"
#include "resume.h"
#include "suspend.h"
#include "unsaveable.h"
#define LOG_PREFIX "actions"
#include "log.h"

static enum { RUNNING, LOCKED, CHECKPOINTED, FAILED } state;
static const char *const state_names[] = {"running", "locked", "checkpointed", "failed"};
static bool restarted; /* since the gate was closed */
static int driver_version;

static const char *get_state(void)
{
    return state_names[state];
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Tells how long an action took. */
static int timed(const char *name, uint64_t start, int result, const struct error *err)
{
    log_info("%s: %.3f s%s%s", name, (double)(now_ns() - start) / 1e9, result ? ": " : "", result ? err->text : "");
    return result;
}

static int do_lock(uint64_t timeout_ms, struct error *err)
{
    uint64_t start = now_ns();

    ledger_thread_is_ours();
    if (suspend_lock(timeout_ms ? start + timeout_ms * 1000000ull : 0, err))
        return timed("lock", start, -1, err);
    driver.cuDriverGetVersion(&driver_version);
    restarted = false;
    state = LOCKED;
    return timed("lock", start, 0, err);
}

static int do_checkpoint(struct error *err)
{
    uint64_t start = now_ns();
    bool gone = false;

    if (suspend_checkpoint(&gone, err)) {
        if (gone)
            state = FAILED;
        return timed("checkpoint", start, -1, err);
    }
    state = CHECKPOINTED;
    return timed("checkpoint", start, 0, err);
}

static int do_restore(struct error *err)
{
    uint64_t start = now_ns();

    if (resume_restore(err)) {
        state = err->code == ERROR_MISMATCH ? FAILED : CHECKPOINTED;
        return timed("restore", start, -1, err);
    }
    restarted = true;
    state = LOCKED;
    return timed("restore", start, 0, err);
}

static int do_unlock(struct error *err)
{
    suspend_unlock(restarted);
    state = RUNNING;
    return 0;
}

/* ---- status */

#define KINDS_MAX 32

struct tally {
    const struct record_kind *kinds[KINDS_MAX];
    unsigned counts[KINDS_MAX], used;
};

static int count_record(struct record *record, void *arg)
{
    struct tally *tally = arg;
    unsigned i;

    for (i = 0; i < tally->used && tally->kinds[i] != record->kind; i++)
        ;
    if (i == KINDS_MAX)
        return 0;
    if (i == tally->used) {
        tally->kinds[tally->used++] = record->kind;
        tally->counts[i] = 0;
    }
    tally->counts[i]++;
    return 0;
}

static void tell_reason(const char *reason, uint64_t count, void *arg)
{
    control_reply_value(arg, "unsaveable", "%s", reason);
}

static void tell_status(struct control_reply *reply)
{
    struct device_memory_stats memory;
    struct driver_heap_stats heap;
    struct ledger_stats ledger;
    struct tally tally = {.used = 0};

    ledger_thread_is_ours();
    if (state == RUNNING) /* the driver may be asked */
        driver.cuDriverGetVersion(&driver_version);
    device_memory_get_stats(-1, &memory);
    driver_heap_get_stats(&heap);
    ledger_get_stats(&ledger);
    control_reply_value(reply, "driver-version", "%d.%d", driver_version / 1000, driver_version % 1000 / 10);
    control_reply_value(reply, "suspends", "%llu", (unsigned long long)gate_generation() - 1);
    control_reply_value(reply, "device-memory-bytes", "%llu", (unsigned long long)memory.chunk_bytes);
    control_reply_value(reply, "device-memory-blocks", "%llu", (unsigned long long)memory.blocks);
    control_reply_value(reply, "host-copy-bytes", "%llu",
                        (unsigned long long)(device_memory_copy_bytes() + virtual_memory_copy_bytes()));
    control_reply_value(reply, "driver-heap-bytes", "%zu", heap.block_bytes);
    control_reply_value(reply, "driver-descriptors", "%u", ledger.descriptors);
    control_reply_value(reply, "driver-threads", "%u", ledger.threads);
    control_reply_value(reply, "driver-mappings", "%u", ledger.maps);
    journal_each(NULL, count_record, &tally);
    for (unsigned i = 0; i < tally.used; i++) {
        char name[64] = "objects-";

        strncat(name, tally.kinds[i]->name, sizeof name - strlen(name) - 1);
        for (char *c = name; *c; c++)
            *c = *c == ' ' ? '-' : *c;
        control_reply_value(reply, name, "%u", tally.counts[i]);
    }
    unsaveable_each(tell_reason, reply);
}

const struct control_actions actions = {do_lock, do_checkpoint, do_restore, do_unlock, get_state, tell_status};
