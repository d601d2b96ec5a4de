/* What cuInit takes from the system: device files, a socket, descriptors by raw system calls, threads,
 * memory. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake.h"
#include "fake_share.h"

enum { NOISE_BLOCKS = 4000 };

extern void *__dso_handle;
int __cxa_atexit(void (*function)(void *), void *argument, void *dso);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

/* ---- directory and device files */

int os_directory(void)
{
    const char *wanted = getenv("FAKE_GPU_DIR");

    if (wanted && *wanted)
        snprintf(fake.directory, sizeof(fake.directory), "%s", wanted);
    else
        snprintf(fake.directory, sizeof(fake.directory), "/tmp/fakegpu-%u", getuid());
    return mkdir(fake.directory, 0700) && errno != EEXIST ? -1 : 0;
}

static int device_file(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", fake.directory, name);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/* Finds a slot that nobody holds. */
static int slot_take(struct device *device)
{
    for (device->slot = 0; device->slot < SHARES; device->slot++) {
        if (!share_lock(device->file, SHARE_LOCK_SLOTS + device->slot, F_WRLCK, 0))
            return 0;
    }
    return -1;
}

static int table_prepare(struct device *device)
{
    struct share share = {.pid = getpid()};
    struct stat status;

    if (share_lock(device->file, SHARE_LOCK_TABLE, F_WRLCK, 1))
        return -1;
    if (fstat(device->file, &status) == 0 && status.st_size < (off_t)sizeof(struct share_table) &&
        ftruncate(device->file, sizeof(struct share_table))) {
        share_lock(device->file, SHARE_LOCK_TABLE, F_UNLCK, 0);
        return -1;
    }
    if (pwrite(device->file, &device->size, sizeof(device->size), 0) != sizeof(device->size) ||
        slot_take(device) ||
        pwrite(device->file, &share, sizeof(share),
               (off_t)(offsetof(struct share_table, shares) + device->slot * sizeof(share))) !=
            sizeof(share)) {
        share_lock(device->file, SHARE_LOCK_TABLE, F_UNLCK, 0);
        return -1;
    }
    return share_lock(device->file, SHARE_LOCK_TABLE, F_UNLCK, 0);
}

static CUresult devices_open(void)
{
    const char *count = getenv("FAKE_GPU_COUNT");
    const char *memory = getenv("FAKE_GPU_MEMORY_MIB");
    uint64_t size = (memory && atoll(memory) > 0 ? (uint64_t)atoll(memory) : 2048) << 20;
    int wanted = count && *count ? atoi(count) : 1;
    char name[32];

    if (wanted <= 0)
        return CUDA_ERROR_NO_DEVICE;
    fake.device_count = wanted < MAX_DEVICES ? wanted : MAX_DEVICES;
    fake.devices = calloc((size_t)fake.device_count, sizeof(*fake.devices));
    if (!fake.devices)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < fake.device_count; i++)
        fake.devices[i] = (struct device){.ordinal = i, .size = size, .file = -1, .slot = -1, .vidmem = -1};
    for (int i = 0; i < fake.device_count; i++) {
        snprintf(name, sizeof(name), "nvidia%d", i);
        fake.devices[i].file = device_file(name);
        if (fake.devices[i].file < 0 || table_prepare(&fake.devices[i]))
            return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

/* ---- descriptors */

/* The name is taken while an instance of the driver lives in the process: a second one can't start. */
static int socket_bind(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;
    int length;

    if (stat("/proc/self/ns/pid", &status))
        return -1;
    fake.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fake.socket < 0)
        return -1;
    length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "cuda-uvmfd-%lu-%d",
                      (unsigned long)status.st_ino, getpid());
    return bind(fake.socket, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length));
}

static int descriptors_open(void)
{
    fake.control = device_file("nvidiactl");
    fake.uvm = device_file("nvidia-uvm");
    if (fake.control < 0 || fake.uvm < 0)
        return -1;
    for (int i = 0; i < 4; i++) {
        fake.events[i] = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fake.events[i] < 0)
            return -1;
    }
    return (int)syscall(SYS_pipe2, fake.pipe, O_CLOEXEC | O_NONBLOCK);
}

