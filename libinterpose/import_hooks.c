#include "import_hooks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ledger.h"
#include "loader_hooks.h"
#include "placement.h"
#include "restart.h"
#include "unsaveable.h"
#define LOG_PREFIX "imports"
#include "log.h"

/* ---- memory */

/*
 * All memory comes zeroed, as it mostly does at the start of a process: a driver that reads a block before it has written
 * it behaves in every generation as it did in the first.
 */
static void *zeroed(void *pointer, size_t size)
{
    return pointer ? memset(pointer, 0, size) : NULL;
}

static void *hook_malloc(size_t size)
{
    ledger_check_caller();
    return zeroed(placement_heap_alloc(size), size);
}

static void *hook_calloc(size_t count, size_t size)
{
    size_t bytes;

    ledger_check_caller();
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return zeroed(placement_heap_alloc(bytes), bytes);
}

static void *hook_memalign(size_t alignment, size_t size)
{
    ledger_check_caller();
    return zeroed(placement_heap_alloc_aligned(alignment, size), size);
}

static int hook_posix_memalign(void **pointer, size_t alignment, size_t size)
{
    *pointer = hook_memalign(alignment, size);
    return *pointer ? 0 : ENOMEM;
}

static void *hook_realloc(void *pointer, size_t size)
{
    ledger_check_caller();
    if (!pointer)
        return zeroed(placement_heap_alloc(size), size);
    if (!driver_heap_owns(pointer))
        return realloc(pointer, size);
    return placement_heap_realloc(pointer, size);
}

/*
 * A pointer from outside of the heap came from libc itself (strdup, realpath, scandir: libc's to free) or from a
 * constructor that ran before the imports were patched. The latter lives on in the pristine segment, and would be freed
 * again after every restart.
 */
static void hook_free(void *pointer)
{
    if (!pointer)
        return;
    if (driver_heap_owns(pointer))
        driver_heap_free(pointer);
    else if (!restart_pristine_holds(pointer))
        free(pointer);
}

/* ---- descriptors */

static int note(int fd)
{
    ledger_check_caller();
    ledger_descriptor_add(fd);
    log_debug("descriptor %d", fd);
    return fd;
}

/* Like every program, the driver passes a mode only with O_CREAT and O_TMPFILE; reading it regardless does no harm. */
#define WITH_MODE(last, mode)                                                                                \
    va_list list_;                                                                                           \
    mode_t mode;                                                                                             \
    va_start(list_, last);                                                                                   \
    mode = va_arg(list_, mode_t);                                                                            \
    va_end(list_)

static bool names_own_maps(const char *path);
static int open_filtered_maps(int flags);

static int hook_open(const char *path, int flags, ...)
{
    WITH_MODE(flags, mode);
    return note(names_own_maps(path) ? open_filtered_maps(flags) : open(path, flags, mode));
}

static int hook_openat(int directory, const char *path, int flags, ...)
{
    WITH_MODE(flags, mode);
    return note(openat(directory, path, flags, mode));
}

static int hook_creat(const char *path, mode_t mode)
{
    return note(creat(path, mode));
}

static int hook_socket(int domain, int type, int protocol)
{
    return note(socket(domain, type, protocol));
}

static int hook_socketpair(int domain, int type, int protocol, int pair[2])
{
    int result = socketpair(domain, type, protocol, pair);

    if (result == 0) {
        note(pair[0]);
        note(pair[1]);
    }
    return result;
}

static int hook_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return note(accept(fd, address, length));
}

static int hook_eventfd(unsigned value, int flags)
{
    return note(eventfd(value, flags));
}

static int hook_pipe(int pair[2])
{
    int result = pipe(pair);

    if (result == 0) {
        note(pair[0]);
        note(pair[1]);
    }
    return result;
}

static int hook_dup(int fd)
{
    return note(dup(fd));
}

static int hook_dup2(int old, int new)
{
    return note(dup2(old, new));
}

static int hook_dup3(int old, int new, int flags)
{
    return note(dup3(old, new, flags));
}

static int hook_fcntl(int fd, int command, ...)
{
    va_list list;
    long argument;
    int result;

    va_start(list, command);
    argument = va_arg(list, long);
    va_end(list);
    result = fcntl(fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        note(result);
    return result;
}

static int hook_close(int fd)
{
    ledger_descriptor_remove(fd);
    return close(fd);
}

static int hook_mkstemp(char *template)
{
    return note(mkstemp(template));
}

static int hook_shm_open(const char *name, int flags, mode_t mode)
{
    return note(shm_open(name, flags, mode));
}

/* Descriptors that come over a socket. */
static ssize_t hook_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t result = recvmsg(fd, message, flags);

    for (struct cmsghdr *part = result >= 0 ? CMSG_FIRSTHDR(message) : NULL; part;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
            int received;

            memcpy(&received, (char *)part + at, sizeof received);
            note(received);
        }
    }
    return result;
}

