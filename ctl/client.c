#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "io.h"

/* The library sends a line as soon as it sees the request; the later ones may take long. */
#define ANSWER_MS 10000
#define CLOSE_MS  1000
#define REOPEN_MS 2000 /* the library looks after its socket every second */
#define QUIET_MS  500

/* ---- finding and connecting */

/* What the attempts met, the most telling last: it decides what the person is told. */
enum finding { FOUND_NOTHING, FOUND_DENIED, FOUND_STALE, FOUND_OTHER, FOUND_BUSY, FOUND_IT };

static bool peer_is(int fd, pid_t pid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == pid;
}

static enum finding finding_of(int number)
{
    if (number == EACCES || number == EPERM)
        return FOUND_DENIED;
    if (number == ECONNREFUSED)
        return FOUND_STALE;
    return number == EAGAIN ? FOUND_BUSY : FOUND_NOTHING;
}

/*
 * To a process in another user namespace, our root may be nobody; so root comes as that process's own user
 * there. The kernel notes the user of the moment of the connect.
 */
static int connect_as_user(const struct process *process, int fd, const struct sockaddr_un *address)
{
    bool change = geteuid() == 0 && process->inner_uid != process->uid;
    int result, number;

    if (change && seteuid(process->uid) < 0)
        return -1;
    result = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    number = errno;
    if (change && seteuid(0) < 0)
        return -1;
    errno = number;
    return result;
}

/* One place. The directory is opened first: the path through /proc is longer than a socket address can be. */
static enum finding connect_at(struct client *client, const char *root, const char *directory)
{
    char path[4096], *slash;
    cleanup_fd int folder = -1;
    cleanup_fd int fd = -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (protocol_socket_path(path, sizeof(path), root, directory, client->process.inner_uid,
                             client->process.inner_pid) < 0)
        return FOUND_NOTHING;
    slash = strrchr(path, '/');
    *slash = '\0';
    folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return finding_of(errno);
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder, slash + 1);
    fd = io_unix_socket();
    if (fd < 0)
        return FOUND_NOTHING;
    if (connect_as_user(&client->process, fd, &address) < 0)
        return finding_of(errno);
    /* Another process's file: one of another pid namespace that shares /tmp, or an impostor's. */
    if (!peer_is(fd, client->process.pid))
        return FOUND_OTHER;
    client->fd = fd;
    fd = -1;
    return FOUND_IT;
}

static enum finding connect_anywhere(struct client *client)
{
    char through_proc[64];
    /* /proc/PID/root may be closed to us where the plain path is not. */
    const char *roots[] = {through_proc, ""};
    const char *directory;
    enum finding best = FOUND_NOTHING;

    snprintf(through_proc, sizeof(through_proc), "/proc/%d/root", (int)client->process.pid);
    for (size_t r = 0; r < sizeof(roots) / sizeof(roots[0]); r++) {
        for (size_t i = 0; (directory = protocol_directory(i)); i++) {
            enum finding finding = connect_at(client, roots[r], directory);

            if (finding == FOUND_IT)
                return FOUND_IT;
            best = finding > best ? finding : best;
        }
    }
    return best;
}

static int check_not_stopped(const struct process *process, struct error *err)
{
    if (process->state != 'T')
        return 0;
    error_set(err, ERROR_REFUSED, "process %d (%s) is stopped and can't answer: continue it (kill -CONT %d)",
              (int)process->pid, process->name, (int)process->pid);
    return -1;
}

static void explain_silence(const struct client *client, struct error *err)
{
    const struct process *process = &client->process;
    struct process now;

    if (process_read(process->pid, &now, err) == 0 && check_not_stopped(&now, err) == 0)
        error_set(err, ERROR_REFUSED,
                  "process %d (%s) did not answer within %d s: an action may keep it busy; try again",
                  (int)process->pid, process->name, ANSWER_MS / 1000);
}