static void descriptor_close(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

static void descriptors_close(void)
{
    descriptor_close(&fake.control);
    descriptor_close(&fake.uvm);
    descriptor_close(&fake.socket);
    for (int i = 0; i < 4; i++)
        descriptor_close(&fake.events[i]);
    descriptor_close(&fake.pipe[0]);
    descriptor_close(&fake.pipe[1]);
    for (int i = 0; fake.devices && i < fake.device_count; i++)
        descriptor_close(&fake.devices[i].file);
    free(fake.devices);
    fake.devices = NULL;
}

/* ---- threads and what a thread leaves */

static void *helper_run(void *argument)
{
    struct pollfd poller[2] = {
        {.fd = fake.events[(uintptr_t)argument], .events = POLLIN},
        {.fd = fake.pipe[0], .events = POLLIN},
    };

    for (;;)
        poll(poller, 2, -1);
    return NULL;
}

static void thread_gone(void *argument)
{
    struct thread *thread = argument;

    pthread_mutex_lock(&fake.lock);
    list_each(node, &thread->streams)
    {
        struct stream *stream = container_of(node, struct stream, thread_node);

        list_remove(node);
        stream_fini(stream);
        free(stream);
    }
    list_remove(&thread->node);
    pthread_mutex_unlock(&fake.lock);
    free(thread);
}

static int keys_make(void)
{
    if (pthread_key_create(&fake.thread_key, thread_gone))
        return -1;
    if (pthread_key_create(&fake.spare_keys[0], free)) {
        pthread_key_delete(fake.thread_key);
        return -1;
    }
    if (pthread_key_create(&fake.spare_keys[1], NULL)) {
        pthread_key_delete(fake.thread_key);
        pthread_key_delete(fake.spare_keys[0]);
        return -1;
    }
    return 0;
}

static int threads_start(void)
{
    for (uintptr_t i = 0; i < 2; i++) {
        if (pthread_create(&fake.helpers[i], NULL, helper_run, (void *)i))
            return -1;
    }
    return 0;
}

/* ---- the rest */

/* Thousands of blocks of many sizes, some of them free again: what a handle's place depends on. */
static void noise_make(void)
{
    uint32_t random = 12345;
    struct list *block;

    for (int i = 0; i < NOISE_BLOCKS; i++) {
        random = random * 1664525u + 1013904223u;
        block = malloc(sizeof(*block) + (random >> 20) % 600);
        if (!block)
            return;
        if (i % 7 == 3) {
            free(block);
            continue;
        }
        list_insert(&fake.noise, block);
    }
}

static void child_after_fork(void)
{
    fake.forked = true;
}

struct at_exit {
    bool *exiting;
};

/* Like the real one it takes for granted that the driver is as it was when this was registered. */
static void at_exit(void *argument)
{
    struct at_exit *state = argument;

    *state->exiting = true;
}

static int handlers_register(void)
{
    struct at_exit *state = malloc(sizeof(*state));

    if (!state)
        return -1;
    state->exiting = &fake.exiting;
    if (__cxa_atexit(at_exit, state, &__dso_handle)) {
        free(state);
        return -1;
    }
    return __register_atfork(NULL, NULL, child_after_fork, &__dso_handle);
}

/* The driver opens itself by its name, and must get itself. */
static bool finds_itself(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *program = dlopen(NULL, RTLD_LAZY);
    bool found = true;

    if (program)
        dlclose(program);
    if (handle) {
        found = dlsym(handle, "cuDriverGetVersion") == (void *)cuDriverGetVersion;
        dlclose(handle);
    }
    return found;
}

static void lists_start(void)
{
    list_init(&fake.contexts);
    list_init(&fake.threads);
    list_init(&fake.libraries);
    list_init(&fake.graphs);
    list_init(&fake.captures);
    list_init(&fake.noise);
    list_init(&fake.active);
    list_init(&fake.free_ops);
    list_init(&fake.free_stamps);
    fake.control = fake.uvm = fake.socket = fake.pipe[0] = fake.pipe[1] = -1;
    for (int i = 0; i < 4; i++)
        fake.events[i] = -1;
}

CUresult os_acquire(void)
{
    CUresult result;

    lists_start();
    if (socket_bind() || descriptors_open()) {
        descriptors_close();
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!finds_itself()) {
        descriptors_close();
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    noise_make();
    result = devices_open();
    if (result != CUDA_SUCCESS || keys_make()) {
        descriptors_close();
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (handlers_register() || threads_start()) {
        descriptors_close();
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}
