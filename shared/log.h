#ifndef CUDACKPT_LOG_H
#define CUDACKPT_LOG_H
/*
 * Diagnostics of the preloaded library, off unless CUDACKPT_LOG asks for them:
 *   CUDACKPT_LOG=LEVEL[:FILE]    LEVEL: error, warn, info, debug; FILE: appended to, standard error if none
 * Any thread may log. A line is formatted on the stack and written with one write(2): no malloc, no stdio,
 * no lock, errno kept. Each file that logs defines LOG_PREFIX before it includes this header.
 */

enum log_level {
    LOG_OFF,
    LOG_ERROR, /* an action failed */
    LOG_WARN,  /* the program goes on, but can't be suspended, or something is odd */
    LOG_INFO,  /* states, phases and their times */
    LOG_DEBUG, /* records, placements */
};

extern enum log_level log_level;

/* Reads CUDACKPT_LOG; called once, early. An unknown level logs one line that lists the valid ones. */
void log_start(void);

void log_write(enum log_level level, const char *prefix, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_at(level, ...)                                                                                   \
    do {                                                                                                     \
        if (__builtin_expect(log_level >= (level), 0))                                                       \
            log_write((level), LOG_PREFIX, __VA_ARGS__);                                                     \
    } while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