static void explain_finding(const struct client *client, enum finding finding, struct error *err)
{
    struct process now;
    int pid = (int)client->process.pid;
    const char *name = client->process.name;
    int has_library;

    if (process_read(client->process.pid, &now, err) < 0)
        return;
    has_library = process_has_library(&now);
    if (has_library < 0 || (has_library && finding == FOUND_DENIED))
        error_set(err, ERROR_PERMISSION,
                  "process %d (%s) can't be looked into: ask as root, with CAP_SYS_PTRACE", pid, name);
    else if (!has_library)
        error_set(
            err, ERROR_NOT_FOUND,
            "process %d (%s) does not run under libcudackpt.so: start it with LD_PRELOAD=libcudackpt.so", pid,
            name);
    else if (finding == FOUND_OTHER)
        error_set(
            err, ERROR_NOT_FOUND,
            "the socket of process %d (%s) belongs to another process: don't share %s between pid namespaces",
            pid, name, protocol_directory(0));
    else if (finding == FOUND_STALE)
        error_set(
            err, ERROR_NOT_FOUND,
            "nobody listens on the socket of process %d (%s): it has not called cuInit yet, and the file is "
            "an earlier process's",
            pid, name);
    else
        error_set(err, ERROR_NOT_FOUND,
                  "process %d (%s) has not called cuInit yet: there is nothing to suspend; try again later",
                  pid, name);
}

/*
 * Nobody listens, but the library is there: perhaps the program has just closed the library's socket, which
 * makes a new one as soon as it notices.
 */
static bool may_listen_soon(const struct client *client, enum finding finding)
{
    return finding == FOUND_STALE && process_has_library(&client->process) == 1;
}

int client_connect(struct client *client, pid_t pid, struct error *err)
{
    uint64_t start = io_now_ms();
    enum finding finding;

    client->fd = client->pidfd = -1;
    client->left = false;
    if (process_read(pid, &client->process, err) < 0 || process_check_owner(&client->process, err) < 0 ||
        check_not_stopped(&client->process, err) < 0)
        return -1;
    client->pidfd = process_open_pidfd(&client->process);
    for (;;) {
        uint64_t waited = io_now_ms() - start;

        finding = connect_anywhere(client);
        if (finding == FOUND_IT)
            return 0;
        /* A full queue of connections: many ask at once. */
        if (!(finding == FOUND_BUSY && waited < ANSWER_MS) &&
            !(waited < REOPEN_MS && may_listen_soon(client, finding)))
            break;
        usleep(50 * 1000);
    }
    if (finding == FOUND_BUSY)
        explain_silence(client, err);
    else
        explain_finding(client, finding, err);
    return -1;
}

void client_close(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    if (client->pidfd >= 0)
        close(client->pidfd);
    client->fd = client->pidfd = -1;
}

/* ---- talking */

struct conversation {
    struct client *client;
    const char *action;
    struct values *values;
    bool answered, ended; /* a line has come; the last line has come */
    bool unheard;         /* the connection was closed without a line: nobody has looked at the request */
    char phase[64];
    size_t length;
    char input[PROTOCOL_LINE_MAX];
};

static int line_handle(struct conversation *talk, char *line, struct error *err)
{
    struct protocol_reply reply;

    output_clean(line);
    if (protocol_reply_parse(line, &reply) < 0) {
        error_set(
            err, ERROR_REFUSED,
            "process %d (%s) sent a reply that this cudackpt-ctl doesn't understand: use the one that came "
            "with its libcudackpt.so",
            (int)talk->client->process.pid, talk->client->process.name);
        return -1;
    }
    talk->answered = true;
    switch (reply.kind) {
    case REPLY_PROGRESS:
        snprintf(talk->phase, sizeof(talk->phase), "%s", reply.name);
        progress_show(talk->action, reply.name, reply.done, reply.total);
        return 0;
    case REPLY_VALUE:
        return values_add(talk->values, reply.name, reply.text, err);
    case REPLY_OK:
        talk->ended = true;
        return 0;
    case REPLY_ERROR:
        talk->ended = true;
        error_set(err, reply.code, "%s", reply.text);
        return -1;
    }
    return 0;
}

/* Handles the complete lines of the input and keeps the rest. */
static int input_handle(struct conversation *talk, struct error *err)
{
    char *start = talk->input, *end;

    while (!talk->ended && (end = memchr(start, '\n', (size_t)(talk->input + talk->length - start)))) {
        *end = '\0';
        if (line_handle(talk, start, err) < 0)
            return -1;
        start = end + 1;
    }
    talk->length -= (size_t)(start - talk->input);
    memmove(talk->input, start, talk->length);
    if (talk->length < sizeof(talk->input))
        return 0;
    error_set(err, ERROR_REFUSED, "process %d (%s) sent a line that is too long for a reply",
              (int)talk->client->process.pid, talk->client->process.name);
    return -1;
}

