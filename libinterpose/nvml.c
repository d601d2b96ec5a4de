#include "nvml.h"

#include <pthread.h>
#include <string.h>

#include "gate.h"
#include "journal.h"
#include "ledger.h"
#include "lifecycle.h"
#include "restart.h"
#include "thunk.h"
#include "unsaveable.h"

typedef int nvmlReturn; /* 0: success */

static nvmlReturn (*real_init)(void);
static nvmlReturn (*real_init_v2)(void);
static nvmlReturn (*real_init_with_flags)(unsigned flags);
static nvmlReturn (*real_shutdown)(void);

/* One record for each initialisation that is not shut down yet. */
struct initialisation {
    struct record record;
    enum { INIT, INIT_V2, INIT_WITH_FLAGS } how;
    unsigned flags;
};

static nvmlReturn initialise(int how, unsigned flags)
{
    struct ledger_devices before;
    nvmlReturn result;

    ledger_devices_before(&before);
    if (how == INIT)
        result = real_init();
    else if (how == INIT_V2)
        result = real_init_v2();
    else
        result = real_init_with_flags(flags);
    ledger_devices_after(&before);
    return result;
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct initialisation *one = container_of(record, struct initialisation, record);

    return initialise(one->how, one->flags) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static const struct record_kind nvml_kind = {.name = "nvml", .replay = replay};

static nvmlReturn enter(int how, unsigned flags)
{
    uint32_t outer = gate_enter(thunk_row("nvmlInit"));
    struct initialisation *one;
    nvmlReturn result;

    journal_note();
    result = initialise(how, flags);
    if (result) {
        journal_discard(CUDA_SUCCESS);
    } else {
        one = journal_record_new(&nvml_kind, sizeof *one);
        if (one) {
            one->how = how;
            one->flags = flags;
        }
        journal_commit(one ? &one->record : NULL, 0, NULL);
    }
    gate_leave(outer);
    return result;
}

static nvmlReturn hook_init(void)
{
    return enter(INIT, 0);
}

static nvmlReturn hook_init_v2(void)
{
    return enter(INIT_V2, 0);
}

static nvmlReturn hook_init_with_flags(unsigned flags)
{
    return enter(INIT_WITH_FLAGS, flags);
}

static int note_last(struct record *record, void *arg)
{
    *(struct record **)arg = record;
    return 0;
}

static const struct record_kind device_kind;

static int drop_each(struct record *record, void *arg)
{
    journal_drop(record);
    return 0;
}

/* Initialisations only count. The first one's record stays longest: device handles were asked for after it. */
static nvmlReturn hook_shutdown(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint32_t outer = gate_enter(thunk_row("nvmlShutdown"));
    nvmlReturn result = real_shutdown();
    struct record *last = NULL;

    if (result == 0) {
        pthread_mutex_lock(&lock);
        journal_each(&nvml_kind, note_last, &last);
        journal_drop(last);
        if (journal_count(&nvml_kind) == 0) /* handles of an ended library are void */
            journal_each(&device_kind, drop_each, NULL);
        pthread_mutex_unlock(&lock);
    }
    gate_leave(outer);
    return result;
}

/*
 * ---- device handles: places in the library's segment, filled when they are first asked for. So asking is a record, made
 * again after the initialisations.
 */

typedef void *nvmlDevice;

static nvmlReturn (*real_by_index)(unsigned index, nvmlDevice *device);
static nvmlReturn (*real_by_index_v2)(unsigned index, nvmlDevice *device);
static nvmlReturn (*real_by_text[4])(const char *text, nvmlDevice *device);

struct device {
    struct record record;
    nvmlReturn (*by_index)(unsigned index, nvmlDevice *device); /* one of the two */
    nvmlReturn (*by_text)(const char *text, nvmlDevice *device);
    unsigned index;
    char text[96]; /* serial number, UUID or PCI bus id */
};

static CUresult replay_device(struct record *record, uint64_t *handle)
{
    struct device *one = container_of(record, struct device, record);
    nvmlDevice device = NULL;
    nvmlReturn result = one->by_index ? one->by_index(one->index, &device) : one->by_text(one->text, &device);

    *handle = (uint64_t)device;
    return result ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static const struct record_kind device_kind = {.name = "nvml device", .replay = replay_device};

static void keep_device(nvmlDevice device, const struct device *asked)
{
    struct device *one = NULL;

    if (journal_find(&device_kind, (uint64_t)device)) {
        journal_discard(CUDA_SUCCESS);
        return;
    }
    one = journal_record_new(&device_kind, sizeof *one);
    if (one) {
        one->by_index = asked->by_index;
        one->by_text = asked->by_text;
        one->index = asked->index;
        memcpy(one->text, asked->text, sizeof one->text);
    }
    journal_commit(one ? &one->record : NULL, (uint64_t)device, NULL);
}

static nvmlReturn device_by_index(nvmlReturn (*real)(unsigned, nvmlDevice *), unsigned index, nvmlDevice *device)
{
    const struct device asked = {.by_index = real, .index = index};
    uint32_t outer = gate_enter(thunk_row("nvmlDeviceGetHandleByIndex"));
    nvmlReturn result;

    journal_note();
    result = real(index, device);
    if (result)
        journal_discard(CUDA_SUCCESS);
    else
        keep_device(*device, &asked);
    gate_leave(outer);
    return result;
}

static nvmlReturn device_by_text(nvmlReturn (*real)(const char *, nvmlDevice *), const char *text, nvmlDevice *device)
{
    struct device asked = {.by_text = real};
    uint32_t outer = gate_enter(thunk_row("nvmlDeviceGetHandleBy"));
    nvmlReturn result;

    journal_note();
    result = real(text, device);
    if (result) {
        journal_discard(CUDA_SUCCESS);
    } else {
        strncpy(asked.text, text, sizeof asked.text - 1);
        keep_device(*device, &asked);
    }
    gate_leave(outer);
    return result;
}

static nvmlReturn hook_by_index(unsigned index, nvmlDevice *device)
{
    return device_by_index(real_by_index, index, device);
}

static nvmlReturn hook_by_index_v2(unsigned index, nvmlDevice *device)
{
    return device_by_index(real_by_index_v2, index, device);
}

static nvmlReturn hook_by_serial(const char *text, nvmlDevice *device)
{
    return device_by_text(real_by_text[0], text, device);
}

static nvmlReturn hook_by_uuid(const char *text, nvmlDevice *device)
{
    return device_by_text(real_by_text[1], text, device);
}

static nvmlReturn hook_by_bus_id(const char *text, nvmlDevice *device)
{
    return device_by_text(real_by_text[2], text, device);
}

static nvmlReturn hook_by_bus_id_v2(const char *text, nvmlDevice *device)
{
    return device_by_text(real_by_text[3], text, device);
}

void *nvml_handle(void)
{
    return restart_adopted(RESTART_NVML) ? lifecycle_nvml_handle() : NULL;
}

void *nvml_function(const char *symbol)
{
    static const struct {
        const char *name;
        void **real;
        void *hook;
    } hooks[] = {
        {"nvmlInit", (void **)&real_init, (void *)hook_init},
        {"nvmlInit_v2", (void **)&real_init_v2, (void *)hook_init_v2},
        {"nvmlInitWithFlags", (void **)&real_init_with_flags, (void *)hook_init_with_flags},
        {"nvmlShutdown", (void **)&real_shutdown, (void *)hook_shutdown},
        {"nvmlDeviceGetHandleByIndex", (void **)&real_by_index, (void *)hook_by_index},
        {"nvmlDeviceGetHandleByIndex_v2", (void **)&real_by_index_v2, (void *)hook_by_index_v2},
        {"nvmlDeviceGetHandleBySerial", (void **)&real_by_text[0], (void *)hook_by_serial},
        {"nvmlDeviceGetHandleByUUID", (void **)&real_by_text[1], (void *)hook_by_uuid},
        {"nvmlDeviceGetHandleByPciBusId", (void **)&real_by_text[2], (void *)hook_by_bus_id},
        {"nvmlDeviceGetHandleByPciBusId_v2", (void **)&real_by_text[3], (void *)hook_by_bus_id_v2},
    };
    void *real;

    if (strncmp(symbol, "nvml", 4))
        return NULL;
    real = elf_library_symbol(restart_library(RESTART_NVML), symbol);
    if (!real)
        return NULL;
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(symbol, hooks[i].name)) {
            *hooks[i].real = real;
            return hooks[i].hook;
        }
    return thunk_make(real, symbol);
}
