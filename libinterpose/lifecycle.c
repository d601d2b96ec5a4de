#include "lifecycle.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "actions.h"
#include "control.h"
#include "device_memory.h"
#include "driver_api.h"
#include "driver_heap.h"
#include "fault.h"
#include "gate.h"
#include "import_hooks.h"
#include "journal.h"
#include "kinds.h"
#include "ledger.h"
#include "loader_hooks.h"
#include "restart.h"
#include "thunk.h"
#include "unsaveable.h"
#define LOG_PREFIX "lifecycle"
#include "log.h"

static void *driver_handle, *nvml_handle;
static bool driver_started; /* cuInit has succeeded in this process */

/*
 * Taking over needs no lock of the dynamic loader (elf_library.h), opening does. So opening is done outside of the
 * once-only part: a thread that waits there while it is inside of dlopen itself would otherwise wait for ever.
 */
static pthread_once_t basics_once = PTHREAD_ONCE_INIT, driver_once = PTHREAD_ONCE_INIT, nvml_once = PTHREAD_ONCE_INIT;
static bool basics_ready, driver_ready, nvml_ready;
static struct elf_library driver_library;
static __thread bool setting_up __attribute__((tls_model("initial-exec")));

/* ---- fork: locks in the order in which they nest, ours before the heap's */

static void before_fork(void)
{
    ledger_fork_prepare();
    gate_before_fork();
    device_memory_before_fork();
    journal_before_fork();
    ledger_before_fork();
    driver_heap_before_fork();
}

static void after_fork_in_parent(void)
{
    driver_heap_after_fork();
    ledger_after_fork_in_parent();
    journal_after_fork(false);
    device_memory_after_fork(false);
    gate_after_fork_in_parent();
    ledger_fork_parent();
}

/*
 * CUDA does not survive fork: in the child of a process that uses it, every call answers as the driver would
 * (CUDA_ERROR_NOT_INITIALIZED). A child made before the first cuInit may use CUDA like any other process.
 */
static void after_fork_in_child(void)
{
    driver_heap_after_fork();
    gate_after_fork_in_child();
    if (driver_started) {
        ledger_after_fork_in_child();
        driver_api_disable(CUDA_ERROR_NOT_INITIALIZED);
    } else {
        ledger_after_fork_in_parent();
    }
    journal_after_fork(driver_started);
    device_memory_after_fork(driver_started);
    context_after_fork_in_child();
    control_after_fork_in_child();
    ledger_fork_child();
}

/* ---- set-up */

const struct gate_hooks gate_default_hooks = {lifecycle_set_up, context_restore_thread};

static void note_failure(const struct error *err)
{
    /* The program runs as without us; only a suspend is impossible. */
    unsaveable_note("%s", err->text);
    log_warn("%s", err->text);
}

static void set_up_basics(void)
{
    struct error err = {0};

    log_start();
    fault_start();
    loader_resolve();
    gate_start(&gate_default_hooks);
    basics_ready = driver_heap_start(&err) == 0 && journal_start(&err) == 0;
    if (!basics_ready)
        note_failure(&err);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void *find_symbol(void *library, const char *symbol)
{
    return elf_library_symbol(library, symbol);
}

static void take_over_driver(void)
{
    struct error err = {0};

    /* Without a heap and a journal the imports stay as they are: the program runs as without us. */
    if (elf_library_open(driver_handle, &driver_library, &err) ||
        (basics_ready && (restart_adopt(RESTART_DRIVER, driver_handle, &err) || restart_seal(RESTART_DRIVER, &err))))
        note_failure(&err);
    driver_api_load(find_symbol, &driver_library);
    kinds_start();
    thunk_start(&driver_library);
    __atomic_store_n(&driver_ready, true, __ATOMIC_RELEASE);
}

static void *open_library(const char *variable, const char *soname, const char *path)
{
    const char *wish = getenv(variable);
    void *handle = NULL;

    if (wish && *wish)
        return loader_real_dlopen(wish, RTLD_NOW | RTLD_LOCAL);
    handle = loader_real_dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (!handle && path)
        handle = loader_real_dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return handle;
}

bool lifecycle_set_up_from(const char *path)
{
    int saved = errno;

    if (__atomic_load_n(&driver_ready, __ATOMIC_ACQUIRE))
        return true;
    if (setting_up)
        return false;
    setting_up = true;
    pthread_once(&basics_once, set_up_basics);
    void *handle = open_library("CUDACKPT_DRIVER", "libcuda.so.1", path);
    if (handle) {
        void *none = NULL;

        __atomic_compare_exchange_n(&driver_handle, &none, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        pthread_once(&driver_once, take_over_driver);
    }
    setting_up = false;
    errno = saved;
    return handle != NULL;
}

void lifecycle_set_up(void)
{
    if (!__atomic_load_n(&driver_ready, __ATOMIC_ACQUIRE))
        lifecycle_set_up_from(NULL);
}

const struct elf_library *lifecycle_driver_library(void)
{
    return &driver_library;
}

void *lifecycle_driver_handle(void)
{
    return __atomic_load_n(&driver_handle, __ATOMIC_ACQUIRE);
}

static void take_over_nvml(void)
{
    struct error err = {0};

    if (basics_ready && (restart_adopt(RESTART_NVML, nvml_handle, &err) || restart_seal(RESTART_NVML, &err)))
        note_failure(&err);
    __atomic_store_n(&nvml_ready, true, __ATOMIC_RELEASE);
}

void *lifecycle_set_up_nvml(const char *path)
{
    int saved = errno;
    void *handle;

    if (__atomic_load_n(&nvml_ready, __ATOMIC_ACQUIRE))
        return nvml_handle;
    if (setting_up)
        return NULL;
    setting_up = true;
    pthread_once(&basics_once, set_up_basics);
    handle = open_library("CUDACKPT_NVML", "libnvidia-ml.so.1", path);
    if (handle) {
        void *none = NULL;

        __atomic_compare_exchange_n(&nvml_handle, &none, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        pthread_once(&nvml_once, take_over_nvml);
    }
    setting_up = false;
    errno = saved;
    return handle;
}

void *lifecycle_nvml_handle(void)
{
    return nvml_handle;
}

static void exit_while_suspended(void)
{
    if (!gate_is_closed())
        return;
    /* Only this thread passes; the others wait on and end with the process, as they would inside of a driver call. */
    driver_api_disable(CUDA_ERROR_DEINITIALIZED);
    gate_pass_begin();
}

/* The handler registered last runs first, so it must come after all that the program registered. */
void lifecycle_watch_exit(void)
{
    atexit(exit_while_suspended);
}

void lifecycle_driver_started(void)
{
    struct error err = {0};

    if (__atomic_exchange_n(&driver_started, true, __ATOMIC_ACQ_REL))
        return;
    ledger_prepare();
    if (control_start(&actions, &err)) {
        /* Nobody can ask for a suspend then; the program itself is not concerned. */
        log_warn("%s", err.text);
    }
}

__attribute__((destructor)) static void unload(void)
{
    control_stop();
}
