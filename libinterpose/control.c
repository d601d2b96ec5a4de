#include "control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control_action.h"
#include "control_peer.h"
#include "control_socket.h"
#include "io.h"
#include "protocol.h"

#define LOG_PREFIX "control"
#include "log.h"

#define PEERS             8
#define REQUEST_WAIT_MS   5000 /* a peer must send its request within this */
#define ACCEPT_PAUSE_MS   1000 /* after a failure that would come back at once (no descriptor free...) */
#define LISTENER_CHECK_MS 1000 /* how often the listener is looked at though nothing arrives */
#define ACCEPTS           64   /* connections taken in one go, so that a flood can't hold up an action */
#define PROGRESS_MS       100
#define SERVICE_MS        5

static const struct control_actions *actions;
static pid_t thread_id;
static sem_t thread_ready;
static __thread bool on_control_thread __attribute__((tls_model("initial-exec")));

/* All below belongs to the control thread; a forked child, which has none, clears it. */
static struct control_socket listener = {.fd = -1};
static struct control_peer peers[PEERS] = {[0 ... PEERS - 1] = {.fd = -1}};
static uint64_t accept_after; /* ms: no accept before */
static bool serving;

/* The action under way. */
static struct {
    struct control_peer *peer; /* who asked for it; NULL: no action */
    struct protocol_request request;
    struct control_reply *reply; /* NULL until it has begun */
    char phase[32];
    uint64_t sent_at, served_at, last_done; /* ms, ms; what the last progress line said */
} running;

/*
 * An unlock that was asked for while the restore before it is under way: it is next. Whoever asks need not
 * stay: CRIU's CUDA plugin, with all threads frozen but this one, can't wait where this one waits for
 * another.
 */
static struct {
    struct control_peer *peer; /* NULL: none */
    struct protocol_request request;
} next;

/* Is its request, complete, waiting for its turn or being carried out? */
static bool is_engaged(const struct control_peer *peer)
{
    return peer == running.peer || peer == next.peer;
}

/* ---- answers */

static void answer(struct control_peer *peer, const struct protocol_request *request)
{
    static const struct error none;
    struct control_reply reply;

    control_reply_start(&reply, peer);
    if (request->action == ACTION_RESTORE_TID) {
        control_reply_value(&reply, "tid", "%d", (int)control_tid());
    } else {
        control_reply_value(&reply, "state", "%s", control_action_state(actions));
        if (request->action == ACTION_STATUS) {
            if (running.peer) {
                control_reply_value(&reply, "busy", "%s", protocol_action_names[running.request.action]);
                if (running.phase[0])
                    control_reply_value(&reply, "phase", "%s", running.phase);
            }
            control_reply_value(&reply, "protocol", "%d", PROTOCOL_VERSION);
            actions->status(&reply);
        }
    }
    control_reply_end(&reply, &none);
}

static void answer_error(struct control_peer *peer, const struct error *err)
{
    struct control_reply reply;

    control_reply_start(&reply, peer);
    control_reply_end(&reply, err);
}

static void request_handle(struct control_peer *peer)
{
    struct protocol_request request;
    struct error err = {0};

    if (protocol_request_parse(peer->request, &request, &err) < 0) {
        answer_error(peer, &err);
        return;
    }
    if (request.action == ACTION_STATE || request.action == ACTION_STATUS ||
        request.action == ACTION_RESTORE_TID) {
        answer(peer, &request);
        return;
    }
    if (running.peer && running.request.action == ACTION_RESTORE && request.action == ACTION_UNLOCK &&
        !next.peer) {
        next.peer = peer;
        next.request = request;
        return;
    }
    if (running.peer) {
        const char *name = protocol_action_names[running.request.action];

        error_set(&err, ERROR_STATE, "busy: a %s is under way; try again when it is done", name);
        answer_error(peer, &err);
        return;
    }
    /* It starts when all other peers that are ready have been looked at: they may go while it runs. */
    running.peer = peer;
    running.request = request;
}

