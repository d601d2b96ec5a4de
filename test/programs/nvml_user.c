/* A program that also uses NVML: its handles and answers are the same after a resume, and it keeps nothing
 * open. */

#include "device.h"

#include <dlfcn.h>
#include <string.h>

/* As in NVML's documentation. */
struct nvml_memory {
    unsigned long long total, free, used;
};

static struct {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, void **device);
    int (*name)(void *device, char *name, unsigned size);
    int (*uuid)(void *device, char *uuid, unsigned size);
    int (*memory)(void *device, struct nvml_memory *memory);
} nvml;

static struct answers {
    unsigned count;
    void *device;
    char name[96], uuid[96];
    unsigned long long total;
} first;
static struct kernels kernels;
static CUdeviceptr global;
static uint32_t count;

static void *find(void *library, const char *symbol)
{
    void *function = dlsym(library, symbol);

    if (!function)
        FAIL("%s is not there", symbol);
    return function;
}

static void nvml_find(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!library)
        program_skip("%s", dlerror());
    nvml.init = (int (*)(void))find(library, "nvmlInit_v2");
    nvml.shutdown = (int (*)(void))find(library, "nvmlShutdown");
    nvml.count = (int (*)(unsigned *))find(library, "nvmlDeviceGetCount_v2");
    nvml.by_index = (int (*)(unsigned, void **))find(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml.name = (int (*)(void *, char *, unsigned))find(library, "nvmlDeviceGetName");
    nvml.uuid = (int (*)(void *, char *, unsigned))find(library, "nvmlDeviceGetUUID");
    nvml.memory = (int (*)(void *, struct nvml_memory *))find(library, "nvmlDeviceGetMemoryInfo");
}

static void ask(struct answers *answers)
{
    struct nvml_memory memory;

    memset(answers, 0, sizeof *answers);
    CHECK(nvml.count(&answers->count));
    CHECK(nvml.by_index(0, &answers->device));
    CHECK(nvml.name(answers->device, answers->name, sizeof answers->name));
    CHECK(nvml.uuid(answers->device, answers->uuid, sizeof answers->uuid));
    CHECK(nvml.memory(answers->device, &memory));
    EXPECT(memory.used > 0 && memory.used <= memory.total);
    answers->total = memory.total;
}

static void check_all(void)
{
    struct nvml_memory memory;
    struct answers now;
    char name[96] = "";

    ask(&now);
    EXPECT_EQ(now.count, first.count);
    EXPECT(now.device == first.device);
    EXPECT(!strcmp(now.name, first.name));
    EXPECT(!strcmp(now.uuid, first.uuid));
    EXPECT_EQ(now.total, first.total);
    /* With the handle of before. */
    CHECK(nvml.name(first.device, name, sizeof name));
    EXPECT(!strcmp(name, first.name));
    CHECK(nvml.memory(first.device, &memory));
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    nvml_find();
    CHECK(nvml.init());
    CHECK(nvml.init()); /* initialisations are counted */
    device_start();
    kernels_load(&kernels);
    global = global_get(kernels.module, "g_counter", 4);
    ask(&first);
    program_ready(check_all);
    while (program_running()) {
        check_all();
        LAUNCH_PLAIN(kernels.bump, NULL);
        CHECK(cuCtxSynchronize());
        count++;
        if (count % 50 == 0) {
            CHECK(nvml.shutdown()); /* one is left */
            check_all();
            CHECK(nvml.init());
        }
        program_sleep_ms(1);
    }
    CHECK(nvml.shutdown());
    CHECK(nvml.shutdown());
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
