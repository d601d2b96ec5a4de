/*
 * The command line of NVIDIA's cuda-checkpoint, with its sentences and its two exit statuses, for scripts and
 * for CRIU's CUDA plugin. What our library knows beyond the driver's words goes to standard error, on a line
 * of its own.
 */
#include "cuda_checkpoint.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client.h"
#include "cuda_process.h"
#include "driver_checkpoint.h"
#include "error.h"
#include "launch_job.h"
#include "output.h"
#include "protocol.h"

#define TOOL_NAME "cuda-checkpoint"
#define QUIET_MS  3000

/* What the driver says in these cases. */
#define TEXT_NO_PROCESS "OS call failed or operation not supported on this OS"
#define TEXT_NO_CUDA    "initialization error"

enum operation { NO_OPERATION, GET_STATE, ACTION, TOGGLE, GET_RESTORE_TID, HELP };

struct wish {
    enum operation operation;
    enum protocol_action action;
    pid_t pid;
    bool has_pid;
    uint64_t timeout_ms;
    const char *device_map;
    char **program; /* --launch-job */
};

enum { OPTION_GET_STATE = 256, OPTION_ACTION, OPTION_TOGGLE, OPTION_GET_RESTORE_TID, OPTION_LAUNCH_JOB };

static const struct option long_options[] = {
    {"get-state", no_argument, NULL, OPTION_GET_STATE},
    {"action", required_argument, NULL, OPTION_ACTION},
    {"toggle", no_argument, NULL, OPTION_TOGGLE},
    {"get-restore-tid", no_argument, NULL, OPTION_GET_RESTORE_TID},
    {"launch-job", no_argument, NULL, OPTION_LAUNCH_JOB},
    {"pid", required_argument, NULL, 'p'},
    {"timeout", required_argument, NULL, 't'},
    {"device-map", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* CRIU's plugin reads 2047 bytes of it and looks for --action. */
static const char help[] =
    "cuda-checkpoint as cudackpt " CUDACKPT_VERSION
    " understands it: takes the CUDA state of a process off the GPU\n"
    "and puts it back.\n"
    "\n"
    "Operations:\n"
    "--get-state --pid <pid>\n"
    "        Print running, locked, checkpointed or failed\n"
    "--action lock|checkpoint|restore|unlock --pid <pid> [--timeout <ms>] [--device-map <old=new,...>]\n"
    "        Take one step. lock gives up after --timeout milliseconds; --device-map goes with restore\n"
    "--toggle --pid <pid>\n"
    "        From running to checkpointed, or back\n"
    "--get-restore-tid --pid <pid>\n"
    "        Print the number of the thread that must run while the steps are taken\n"
    "--launch-job <program> [<argument>...]\n"
    "        Start a program so that it can be checkpointed\n"
    "\n"
    "Options:\n"
    "--pid|-p <pid>\n"
    "        The process\n"
    "--timeout|-t <ms>\n"
    "        For lock; 0, like none, waits without end\n"
    "--device-map|-d <old=new,...>\n"
    "        UUIDs of devices; each must stay what it was\n"
    "--help|-h\n"
    "        Print this help\n";

bool cuda_checkpoint_is_meant(int argc, char **argv)
{
    const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;

    name = name ? name + 1 : argc > 0 ? argv[0] : "";
    if (!strcmp(name, TOOL_NAME))
        return true;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        static const char *const own[] = {"--get-state",  "--action", "--toggle", "--get-restore-tid",
                                          "--launch-job", "--pid",    "-p"};

        for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++) {
            size_t length = strlen(own[k]);

            if (!strncmp(argv[i], own[k], length) && (!argv[i][length] || argv[i][length] == '='))
                return true;
        }
    }
    return false;
}

/* ---- arguments */

static int usage_error(const char *sentence)
{
    printf("%s\n%s", sentence, help);
    return -1;
}

