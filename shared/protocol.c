#include "protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const protocol_action_names[ACTION_COUNT] = {
    [ACTION_TOGGLE] = "toggle",         [ACTION_SUSPEND] = "suspend",
    [ACTION_RESUME] = "resume",         [ACTION_LOCK] = "lock",
    [ACTION_CHECKPOINT] = "checkpoint", [ACTION_RESTORE] = "restore",
    [ACTION_UNLOCK] = "unlock",         [ACTION_STATE] = "state",
    [ACTION_STATUS] = "status",         [ACTION_RESTORE_TID] = "restore-tid",
};

const char *const protocol_directories[] = {"/tmp", "/dev/shm", "/var/tmp", NULL};

/* ---- requests */

bool protocol_takes_timeout(enum protocol_action action)
{
    return action == ACTION_TOGGLE || action == ACTION_SUSPEND || action == ACTION_LOCK;
}

int protocol_parse_number(const char *text, uint64_t max, uint64_t *number)
{
    uint64_t value = 0;

    if (!*text)
        return -1;
    for (; *text; text++) {
        unsigned int digit = (unsigned int)(*text - '0');

        if (digit > 9 || value > max / 10 || digit > max - value * 10)
            return -1;
        value = value * 10 + digit;
    }
    *number = value;
    return 0;
}

static int action_parse(const char *word, enum protocol_action *action)
{
    for (int i = 0; i < ACTION_COUNT; i++) {
        if (!strcmp(word, protocol_action_names[i])) {
            *action = (enum protocol_action)i;
            return 0;
        }
    }
    return -1;
}

static int option_parse(const char *word, struct protocol_request *request, struct error *err)
{
    static const char timeout[] = "timeout=";

    if (!strcmp(word, "deep=1") && request->action == ACTION_LOCK) {
        request->deep = true;
        return 0;
    }
    if (strncmp(word, timeout, sizeof(timeout) - 1)) {
        error_set(err, ERROR_USAGE,
                  "unknown option \"%s\" in the request; there are timeout=MS and, for lock, deep=1", word);
        return -1;
    }
    if (!protocol_takes_timeout(request->action)) {
        error_set(err, ERROR_USAGE, "%s takes no time-out; only lock, suspend and toggle do",
                  protocol_action_names[request->action]);
        return -1;
    }
    if (protocol_parse_number(word + sizeof(timeout) - 1, PROTOCOL_TIMEOUT_MAX, &request->timeout_ms) < 0) {
        error_set(err, ERROR_USAGE, "the time-out \"%s\" is not a number of milliseconds from 0 to %d",
                  word + sizeof(timeout) - 1, PROTOCOL_TIMEOUT_MAX);
        return -1;
    }
    return 0;
}

int protocol_request_parse(const char *line, struct protocol_request *request, struct error *err)
{
    char copy[PROTOCOL_REQUEST_MAX];
    size_t length = strcspn(line, "\n");
    char *word, *rest = copy;

    if (line[length] == '\n' && line[length + 1]) {
        error_set(err, ERROR_USAGE, "more than one line in the request; send one request per connection");
        return -1;
    }
    if (length >= sizeof(copy)) {
        error_set(err, ERROR_USAGE, "the request is longer than %d bytes", PROTOCOL_REQUEST_MAX);
        return -1;
    }
    for (size_t i = 0; i < length; i++) {
        /* Whatever is printed back to the caller below is printable for certain. */
        if (line[i] < ' ' || line[i] > '~') {
            error_set(err, ERROR_USAGE, "the request contains a byte that is not printable text");
            return -1;
        }
    }
    memcpy(copy, line, length);
    copy[length] = '\0';

    memset(request, 0, sizeof(*request));
    word = strsep(&rest, " ");
    if (action_parse(word, &request->action) < 0) {
        error_set(err, ERROR_USAGE, "unknown action \"%s\"; this library knows version %d of the protocol",
                  word, PROTOCOL_VERSION);
        return -1;
    }
    while ((word = strsep(&rest, " "))) {
        if (option_parse(word, request, err) < 0)
            return -1;
    }
    return 0;
}

