#include "criu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "output.h"

#define ARGUMENTS_MAX 64

static const char *criu_path(void)
{
    const char *chosen = secure_getenv("CUDACKPT_CRIU");

    return chosen && *chosen ? chosen : "criu";
}

/* Runs criu with both outputs in fd. Returns its exit status; 127: it could not be started. */
static int start(const char *const *arguments, int fd)
{
    pid_t child = fork();
    int status;

    if (child < 0)
        return 127;
    if (child == 0) {
        /* The tool itself does not end at an interrupt: what it began must be undone. CRIU may. */
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execvp(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return 127;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

int criu_version(char *version, size_t size, struct error *err)
{
    const char *arguments[] = {criu_path(), "--version", NULL};
    char text[512], *found;
    cleanup_fd int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ssize_t length;

    if (fd < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't make a temporary file in /tmp");
        return -1;
    }
    if (start(arguments, fd) != 0) {
        error_set(err, ERROR_REFUSED,
                  "%s can't be started: install CRIU, or name it in the environment variable CUDACKPT_CRIU",
                  arguments[0]);
        return -1;
    }
    length = pread(fd, text, sizeof(text) - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    found = strstr(text, "Version: ");
    found = found ? found + strlen("Version: ") : text;
    snprintf(version, size, "%.*s", (int)strcspn(found, "\n"), found);
    output_clean(version);
    return 0;
}

/* The last line of a file that has the word and says more than that it failed; empty if there is none. */
static void last_line_with(const char *path, const char *word, char *text, size_t size)
{
    cleanup_free char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "re");

    text[0] = '\0';
    if (!file)
        return;
    while (getline(&line, &room, file) > 0) {
        if (strstr(line, word) && !strstr(line, "FAILED"))
            snprintf(text, size, "%.*s", (int)strcspn(line, "\n"), line);
    }
    fclose(file);
    output_clean(text);
}

int criu_run(const char *verb, const char *directory, const char *const *fixed, char *const *more,
             struct error *err)
{
    const char *arguments[ARGUMENTS_MAX] = {criu_path(),  verb, "--images-dir", directory,
                                            "--log-file", NULL, "-v4"};
    char log_name[32], log_path[PATH_MAX], output_path[PATH_MAX], cause[512];
    cleanup_fd int fd = -1;
    size_t count = 7;
    int status;

    snprintf(log_name, sizeof(log_name), "%s.log", verb);
    arguments[5] = log_name;
    for (; *fixed && count < ARGUMENTS_MAX - 1; fixed++)
        arguments[count++] = *fixed;
    for (; more && *more && count < ARGUMENTS_MAX - 1; more++)
        arguments[count++] = *more;
    if (more && *more) {
        error_set(err, ERROR_USAGE, "too many options for criu");
        return -1;
    }
    snprintf(log_path, sizeof(log_path), "%s/%s", directory, log_name);
    snprintf(output_path, sizeof(output_path), "%s/%s.out", directory, verb);
    unlink(log_path);
    fd = open(output_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't write %s", output_path);
        return -1;
    }
    status = start(arguments, fd);
    if (status == 0)
        return 0;
    last_line_with(log_path, "Error (", cause, sizeof(cause));
    if (!cause[0])
        last_line_with(output_path, "", cause, sizeof(cause));
    error_set(err, ERROR_REFUSED, "criu %s failed with status %d: %s; the whole story is in %s", verb, status,
              cause[0] ? cause : "it did not say why", cause[0] ? log_path : output_path);
    return -1;
}
