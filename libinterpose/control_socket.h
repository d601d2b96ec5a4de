#ifndef CUDACKPT_CONTROL_SOCKET_H
#define CUDACKPT_CONTROL_SOCKET_H
/* The listening socket of the control thread: its directory, its file, its descriptor. One owner, no lock. */

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "error.h"

struct control_socket {
    int fd;      /* -1: not open */
    pid_t owner; /* the process that made the file: nobody else removes it */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Finds a directory (protocol_directory), makes the file in it and listens. */
int control_socket_open(struct control_socket *sock, struct error *err);

/* Makes the same file again, for instance because the program closed the descriptor. */
int control_socket_reopen(struct control_socket *sock, struct error *err);

/* Closes the descriptor; the file stays. */
void control_socket_close(struct control_socket *sock);

/* Removes the file, unless this process is a copy of the one that made it. */
void control_socket_unlink(const struct control_socket *sock);

/*
 * The program owns all descriptors of the process: it may close ours (daemons close everything they don't
 * know) and get the number back for a file of its own. So every use asks first whether the number still means
 * what it meant. The listener is known by its path, because CRIU gives a restored process sockets with other
 * inodes; connections, which don't live through a dump, by their inode.
 */
bool control_socket_is_open(const struct control_socket *sock);
bool control_descriptor_is(int fd, ino_t inode);
ino_t control_descriptor_inode(int fd); /* 0 on failure */

/* The directory that holds the socket: made if it is missing; it must be a real directory, ours, private. */
int control_directory_prepare(const char *directory, uid_t uid, struct error *err);

#endif
