/*
 * only_thread PID TID COMMAND [ARGUMENT]...: runs a command while all threads of a process are frozen but TID
 * (0: no exception), as CRIU freezes them, and lets them go again. Ends as the command ends.
 */

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 1024

static pid_t frozen[THREADS_MAX];
static size_t count;

static bool is_frozen(pid_t tid)
{
    for (size_t i = 0; i < count; i++) {
        if (frozen[i] == tid)
            return true;
    }
    return false;
}

/* False if the thread ends at this moment. */
static bool freeze(pid_t tid)
{
    int status;

    if (count < THREADS_MAX && ptrace(PTRACE_SEIZE, tid, NULL, NULL) == 0 &&
        ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0 && waitpid(tid, &status, __WALL) == tid &&
        WIFSTOPPED(status)) {
        frozen[count++] = tid;
        return true;
    }
    return false;
}

/* One look at the threads; true if one was new. */
static bool freeze_all(const char *directory, pid_t exception)
{
    const struct dirent *entry;
    bool found = false;
    DIR *tasks = opendir(directory);

    while (tasks && (entry = readdir(tasks))) {
        pid_t tid = atoi(entry->d_name);

        if (tid > 0 && tid != exception && !is_frozen(tid))
            found |= freeze(tid);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

int main(int argc, char **argv)
{
    char path[64];
    pid_t child, exception;
    int status;

    if (argc < 4)
        return 125;
    exception = atoi(argv[2]);
    snprintf(path, sizeof(path), "/proc/%d/task", atoi(argv[1]));
    /* A thread that was still running may have made another one meanwhile. */
    while (freeze_all(path, exception))
        ;
    if (!count)
        return 125;

    child = fork();
    if (child == 0) {
        execvp(argv[3], argv + 3);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        status = 125 << 8;
    for (size_t i = 0; i < count; i++)
        ptrace(PTRACE_DETACH, frozen[i], NULL, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}
