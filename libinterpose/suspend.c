/* The way off the GPU, as ordered lists of steps. */
#include "suspend.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control.h"
#include "device_memory.h"
#include "driver_api.h"
#include "driver_heap.h"
#include "fault.h"
#include "gate.h"
#include "journal.h"
#include "kinds.h"
#include "ledger.h"
#include "lifecycle.h"
#include "restart.h"
#include "stream_memory.h"
#include "unsaveable.h"

/* ---- lock */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static bool past(uint64_t deadline)
{
    return deadline && now_ns() >= deadline;
}

static void rest(void)
{
    const struct timespec moment = {0, 200000};

    control_service();
    nanosleep(&moment, NULL);
}

static int service(void *unused, struct error *err)
{
    control_service();
    return 0;
}

/* The gate is closed and no capture is in progress. A capture's own calls must pass, so it is waited for outside. */
static int close_gate(uint64_t deadline, struct error *err)
{
    if (fault_here(FAULT_lock_close, err))
        return -1;
    for (;;) {
        while (capture_in_progress()) {
            if (past(deadline)) {
                error_set(err, ERROR_TIMEOUT,
                          "a stream capture is still in progress; try again, or with a longer --timeout");
                return -1;
            }
            rest();
        }
        if (gate_close(deadline, service, NULL, err))
            return -1;
        if (!capture_in_progress())
            return 0;
        gate_open(false);
    }
}

static int drain_context(CUcontext context, void *deadline, struct error *err)
{
    CUresult result = drain_begin();
    int failed = 0;

    while (result == CUDA_SUCCESS && (result = drain_poll()) == CUDA_ERROR_NOT_READY && !past(*(uint64_t *)deadline)) {
        rest();
        result = CUDA_SUCCESS;
    }
    drain_end();
    if (result == CUDA_ERROR_NOT_READY) {
        error_set(err, ERROR_TIMEOUT,
                  "the GPU still works for this program; try again, or with a longer --timeout");
        failed = -1;
    } else if (result != CUDA_SUCCESS) {
        const char *name = "unknown error";

        driver.cuGetErrorName(result, &name);
        error_set(err, ERROR_REFUSED,
                  "a context of the program is broken by error %d (%s) and can't be saved", (int)result, name);
        failed = -1;
    }
    return failed;
}

static int refuse_foreign_device(struct error *err)
{
    char path[256];
    int fd;

    if (!ledger_find_foreign_device(&fd, path, sizeof path))
        return 0;
    error_set(err, ERROR_UNSAVEABLE,
              "descriptor %d (%s) was not opened by the CUDA driver, so this process can't leave the GPU", fd, path);
    return -1;
}

static int refuse_lost_order(struct error *err)
{
    if (!journal_order_is_lost())
        return 0;
    error_set(err, ERROR_UNSAVEABLE,
              "the program has replaced more than %d modules while others stayed loaded; their order can't be made again",
              JOURNAL_CHAIN_MAX);
    return -1;
}

/* Asked before the program is stopped, and again when nobody can make anything any more. */
static int refuse_unsaveable(struct error *err)
{
    return unsaveable_check(err) || refuse_lost_order(err) || refuse_foreign_device(err) ? -1 : 0;
}

int suspend_lock(uint64_t deadline, struct error *err)
{
    if (refuse_unsaveable(err))
        return -1;
    gate_pass_begin(); /* this thread works behind the closed gate from now on */
    if (close_gate(deadline, err) == 0) {
        /* before the work is waited for: the reason says more than a time-out */
        if (refuse_unsaveable(err) == 0 && !fault_here(FAULT_lock_drain, err) &&
            context_each(drain_context, &deadline, err) == 0) {
            lifecycle_watch_exit();
            return 0;
        }
        gate_open(false);
    }
    gate_pass_end();
    return -1;
}

void suspend_unlock(bool restarted)
{
    gate_open(restarted);
    gate_pass_end();
}

/* ---- checkpoint */

static struct copy_range *variables;
static size_t variable_count;
static struct heap_place *places; /* heap blocks that must keep their address */
static size_t place_count;
static struct intervals keep;     /* address ranges that must be kept */

struct copy_range *suspend_variables(size_t *count)
{
    *count = variable_count;
    return variables;
}

void suspend_forget_variables(void)
{
    variables_release(variables, variable_count);
    variables = NULL;
    variable_count = 0;
}


int suspend_show_copy(uint64_t done, uint64_t total, void *unused)
{
    control_progress("copy", done, total);
    return 0;
}

static int copy_out_virtual(const struct copy_progress *progress, struct error *err)
{
    struct copy_range *ranges = NULL;
    size_t count = 0;
    int result = virtual_memory_save(&ranges, &count, err);

    if (result == 0)
        result = copy_ranges(COPY_OUT, ranges, count, progress, err);
    virtual_memory_copied();
    free(ranges);
    return result;
}

static int copy_out(struct error *err)
{
    const struct copy_progress progress = {suspend_show_copy, NULL};
    struct copy_range *memory = NULL;
    size_t count = 0;
    int result = variables_find(&variables, &variable_count, err);

    stream_memory_suspend(); /* what the program has freed is not worth a copy */
    if (result == 0)
        result = device_memory_save(&memory, &count, err);
    if (result == 0)
        result = copy_ranges(COPY_OUT, memory, count, &progress, err);
    free(memory);
    if (result == 0)
        result = copy_out_virtual(&progress, err);
    if (result == 0)
        result = copy_ranges(COPY_OUT, variables, variable_count, &progress, err);
    return result;
}

static void add_keep(uint64_t address, uint64_t size, void *ok)
{
    if (!intervals_add(&keep, address, address + size))
        *(bool *)ok = false;
}

static int note_addresses(struct error *err)
{
    bool ok = true;

    free(places);
    places = NULL;
    intervals_clear(&keep);
    if (fault_here(FAULT_release_heap, err) || journal_places(&places, &place_count, err))
        return -1;
    journal_each_map(add_keep, &ok);
    if (!ok)
        error_set(err, ERROR_MEMORY, "no memory to note the address ranges");
    return ok ? 0 : -1;
}

static int forget_handle(struct device_chunk *chunk, void *unused)
{
    chunk->handle = 0;
    return 0;
}

static bool released;

bool suspend_is_released(void)
{
    return released;
}

void suspend_driver_is_back(void)
{
    released = false;
}

static int release(struct error *err)
{
    int result;

    ledger_restart_begin();
    result = ledger_release(keep.items, keep.count, err) || driver_heap_reset(places, place_count, err) ||
                     restart_rewind(err)
                 ? -1
                 : 0;
    ledger_restart_end();
    return result;
}

int suspend_release(struct error *err)
{
    released = false;
    if (release(err))
        return -1;
    released = true;
    return device_memory_each_chunk(forget_handle, NULL);
}

int suspend_checkpoint(bool *gone, struct error *err)
{
    /* Everything that can fail comes first, while the driver is there and nothing is given up. */
    if (!fault_here(FAULT_save_objects, err) && host_memory_check(err) == 0 && event_save(err) == 0 &&
        graph_save(err) == 0 && copy_out(err) == 0 && note_addresses(err) == 0) {
        control_progress("release", 0, 0);
        *gone = true;
        return suspend_release(err);
    }
    device_memory_release_copies();
    virtual_memory_release_copies();
    suspend_forget_variables();
    return -1;
}
