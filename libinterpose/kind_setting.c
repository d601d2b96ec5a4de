/* Settings: calls that shape an object (or the driver) without making one. The last value of each counts. */
#include "kinds.h"

#include <string.h>

#include "driver_api.h"

struct setting {
    struct record record;
    enum setting_call call;
    uint64_t a[SETTING_ARGUMENTS];
};

static CUresult call_driver(enum setting_call call, const uint64_t *a)
{
    switch (call) {
    case SETTING_PRIMARY_FLAGS:
        return driver.cuDevicePrimaryCtxSetFlags_v2((CUdevice)a[0], (unsigned)a[1]);
    case SETTING_CONTEXT_LIMIT:
        return driver.cuCtxSetLimit((CUlimit)a[0], a[1]);
    case SETTING_CONTEXT_CACHE:
        return driver.cuCtxSetCacheConfig((CUfunc_cache)a[0]);
    case SETTING_CONTEXT_SHARED_MEMORY:
        return driver.cuCtxSetSharedMemConfig((CUsharedconfig)a[0]);
    case SETTING_CONTEXT_FLAGS:
        return driver.cuCtxSetFlags((unsigned)a[0]);
    case SETTING_PEER_ACCESS:
        return driver.cuCtxEnablePeerAccess((CUcontext)a[0], (unsigned)a[1]);
    case SETTING_FUNCTION_ATTRIBUTE:
        return driver.cuFuncSetAttribute((CUfunction)a[0], (CUfunction_attribute)a[1], (int)a[2]);
    case SETTING_FUNCTION_CACHE:
        return driver.cuFuncSetCacheConfig((CUfunction)a[0], (CUfunc_cache)a[1]);
    case SETTING_FUNCTION_SHARED_MEMORY:
        return driver.cuFuncSetSharedMemConfig((CUfunction)a[0], (CUsharedconfig)a[1]);
    case SETTING_FUNCTION_BLOCK_SHAPE:
        return driver.cuFuncSetBlockShape((CUfunction)a[0], (int)a[1], (int)a[2], (int)a[3]);
    case SETTING_FUNCTION_SHARED_SIZE:
        return driver.cuFuncSetSharedSize((CUfunction)a[0], (unsigned)a[1]);
    case SETTING_KERNEL_ATTRIBUTE:
        return driver.cuKernelSetAttribute((CUfunction_attribute)a[0], (int)a[1], (CUkernel)a[2], (CUdevice)a[3]);
    case SETTING_KERNEL_CACHE:
        return driver.cuKernelSetCacheConfig((CUkernel)a[0], (CUfunc_cache)a[1], (CUdevice)a[2]);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Which arguments say what is set; the others are its value. */
static const uint8_t key_arguments[] = {
    [SETTING_PRIMARY_FLAGS] = 0x1,          [SETTING_CONTEXT_LIMIT] = 0x1,
    [SETTING_CONTEXT_CACHE] = 0x0,          [SETTING_CONTEXT_SHARED_MEMORY] = 0x0,
    [SETTING_CONTEXT_FLAGS] = 0x0,          [SETTING_PEER_ACCESS] = 0x1,
    [SETTING_FUNCTION_ATTRIBUTE] = 0x3,     [SETTING_FUNCTION_CACHE] = 0x1,
    [SETTING_FUNCTION_SHARED_MEMORY] = 0x1, [SETTING_FUNCTION_BLOCK_SHAPE] = 0x1,
    [SETTING_FUNCTION_SHARED_SIZE] = 0x1,   [SETTING_KERNEL_ATTRIBUTE] = 0xd,
    [SETTING_KERNEL_CACHE] = 0x5,
};

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct setting *one = container_of(record, struct setting, record);

    *handle = record->handle;
    return call_driver(one->call, one->a);
}

static const struct record_kind setting_kind = {.name = "setting", .replay = replay};

/*
 * Settings have no handle; the journal finds them by a number made of what they set (64-bit mix, so that two different
 * ones do not meet) and the context that they were made in.
 */
static uint64_t key_of(enum setting_call call, const uint64_t *a)
{
    uint64_t key = 0x9e3779b97f4a7c15ull * ((uint64_t)call + 1) ^ (uint64_t)context_current();

    for (int i = 0; i < SETTING_ARGUMENTS; i++)
        if (key_arguments[call] >> i & 1) {
            key = (key ^ a[i]) * 0xbf58476d1ce4e5b9ull;
            key ^= key >> 29;
        }
    return key | 1; /* never 0 */
}

CUresult setting_make(enum setting_call call, const uint64_t a[SETTING_ARGUMENTS], struct record *owner)
{
    uint64_t key = key_of(call, a);
    struct setting *one;
    CUresult result;

    journal_note();
    result = call_driver(call, a);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    journal_drop(journal_detach(&setting_kind, key));
    one = journal_record_new(&setting_kind, sizeof *one);
    if (one) {
        one->call = call;
        memcpy(one->a, a, sizeof one->a);
    }
    journal_commit(one ? &one->record : NULL, key, owner);
    return result;
}

void setting_forget(enum setting_call call, uint64_t first_argument)
{
    const uint64_t a[SETTING_ARGUMENTS] = {first_argument};

    journal_drop(journal_detach(&setting_kind, key_of(call, a)));
}

static int forget_peer(struct record *record, void *context)
{
    struct setting *one = container_of(record, struct setting, record);

    if (one->call == SETTING_PEER_ACCESS && one->a[0] == (uint64_t)context)
        journal_drop(record);
    return 0;
}

void setting_forget_peer(CUcontext context)
{
    journal_each(&setting_kind, forget_peer, context);
}
