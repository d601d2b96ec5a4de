#ifndef CUDACKPT_CONTROL_H
#define CUDACKPT_CONTROL_H
/*
 * The control thread: started at the first cuInit with all signals blocked, listens on a Unix socket
 * (protocol.h), checks who asks (SO_PEERCRED: same user or root), and runs actions one at a time, itself:
 * when CRIU lets only this thread run, it must be able to do all by itself. While an action runs,
 * control_service answers `state` and `status` and refuses other requests with ERROR_STATE ("busy: ...").
 * A peer that goes away does not stop an action.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"

/* An answer under way: status lines and progress go through it. */
struct control_reply;

/* One line of a status reply. Blanks in name become '_' on the wire; a name may come more than once. */
void control_reply_value(struct control_reply *reply, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct control_actions {
    /* All run on the control thread. timeout in ms, 0: none. -1 with err set on failure. */
    int (*lock)(uint64_t timeout_ms, struct error *err);
    int (*checkpoint)(struct error *err);
    int (*restore)(struct error *err);
    int (*unlock)(struct error *err);
    /*
     * These two are also called from control_service, in the middle of an action of this same thread: they
     * must not take a lock that an action holds at its progress points.
     */
    const char *(*state)(void);                  /* "running", "locked", "checkpointed", "failed" */
    void (*status)(struct control_reply *reply); /* fills in everything else that `status` tells */
};

/* Starts the thread and its socket, if it does not run already (in a forked child it doesn't). */
int control_start(const struct control_actions *actions, struct error *err);

/* Answers waiting peers, at once; for the progress points of long actions. Elsewhere it does nothing. */
void control_service(void);

/* Tells the peer of the running action how far it is (total 0: unknown). Rate-limited; also serves. */
void control_progress(const char *phase, uint64_t done, uint64_t total);

/* Thread id of the control thread, 0 if it does not run. */
pid_t control_tid(void);

/* At exit: the socket file goes. */
void control_stop(void);
/* In a forked child: the parent's socket is closed (its file stays); nothing runs. */
void control_after_fork_in_child(void);

#endif