/*
 * Before it reserves address space at a place of its choice the driver looks there: it reads /proc/self/maps, or asks
 * msync. Placeholders must look like free space to it, since they hold what it shall have again.
 */
static bool names_own_maps(const char *path)
{
    char own[32];

    snprintf(own, sizeof own, "/proc/%d/maps", (int)getpid());
    return !strcmp(path, "/proc/self/maps") || !strcmp(path, own);
}

static int open_filtered_maps(int flags)
{
    int fd = memfd_create("maps", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    FILE *maps = fd >= 0 ? fopen("/proc/self/maps", "re") : NULL;
    char line[PATH_MAX + 128];

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && ledger_map_is_placeholder(start, end - start))
            continue;
        if (write(fd, line, strlen(line)) < 0)
            break;
    }
    if (maps)
        fclose(maps);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static FILE *hook_fopen(const char *path, const char *mode)
{
    FILE *stream = names_own_maps(path) ? fdopen(open_filtered_maps(O_CLOEXEC), mode) : fopen(path, mode);

    ledger_stream_add(stream, false);
    return stream;
}

static int hook_msync(void *address, size_t size, int flags)
{
    if (ledger_map_is_placeholder((uint64_t)address, size)) {
        errno = ENOMEM;
        return -1;
    }
    return msync(address, size, flags);
}

static FILE *hook_fdopen(int fd, const char *mode)
{
    FILE *stream = fdopen(fd, mode);

    ledger_stream_add(stream, false);
    return stream;
}

static int hook_fclose(FILE *stream)
{
    ledger_stream_remove(stream, false);
    return fclose(stream);
}

static DIR *hook_opendir(const char *path)
{
    DIR *directory = opendir(path);

    ledger_stream_add(directory, true);
    return directory;
}

static DIR *hook_fdopendir(int fd)
{
    DIR *directory = fdopendir(fd);

    ledger_stream_add(directory, true);
    return directory;
}

static int hook_closedir(DIR *directory)
{
    ledger_stream_remove(directory, true);
    return closedir(directory);
}

/* The driver makes some descriptors by their system call: eventfd2, pipe2. */
static long hook_syscall(long number, ...)
{
    long a[6], result;
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (result < 0)
        return result;
    switch (number) {
    case SYS_open:
    case SYS_openat:
    case SYS_openat2:
    case SYS_socket:
    case SYS_accept:
    case SYS_accept4:
    case SYS_eventfd:
    case SYS_eventfd2:
    case SYS_memfd_create:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_epoll_create:
    case SYS_epoll_create1:
    case SYS_timerfd_create:
    case SYS_signalfd4:
    case SYS_inotify_init1:
    case SYS_pidfd_open:
    case SYS_pidfd_getfd:
        note((int)result);
        break;
    case SYS_pipe:
    case SYS_pipe2:
        note(((int *)a[0])[0]);
        note(((int *)a[0])[1]);
        break;
    case SYS_close:
        ledger_descriptor_remove((int)a[0]);
        break;
    default:
        break;
    }
    return result;
}

/* ---- mappings */

/*
 * Address reservations are how the driver chooses every device address. One that may lie anywhere gets a place in our own
 * region; at replay each gets the place that the record noted, over the placeholder that holds it.
 */
static void *reserve(void *address, size_t size, int flags)
{
    uint64_t place = address ? (uint64_t)address : placement_map_wanted(size);
    bool over_placeholder = place && ledger_map_take_placeholder(place, size);
    void *result;

    if (over_placeholder)
        flags |= MAP_FIXED;
    else if (!address)
        place = ledger_map_choose(size);
    if (!place)
        return MAP_FAILED;
    result = mmap((void *)place, size, PROT_NONE, flags | (address || over_placeholder ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
    if (result == MAP_FAILED)
        return result;
    log_debug("reservation of %#zx bytes, asked for at %p: at %p%s", size, address, result,
              over_placeholder ? ", as before" : "");
    ledger_map_add((uint64_t)result, size);
    placement_map_got((uint64_t)result, size);
    return result;
}

static void *hook_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *result = MAP_FAILED;

    ledger_check_caller();
    if (protection == PROT_NONE && fd < 0 && !(flags & MAP_FIXED))
        result = reserve(address, size, flags);
    if (result == MAP_FAILED) {
        result = mmap(address, size, protection, flags, fd, offset);
        if (result != MAP_FAILED)
            ledger_map_add((uint64_t)result, size);
    }
    return result;
}

static int hook_munmap(void *address, size_t size)
{
    int result = munmap(address, size);

    if (result == 0)
        ledger_map_remove((uint64_t)address, size, placement_is_noting());
    return result;
}

static void *hook_mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
    va_list list;
    void *wanted, *result;

    va_start(list, flags);
    wanted = va_arg(list, void *);
    va_end(list);
    result = mremap(address, old_size, new_size, flags, wanted);
    if (result != MAP_FAILED) {
        ledger_map_remove((uint64_t)address, old_size, false);
        ledger_map_add((uint64_t)result, new_size);
    }
    return result;
}

