#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE 2048

enum log_level log_level = LOG_OFF;

static const char *const level_names[] = {
    [LOG_OFF] = "off", [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug",
};

static char
    file_path[PATH_MAX]; /* absolute, since the program may change its directory; empty: standard error */

/* Writes without the SIGPIPE that a closed pipe would bring: it would end the program for a line of ours. */
static void write_quietly(int fd, const char *line, size_t length)
{
    static const struct timespec no_wait;
    sigset_t pipe_signal, before, pending;
    bool was_pending;

    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    if (write(fd, line, length) < 0 && errno == EPIPE && !was_pending)
        sigtimedwait(&pipe_signal, NULL, &no_wait);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int open_file(void)
{
    return open(file_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
}

/*
 * No descriptor is kept for the file: a program that closes all descriptors that it does not know would close
 * ours, and our lines would go to whatever it opens next.
 */
static void line_write(const char *line, size_t length)
{
    int fd;

    if (!file_path[0]) {
        write_quietly(STDERR_FILENO, line, length);
        return;
    }
    fd = open_file();
    if (fd < 0)
        return;
    write_quietly(fd, line, length);
    close(fd);
}

void log_write(enum log_level level, const char *prefix, const char *format, ...)
{
    int saved = errno;
    char line[LINE_SIZE];
    struct timespec now;
    va_list args;
    int length, rest;

    clock_gettime(CLOCK_MONOTONIC, &now);
    length =
        snprintf(line, sizeof(line), "cudackpt[%d.%ld] %lld.%06ld %s %s: ", (int)getpid(),
                 syscall(SYS_gettid), (long long)now.tv_sec, now.tv_nsec / 1000, level_names[level], prefix);
    if (length < 0 || (size_t)length >= sizeof(line) - 1) {
        errno = saved;
        return;
    }
    va_start(args, format);
    rest = vsnprintf(line + length, sizeof(line) - 1 - (size_t)length, format, args);
    va_end(args);
    if (rest > 0)
        length += (int)strlen(line + length);
    line[length++] = '\n';
    line_write(line, (size_t)length);
    errno = saved;
}

static int file_path_set(const char *file)
{
    size_t used = 0;
    int fd;

    if (file[0] != '/') {
        if (!getcwd(file_path, sizeof(file_path) - 1))
            return -1;
        used = strlen(file_path);
        file_path[used++] = '/';
    }
    if (strlen(file) >= sizeof(file_path) - used)
        return -1;
    strcpy(file_path + used, file);
    fd = open_file();
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

void log_start(void)
{
    int saved = errno;
    const char *value = secure_getenv("CUDACKPT_LOG");
    const char *colon;
    size_t length;

    if (!value || !value[0])
        return;
    colon = strchrnul(value, ':');
    length = (size_t)(colon - value);
    if (*colon && colon[1] && file_path_set(colon + 1) < 0) {
        file_path[0] = '\0';
        log_write(LOG_WARN, "log", "CUDACKPT_LOG: can't write to %s; standard error is used", colon + 1);
    }
    for (int level = LOG_OFF; level <= LOG_DEBUG; level++) {
        if (strlen(level_names[level]) == length && !memcmp(level_names[level], value, length)) {
            log_level = (enum log_level)level;
            errno = saved;
            return;
        }
    }
    log_write(LOG_ERROR, "log",
              "CUDACKPT_LOG: unknown level \"%.*s\"; the levels are off, error, warn, info, debug",
              (int)length, value);
    errno = saved;
}
