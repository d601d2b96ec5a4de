#ifndef CUDACKPT_IO_H
#define CUDACKPT_IO_H
/* Small helpers around files and sockets. Failures leave errno as libc set it. */

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "error.h"

/* Reads a small file (e.g. of /proc) as a string, cut to fit. Returns its length, -1 on failure. */
ssize_t io_read_file(const char *path, char *text, size_t size);

/* Fills address with path; -1 (ENAMETOOLONG) if it doesn't fit. */
int io_unix_address(struct sockaddr_un *address, const char *path);

/* A Unix stream socket, CLOEXEC and non-blocking; -1 on failure. */
int io_unix_socket(void);

/* CLOCK_MONOTONIC in milliseconds. */
uint64_t io_now_ms(void);

#endif
