#include "cuda_process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "error.h"
#include "io.h"
#include "process.h"

#define THREAD_NAME  "cudackpt\n" /* as /proc writes it */
#define DEVICE_FILES "/dev/nvidia"

pid_t cuda_process_of(pid_t tid)
{
    char path[64], text[4096];
    const char *line;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    if (io_read_file(path, text, sizeof(text)) < 0)
        return 0;
    line = strstr(text, "\nTgid:");
    return line ? (pid_t)atoi(line + strlen("\nTgid:")) : 0;
}

/* The first entry of a directory of /proc/PID for which is_it holds; -1 if there is none. */
static int find_entry(pid_t pid, const char *directory, bool (*is_it)(int folder, const char *name))
{
    char path[64];
    const struct dirent *entry;
    DIR *folder;
    int found = -1;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, directory);
    folder = opendir(path);
    if (!folder)
        return -1;
    while (found < 0 && (entry = readdir(folder))) {
        if (entry->d_name[0] != '.' && is_it(dirfd(folder), entry->d_name))
            found = atoi(entry->d_name);
    }
    closedir(folder);
    return found;
}

static bool is_control_thread(int folder, const char *name)
{
    char path[64], text[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d/%.16s/comm", folder, name);
    return io_read_file(path, text, sizeof(text)) > 0 && !strcmp(text, THREAD_NAME);
}

static bool is_device_file(int folder, const char *name)
{
    char target[64];
    ssize_t length = readlinkat(folder, name, target, sizeof(target));

    return length >= (ssize_t)strlen(DEVICE_FILES) && !memcmp(target, DEVICE_FILES, strlen(DEVICE_FILES));
}

pid_t cuda_process_control_thread(pid_t pid)
{
    const struct process process = {.pid = pid};
    int tid;

    /*
     * Nobody else's threads are called so, but those that it makes itself, the driver's after a resume, which
     * come later in the list. The few names are read sooner than the long list of mappings.
     */
    tid = find_entry(pid, "task", is_control_thread);
    return tid > 0 && process_has_library(&process) != 0 ? (pid_t)tid : 0;
}

static bool is_frozen(int folder, const char *name)
{
    char path[64], text[512];
    const char *end;

    snprintf(path, sizeof(path), "/proc/self/fd/%d/%.16s/stat", folder, name);
    if (io_read_file(path, text, sizeof(text)) < 0)
        return false;
    end = strrchr(text, ')'); /* of the name, which may have anything in it */
    return end && !strncmp(end, ") t", 3);
}

bool cuda_process_waits_for_frozen(pid_t pid, pid_t tid, uint64_t *ticks)
{
    char path[64], text[1024];
    unsigned long user, system;
    const char *end;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (io_read_file(path, text, sizeof(text)) < 0 || !(end = strrchr(text, ')')) ||
        sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return false;
    *ticks = user + system;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    return io_read_file(path, text, sizeof(text)) > 0 && atoi(text) == SYS_futex &&
           find_entry(pid, "task", is_frozen) > 0;
}

bool cuda_process_uses_device(pid_t pid)
{
    return find_entry(pid, "fd", is_device_file) >= 0;
}
