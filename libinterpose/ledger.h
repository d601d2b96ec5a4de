#ifndef CUDACKPT_LEDGER_H
#define CUDACKPT_LEDGER_H
/*
 * The ledger: what the driver libraries took from the operating system, so that it can all be given back behind their
 * back: descriptors, mappings, threads, thread-local keys, exit and fork handlers. Filled by the import hooks
 * (import_hooks.c); emptied by ledger_release when the driver is restarted.
 *
 * Any thread; own lock. Memory comes from mmap, never from the program's malloc.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "intervals.h"

/* Where the driver's own address reservations go: away from where the kernel puts the program's mappings. */
#define LEDGER_MAPS_BASE  0x500000000000ull
#define LEDGER_MAPS_LIMIT 0x600000000000ull

void ledger_descriptor_add(int fd);
void ledger_descriptor_remove(int fd);
bool ledger_descriptor_is_driver(int fd);

/* Streams of libc that the driver has open, with their descriptors; closed with fclose or closedir on release. */
void ledger_stream_add(void *stream, bool directory);
void ledger_stream_remove(void *stream, bool directory); /* before it is closed */

void ledger_map_add(uint64_t address, uint64_t size);
/*
 * keep_place: the place is not given to another reservation. The driver reserves a place only to learn that it is free,
 * gives it back in the same call, and then uses its addresses on the device: such a place is as good as held.
 */
void ledger_map_remove(uint64_t address, uint64_t size, bool keep_place);
/* A place for a reservation of the driver that may lie anywhere; 0 if there is none. Nobody else gets it meanwhile. */
uint64_t ledger_map_choose(uint64_t size);
/* The driver still has something of the range mapped (it maps more than it needs and gives the ends back), or its place. */
bool ledger_map_holds(uint64_t address, uint64_t size);
/* Some of the range is held by placeholders. */
bool ledger_map_is_placeholder(uint64_t address, uint64_t size);
/* The range is held by placeholders: from now on it is the caller's to map over. False (nothing changes) if not. */
bool ledger_map_take_placeholder(uint64_t address, uint64_t size);

int ledger_thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);
int ledger_thread_join(pthread_t thread, void **result);
/* The calling thread is one of the program's: not made by the driver, and not this library's. */
bool ledger_thread_is_program(void);
/* The calling thread is one of this library: what it does in the driver is no by-passing. */
void ledger_thread_is_ours(void);
/* Once, when the driver is used: what a release needs of the dynamic loader is loaded, which can wait later on. */
void ledger_prepare(void);
/* A thread outside of the gate that is neither: it called the driver behind our back; noted as unsaveable. */
void ledger_check_caller(void);

int ledger_key_create(pthread_key_t *key, void (*destructor)(void *));
int ledger_key_delete(pthread_key_t key);
void *ledger_key_get(pthread_key_t key);
int ledger_key_set(pthread_key_t key, const void *value);

int ledger_exit_handler(void (*handler)(void *), void *argument, void *dso);
int ledger_fork_handler(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* Around a restart: a fork runs the driver's handlers before or after it, not meanwhile. */
void ledger_restart_begin(void);
void ledger_restart_end(void);

/* Fork: the driver's own handlers, outside of all locks of ours: they may wait for a thread that wants one. */
void ledger_fork_prepare(void);
void ledger_fork_parent(void);
void ledger_fork_child(void);
/* Fork: the locks. */
void ledger_before_fork(void);
void ledger_after_fork_in_parent(void);
/* The child has no use for the driver: its copies of device descriptors are closed. */
void ledger_after_fork_in_child(void);

struct ledger_stats {
    unsigned descriptors, threads, keys, maps;
};
void ledger_get_stats(struct ledger_stats *stats);

/*
 * The driver opens some device files (/dev/nvidia-caps/...) by system calls of its own: what is new after one of its
 * initialisations is its own too. Around each of them, in first calls and in replays.
 */
#define LEDGER_DEVICES_MAX 64
struct ledger_devices {
    int fds[LEDGER_DEVICES_MAX];
    unsigned count;
};
void ledger_devices_before(struct ledger_devices *before);
void ledger_devices_after(struct ledger_devices *before);

/* The descriptors of device files (/dev/nvidia*) that did not come from the driver: *fd and its path; false if none. */
bool ledger_find_foreign_device(int *fd, char *path, size_t size);

/*
 * Gives everything back; nobody is inside of the driver. Address ranges for which keep() holds stay reserved by
 * placeholders (PROT_NONE), put in place of the driver's mapping in one step. ERROR_REFUSED if a thread of the driver
 * does not end: it may be tried again.
 */
int ledger_release(const struct interval *keep, size_t keep_count, struct error *err);

#endif
