#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

ssize_t io_read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    size_t length = 0;
    int number;

    if (fd < 0)
        return -1;
    while (length < size - 1) {
        ssize_t got = read(fd, text + length, size - 1 - length);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            number = errno;
            close(fd);
            errno = number;
            return -1;
        }
        if (got == 0)
            break;
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    return (ssize_t)length;
}

int io_unix_address(struct sockaddr_un *address, const char *path)
{
    size_t length = strlen(path);

    if (length >= sizeof(address->sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, length);
    return 0;
}

int io_unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

uint64_t io_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