static void action_run(void)
{
    struct control_reply reply;
    struct error err = {0};
    const char *name = protocol_action_names[running.request.action];
    uint64_t start = io_now_ms();

    control_reply_start(&reply, running.peer);
    running.reply = &reply;
    control_progress(name, 0, 0); /* tells the peer at once that its request has arrived */
    log_info("%s: begins", name);
    if (control_action_run(actions, &running.request, &err) < 0) {
        /* A failure without a cause must not become an "ok". */
        error_set(&err, ERROR_REFUSED, "%s failed and did not say why", name);
        log_error("%s: %s", name, err.text);
    } else {
        log_info("%s: done in %llu ms", name, (unsigned long long)(io_now_ms() - start));
        error_clear(&err);
    }
    control_reply_value(&reply, "state", "%s", control_action_state(actions));
    control_reply_end(&reply, &err);
    memset(&running, 0, sizeof(running));
    running.peer = next.peer;
    running.request = next.request;
    memset(&next, 0, sizeof(next));
}

/* ---- connections */

static void refuse(int fd, const struct error *err)
{
    char line[PROTOCOL_LINE_MAX];
    size_t length = protocol_format_end(line, sizeof(line), err);

    /* Whether it arrives or not: the close that follows says it too. */
    (void)!send(fd, line, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

static struct control_peer *peer_free(void)
{
    for (int i = 0; i < PEERS; i++) {
        if (peers[i].fd < 0 && !is_engaged(&peers[i]))
            return &peers[i];
    }
    return NULL;
}

static void listener_restore(void)
{
    struct error err = {0};

    log_warn("the control socket's descriptor was closed by the program; it is made again");
    if (control_socket_reopen(&listener, &err) < 0) {
        log_error("%s", err.text);
        accept_after = io_now_ms() + ACCEPT_PAUSE_MS;
    }
}

static void peer_serve(struct control_peer *peer)
{
    struct error err = {0};
    int got = control_peer_read(peer, &err);

    if (got > 0)
        request_handle(peer);
    else if (got < 0 && err.code != ERROR_NONE)
        answer_error(peer, &err);
    else if (got < 0)
        control_peer_drop(peer);
}

static void peers_accept(void)
{
    for (int i = 0; i < ACCEPTS; i++) {
        struct control_peer *peer = peer_free();
        struct error err = {0};
        int fd;

        fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN) {
                log_warn("can't accept a connection: error number %d", errno);
                accept_after = io_now_ms() + ACCEPT_PAUSE_MS;
            }
            return;
        }
        if (!peer) {
            error_set(&err, ERROR_REFUSED, "%d other requests are being served; try again", PEERS);
            refuse(fd, &err);
        } else if (control_peer_accept(peer, fd, io_now_ms() + REQUEST_WAIT_MS, &err) < 0) {
            refuse(fd, &err);
        } else {
            peer_serve(peer); /* mostly the request is here already */
        }
    }
}

/*
 * How long to wait for something to arrive. Never for ever: when the program has closed the listener and uses
 * its number, poll waits for the program's file, and those who connect meanwhile hang on the old socket,
 * which poll keeps.
 */
static int wait_ms(uint64_t now)
{
    uint64_t soonest = now + LISTENER_CHECK_MS;

    for (int i = 0; i < PEERS; i++) {
        if (peers[i].fd >= 0 && !is_engaged(&peers[i]) && peers[i].deadline < soonest)
            soonest = peers[i].deadline;
    }
    return soonest <= now ? 0 : (int)(soonest - now);
}

