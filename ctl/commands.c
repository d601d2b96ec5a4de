#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "client.h"
#include "io.h"

static int ask(const struct command *command, pid_t pid, const struct command_options *options,
               struct values *values, struct error *err)
{
    struct protocol_request request = {.action = command->action, .timeout_ms = options->timeout_ms};
    struct client client = {.fd = -1};
    int result;

    result = client_connect(&client, pid, err);
    if (result == 0) {
        progress_start(!options->quiet);
        result = client_ask(&client, &request, values, err);
        progress_end();
    }
    client_close(&client);
    return result;
}

/* Success is silent, for people. */
static int print_nothing(const struct values *values, struct error *err)
{
    return 0;
}

static int print_state(const struct values *values, struct error *err)
{
    const char *state = values_find(values, "state");

    if (!state) {
        error_set(err, ERROR_REFUSED,
                  "the reply names no state: use the cudackpt-ctl that came with the library");
        return -1;
    }
    puts(state);
    return 0;
}

static int print_status(const struct values *values, struct error *err)
{
    output_values(values);
    return 0;
}

static int run(const struct command *command, pid_t pid, const struct command_options *options,
               int (*print)(const struct values *values, struct error *err), struct error *err)
{
    uint64_t start = io_now_ms();
    struct values values = {0};
    int result = ask(command, pid, options, &values, err);

    if (options->json) {
        json_begin();
        json_integer("pid", (int)pid);
        json_string("command", command->name);
        json_seconds("seconds", io_now_ms() - start);
        json_values(&values);
        if (result < 0) {
            json_integer("code", (int)err->code);
            json_string("error", err->text);
        }
        json_end();
    } else if (result == 0) {
        result = print(&values, err);
    }
    values_free(&values);
    return result;
}

static int run_action(const struct command *command, pid_t pid, const struct command_options *options,
                      struct error *err)
{
    return run(command, pid, options, print_nothing, err);
}

static int run_state(const struct command *command, pid_t pid, const struct command_options *options,
                     struct error *err)
{
    return run(command, pid, options, print_state, err);
}

static int run_status(const struct command *command, pid_t pid, const struct command_options *options,
                      struct error *err)
{
    return run(command, pid, options, print_status, err);
}

const struct command commands[] = {
    {"suspend", "PID [--timeout TIME]", "take a program off the GPU",
     "Locks the program, waits until its work on the GPU has ended, copies its device memory to host memory "
     "and gives\n"
     "the GPU back. The program's threads run on; their CUDA calls wait. If it can't be done, the program "
     "runs on as\n"
     "if nothing had happened. A program that is locked already is taken off from there.\n",
     ACTION_SUSPEND, run_action},
    {"resume", "PID", "put a suspended program back",
     "Acquires the GPU, puts everything back at its old place and lets the program run on. If it can't be "
     "done, for\n"
     "instance because another program holds the memory, the program stays suspended and keeps its data: try "
     "again.\n"
     "A program that is only locked is unlocked.\n",
     ACTION_RESUME, run_action},
    {"toggle", "PID [--timeout TIME]", "suspend a running program, resume a suspended one",
     "What suspend does, if the program is running; what resume does, if it is suspended.\n", ACTION_TOGGLE,
     run_action},
    {"lock", "PID [--timeout TIME]", "hold the program's CUDA calls and wait for its work to end",
     "The first step of suspend alone. Undo it with unlock, or go on with checkpoint.\n", ACTION_LOCK,
     run_action},
    {"checkpoint", "PID", "take a locked program off the GPU",
     "The second step of suspend alone. If it can't be done, the program stays locked.\n", ACTION_CHECKPOINT,
     run_action},
    {"restore", "PID", "put a suspended program back, but keep it locked",
     "The first step of resume alone. Go on with unlock.\n", ACTION_RESTORE, run_action},
    {"unlock", "PID", "let a locked program run on", "The last step of resume alone.\n", ACTION_UNLOCK,
     run_action},
    {"state", "PID", "print running, locked, checkpointed or failed",
     "failed: suspended, and the last restore did not succeed; resume tries it again.\n", ACTION_STATE,
     run_state},
    {"status", "PID", "print the state, what the program holds, and what would stop a suspend",
     "One line per fact. Also answered while a suspend or resume is under way.\n", ACTION_STATUS, run_status},
};

const size_t command_count = sizeof(commands) / sizeof(commands[0]);

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < command_count; i++) {
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    }
    return NULL;
}
