#include "ledger.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "gate.h"
#include "ledger_internal.h"
#define LOG_PREFIX "ledger"
#include "log.h"

/* Guards descriptors' streams, maps and threads. Held for a few instructions and small memmoves only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- descriptors: one bit each; higher numbers than this are not noted (RLIMIT_NOFILE is below it everywhere) */

#define DESCRIPTORS_MAX (1u << 20)
static uint64_t descriptors[DESCRIPTORS_MAX / 64];

void ledger_descriptor_add(int fd)
{
    if (fd >= 0 && (unsigned)fd < DESCRIPTORS_MAX)
        __atomic_fetch_or(&descriptors[fd / 64], 1ull << (fd % 64), __ATOMIC_RELAXED);
}

void ledger_descriptor_remove(int fd)
{
    if (fd >= 0 && (unsigned)fd < DESCRIPTORS_MAX)
        __atomic_fetch_and(&descriptors[fd / 64], ~(1ull << (fd % 64)), __ATOMIC_RELAXED);
}

bool ledger_descriptor_is_driver(int fd)
{
    return fd >= 0 && (unsigned)fd < DESCRIPTORS_MAX && (descriptors[fd / 64] >> (fd % 64) & 1);
}

/* One at a time under the lock, which a fork takes: a child must not get one that is no longer noted and still open. */
static void close_descriptors(void)
{
    for (size_t word = 0; word < DESCRIPTORS_MAX / 64; word++)
        while (descriptors[word]) {
            int fd = (int)(word * 64) + __builtin_ctzll(descriptors[word]);

            pthread_mutex_lock(&lock);
            ledger_descriptor_remove(fd);
            close(fd);
            pthread_mutex_unlock(&lock);
        }
}

/* ---- streams of libc */

#define STREAMS_MAX 256
static struct {
    void *stream;
    bool directory;
} streams[STREAMS_MAX];
static size_t stream_count;

static int stream_descriptor(void *stream, bool directory)
{
    return directory ? dirfd(stream) : fileno(stream);
}

void ledger_stream_add(void *stream, bool directory)
{
    if (!stream)
        return;
    ledger_descriptor_add(stream_descriptor(stream, directory));
    pthread_mutex_lock(&lock);
    if (stream_count < STREAMS_MAX) {
        streams[stream_count].stream = stream;
        streams[stream_count++].directory = directory;
    }
    pthread_mutex_unlock(&lock);
}