/* ---- environment */

extern char **environ;
static char **kept_environment;
static int replaying;

void import_hooks_keep_environment(void)
{
    size_t count = 0, bytes = 0;
    char *text;

    if (kept_environment || !environ)
        return;
    for (; environ[count]; count++)
        bytes += strlen(environ[count]) + 1;
    kept_environment = malloc((count + 1) * sizeof *kept_environment + bytes);
    if (!kept_environment)
        return; /* the driver then sees the present one */
    text = (char *)(kept_environment + count + 1);
    for (size_t i = 0; i < count; i++) {
        kept_environment[i] = text;
        text = stpcpy(text, environ[i]) + 1;
    }
    kept_environment[count] = NULL;
}

void import_hooks_replay_environment(int on)
{
    __atomic_store_n(&replaying, on, __ATOMIC_RELEASE);
}

/* Programs change variables like CUDA_VISIBLE_DEVICES after the driver has read them; a replay must not notice. */
static char *hook_getenv(const char *name)
{
    size_t length = strlen(name);

    if (!__atomic_load_n(&replaying, __ATOMIC_ACQUIRE) || !kept_environment)
        return getenv(name);
    for (char **entry = kept_environment; *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

/* ---- the loader: the driver's own opens of itself and of its helpers go past our dlopen */

static void *hook_dlopen(const char *name, int flags)
{
    void *handle;

    loader_resolve();
    handle = loader_real_dlopen(name, flags);
    log_debug("the driver opens %s", name ? name : "itself");
    if (handle && name && strstr(name, "libcudadebugger.so"))
        unsaveable_note("a debugger has attached to the CUDA driver"); /* it keeps pointers into the driver's heap */
    return handle;
}

/* ---- the table */

static const struct {
    const char *name;
    void *hook;
} hooks[] = {
    {"malloc", hook_malloc},
    {"calloc", hook_calloc},
    {"memalign", hook_memalign},
    {"aligned_alloc", hook_memalign},
    {"posix_memalign", hook_posix_memalign},
    {"realloc", hook_realloc},
    {"free", hook_free},
    {"open", hook_open},
    {"open64", hook_open},
    {"openat", hook_openat},
    {"openat64", hook_openat},
    {"creat", hook_creat},
    {"socket", hook_socket},
    {"socketpair", hook_socketpair},
    {"accept", hook_accept},
    {"eventfd", hook_eventfd},
    {"pipe", hook_pipe},
    {"dup", hook_dup},
    {"dup2", hook_dup2},
    {"dup3", hook_dup3},
    {"fcntl", hook_fcntl},
    {"fcntl64", hook_fcntl},
    {"close", hook_close},
    {"mkstemp", hook_mkstemp},
    {"shm_open", hook_shm_open},
    {"recvmsg", hook_recvmsg},
    {"fopen", hook_fopen},
    {"fopen64", hook_fopen},
    {"fdopen", hook_fdopen},
    {"fclose", hook_fclose},
    {"opendir", hook_opendir},
    {"fdopendir", hook_fdopendir},
    {"closedir", hook_closedir},
    {"syscall", hook_syscall},
    {"mmap", hook_mmap},
    {"mmap64", hook_mmap},
    {"munmap", hook_munmap},
    {"mremap", hook_mremap},
    {"msync", hook_msync},
    {"pthread_create", ledger_thread_create},
    {"pthread_join", ledger_thread_join},
    {"pthread_key_create", ledger_key_create},
    {"__pthread_key_create", ledger_key_create},
    {"pthread_key_delete", ledger_key_delete},
    {"pthread_getspecific", ledger_key_get},
    {"pthread_setspecific", ledger_key_set},
    {"__cxa_atexit", ledger_exit_handler},
    {"__register_atfork", ledger_fork_handler},
    {"getenv", hook_getenv},
    {"secure_getenv", hook_getenv},
    {"dlopen", hook_dlopen},
};

void *import_hook(const char *name)
{
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i].name, name))
            return hooks[i].hook;
    return NULL;
}