static int operation_set(struct wish *wish, enum operation operation)
{
    if (wish->operation != NO_OPERATION && wish->operation != operation)
        return usage_error("More than one operation selected");
    wish->operation = operation;
    return 0;
}

static int action_set(struct wish *wish, const char *name)
{
    static const enum protocol_action steps[] = {ACTION_LOCK, ACTION_CHECKPOINT, ACTION_RESTORE,
                                                 ACTION_UNLOCK};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (!strcmp(name, protocol_action_names[steps[i]])) {
            wish->action = steps[i];
            return operation_set(wish, ACTION);
        }
    }
    return usage_error("Invalid process state");
}

static int pid_set(struct wish *wish, const char *text)
{
    uint64_t number;

    if (protocol_parse_number(text, INT_MAX, &number) < 0)
        return usage_error("pid must be a non-negative integer");
    wish->pid = (pid_t)number;
    wish->has_pid = true;
    return 0;
}

static int timeout_set(struct wish *wish, const char *text)
{
    uint64_t number;

    if (protocol_parse_number(text, UINT_MAX, &number) < 0)
        return usage_error("timeout must be a non-negative integer");
    wish->timeout_ms = number < PROTOCOL_TIMEOUT_MAX ? number : PROTOCOL_TIMEOUT_MAX;
    return 0;
}

static int option_handle(struct wish *wish, int option)
{
    switch (option) {
    case OPTION_GET_STATE:
        return operation_set(wish, GET_STATE);
    case OPTION_ACTION:
        return action_set(wish, optarg);
    case OPTION_TOGGLE:
        return operation_set(wish, TOGGLE);
    case OPTION_GET_RESTORE_TID:
        return operation_set(wish, GET_RESTORE_TID);
    case 'p':
        return pid_set(wish, optarg);
    case 't':
        return timeout_set(wish, optarg);
    case 'd':
        wish->device_map = optarg;
        return 0;
    case 'h':
        wish->operation = HELP;
        return 0;
    default: /* getopt has named it */
        return usage_error("Invalid option(s)...");
    }
}

static int wish_parse(int argc, char **argv, struct wish *wish)
{
    int option;

    while (wish->operation != HELP &&
           (option = getopt_long(argc, argv, "p:t:d:h", long_options, NULL)) != -1) {
        if (option == OPTION_LAUNCH_JOB) {
            /* All that follows belongs to the program. */
            wish->program = argv + optind;
            return *wish->program ? 0 : usage_error("Missing program to launch");
        }
        if (option_handle(wish, option) < 0)
            return -1;
    }
    if (wish->operation == NO_OPERATION)
        return usage_error("No operation selected");
    if (wish->operation != HELP && !wish->has_pid)
        return usage_error("Missing pid to perform operation on");
    return 0;
}

/*
 * 0: no device is exchanged, 1: at least one is (err says which), -1: this is no map. A UUID may be written
 * with or without "GPU-" in front.
 */
static int device_map_check(const char *map, struct error *err)
{
    static const char prefix[] = "GPU-";

    while (*map) {
        size_t length = strcspn(map, ","), old_length = strcspn(map, "="), new_length;
        const char *old = map, *new = map + old_length + 1;

        if (!old_length || old_length + 1 >= length)
            return -1;
        new_length = length - old_length - 1;
        if (memchr(new, '=', new_length))
            return -1;
        if (!strncasecmp(old, prefix, strlen(prefix)))
            old += strlen(prefix), old_length -= strlen(prefix);
        if (!strncasecmp(new, prefix, strlen(prefix)))
            new += strlen(prefix), new_length -= strlen(prefix);
        if (old_length != new_length || strncasecmp(old, new, new_length)) {
            error_set(err, ERROR_UNSAVEABLE,
                      "the device map exchanges %.*s for %.*s: a program can only be put back on the device "
                      "that it "
                      "was taken off",
                      (int)old_length, old, (int)new_length, new);
            return 1;
        }
        map += length;
        if (*map == ',' && !*++map)
            return -1;
    }
    return 0;
}

/* ---- results */

