#ifndef FAKE_SHARE_H
#define FAKE_SHARE_H
/*
 * What the device file nvidia<N> holds: who has how much of the device. A process owns a slot as long as it
 * holds an open file description lock on the slot's byte: when its descriptor is closed, by whomever, its
 * share is gone.
 */

#include <stdint.h>

enum { SHARES = 512, SHARE_LOCK_TABLE = 1 << 20, SHARE_LOCK_SLOTS = SHARE_LOCK_TABLE + 1 };

struct share {
    int32_t pid;
    uint32_t reserved;
    uint64_t bytes;
};

struct share_table {
    uint64_t size; /* of the device */
    uint64_t reserved;
    struct share shares[SHARES];
};

/* fcntl F_OFD_SETLK(W) on one byte: 0, or -1 with errno. type F_WRLCK or F_UNLCK. */
int share_lock(int file, int64_t byte, int type, int wait);
/* Whether some other open file description has the byte locked. */
int share_is_locked(int file, int64_t byte);

#endif