static void explain_end(struct conversation *talk, struct error *err)
{
    const struct process *process = &talk->client->process;
    struct process now;
    struct error gone = {0};
    const char *during = talk->phase[0] ? talk->phase : talk->action;
    struct pollfd end = {.fd = talk->client->pidfd, .events = POLLIN};

    /* An ending process closes its descriptors a moment before it is seen to have ended. */
    if (talk->answered)
        poll(&end, 1, CLOSE_MS);
    if (process_read(process->pid, &now, &gone) < 0) {
        error_set(err, ERROR_REFUSED, "process %d (%s) ended while the %s was under way (%s)",
                  (int)process->pid, process->name, talk->action, during);
        return;
    }
    talk->unheard = !talk->answered;
    error_set(err, ERROR_REFUSED,
              "process %d (%s) closed the connection before the end of its reply (%s): look at its status",
              (int)process->pid, process->name, during);
}

/* Reads what there is. 1: more may come, 0: the connection has ended, -1: err is set. */
static int input_read(struct conversation *talk, struct error *err)
{
    ssize_t got =
        recv(talk->client->fd, talk->input + talk->length, sizeof(talk->input) - talk->length, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (got <= 0)
        return 0;
    talk->length += (size_t)got;
    return input_handle(talk, err) < 0 ? -1 : 1;
}

static int reply_wait(struct conversation *talk, struct error *err)
{
    struct pollfd fds[] = {{.fd = talk->client->fd, .events = POLLIN},
                           {.fd = talk->client->pidfd, .events = POLLIN}};
    uint64_t deadline = io_now_ms() + ANSWER_MS, last = io_now_ms();

    while (!talk->ended) {
        uint64_t now = io_now_ms();
        int wait = talk->answered ? -1 : (int)(deadline - now);
        int got;

        if (!talk->answered && now >= deadline) {
            explain_silence(talk->client, err);
            return -1;
        }
        if (talk->client->leaves && (wait < 0 || wait > QUIET_MS))
            wait = QUIET_MS;
        if (poll(fds, 2, wait) < 0 && errno != EINTR) {
            error_set_errno(err, ERROR_REFUSED, errno, "poll");
            return -1;
        }
        if (!fds[0].revents && !fds[1].revents && talk->client->leaves &&
            talk->client->leaves(talk->client, io_now_ms() - last)) {
            talk->client->left = true;
            return 0;
        }
        if (fds[0].revents)
            last = io_now_ms();
        got = input_read(talk, err);
        if (got < 0)
            return -1;
        /* A copy of the descriptor in a child can keep the connection of a dead process open. */
        if (got == 0 || (!talk->ended && !fds[0].revents && (fds[1].revents & POLLIN))) {
            explain_end(talk, err);
            return -1;
        }
    }
    return 0;
}

/*
 * The control thread closes its end right after the last line. Whoever runs CRIU next must not find it still
 * open: a connection half of which is elsewhere can't be dumped.
 */
static void close_wait(struct client *client)
{
    struct pollfd fd = {.fd = client->fd, .events = POLLIN};
    uint64_t deadline = io_now_ms() + CLOSE_MS, now;
    char rest[256];

    while ((now = io_now_ms()) < deadline && poll(&fd, 1, (int)(deadline - now)) > 0) {
        if (recv(client->fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
            return;
    }
}

static int converse(struct conversation *talk, const char *line, struct error *err)
{
    int result;

    /* A failure shows below: the reply says why, or there is none. */
    (void)!send(talk->client->fd, line, strlen(line), MSG_NOSIGNAL);
    result = reply_wait(talk, err);
    if (talk->ended)
        close_wait(talk->client);
    return result;
}

int client_ask(struct client *client, const struct protocol_request *request, struct values *values,
               struct error *err)
{
    struct conversation talk = {
        .client = client, .action = protocol_action_names[request->action], .values = values};
    char line[PROTOCOL_REQUEST_MAX];
    pid_t pid = client->process.pid;

    if (protocol_request_format(request, line, sizeof(line)) < 0) {
        error_set(err, ERROR_USAGE, "the request is too long");
        return -1;
    }
    if (converse(&talk, line, err) == 0)
        return 0;
    if (!talk.unheard)
        return -1;
    /* The program had closed the library's socket. The library has noticed and makes a new one at this
     * moment. */
    talk.unheard = false;
    usleep(50 * 1000);
    client_close(client);
    error_clear(err);
    if (client_connect(client, pid, err) < 0)
        return -1;
    return converse(&talk, line, err);
}
