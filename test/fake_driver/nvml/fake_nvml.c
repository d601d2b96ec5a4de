/*
 * NVML without a GPU: libnvidia-ml.so.1 for tests, on the devices of the fake driver. Like the real one it
 * counts its initialisations, keeps descriptors of the devices open meanwhile, and its device handles point
 * into its own writable segment.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fake_share.h"

enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_UNKNOWN = 999,
    DEVICES_MAX = 16
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_device {
    int file;
    unsigned int number;
    char *uuid; /* malloc'd, as the real one keeps most of its state there */
};

static struct {
    pthread_mutex_t lock;
    int users;
    int control;
    unsigned int count;
    struct nvml_device devices[DEVICES_MAX];
} nvml;

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInit(void);
EXPORT int nvmlInitWithFlags(unsigned int flags);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned int *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct nvml_device **device);
EXPORT int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned int size);
EXPORT int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned int size);
EXPORT int nvmlDeviceGetIndex(struct nvml_device *device, unsigned int *index);
EXPORT int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned int size);
EXPORT int nvmlSystemGetCudaDriverVersion(int *version);
EXPORT const char *nvmlErrorString(int result);

/* ---- devices */

static int open_file(const char *name)
{
    const char *directory = getenv("FAKE_GPU_DIR");
    char own[64], path[320];

    snprintf(own, sizeof(own), "/tmp/fakegpu-%u", getuid());
    if (!directory || !*directory)
        directory = own;
    if (mkdir(directory, 0700) && errno != EEXIST)
        return -1;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void close_all(void)
{
    for (unsigned int i = 0; i < nvml.count; i++) {
        close(nvml.devices[i].file);
        free(nvml.devices[i].uuid);
        nvml.devices[i] = (struct nvml_device){.file = -1};
    }
    nvml.count = 0;
    if (nvml.control >= 0)
        close(nvml.control);
    nvml.control = -1;
}

static int open_device(unsigned int number)
{
    struct nvml_device *device = &nvml.devices[number];
    char name[32];

    snprintf(name, sizeof(name), "nvidia%u", number);
    device->number = number;
    device->uuid = malloc(64);
    device->file = open_file(name);
    if (!device->uuid || device->file < 0) {
        free(device->uuid);
        if (device->file >= 0)
            close(device->file);
        return -1;
    }
    snprintf(device->uuid, 64, "GPU-66616b65-6770-752d-3030-3030303030%02x", number);
    nvml.count++;
    return 0;
}

static int open_all(void)
{
    const char *text = getenv("FAKE_GPU_COUNT");
    int wanted = text && *text ? atoi(text) : 1;

    nvml.control = open_file("nvidiactl");
    if (nvml.control < 0)
        return NVML_UNKNOWN;
    for (int i = 0; i < wanted && i < DEVICES_MAX; i++) {
        if (open_device((unsigned int)i)) {
            close_all();
            return NVML_UNKNOWN;
        }
    }
    return NVML_SUCCESS;
}

/* ---- entry points */

int nvmlInit_v2(void)
{
    int result = NVML_SUCCESS;

    pthread_mutex_lock(&nvml.lock);
    if (!nvml.users)
        result = open_all();
    if (result == NVML_SUCCESS)
        nvml.users++;
    pthread_mutex_unlock(&nvml.lock);
    return result;
}

int nvmlInit(void)
{
    return nvmlInit_v2();
}

int nvmlInitWithFlags(unsigned int flags)
{
    return nvmlInit_v2();
}

int nvmlShutdown(void)
{
    int result = NVML_SUCCESS;

    pthread_mutex_lock(&nvml.lock);
    if (!nvml.users)
        result = NVML_UNINITIALIZED;
    else if (!--nvml.users)
        close_all();
    pthread_mutex_unlock(&nvml.lock);
    return result;
}

static int check_device(const struct nvml_device *device)
{
    if (!nvml.users)
        return NVML_UNINITIALIZED;
    return device >= nvml.devices && device < nvml.devices + nvml.count ? NVML_SUCCESS
                                                                        : NVML_INVALID_ARGUMENT;
}

static int give_text(char *target, unsigned int size, const char *text)
{
    if (!target)
        return NVML_INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return NVML_INSUFFICIENT_SIZE;
    strcpy(target, text);
    return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!nvml.users)
        return NVML_UNINITIALIZED;
    if (!count)
        return NVML_INVALID_ARGUMENT;
    *count = nvml.count;
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct nvml_device **device)
{
    if (!nvml.users)
        return NVML_UNINITIALIZED;
    if (!device || index >= nvml.count)
        return NVML_INVALID_ARGUMENT;
    *device = &nvml.devices[index];
    return NVML_SUCCESS;
}

int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned int size)
{
    int result = check_device(device);
    char text[32];

    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof(text), "Fake GPU %u", device->number);
    return give_text(name, size, text);
}

int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned int size)
{
    int result = check_device(device);

    return result == NVML_SUCCESS ? give_text(uuid, size, device->uuid) : result;
}

int nvmlDeviceGetIndex(struct nvml_device *device, unsigned int *index)
{
    int result = check_device(device);

    if (result == NVML_SUCCESS)
        *index = device->number;
    return result;
}

/* The table of shares has the size only once the driver was started on the device. */
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory)
{
    struct share_table table;
    int result = check_device(device);

    if (result != NVML_SUCCESS)
        return result;
    if (!memory)
        return NVML_INVALID_ARGUMENT;
    memset(memory, 0, sizeof(*memory));
    if (pread(device->file, &table, sizeof(table), 0) != sizeof(table))
        return NVML_SUCCESS;
    for (int i = 0; i < SHARES; i++) {
        if (table.shares[i].bytes && share_is_locked(device->file, SHARE_LOCK_SLOTS + i))
            memory->used += table.shares[i].bytes;
    }
    memory->total = table.size;
    memory->free = memory->used < memory->total ? memory->total - memory->used : 0;
    return NVML_SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    return nvml.users ? give_text(version, size, "580.00.fake") : NVML_UNINITIALIZED;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    if (!version)
        return NVML_INVALID_ARGUMENT;
    *version = 13000;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_UNINITIALIZED:
        return "Uninitialized";
    case NVML_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}
