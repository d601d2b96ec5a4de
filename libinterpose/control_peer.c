#include "control_peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "control_socket.h"

int control_peer_check(uid_t caller, uid_t own, struct error *err)
{
    if (caller == 0 || caller == own)
        return 0;
    error_set(err, ERROR_PERMISSION,
              "uid %u may not control a process of uid %u: ask as that user or as root", (unsigned int)caller,
              (unsigned int)own);
    return -1;
}

int control_peer_accept(struct control_peer *peer, int fd, uint64_t deadline, struct error *err)
{
    struct ucred caller;
    socklen_t size = sizeof(caller);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &caller, &size) < 0) {
        error_set_errno(err, ERROR_PERMISSION, errno, "can't tell who asks");
        return -1;
    }
    if (control_peer_check(caller.uid, geteuid(), err) < 0)
        return -1;
    peer->fd = fd;
    peer->inode = control_descriptor_inode(fd);
    peer->deadline = deadline;
    peer->length = 0;
    return 0;
}

void control_peer_drop(struct control_peer *peer)
{
    if (control_descriptor_is(peer->fd, peer->inode))
        close(peer->fd);
    peer->fd = -1;
}

int control_peer_read(struct control_peer *peer, struct error *err)
{
    ssize_t got;

    if (!control_descriptor_is(peer->fd, peer->inode))
        return -1;
    got = recv(peer->fd, peer->request + peer->length, PROTOCOL_REQUEST_MAX - peer->length, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < 0 || (got == 0 && peer->length == 0))
        return -1;
    if (got == 0) {
        error_set(err, ERROR_USAGE, "the request ended before its newline");
        return -1;
    }
    for (ssize_t i = 0; i < got; i++) {
        char *byte = &peer->request[peer->length + (size_t)i];

        if (!*byte)
            *byte = 1; /* so that the string doesn't end here; refused like any other unprintable byte */
    }
    peer->length += (size_t)got;
    peer->request[peer->length] = '\0';
    if (strchr(peer->request, '\n'))
        return 1;
    if (peer->length == PROTOCOL_REQUEST_MAX) {
        error_set(err, ERROR_USAGE, "the request is longer than %d bytes", PROTOCOL_REQUEST_MAX);
        return -1;
    }
    return 0;
}

/* All of it or nothing: a line that is cut would make nonsense of the next one. */
static int send_all(struct control_peer *peer, const char *bytes, size_t length)
{
    ssize_t sent;

    if (!control_descriptor_is(peer->fd, peer->inode)) {
        errno = EBADF;
        return -1;
    }
    sent = send(peer->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 && (size_t)sent < length) {
        errno = EMSGSIZE;
        return -1;
    }
    return sent < 0 ? -1 : 0;
}

void control_reply_start(struct control_reply *reply, struct control_peer *peer)
{
    reply->peer = peer;
    reply->used = 0;
}

void control_reply_flush(struct control_reply *reply)
{
    if (reply->used && send_all(reply->peer, reply->lines, reply->used) < 0)
        control_peer_drop(reply->peer);
    reply->used = 0;
}

static void reply_line(struct control_reply *reply, const char *line, size_t length)
{
    if (reply->used + length > sizeof(reply->lines))
        control_reply_flush(reply);
    memcpy(reply->lines + reply->used, line, length);
    reply->used += length;
}

void control_reply_value(struct control_reply *reply, const char *name, const char *format, ...)
{
    char text[PROTOCOL_LINE_MAX - 128], line[PROTOCOL_LINE_MAX];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length < 0)
        text[0] = '\0';
    reply_line(reply, line, protocol_format_value(line, sizeof(line), name, text));
}

void control_reply_end(struct control_reply *reply, const struct error *err)
{
    char line[PROTOCOL_LINE_MAX];

    reply_line(reply, line, protocol_format_end(line, sizeof(line), err));
    control_reply_flush(reply);
    control_peer_drop(reply->peer);
}

void control_reply_progress(struct control_reply *reply, const char *phase, uint64_t done, uint64_t total)
{
    char line[PROTOCOL_LINE_MAX];
    size_t length = protocol_format_progress(line, sizeof(line), phase, done, total);

    control_reply_flush(reply);
    if (reply->peer->fd >= 0 && send_all(reply->peer, line, length) < 0 && errno != EAGAIN)
        control_peer_drop(reply->peer);
}