static int say_failure(const struct wish *wish, const char *text)
{
    const char *verb = wish->operation == TOGGLE ? "toggle" : protocol_action_names[wish->action];

    if (wish->operation == GET_STATE)
        printf("Error getting process state for process ID %d: \"%s\"\n", (int)wish->pid, text);
    else if (wish->operation == GET_RESTORE_TID)
        printf("Could not get the restore thread ID of process ID %d: \"%s\"\n", (int)wish->pid, text);
    else
        printf("Could not %s on process ID %d: \"%s\"\n", verb, (int)wish->pid, text);
    return -1;
}

/* Our error in the driver's words; the sentence goes to standard error where the words don't say it all. */
static int say_error(const struct wish *wish, struct error *err)
{
    static const char *const texts[] = {
        [ERROR_REFUSED] = "unknown error",
        [ERROR_USAGE] = "invalid argument",
        [ERROR_NOT_FOUND] = TEXT_NO_CUDA,
        [ERROR_STATE] = "the operation cannot be performed in the present state",
        [ERROR_TIMEOUT] = "device not ready",
        [ERROR_UNSAVEABLE] = "operation not supported",
        [ERROR_MEMORY] = "out of memory",
        [ERROR_MISMATCH] = "unknown error",
        [ERROR_PERMISSION] = "operation not permitted",
    };
    bool known = (size_t)err->code < sizeof(texts) / sizeof(texts[0]);

    say_failure(wish, known ? texts[err->code] : "unknown error");
    if (err->code != ERROR_STATE && err->code != ERROR_NOT_FOUND) {
        output_clean(err->text);
        fflush(stdout);
        fprintf(stderr, TOOL_NAME ": %s\n", err->text);
    }
    return -1;
}

/* ---- a process under our library */

/*
 * CRIU lets only the control thread run while it asks for a restore. If another thread was frozen within
 * malloc or dlopen, whose locks a restore needs, nothing goes on until all threads run again: and that would
 * be never, if CRIU waited for us. So we don't insist. The requests wait in the process, in their order, and
 * its CUDA calls wait for them.
 */
static bool leave(const struct client *client, uint64_t quiet_ms)
{
    static uint64_t ticks_at_first;
    pid_t pid = client->process.pid;
    uint64_t ticks = 0;
    bool waits = cuda_process_waits_for_frozen(pid, cuda_process_control_thread(pid), &ticks);

    if (quiet_ms < QUIET_MS / 2)
        ticks_at_first = ticks;
    /* Somebody who works may be waited for with the same system call; but work tells of its progress sooner
     * or later. */
    return waits && quiet_ms >= QUIET_MS && (ticks <= ticks_at_first + 1 || quiet_ms >= 3 * QUIET_MS);
}

static int ask(const struct wish *wish, pid_t pid, struct values *values, struct error *err)
{
    struct protocol_request request = {.action = wish->action};
    struct client client = {.fd = -1};
    int result;

    if (wish->operation == GET_STATE)
        request.action = ACTION_STATE;
    else if (wish->operation == TOGGLE)
        request.action = ACTION_TOGGLE;
    else if (wish->action == ACTION_LOCK) {
        request.timeout_ms = wish->timeout_ms;
        request.deep = true;
    }
    if (request.action == ACTION_RESTORE || request.action == ACTION_UNLOCK)
        client.leaves = leave;
    result = client_connect(&client, pid, err);
    if (result == 0)
        result = client_ask(&client, &request, values, err);
    if (client.left)
        fprintf(stderr,
                TOOL_NAME
                ": the %s of process %d waits for one of its frozen threads: it will be done when they run\n",
                protocol_action_names[request.action], (int)pid);
    client_close(&client);
    return result;
}

static int run_with_library(const struct wish *wish, pid_t pid)
{
    struct values values = {0};
    struct error err = {0};
    int result = ask(wish, pid, &values, &err);

    if (result < 0)
        say_error(wish, &err);
    else if (wish->operation == GET_STATE)
        puts(values_find(&values, "state") ? values_find(&values, "state") : "failed");
    values_free(&values);
    return result;
}

