/* Locks on bytes of a device file. */

#include <fcntl.h>
#include <unistd.h>

#include "fake_share.h"

int share_lock(int file, int64_t byte, int type, int wait)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
}

int share_is_locked(int file, int64_t byte)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
