#ifndef CUDACKPT_CLIENT_H
#define CUDACKPT_CLIENT_H
/* A connection to the control thread of a process. Every way to fail has a sentence of its own. */

#include "error.h"
#include "output.h"
#include "process.h"
#include "protocol.h"

struct client {
    struct process process;
    int fd;
    int pidfd; /* -1: the kernel has none */
    /*
     * NULL, or asked every half second in which nothing arrives, with the milliseconds since something did.
     * True: don't wait any longer. The request stays with the process, which carries it out when it can (left
     * is set then).
     */
    bool (*leaves)(const struct client *client, uint64_t quiet_ms);
    bool left;
};

/*
 * Finds the process, its socket, and makes sure that it is that process who listens there. Leaves `leaves` as
 * it is.
 */
int client_connect(struct client *client, pid_t pid, struct error *err);

/* Sends the request and waits for the end of the reply. values gets what it tells, also before an error. */
int client_ask(struct client *client, const struct protocol_request *request, struct values *values,
               struct error *err);

void client_close(struct client *client);

#endif