void ledger_stream_remove(void *stream, bool directory)
{
    ledger_descriptor_remove(stream_descriptor(stream, directory));
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i].stream == stream) {
            streams[i] = streams[--stream_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

static void close_streams(void)
{
    while (stream_count > 0) {
        void *stream = streams[--stream_count].stream;
        bool directory = streams[stream_count].directory;

        ledger_descriptor_remove(stream_descriptor(stream, directory));
        if (directory)
            closedir(stream);
        else
            fclose(stream);
    }
}

/* ---- mappings */

static struct intervals maps;   /* what the driver has mapped */
static struct intervals chosen; /* places given out by ledger_map_choose, and placeholders there */
static struct intervals placeholders;

#define MAP_ALIGNMENT (2ull << 20)

void ledger_map_add(uint64_t address, uint64_t size)
{
    pthread_mutex_lock(&lock);
    if (!intervals_add(&maps, address, address + size))
        log_warn("no memory to note a mapping of the driver");
    pthread_mutex_unlock(&lock);
}

void ledger_map_remove(uint64_t address, uint64_t size, bool keep_place)
{
    pthread_mutex_lock(&lock);
    if (!intervals_remove(&maps, address, address + size))
        log_warn("no memory to forget a mapping of the driver");
    if (!keep_place)
        intervals_remove(&chosen, address, address + size);
    pthread_mutex_unlock(&lock);
}

uint64_t ledger_map_choose(uint64_t size)
{
    uint64_t address;

    pthread_mutex_lock(&lock);
    address = intervals_find_gap(&chosen, LEDGER_MAPS_BASE, LEDGER_MAPS_LIMIT, size, MAP_ALIGNMENT);
    if (address && !intervals_add(&chosen, address, address + size))
        address = 0;
    pthread_mutex_unlock(&lock);
    return address;
}

bool ledger_map_holds(uint64_t address, uint64_t size)
{
    bool holds;

    pthread_mutex_lock(&lock);
    holds = intervals_overlap(&maps, address, address + size) ||
            intervals_overlap(&chosen, address, address + size);
    pthread_mutex_unlock(&lock);
    return holds;
}

bool ledger_map_is_placeholder(uint64_t address, uint64_t size)
{
    bool is;

    pthread_mutex_lock(&lock);
    is = intervals_overlap(&placeholders, address, address + size);
    pthread_mutex_unlock(&lock);
    return is;
}

bool ledger_map_take_placeholder(uint64_t address, uint64_t size)
{
    const struct interval *held;
    bool taken;

    pthread_mutex_lock(&lock);
    held = intervals_after(&placeholders, address);
    taken = held && held->start <= address && held->end >= address + size &&
            intervals_remove(&placeholders, address, address + size);
    pthread_mutex_unlock(&lock);
    return taken;
}

/*
 * A placeholder takes the place of the driver's mapping with MAP_FIXED, in one step: between an munmap and an mmap a
 * thread of the program could be given the address by the kernel.
 */
static int put_placeholder(uint64_t start, uint64_t end, struct error *err)
{
    if (mmap((void *)start, end - start, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        error_set_errno(err, ERROR_MEMORY, errno, "can't hold the address range %#llx", (unsigned long long)start);
        return -1;
    }
    return 0;
}

static int release_maps(const struct interval *keep, size_t keep_count, struct error *err)
{
    for (size_t i = 0; i < keep_count; i++) {
        if (put_placeholder(keep[i].start, keep[i].end, err))
            return -1;
        intervals_remove(&maps, keep[i].start, keep[i].end);
        intervals_remove(&placeholders, keep[i].start, keep[i].end);
    }
    for (size_t i = 0; i < maps.count; i++)
        munmap((void *)maps.items[i].start, maps.items[i].end - maps.items[i].start);
    /* what an earlier suspend held and nobody needs any more */
    for (size_t i = 0; i < placeholders.count; i++)
        munmap((void *)placeholders.items[i].start, placeholders.items[i].end - placeholders.items[i].start);
    intervals_clear(&maps);
    intervals_clear(&chosen);
    intervals_clear(&placeholders);
    for (size_t i = 0; i < keep_count; i++)
        if (!intervals_add(&chosen, keep[i].start, keep[i].end) ||
            !intervals_add(&placeholders, keep[i].start, keep[i].end)) {
            error_set(err, ERROR_MEMORY, "no memory to note the address ranges");
            return -1;
        }
    return 0;
}

/* ---- all together */

void ledger_get_stats(struct ledger_stats *stats)
{
    *stats = (struct ledger_stats){0};
    for (size_t word = 0; word < DESCRIPTORS_MAX / 64; word++)
        stats->descriptors += __builtin_popcountll(descriptors[word]);
    pthread_mutex_lock(&lock);
    stats->maps = maps.count;
    pthread_mutex_unlock(&lock);
    stats->threads = ledger_threads_count();
    stats->keys = ledger_keys_count();
}

/* ---- device files that are open, but not in the ledger */

/* Calls f for each until it returns true. */
static bool each_foreign_device(bool (*f)(int fd, const char *path, void *arg), void *arg)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    bool found = false;

    while (directory && !found && (entry = readdir(directory))) {
        char path[256];
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, path, sizeof path - 1);
        int fd = atoi(entry->d_name);

        if (length <= 0 || ledger_descriptor_is_driver(fd))
            continue;
        path[length] = '\0';
        found = !strncmp(path, "/dev/nvidia", 11) && f(fd, path, arg);
    }
    if (directory)
        closedir(directory);
    return found;
}

static bool remember_device(int fd, const char *path, void *arg)
{
    struct ledger_devices *before = arg;

    if (before->count < LEDGER_DEVICES_MAX)
        before->fds[before->count++] = fd;
    return false;
}

void ledger_devices_before(struct ledger_devices *before)
{
    before->count = 0;
    each_foreign_device(remember_device, before);
}

static bool adopt_device(int fd, const char *path, void *arg)
{
    const struct ledger_devices *before = arg;

    for (unsigned i = 0; i < before->count; i++)
        if (before->fds[i] == fd)
            return false;
    log_debug("descriptor %d (%s) was opened past the imports", fd, path);
    ledger_descriptor_add(fd);
    return false;
}

void ledger_devices_after(struct ledger_devices *before)
{
    each_foreign_device(adopt_device, before);
}

struct found_device {
    int *fd;
    char *path;
    size_t size;
};

static bool tell_device(int fd, const char *path, void *arg)
{
    struct found_device *found = arg;

    *found->fd = fd;
    snprintf(found->path, found->size, "%s", path);
    return true;
}

bool ledger_find_foreign_device(int *fd, char *path, size_t size)
{
    struct found_device found = {fd, path, size};

    return each_foreign_device(tell_device, &found);
}

int ledger_release(const struct interval *keep, size_t keep_count, struct error *err)
{
    /* Threads first: they use everything else. Descriptors before mappings: that frees the device's memory at once. */
    if (fault_here(FAULT_release_threads, err) || ledger_threads_end(err))
        return -1;
    close_streams();
    close_descriptors();
    if (release_maps(keep, keep_count, err))
        return -1;
    ledger_keys_delete();
    ledger_handlers_forget();
    return 0;
}

/* ---- fork */

void ledger_before_fork(void)
{
    ledger_threads_lock();
    pthread_mutex_lock(&lock);
}

void ledger_after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
    ledger_threads_unlock();
}

void ledger_after_fork_in_child(void)
{
    pthread_mutex_unlock(&lock);
    ledger_threads_unlock();
    ledger_threads_forget();
    close_descriptors();
}
