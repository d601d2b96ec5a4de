#ifndef CUDACKPT_PROTOCOL_H
#define CUDACKPT_PROTOCOL_H
/*
 * What cudackpt-ctl and the control thread say to each other over a Unix stream socket: lines of text,
 * docs/protocol.md.
 *   request   ACTION [timeout=MS] [deep=1]\n   one per connection, at most PROTOCOL_REQUEST_MAX bytes
 *   reply     progress PHASE DONE TOTAL\n    any number
 *             value NAME TEXT\n              any number
 *             ok\n  or  error CODE SENTENCE\n   the last line
 * ACTION: toggle suspend resume lock checkpoint restore unlock state status restore-tid
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"

#define PROTOCOL_VERSION     1
#define PROTOCOL_REQUEST_MAX 256
#define PROTOCOL_LINE_MAX    2048
#define PROTOCOL_TIMEOUT_MAX 1000000000 /* ms, eleven days: as nanoseconds it still fits everywhere */

enum protocol_action {
    ACTION_TOGGLE,
    ACTION_SUSPEND,
    ACTION_RESUME,
    ACTION_LOCK,
    ACTION_CHECKPOINT,
    ACTION_RESTORE,
    ACTION_UNLOCK,
    ACTION_STATE,
    ACTION_STATUS,
    ACTION_RESTORE_TID,
    ACTION_COUNT
};

extern const char *const protocol_action_names[ACTION_COUNT];

struct protocol_request {
    enum protocol_action action;
    uint64_t timeout_ms; /* 0: none */
    bool deep;           /* lock only: the whole suspend at once, shown as locked (docs/protocol.md) */
};

/* True for the actions that wait for work to end: only they take a time-out. */
bool protocol_takes_timeout(enum protocol_action action);

/* line: NUL-terminated, with or without its newline. ERROR_USAGE if it is anything but a valid request. */
int protocol_request_parse(const char *line, struct protocol_request *request, struct error *err);

/* Writes the whole line, newline included; -1 if it doesn't fit. */
int protocol_request_format(const struct protocol_request *request, char *line, size_t size);

enum protocol_reply_kind { REPLY_PROGRESS, REPLY_VALUE, REPLY_OK, REPLY_ERROR };

struct protocol_reply {
    enum protocol_reply_kind kind;
    const char *name;     /* progress: the phase; value: the name */
    const char *text;     /* value: the text, may be empty; error: the sentence */
    uint64_t done, total; /* progress; total 0: unknown */
    enum error_code code; /* error: never ERROR_NONE; codes that a newer library added come as they are */
};

/* Cuts the line in place; the strings of reply point into it. -1 if it is no valid reply line. */
int protocol_reply_parse(char *line, struct protocol_reply *reply);

/*
 * Each writes one line, newline included, and returns its length. Text that is too long is cut; control
 * characters in it become blanks, and blanks in a name become '_': one call is always exactly one line.
 */
size_t protocol_format_progress(char *line, size_t size, const char *phase, uint64_t done, uint64_t total);
size_t protocol_format_value(char *line, size_t size, const char *name, const char *text);
size_t protocol_format_end(char *line, size_t size, const struct error *err); /* err not set: "ok" */

/* Decimal digits only, nothing around them, at most max. */
int protocol_parse_number(const char *text, uint64_t max, uint64_t *number);

/*
 * Where the socket of a process lies, as the process itself sees it: DIR/cudackpt-UID/PID, with DIR the first
 * of protocol_directory that can be used and PID in the process's own pid namespace. The directory
 * cudackpt-UID belongs to UID, mode 0700.
 */
extern const char *const protocol_directories[]; /* "/tmp", "/dev/shm", "/var/tmp", NULL */

/* The index-th directory to try: CUDACKPT_SOCKET_DIR first, if set and absolute; NULL after the last. */
const char *protocol_directory(size_t index);

/* root: "" or e.g. "/proc/123/root". -1 if the path doesn't fit. */
int protocol_socket_path(char *path, size_t size, const char *root, const char *directory, uid_t uid,
                         pid_t pid);

#endif
