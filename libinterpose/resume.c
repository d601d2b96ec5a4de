/* The way back to the GPU, as an ordered list of steps. */
#include "resume.h"

#include <stdlib.h>

#include "control.h"
#include "device_memory.h"
#include "driver_api.h"
#include "fault.h"
#include "import_hooks.h"
#include "journal.h"
#include "kinds.h"
#include "suspend.h"

static void show_replay(size_t done, size_t total)
{
    control_progress("restore", done, total);
}


static int copy_in_virtual(const struct copy_progress *progress, struct error *err)
{
    struct copy_range *ranges = NULL;
    size_t count = 0;
    int result = virtual_memory_map(&ranges, &count, err);

    if (result == 0)
        result = copy_ranges(COPY_IN, ranges, count, progress, err);
    virtual_memory_copied();
    free(ranges);
    return result;
}

static int copy_in(struct error *err)
{
    const struct copy_progress progress = {suspend_show_copy, NULL};
    struct copy_range *memory = NULL;
    size_t count = 0, variable_count;
    struct copy_range *variables = suspend_variables(&variable_count);
    /* Memory first: variables hold addresses of it, but nobody looks before the unlock. */
    int result = device_memory_map(&memory, &count, err);

    if (result == 0)
        result = copy_ranges(COPY_IN, memory, count, &progress, err);
    free(memory);
    if (result == 0)
        result = copy_in_virtual(&progress, err);
    if (result == 0)
        result = copy_ranges(COPY_IN, variables, variable_count, &progress, err);
    return result;
}

static int restore(struct error *err)
{
    return journal_replay(show_replay, err) || copy_in(err) || fault_here(FAULT_restore_objects, err) ? -1 : 0;
}

/* One try. When it fails the driver is released again. */
static int try_restore(struct error *err)
{
    struct error second = {0};
    int result;

    if (!suspend_is_released() && suspend_release(err))
        return -1;
    import_hooks_replay_environment(1);
    result = restore(err);
    import_hooks_replay_environment(0);
    if (result && suspend_release(&second))
        error_prefix(err, "%s, and before that", second.text);
    return result;
}

/* Each further try has one record more that looks for its place. */
#define TRIES_MAX 16

int resume_restore(struct error *err)
{
    int result = try_restore(err);

    for (int tries = 1; result && err->code == ERROR_MISMATCH && tries < TRIES_MAX && journal_steer_moved(); tries++) {
        error_clear(err);
        result = try_restore(err);
    }
    if (result)
        return -1;
    suspend_driver_is_back();
    journal_replay_done();
    virtual_memory_restored();
    id_restarted();
    device_memory_release_copies();
    virtual_memory_release_copies();
    suspend_forget_variables();
    return 0;
}
