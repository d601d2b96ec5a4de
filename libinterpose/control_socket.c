#include "control_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"
#include "protocol.h"

#define BACKLOG 64

ino_t control_descriptor_inode(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

bool control_descriptor_is(int fd, ino_t inode)
{
    return fd >= 0 && inode && control_descriptor_inode(fd) == inode;
}

bool control_socket_is_open(const struct control_socket *sock)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof(address);

    /* Nobody else in this process has a socket of this name, but for the ends of connections to it: not
     * listening. */
    return sock->fd >= 0 && getsockname(sock->fd, (struct sockaddr *)&address, &size) == 0 &&
           address.sun_family == AF_UNIX && !strncmp(address.sun_path, sock->path, sizeof(sock->path));
}

int control_directory_prepare(const char *directory, uid_t uid, struct error *err)
{
    struct stat status;

    if (mkdir(directory, 0700) < 0 && errno != EEXIST) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't make %s", directory);
        return -1;
    }
    /* lstat: in /tmp anybody may have put a symbolic link here before us. */
    if (lstat(directory, &status) < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't look at %s", directory);
        return -1;
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != uid || (status.st_mode & 077)) {
        error_set(err, ERROR_PERMISSION, "%s is not a directory of uid %u with mode 0700: remove it",
                  directory, (unsigned int)uid);
        return -1;
    }
    return 0;
}

/*
 * Processes of two pid namespaces that share /tmp may have the same pid. The second one must not take the
 * file away from the first. A file that nobody listens on is left over from a process that is gone.
 */
static bool somebody_listens(const struct sockaddr_un *address)
{
    int fd = io_unix_socket();
    bool listens;

    if (fd < 0)
        return false;
    listens = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN;
    close(fd);
    return listens;
}

static int listen_at(struct control_socket *sock, struct error *err)
{
    struct sockaddr_un address;

    if (io_unix_address(&address, sock->path) < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "%s", sock->path);
        return -1;
    }
    if (somebody_listens(&address)) {
        error_set(err, ERROR_REFUSED, "%s belongs to a process of another pid namespace", sock->path);
        return -1;
    }
    unlink(sock->path);
    sock->fd = io_unix_socket();
    if (sock->fd < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't make the control socket");
        return -1;
    }
    if (bind(sock->fd, (struct sockaddr *)&address, sizeof(address)) < 0 || chmod(sock->path, 0600) < 0 ||
        listen(sock->fd, BACKLOG) < 0) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't listen on %s", sock->path);
        close(sock->fd);
        sock->fd = -1;
        return -1;
    }
    return 0;
}

int control_socket_reopen(struct control_socket *sock, struct error *err)
{
    control_socket_close(sock);
    return listen_at(sock, err);
}

static int open_in(struct control_socket *sock, const char *directory, struct error *err)
{
    uid_t uid = geteuid();
    char *slash;

    if (protocol_socket_path(sock->path, sizeof(sock->path), "", directory, uid, sock->owner) < 0) {
        error_set(err, ERROR_REFUSED, "%s is too long a path for a socket", directory);
        return -1;
    }
    slash = strrchr(sock->path, '/');
    *slash = '\0';
    if (control_directory_prepare(sock->path, uid, err) < 0)
        return -1;
    *slash = '/';
    return listen_at(sock, err);
}

int control_socket_open(struct control_socket *sock, struct error *err)
{
    struct error first = {0};
    const char *directory;

    sock->fd = -1;
    sock->owner = getpid();
    for (size_t i = 0; (directory = protocol_directory(i)); i++) {
        struct error attempt = {0};

        if (open_in(sock, directory, &attempt) == 0)
            return 0;
        error_set(&first, attempt.code, "%s", attempt.text);
    }
    sock->path[0] = '\0';
    error_set(err, first.code, "no directory can hold the control socket: %.900s", first.text);
    return -1;
}

void control_socket_close(struct control_socket *sock)
{
    if (control_socket_is_open(sock))
        close(sock->fd);
    sock->fd = -1;
}

void control_socket_unlink(const struct control_socket *sock)
{
    if (sock->path[0] && sock->owner == getpid())
        unlink(sock->path);
}