/* One look at the listener and at all peers but that of a running action. */
static void serve(bool wait)
{
    struct pollfd fds[PEERS + 1];
    uint64_t now = io_now_ms();

    for (int i = 0; i < PEERS; i++)
        fds[i] = (struct pollfd){.fd = is_engaged(&peers[i]) ? -1 : peers[i].fd, .events = POLLIN};
    fds[PEERS] = (struct pollfd){.fd = accept_after > now ? -1 : listener.fd, .events = POLLIN};
    if (poll(fds, PEERS + 1, wait ? wait_ms(now) : 0) < 0) {
        /* For instance a tiny RLIMIT_NOFILE: it would fail again at once, for ever. */
        if (wait && errno != EINTR)
            usleep(ACCEPT_PAUSE_MS * 1000);
        return;
    }
    now = io_now_ms();
    for (int i = 0; i < PEERS; i++) {
        if (fds[i].fd < 0)
            continue;
        if (fds[i].revents)
            peer_serve(&peers[i]);
        if (peers[i].fd >= 0 && !is_engaged(&peers[i]) && peers[i].deadline <= now)
            control_peer_drop(&peers[i]);
    }
    if (accept_after > now)
        return;
    if (!control_socket_is_open(&listener))
        listener_restore();
    else if (fds[PEERS].revents)
        peers_accept();
}

static void *thread_main(void *arg)
{
    on_control_thread = true;
    pthread_setname_np(pthread_self(), "cudackpt");
    __atomic_store_n(&thread_id, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    sem_post(&thread_ready);
    for (;;) {
        serve(true);
        while (running.peer)
            action_run();
    }
    return NULL;
}

/* ---- for the rest of the library */

void control_service(void)
{
    if (!on_control_thread || !running.peer || serving)
        return;
    serving = true; /* a status callback may come by here again */
    running.served_at = io_now_ms();
    serve(false);
    serving = false;
}

void control_progress(const char *phase, uint64_t done, uint64_t total)
{
    uint64_t now;

    if (!on_control_thread || !running.reply)
        return;
    now = io_now_ms();
    if (strncmp(phase, running.phase, sizeof(running.phase) - 1) || now - running.sent_at >= PROGRESS_MS ||
        (total && done == total && done != running.last_done)) {
        snprintf(running.phase, sizeof(running.phase), "%s", phase);
        running.sent_at = now;
        running.last_done = done;
        control_reply_progress(running.reply, phase, done, total);
    }
    if (now - running.served_at >= SERVICE_MS)
        control_service();
}

pid_t control_tid(void)
{
    return __atomic_load_n(&thread_id, __ATOMIC_ACQUIRE);
}

static int thread_start(struct error *err)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int number;

    number = pthread_attr_init(&attr);
    if (number) {
        error_set_errno(err, ERROR_MEMORY, number, "can't start the control thread");
        return -1;
    }
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sem_init(&thread_ready, 0, 0);
    /* The program's signals are for the program's threads: the new thread inherits a full mask. */
    sigfillset(&all);
    /* A fault of this thread's own must reach whoever handles faults in the program, not kill it without a
     * word. */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&thread, &attr, thread_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (number) {
        error_set_errno(err, ERROR_MEMORY, number, "can't start the control thread");
        return -1;
    }
    while (sem_wait(&thread_ready) < 0 && errno == EINTR)
        ;
    return 0;
}

int control_start(const struct control_actions *given, struct error *err)
{
    int saved = errno, result = -1;

    if (control_tid())
        return 0;
    actions = given;
    if (control_socket_open(&listener, err) == 0) {
        result = thread_start(err);
        if (result < 0) {
            control_socket_unlink(&listener);
            control_socket_close(&listener);
        } else {
            log_info("listening on %s", listener.path);
        }
    }
    errno = saved;
    return result;
}

void control_stop(void)
{
    int saved = errno;

    control_socket_unlink(&listener);
    errno = saved;
}

void control_after_fork_in_child(void)
{
    int saved = errno;

    control_socket_close(&listener);
    listener.path[0] = '\0'; /* the file is the parent's */
    for (int i = 0; i < PEERS; i++)
        control_peer_drop(&peers[i]);
    memset(&running, 0, sizeof(running));
    memset(&next, 0, sizeof(next));
    accept_after = 0;
    serving = false;
    __atomic_store_n(&thread_id, 0, __ATOMIC_RELEASE);
    errno = saved;
}
