#include "driver_checkpoint.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define NOT_INITIALIZED 3

/* All four argument structs of the driver have 64 bytes, of which only the lock's first word is used here. */
struct step_arguments {
    uint32_t timeout_ms;
    uint32_t reserved[15];
};
_Static_assert(sizeof(struct step_arguments) == 64, "the driver reads 64 bytes");

static void *driver(void)
{
    static void *handle;

    if (!handle)
        handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
}

static void *function(const char *name)
{
    return driver() ? dlsym(driver(), name) : NULL;
}

/* The functions need no context. If this process has to be known to the driver, it is told once. */
static int initialize(void)
{
    int (*init)(unsigned int flags) = (int (*)(unsigned int))function("cuInit");

    return init ? init(0) : DRIVER_CHECKPOINT_MISSING;
}

/* A function of the form f(pid, pointer). */
static int call(const char *name, pid_t pid, void *argument)
{
    int (*f)(int pid, void *argument) = (int (*)(int, void *))function(name);
    int result;

    if (!f)
        return DRIVER_CHECKPOINT_MISSING;
    result = f((int)pid, argument);
    if (result != NOT_INITIALIZED || initialize() != 0)
        return result;
    return f((int)pid, argument);
}

int driver_checkpoint_step(enum driver_checkpoint_step step, pid_t pid, unsigned int timeout_ms)
{
    static const char *const names[] = {
        [DRIVER_LOCK] = "cuCheckpointProcessLock",
        [DRIVER_CHECKPOINT] = "cuCheckpointProcessCheckpoint",
        [DRIVER_RESTORE] = "cuCheckpointProcessRestore",
        [DRIVER_UNLOCK] = "cuCheckpointProcessUnlock",
    };
    struct step_arguments arguments = {.timeout_ms = step == DRIVER_LOCK ? timeout_ms : 0};

    return call(names[step], pid, &arguments);
}

int driver_checkpoint_state(pid_t pid, int *state)
{
    return call("cuCheckpointProcessGetState", pid, state);
}

int driver_checkpoint_thread(pid_t pid, int *tid)
{
    return call("cuCheckpointProcessGetRestoreThreadId", pid, tid);
}

const char *driver_checkpoint_text(int result)
{
    int (*describe)(int result, const char **text) =
        (int (*)(int, const char **))function("cuGetErrorString");
    const char *text = NULL;

    if (!describe || describe(result, &text) != 0 || !text)
        return "unknown error";
    return text;
}