/* ---- a process of which only the driver knows */

static int say_result(const struct wish *wish, int result)
{
    if (result == 0)
        return 0;
    return say_failure(wish,
                       result == DRIVER_CHECKPOINT_MISSING ? TEXT_NO_CUDA : driver_checkpoint_text(result));
}

static int driver_steps(pid_t pid, enum driver_checkpoint_step first, enum driver_checkpoint_step second)
{
    int result = driver_checkpoint_step(first, pid, 0);

    return result ? result : driver_checkpoint_step(second, pid, 0);
}

static int run_with_driver(const struct wish *wish, pid_t pid)
{
    static const char *const names[] = {"running", "locked",        "checkpointed",
                                        "failed",  "checkpointing", "restoring"};
    static const enum driver_checkpoint_step steps[] = {[ACTION_LOCK] = DRIVER_LOCK,
                                                        [ACTION_CHECKPOINT] = DRIVER_CHECKPOINT,
                                                        [ACTION_RESTORE] = DRIVER_RESTORE,
                                                        [ACTION_UNLOCK] = DRIVER_UNLOCK};
    int number, result;

    if (wish->operation == GET_RESTORE_TID) {
        result = driver_checkpoint_thread(pid, &number);
        if (result == 0)
            printf("%d\n", number);
        return say_result(wish, result);
    }
    if (wish->operation == ACTION)
        return say_result(wish,
                          driver_checkpoint_step(steps[wish->action], pid, (unsigned int)wish->timeout_ms));
    result = driver_checkpoint_state(pid, &number);
    if (result)
        return say_result(wish, result);
    if (wish->operation == GET_STATE) {
        puts(number >= 0 && (size_t)number < sizeof(names) / sizeof(names[0]) ? names[number] : "unknown");
        return 0;
    }
    if (number == 0)
        return say_result(wish, driver_steps(pid, DRIVER_LOCK, DRIVER_CHECKPOINT));
    return say_result(wish, driver_steps(pid, DRIVER_RESTORE, DRIVER_UNLOCK));
}

/* ---- */

static int run(const struct wish *wish)
{
    struct error err = {0};
    pid_t pid, tid;

    if (wish->device_map && wish->operation == ACTION && wish->action == ACTION_RESTORE) {
        int exchanged = device_map_check(wish->device_map, &err);

        if (exchanged)
            return exchanged < 0 ? usage_error("Invalid device map") : say_error(wish, &err);
    }
    /* The number of any thread does: CRIU's plugin asks for the state of the restore thread. */
    pid = cuda_process_of(wish->pid);
    if (!pid)
        return say_failure(wish, TEXT_NO_PROCESS);
    tid = cuda_process_control_thread(pid);
    if (tid && wish->operation == GET_RESTORE_TID) {
        /* Not asked for over the socket: CRIU wants to know while the thread is frozen. */
        printf("%d\n", (int)tid);
        return 0;
    }
    if (tid)
        return run_with_library(wish, pid);
    /* Only now is the driver loaded: most processes that are asked about have nothing to do with CUDA. */
    if (cuda_process_uses_device(pid))
        return run_with_driver(wish, pid);
    return say_failure(wish, TEXT_NO_CUDA);
}

int cuda_checkpoint_main(int argc, char **argv)
{
    struct wish wish = {NO_OPERATION};
    struct error err = {0};
    int result = wish_parse(argc, argv, &wish);

    if (result == 0 && wish.program) {
        result = launch_job(wish.program, &err);
        fprintf(stderr, TOOL_NAME ": %s\n", err.text);
    } else if (result == 0 && wish.operation == HELP) {
        fputs(help, stdout);
    } else if (result == 0) {
        result = run(&wish);
    }
    /* A result that nobody could read is no success: the disk may be full. */
    return fflush(stdout) == 0 && result == 0 ? 0 : 1;
}
