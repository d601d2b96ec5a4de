/*
 * only_thread PID TID COMMAND [ARGUMENT]...: runs a command while all threads of a process are frozen but TID (0: no
 * exception), as CRIU freezes them, and lets them go again. Ends as the command ends.
 */

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 1024

static pid_t frozen[THREADS_MAX];
static size_t count;

static void freeze(pid_t tid)
{
    int status;

    if (count == THREADS_MAX || ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0 ||
        ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0 || waitpid(tid, &status, __WALL) != tid ||
        !WIFSTOPPED(status)) {
        perror("only_thread: can't freeze a thread");
        exit(125);
    }
    frozen[count++] = tid;
}

int main(int argc, char **argv)
{
    char path[64];
    const struct dirent *entry;
    pid_t child, exception;
    DIR *tasks;
    int status;

    if (argc < 4)
        return 125;
    exception = atoi(argv[2]);
    snprintf(path, sizeof(path), "/proc/%d/task", atoi(argv[1]));
    tasks = opendir(path);
    if (!tasks)
        return 125;
    while ((entry = readdir(tasks))) {
        if (isdigit((unsigned char)entry->d_name[0]) && atoi(entry->d_name) != exception)
            freeze(atoi(entry->d_name));
    }
    closedir(tasks);

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
