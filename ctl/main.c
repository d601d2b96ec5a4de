/* cudackpt-ctl: takes CUDA programs that run under libcudackpt.so off the GPU and puts them back. */

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "cuda_checkpoint.h"
#include "dump.h"
#include "error.h"
#include "output.h"

#define OPERANDS_MAX 2

struct arguments {
    const char *operands[OPERANDS_MAX];
    size_t operand_count;
    struct command_options options;
    const char *directory; /* --images-dir */
    bool leave_running;
    char **rest; /* after "--" */
    bool help, version;
};

enum { OPTION_JSON = 256, OPTION_LEAVE_RUNNING, OPTION_VERSION };

static const struct option long_options[] = {
    {"timeout", required_argument, NULL, 't'},
    {"images-dir", required_argument, NULL, 'D'},
    {"leave-running", no_argument, NULL, OPTION_LEAVE_RUNNING},
    {"json", no_argument, NULL, OPTION_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

static const char options_help[] =
    "  -t, --timeout TIME  for lock, suspend, toggle: give up when the work has not ended by then (500, "
    "500ms, 5s)\n"
    "  -D, --images-dir DIR\n"
    "                      for dump and restore: where the files of a dump are\n"
    "      --leave-running for dump: the program runs on\n"
    "      --json          print one JSON object, errors included\n"
    "  -q, --quiet         no progress and no error text: the exit status tells\n"
    "  -h, --help          print this help\n"
    "      --version       print the version\n";

static const char exit_help[] = "Exit status: 0 done, 1 failed, 2 wrong arguments, 3 no such process or not "
                                "under libcudackpt.so, 4 not possible\n"
                                "in its state, 5 its work did not end in time, 6 it holds something that "
                                "can't be saved, 7 not enough memory,\n"
                                "8 something came back different, 9 not permitted.\n";

static void print_help(void)
{
    printf(
        "Usage: cudackpt-ctl COMMAND PID [OPTION]...\n"
        "       cudackpt-ctl help COMMAND\n"
        "Takes a CUDA program that runs under libcudackpt.so off the GPU and puts it back.\n\nCommands:\n");
    for (size_t i = 0; i < command_count; i++)
        printf("  %-11s %s\n", commands[i].name, commands[i].summary);
    printf("  %-11s %s\n  %-11s %s\n", "dump", "suspend a program and save it in files, with CRIU",
           "restore -D", "bring a program back from files");
    printf("\nOptions:\n%s\n%s", options_help, exit_help);
}

static int print_command_help(const char *name, struct error *err)
{
    const struct command *command = command_find(name);

    if (!command) {
        error_set(err, ERROR_USAGE, "there is no command \"%s\"", name);
        return -1;
    }
    printf("Usage: cudackpt-ctl %s %s [--json] [--quiet]\n%c%s.\n\n%s", command->name, command->usage,
           command->summary[0] - 'a' + 'A', command->summary + 1, command->help);
    return 0;
}

/* MS, or a number with the unit ms or s. */
static int timeout_parse(const char *text, uint64_t *timeout_ms, struct error *err)
{
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    uint64_t scale = !strcmp(unit, "s") ? 1000 : 1;
    char number[24];

    if (digits < sizeof(number) && (!*unit || !strcmp(unit, "ms") || !strcmp(unit, "s"))) {
        memcpy(number, text, digits);
        number[digits] = '\0';
        if (protocol_parse_number(number, PROTOCOL_TIMEOUT_MAX / scale, timeout_ms) == 0) {
            *timeout_ms *= scale;
            return 0;
        }
    }
    error_set(err, ERROR_USAGE,
              "the time-out \"%s\" is not a number of milliseconds, such as 500, 500ms or 5s", text);
    return -1;
}

static int pid_parse(const char *text, pid_t *pid, struct error *err)
{
    uint64_t number;

    if (protocol_parse_number(text, INT_MAX, &number) < 0 || !number) {
        error_set(err, ERROR_USAGE, "\"%s\" is not the number of a process", text);
        return -1;
    }
    *pid = (pid_t)number;
    return 0;
}

static int operand_add(struct arguments *arguments, const char *operand, struct error *err)
{
    if (arguments->operand_count == OPERANDS_MAX) {
        error_set(err, ERROR_USAGE, "\"%s\" is one argument too many", operand);
        return -1;
    }
    arguments->operands[arguments->operand_count++] = operand;
    return 0;
}

static int arguments_parse(int argc, char **argv, struct arguments *arguments, struct error *err)
{
    int option;

    opterr = 0;
    /* "-": operands come in their order as option 1, wherever they stand, whatever POSIXLY_CORRECT says. */
    while ((option = getopt_long(argc, argv, "-:t:D:qh", long_options, NULL)) != -1) {
        switch (option) {
        case 1:
            if (operand_add(arguments, optarg, err) < 0)
                return -1;
            break;
        case 't':
            if (timeout_parse(optarg, &arguments->options.timeout_ms, err) < 0)
                return -1;
            arguments->options.has_timeout = true;
            break;
        case 'D':
            arguments->directory = optarg;
            break;
        case OPTION_LEAVE_RUNNING:
            arguments->leave_running = true;
            break;
        case OPTION_JSON:
            arguments->options.json = true;
            break;
        case 'q':
            arguments->options.quiet = true;
            break;
        case 'h':
            arguments->help = true;
            break;
        case OPTION_VERSION:
            arguments->version = true;
            break;
        case ':':
            error_set(err, ERROR_USAGE, "the option %s needs a value", argv[optind - 1]);
            return -1;
        default:
            if (optopt > 0 && optopt < OPTION_JSON)
                error_set(err, ERROR_USAGE, "unknown option -%c", optopt);
            else
                error_set(err, ERROR_USAGE, "unknown option, or a value it doesn't take: %s",
                          argv[optind - 1]);
            return -1;
        }
    }
    arguments->rest = argv + optind; /* after "--": for criu, or operands like the others */
    for (; optind < argc && !arguments->directory; optind++) {
        if (operand_add(arguments, argv[optind], err) < 0)
            return -1;
    }
    return 0;
}

static int command_run(const struct arguments *arguments, struct error *err)
{
    const struct command *command = command_find(arguments->operands[0]);
    pid_t pid;

    if (!command) {
        error_set(err, ERROR_USAGE, "there is no command \"%s\"", arguments->operands[0]);
        return -1;
    }
    if (arguments->operand_count < 2) {
        error_set(err, ERROR_USAGE, "%s needs the number of a process", command->name);
        return -1;
    }
    if (arguments->directory || arguments->leave_running) {
        error_set(err, ERROR_USAGE, "--images-dir and --leave-running go with dump and restore only");
        return -1;
    }
    if (arguments->options.has_timeout && !protocol_takes_timeout(command->action)) {
        error_set(err, ERROR_USAGE, "%s takes no --timeout; only lock, suspend and toggle do", command->name);
        return -1;
    }
    if (pid_parse(arguments->operands[1], &pid, err) < 0)
        return -1;
    return command->run(command, pid, &arguments->options, err);
}

/* With CRIU: `dump PID -D DIR` and `restore -D DIR`. */
static int dump_or_restore(const struct arguments *arguments, struct error *err)
{
    const struct dump_options options = {.directory = arguments->directory,
                                         .leave_running = arguments->leave_running,
                                         .timeout_ms = arguments->options.timeout_ms,
                                         .criu_options = arguments->rest};
    bool dump = !strcmp(arguments->operands[0], "dump");
    pid_t pid;

    if (!options.directory || !*options.directory || arguments->operand_count != (dump ? 2 : 1) ||
        arguments->options.json || (!dump && (options.leave_running || arguments->options.has_timeout))) {
        error_set(err, ERROR_USAGE,
                  "it is: dump PID -D DIR [--leave-running] [--timeout TIME] [-- CRIU-OPTION...], or: "
                  "restore -D DIR "
                  "[-- CRIU-OPTION...]");
        return -1;
    }
    if (!dump)
        return restore_run(&options, err);
    return pid_parse(arguments->operands[1], &pid, err) < 0 ? -1 : dump_run(pid, &options, err);
}

static int dispatch(const struct arguments *arguments, struct error *err)
{
    const char *first = arguments->operands[0], *second = arguments->operands[1];

    if (arguments->version) {
        puts("cudackpt-ctl " CUDACKPT_VERSION);
        return 0;
    }
    if (first && !arguments->help &&
        (!strcmp(first, "dump") || (arguments->directory && !strcmp(first, "restore"))))
        return dump_or_restore(arguments, err);
    if (first && !strcmp(first, "help"))
        first = second;
    else if (!arguments->help)
        return first ? command_run(arguments, err) : (error_set(err, ERROR_USAGE, "no command given"), -1);
    if (first)
        return print_command_help(first, err);
    print_help();
    return 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct error err = {0};
    int result;

    if (cuda_checkpoint_is_meant(argc, argv))
        return cuda_checkpoint_main(argc, argv);
    result = arguments_parse(argc, argv, &arguments, &err);
    if (result == 0)
        result = dispatch(&arguments, &err);
    /* A result that nobody could read is no success: the disk may be full. */
    if (fflush(stdout) != 0 && result == 0) {
        error_set(&err, ERROR_REFUSED, "can't write to standard output");
        result = -1;
    }
    if (result == 0)
        return 0;
    output_clean(err.text);
    if (!arguments.options.quiet)
        fprintf(stderr, "cudackpt-ctl: %s\n", err.text);
    if (err.code == ERROR_USAGE && !arguments.options.quiet)
        fprintf(stderr, "Try 'cudackpt-ctl --help'.\n");
    return (int)err.code;
}
