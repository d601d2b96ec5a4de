/*
 * reaper COMMAND [ARGUMENT]...: runs a command and waits for every process that is left behind below it. What
 * CRIU restores has no other parent; where process 1 does not wait for orphans either, their numbers would
 * never be free again. Descriptors that were left open by somebody else would get into the dumps: they are
 * closed.
 */

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    pid_t command, ended;
    int status;

    if (argc < 2 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 125;
    command = fork();
    if (command == 0) {
        close_range(3, ~0u, 0);
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    do {
        ended = waitpid(-1, &status, 0);
    } while (ended != command && ended > 0);
    return ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}
