/* Import hooks for descriptors: what the driver opens is noted in the ledger. */
#include "import_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ledger.h"
#define LOG_PREFIX "imports"
#include "log.h"

static int note(int fd)
{
    ledger_check_caller();
    ledger_descriptor_add(fd);
    log_debug("descriptor %d", fd);
    return fd;
}

/* Like every program, the driver passes a mode only with O_CREAT and O_TMPFILE; reading it regardless does no harm. */
#define WITH_MODE(last, mode)                                                                                \
    va_list list_;                                                                                           \
    mode_t mode;                                                                                             \
    va_start(list_, last);                                                                                   \
    mode = va_arg(list_, mode_t);                                                                            \
    va_end(list_)

static int hook_open(const char *path, int flags, ...)
{
    WITH_MODE(flags, mode);
    return note(import_names_maps(path) ? import_open_maps(flags) : open(path, flags, mode));
}

static int hook_openat(int directory, const char *path, int flags, ...)
{
    WITH_MODE(flags, mode);
    return note(openat(directory, path, flags, mode));
}

static int hook_creat(const char *path, mode_t mode)
{
    return note(creat(path, mode));
}

static int hook_socket(int domain, int type, int protocol)
{
    return note(socket(domain, type, protocol));
}

static int hook_socketpair(int domain, int type, int protocol, int pair[2])
{
    int result = socketpair(domain, type, protocol, pair);

    if (result == 0) {
        note(pair[0]);
        note(pair[1]);
    }
    return result;
}

static int hook_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return note(accept(fd, address, length));
}

static int hook_eventfd(unsigned value, int flags)
{
    return note(eventfd(value, flags));
}

static int hook_pipe(int pair[2])
{
    int result = pipe(pair);

    if (result == 0) {
        note(pair[0]);
        note(pair[1]);
    }
    return result;
}

static int hook_dup(int fd)
{
    return note(dup(fd));
}

static int hook_dup2(int old, int new)
{
    return note(dup2(old, new));
}

static int hook_dup3(int old, int new, int flags)
{
    return note(dup3(old, new, flags));
}

static int hook_fcntl(int fd, int command, ...)
{
    va_list list;
    long argument;
    int result;

    va_start(list, command);
    argument = va_arg(list, long);
    va_end(list);
    result = fcntl(fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        note(result);
    return result;
}

static int hook_close(int fd)
{
    ledger_descriptor_remove(fd);
    return close(fd);
}

static int hook_mkstemp(char *template)
{
    return note(mkstemp(template));
}

static int hook_shm_open(const char *name, int flags, mode_t mode)
{
    return note(shm_open(name, flags, mode));
}

/* Descriptors that come over a socket. */
static ssize_t hook_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t result = recvmsg(fd, message, flags);

    for (struct cmsghdr *part = result >= 0 ? CMSG_FIRSTHDR(message) : NULL; part;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
            int received;

            memcpy(&received, (char *)part + at, sizeof received);
            note(received);
        }
    }
    return result;
}

static FILE *hook_fopen(const char *path, const char *mode)
{
    FILE *stream = import_names_maps(path) ? fdopen(import_open_maps(O_CLOEXEC), mode) : fopen(path, mode);

    ledger_stream_add(stream, false);
    return stream;
}

static FILE *hook_fdopen(int fd, const char *mode)
{
    FILE *stream = fdopen(fd, mode);

    ledger_stream_add(stream, false);
    return stream;
}

static int hook_fclose(FILE *stream)
{
    ledger_stream_remove(stream, false);
    return fclose(stream);
}

static DIR *hook_opendir(const char *path)
{
    DIR *directory = opendir(path);

    ledger_stream_add(directory, true);
    return directory;
}

static DIR *hook_fdopendir(int fd)
{
    DIR *directory = fdopendir(fd);

    ledger_stream_add(directory, true);
    return directory;
}

static int hook_closedir(DIR *directory)
{
    ledger_stream_remove(directory, true);
    return closedir(directory);
}

/* The driver makes some descriptors by their system call: eventfd2, pipe2. */
static long hook_syscall(long number, ...)
{
    long a[6], result;
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (result < 0)
        return result;
    switch (number) {
    case SYS_open:
    case SYS_openat:
    case SYS_openat2:
    case SYS_socket:
    case SYS_accept:
    case SYS_accept4:
    case SYS_eventfd:
    case SYS_eventfd2:
    case SYS_memfd_create:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_epoll_create:
    case SYS_epoll_create1:
    case SYS_timerfd_create:
    case SYS_signalfd4:
    case SYS_inotify_init1:
    case SYS_pidfd_open:
    case SYS_pidfd_getfd:
        note((int)result);
        break;
    case SYS_pipe:
    case SYS_pipe2:
        note(((int *)a[0])[0]);
        note(((int *)a[0])[1]);
        break;
    case SYS_close:
        ledger_descriptor_remove((int)a[0]);
        break;
    default:
        break;
    }
    return result;
}

const struct import_hook import_descriptors[] = {
    {"open", hook_open},
    {"open64", hook_open},
    {"openat", hook_openat},
    {"openat64", hook_openat},
    {"creat", hook_creat},
    {"socket", hook_socket},
    {"socketpair", hook_socketpair},
    {"accept", hook_accept},
    {"eventfd", hook_eventfd},
    {"pipe", hook_pipe},
    {"dup", hook_dup},
    {"dup2", hook_dup2},
    {"dup3", hook_dup3},
    {"fcntl", hook_fcntl},
    {"fcntl64", hook_fcntl},
    {"close", hook_close},
    {"mkstemp", hook_mkstemp},
    {"shm_open", hook_shm_open},
    {"recvmsg", hook_recvmsg},
    {"fopen", hook_fopen},
    {"fopen64", hook_fopen},
    {"fdopen", hook_fdopen},
    {"fclose", hook_fclose},
    {"opendir", hook_opendir},
    {"fdopendir", hook_fdopendir},
    {"closedir", hook_closedir},
    {"syscall", hook_syscall},
    {NULL, NULL},
};
