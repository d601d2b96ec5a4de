#ifndef CUDACKPT_CLEANUP_H
#define CUDACKPT_CLEANUP_H
/* Release at the end of the scope: cleanup_free char *name = NULL; cleanup_fd int fd = -1; */

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_(void *pointer)
{
    free(*(void **)pointer);
}

static inline void cleanup_fd_(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define cleanup_free __attribute__((cleanup(cleanup_free_)))
#define cleanup_fd   __attribute__((cleanup(cleanup_fd_)))

#endif
