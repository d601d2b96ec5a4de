#include "stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define WALK_MAX 64 /* frames; a damaged stack must not be followed for ever */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

void stack_symbol(const void *address, char *out, size_t size)
{
    Dl_info info;

    out[0] = '\0';
    if (!address || !dladdr(address, &info) || !info.dli_fname)
        return;
    if (info.dli_sname)
        snprintf(out, size, "%s (%s)", info.dli_sname, base_name(info.dli_fname));
    else
        snprintf(out, size, "%s", base_name(info.dli_fname));
}

/* ---- other threads */

/* The file's first line, without its end. */
static bool task_read(pid_t tid, const char *file, char *out, size_t size)
{
    char path[64];
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", (int)tid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    do
        length = read(fd, out, size - 1);
    while (length < 0 && errno == EINTR);
    close(fd);
    if (length < 0)
        return false;
    out[length] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return true;
}

static const char *task_state(pid_t tid)
{
    char stat[256];
    const char *end;

    /* "TID (NAME) STATE ...", where NAME may hold anything, parentheses too */
    if (!task_read(tid, "stat", stat, sizeof(stat)) || !(end = strrchr(stat, ')')) || end[1] != ' ')
        return "in an unknown state";
    switch (end[2]) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "waiting for a device";
    case 'T':
    case 't':
        return "stopped";
    default:
        return "ending";
    }
}

/* "NUMBER ARGUMENTS SP PC", or "-1 SP PC" outside of system calls, or "running" */
static const void *task_pc(pid_t tid)
{
    char syscall_line[256];
    const char *last;

    if (!task_read(tid, "syscall", syscall_line, sizeof(syscall_line)) ||
        !(last = strrchr(syscall_line, ' ')))
        return NULL;
    return (const void *)(uintptr_t)strtoull(last + 1, NULL, 16);
}

int stack_of_thread(pid_t tid, char *out, size_t size)
{
    int saved_errno = errno;
    char name[32], channel[64], symbol[100];
    bool sleeps;

    out[0] = '\0';
    if (!task_read(tid, "comm", name, sizeof(name))) {
        errno = saved_errno;
        return -1;
    }
    sleeps = task_read(tid, "wchan", channel, sizeof(channel)) && channel[0] && strcmp(channel, "0");
    stack_symbol(task_pc(tid), symbol, sizeof(symbol));
    snprintf(out, size, "%s, %s%s%s%s%s", name, task_state(tid), sleeps ? " in " : "", sleeps ? channel : "",
             symbol[0] ? " from " : "", symbol);
    errno = saved_errno;
    return 0;
}

/* ---- the calling thread */

struct walk {
    const char *low, *high;
    void *address;
    char *out;
    size_t size, used;
    int frames, skip;
    bool entered;
};

static _Unwind_Reason_Code walk_name(struct _Unwind_Context *context, void *arg)
{
    struct walk *walk = arg;
    char symbol[100];

    if (walk->skip-- > 0)
        return _URC_NO_REASON;
    /* A return address may lie behind its function, if that ends with a call. */
    stack_symbol((const void *)(_Unwind_GetIP(context) - 1), symbol, sizeof(symbol));
    if (walk->frames++ == STACK_FRAMES || walk->used >= walk->size)
        return _URC_END_OF_STACK;
    walk->used += (size_t)snprintf(walk->out + walk->used, walk->size - walk->used, "%s%s",
                                   walk->used ? " < " : "", symbol[0] ? symbol : "?");
    return _URC_NO_REASON;
}

void stack_of_self(char *out, size_t size)
{
    /* The first frame that libgcc shows is this function's. */
    struct walk walk = {.out = out, .size = size, .skip = 1};

    out[0] = '\0';
    _Unwind_Backtrace(walk_name, &walk);
}

static _Unwind_Reason_Code walk_out(struct _Unwind_Context *context, void *arg)
{
    struct walk *walk = arg;
    char *address = (char *)_Unwind_GetIP(context);

    if (address >= walk->low && address < walk->high) {
        walk->entered = true;
    } else if (walk->entered) {
        walk->address = address;
        return _URC_END_OF_STACK;
    }
    return walk->frames++ < WALK_MAX ? _URC_NO_REASON : _URC_END_OF_STACK;
}

const char *stack_caller_outside(const void *low, const void *high, void **address)
{
    struct walk walk = {.low = low, .high = high};
    Dl_info info;

    _Unwind_Backtrace(walk_out, &walk);
    *address = walk.address;
    return walk.address && dladdr(walk.address, &info) ? info.dli_fname : NULL;
}
