#ifndef CUDACKPT_CONTROL_PEER_H
#define CUDACKPT_CONTROL_PEER_H
/*
 * One connection to the control thread: its request comes in, its reply goes out, then it is closed. Nothing
 * here waits: while an action runs the program stands still, and it must not stand still for a peer.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"
#include "protocol.h"

struct control_peer {
    int fd; /* -1: free */
    ino_t inode;
    uint64_t deadline; /* ms (io_now_ms): the request must be here by then */
    size_t length;
    char request[PROTOCOL_REQUEST_MAX + 1];
};

struct control_reply {
    struct control_peer *peer;
    size_t used;
    char lines[2 * PROTOCOL_LINE_MAX];
};

/* May a peer with this uid control a process with that effective uid? ERROR_PERMISSION if not. */
int control_peer_check(uid_t caller, uid_t own, struct error *err);

/* Takes over the connection fd; -1 with err set if its owner may not talk to us (fd stays open). */
int control_peer_accept(struct control_peer *peer, int fd, uint64_t deadline, struct error *err);

void control_peer_drop(struct control_peer *peer);

/* 1: the request is complete; 0: not yet; -1: the peer is gone, or err is set and is the reply. */
int control_peer_read(struct control_peer *peer, struct error *err);

/* Lines of a reply are collected; a peer that takes none of them any more is dropped. */
void control_reply_start(struct control_reply *reply, struct control_peer *peer);
void control_reply_flush(struct control_reply *reply);
/* "ok" or the error, and the connection is closed. */
void control_reply_end(struct control_reply *reply, const struct error *err);
/* Sent at once; left out if the peer reads too slowly. */
void control_reply_progress(struct control_reply *reply, const char *phase, uint64_t done, uint64_t total);

#endif
