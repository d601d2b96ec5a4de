#ifndef CUDACKPT_ERROR_H
#define CUDACKPT_ERROR_H
/* One error, filled where it happens and carried unchanged to the person who asked. */

#include <stddef.h>

/* Also the exit codes of cudackpt-ctl and the numbers on the wire: only add. */
enum error_code {
    ERROR_NONE = 0,
    ERROR_REFUSED = 1,    /* the action failed or was refused; nothing else fits */
    ERROR_USAGE = 2,      /* wrong arguments */
    ERROR_NOT_FOUND = 3,  /* no such process, or it runs without the preload */
    ERROR_STATE = 4,      /* not possible in the present state */
    ERROR_TIMEOUT = 5,    /* the program's work did not end in time; it runs on */
    ERROR_UNSAVEABLE = 6, /* the process holds something that can't be saved; it runs on */
    ERROR_MEMORY = 7,     /* not enough device or host memory; try again when there is more */
    ERROR_MISMATCH = 8,   /* something came back different at restore; still suspended */
    ERROR_PERMISSION = 9, /* the caller may not control that process */
};

struct error {
    enum error_code code;
    char text[1024]; /* one sentence, no newline: what failed, and what to do */
};

/* Sets code and text; a second set on the same error is ignored: the first cause is the one to report. */
void error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, followed by ": " and what errno says. */
void error_set_errno(struct error *err, enum error_code code, int number, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "format: " before the text of an error that is set. */
void error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

void error_clear(struct error *err);

#endif
