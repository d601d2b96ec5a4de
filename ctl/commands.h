#ifndef CUDACKPT_COMMANDS_H
#define CUDACKPT_COMMANDS_H
/* The commands of cudackpt-ctl. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "protocol.h"

struct command_options {
    uint64_t timeout_ms; /* 0: none */
    bool has_timeout, json, quiet;
};

struct command {
    const char *name;
    const char *usage; /* what follows the name */
    const char *summary;
    const char *help; /* whole sentences, for `help COMMAND` */
    enum protocol_action action;
    /* Prints the result; -1 with err set on failure. */
    int (*run)(const struct command *command, pid_t pid, const struct command_options *options,
               struct error *err);
};

extern const struct command commands[];
extern const size_t command_count;

const struct command *command_find(const char *name); /* NULL if there is none */

#endif