int protocol_request_format(const struct protocol_request *request, char *line, size_t size)
{
    const char *action = protocol_action_names[request->action];
    const char *deep = request->deep ? " deep=1" : "";
    int length;

    if (request->timeout_ms)
        length = snprintf(line, size, "%s timeout=%llu%s\n", action, (unsigned long long)request->timeout_ms,
                          deep);
    else
        length = snprintf(line, size, "%s%s\n", action, deep);
    return length < 0 || (size_t)length >= size ? -1 : 0;
}

/* ---- replies */

int protocol_reply_parse(char *line, struct protocol_reply *reply)
{
    char *rest = line, *kind, *number;
    uint64_t code;

    memset(reply, 0, sizeof(*reply));
    line[strcspn(line, "\n")] = '\0';
    kind = strsep(&rest, " ");
    if (!strcmp(kind, "ok")) {
        reply->kind = REPLY_OK;
        return rest ? -1 : 0;
    }
    if (!rest || !*rest)
        return -1;
    if (!strcmp(kind, "value")) {
        reply->kind = REPLY_VALUE;
        reply->name = strsep(&rest, " ");
        reply->text = rest ? rest : "";
        return *reply->name ? 0 : -1;
    }
    if (!strcmp(kind, "progress")) {
        reply->kind = REPLY_PROGRESS;
        reply->name = strsep(&rest, " ");
        number = strsep(&rest, " ");
        if (!*reply->name || !number || protocol_parse_number(number, UINT64_MAX, &reply->done) < 0 || !rest)
            return -1;
        return protocol_parse_number(rest, UINT64_MAX, &reply->total);
    }
    if (!strcmp(kind, "error")) {
        reply->kind = REPLY_ERROR;
        number = strsep(&rest, " ");
        /* 125: the largest exit code that a shell doesn't give a meaning of its own. */
        if (protocol_parse_number(number, 125, &code) < 0 || !code || !rest || !*rest)
            return -1;
        reply->code = (enum error_code)code;
        reply->text = rest;
        return 0;
    }
    return -1;
}

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 0x7f;
}

/* Ends the text of a line with its newline, whatever was written into it. */
static size_t line_finish(char *line, size_t size, int length)
{
    size_t end = length < 0 ? 0 : (size_t)length;

    if (end > size - 2)
        end = size - 2;
    for (size_t i = 0; i < end; i++) {
        if (is_control(line[i]))
            line[i] = ' ';
    }
    line[end++] = '\n';
    line[end] = '\0';
    return end;
}

static void name_copy(char *copy, size_t size, const char *name)
{
    snprintf(copy, size, "%s", *name ? name : "_");
    for (char *c = copy; *c; c++) {
        if (*c == ' ' || is_control(*c))
            *c = '_';
    }
}

size_t protocol_format_progress(char *line, size_t size, const char *phase, uint64_t done, uint64_t total)
{
    char name[64];

    name_copy(name, sizeof(name), phase);
    return line_finish(line, size,
                       snprintf(line, size, "progress %s %llu %llu", name, (unsigned long long)done,
                                (unsigned long long)total));
}

size_t protocol_format_value(char *line, size_t size, const char *name, const char *text)
{
    char copy[64];

    name_copy(copy, sizeof(copy), name);
    return line_finish(line, size, snprintf(line, size, "value %s %s", copy, text));
}

size_t protocol_format_end(char *line, size_t size, const struct error *err)
{
    if (err->code == ERROR_NONE)
        return line_finish(line, size, snprintf(line, size, "ok"));
    return line_finish(line, size,
                       snprintf(line, size, "error %d %s", (int)err->code,
                                err->text[0] ? err->text : "it failed without saying why"));
}

/* ---- the socket */

const char *protocol_directory(size_t index)
{
    const char *chosen = secure_getenv("CUDACKPT_SOCKET_DIR");

    if (chosen && chosen[0] == '/') {
        if (index == 0)
            return chosen;
        index--;
    }
    return index < sizeof(protocol_directories) / sizeof(protocol_directories[0])
               ? protocol_directories[index]
               : NULL;
}

int protocol_socket_path(char *path, size_t size, const char *root, const char *directory, uid_t uid,
                         pid_t pid)
{
    int length = snprintf(path, size, "%s%s/cudackpt-%u/%d", root, directory, (unsigned int)uid, (int)pid);

    return length < 0 || (size_t)length >= size ? -1 : 0;
}
