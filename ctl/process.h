#ifndef CUDACKPT_PROCESS_H
#define CUDACKPT_PROCESS_H
/* What /proc tells about the process to control. */

#include <stdbool.h>
#include <sys/types.h>

#include "error.h"

struct process {
    pid_t pid;       /* as seen here */
    pid_t inner_pid; /* as the process itself sees it */
    uid_t uid;       /* effective, as seen here */
    uid_t inner_uid; /* as the process itself sees it: another one in a user namespace */
    char state;      /* R, S, T, Z... */
    char name[64];
};

int process_read(pid_t pid, struct process *process, struct error *err);

/* May we control it? ERROR_PERMISSION with what to do. */
int process_check_owner(const struct process *process, struct error *err);

/* 1: it has the library mapped, 0: it has not, -1: can't look (errno). */
int process_has_library(const struct process *process);

/* Polls readable when the process has ended; -1 where the kernel has none (before Linux 5.3). */
int process_open_pidfd(const struct process *process);

#endif
