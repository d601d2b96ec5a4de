#include "process.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "io.h"
#include "output.h"

/* The text after "KEY:" and its blanks; NULL if there is no such line. */
static const char *field(const char *text, const char *key)
{
    size_t length = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (!strncmp(line, key, length) && line[length] == ':')
            return line + length + 1 + strspn(line + length + 1, " \t");
    }
    return NULL;
}

/* A uid as the process sees it. uid_map: lines "INSIDE OUTSIDE COUNT", OUTSIDE as we see it. */
static uid_t uid_inside(pid_t pid, uid_t uid)
{
    char path[64], text[4096];
    unsigned int inside, outside, count;
    char *rest = text, *line;

    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (io_read_file(path, text, sizeof(text)) < 0)
        return uid;
    while ((line = strsep(&rest, "\n"))) {
        if (sscanf(line, "%u %u %u", &inside, &outside, &count) == 3 && uid >= outside &&
            uid - outside < count)
            return uid - outside + inside;
    }
    return uid;
}

/* The last number of a list such as "4711\t12\t1". */
static pid_t last_number(const char *list)
{
    size_t end = strcspn(list, "\n");

    while (end && !isdigit((unsigned char)list[end - 1]))
        end--;
    while (end && isdigit((unsigned char)list[end - 1]))
        end--;
    return (pid_t)atoi(list + end);
}

static int status_parse(const char *text, struct process *process, struct error *err)
{
    const char *name = field(text, "Name"), *state = field(text, "State"), *tgid = field(text, "Tgid");
    const char *uid = field(text, "Uid"), *inner = field(text, "NSpid");
    unsigned int effective;

    if (!name || !state || !tgid || !uid || sscanf(uid, "%*u %u", &effective) != 1) {
        error_set(err, ERROR_REFUSED, "can't understand /proc/%d/status", (int)process->pid);
        return -1;
    }
    snprintf(process->name, sizeof(process->name), "%.*s", (int)strcspn(name, "\n"), name);
    output_clean(process->name);
    if (atoi(tgid) != process->pid) {
        error_set(err, ERROR_NOT_FOUND, "%d is a thread of process %d (%s): give the number of the process",
                  (int)process->pid, atoi(tgid), process->name);
        return -1;
    }
    if (*state == 'Z' || *state == 'X') {
        error_set(err, ERROR_NOT_FOUND, "process %d (%s) has ended", (int)process->pid, process->name);
        return -1;
    }
    process->state = *state;
    process->uid = effective;
    process->inner_uid = uid_inside(process->pid, effective);
    process->inner_pid = inner ? last_number(inner) : process->pid;
    return 0;
}

int process_read(pid_t pid, struct process *process, struct error *err)
{
    char path[64], text[8192];

    memset(process, 0, sizeof(*process));
    process->pid = pid;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (io_read_file(path, text, sizeof(text)) >= 0)
        return status_parse(text, process, err);
    if (errno != ENOENT && errno != ESRCH) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't read %s", path);
        return -1;
    }
    if (access("/proc/self/status", R_OK) < 0)
        error_set(err, ERROR_REFUSED, "cudackpt-ctl needs /proc: mount it");
    else if (kill(pid, 0) < 0 && errno == EPERM) /* /proc is mounted with hidepid */
        error_set(err, ERROR_PERMISSION, "process %d belongs to somebody else: ask as that user or as root",
                  (int)pid);
    else
        error_set(err, ERROR_NOT_FOUND, "there is no process %d", (int)pid);
    return -1;
}

int process_check_owner(const struct process *process, struct error *err)
{
    if (geteuid() == 0 || geteuid() == process->uid)
        return 0;
    error_set(err, ERROR_PERMISSION, "process %d (%s) belongs to uid %u: ask as that user or as root",
              (int)process->pid, process->name, (unsigned int)process->uid);
    return -1;
}

int process_has_library(const struct process *process)
{
    char path[64];
    cleanup_free char *line = NULL;
    size_t size = 0;
    int found = 0;
    FILE *maps;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)process->pid);
    maps = fopen(path, "re");
    if (!maps)
        return -1;
    errno = 0;
    while (!found && getline(&line, &size, maps) > 0) {
        const char *file = strrchr(line, '/');

        if (file && !strncmp(file, "/libcudackpt", strlen("/libcudackpt")))
            found = 1;
    }
    if (!found && ferror(maps))
        found = -1;
    fclose(maps);
    return found;
}

int process_open_pidfd(const struct process *process)
{
    return (int)syscall(SYS_pidfd_open, process->pid, 0);
}
