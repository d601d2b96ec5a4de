#include "launch_job.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY  "libcudackpt.so"
#define JOB_FILE "CUDA_CHECKPOINT_JOB_FILE"

#ifndef CUDACKPT_LIBDIR
#define CUDACKPT_LIBDIR "/usr/local/lib"
#endif

static int find_library(char path[PATH_MAX], struct error *err)
{
    char tool[PATH_MAX], candidate[PATH_MAX + 64];
    const char *places[] = {"", "../lib/", "../lib64/"};
    ssize_t length = readlink("/proc/self/exe", tool, sizeof(tool) - 1);

    for (size_t i = 0; length > 0 && i < sizeof(places) / sizeof(places[0]); i++) {
        tool[length] = '\0';
        *(strrchr(tool, '/') + 1) = '\0';
        snprintf(candidate, sizeof(candidate), "%s%s" LIBRARY, tool, places[i]);
        if (realpath(candidate, path))
            return 0;
    }
    if (realpath(CUDACKPT_LIBDIR "/" LIBRARY, path))
        return 0;
    error_set(err, ERROR_NOT_FOUND,
              LIBRARY " is neither beside this tool nor in " CUDACKPT_LIBDIR ": install it there");
    return -1;
}

static int preload(struct error *err)
{
    char path[PATH_MAX], *list = NULL;
    const char *others = getenv("LD_PRELOAD");
    int result;

    if (find_library(path, err) < 0)
        return -1;
    if (strpbrk(path, " :")) {
        error_set(err, ERROR_REFUSED, "%s can't be preloaded: its path has a blank or a colon; move it",
                  path);
        return -1;
    }
    if (asprintf(&list, "%s%s%s", path, others && *others ? ":" : "", others ? others : "") < 0) {
        error_set(err, ERROR_MEMORY, "no memory left");
        return -1;
    }
    result = setenv("LD_PRELOAD", list, 1);
    free(list);
    if (result < 0)
        error_set_errno(err, ERROR_MEMORY, errno, "can't set LD_PRELOAD");
    return result;
}

/*
 * The file stays: the job's processes may be dumped, and restored when nobody remembers the job. mkstemp
 * takes no name that exists, and a name that a job had exists as long as nobody cleans the directory.
 */
static int make_job_file(struct error *err)
{
    char path[PATH_MAX];
    const char *directory = secure_getenv("TMPDIR");
    mode_t mask = umask(0077);
    int fd;

    snprintf(path, sizeof(path), "%.4000s/cudackpt-job.XXXXXX",
             directory && directory[0] == '/' ? directory : "/tmp");
    fd = mkstemp(path);
    umask(mask);
    if (fd < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't make a job file like %s", path);
        return -1;
    }
    close(fd);
    if (setenv(JOB_FILE, path, 1) == 0)
        return 0;
    error_set_errno(err, ERROR_MEMORY, errno, "can't set " JOB_FILE);
    unlink(path);
    return -1;
}

int launch_job(char **program, struct error *err)
{
    if (preload(err) < 0 || make_job_file(err) < 0)
        return -1;
    execvp(program[0], program);
    error_set_errno(err, ERROR_NOT_FOUND, errno, "can't start %s", program[0]);
    unlink(getenv(JOB_FILE));
    return -1;
}
