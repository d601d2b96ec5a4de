/* cuGetProcAddress: the newest of a name that the asked version knows. */

#include <stdbool.h>
#include <string.h>

#include "fake.h"

enum flavour { LEGACY, PTDS, PTSZ };

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    {#symbol, #base, since, flavour, (void (*)(void))symbol},
static const struct proc {
    const char *symbol, *base;
    int since;
    enum flavour flavour;
    void (*function)(void);
} procs[] = {
#include "driver_api.inc"
};
#undef ENTRY

/* What the old driver's version script leaves out. */
static bool is_missing(const struct proc *proc)
{
#ifdef FAKE_OLD
    static const char *const without[] = {"cuLibrary", "cuKernel", "cuMemPool", "cuCheckpoint", "cuFuncLoad"};

    for (size_t i = 0; i < sizeof(without) / sizeof(*without); i++) {
        if (!strncmp(proc->symbol, without[i], strlen(without[i])))
            return true;
    }
#endif
    return proc->since == 0 || proc->since > driver_version();
}

static void *find(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    const struct proc *best = NULL;

    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < sizeof(procs) / sizeof(*procs); i++) {
        const struct proc *proc = &procs[i];
        bool wanted = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

        if (strcmp(proc->base, name) || is_missing(proc) || (proc->flavour != LEGACY && !wanted))
            continue;
        if (proc->since > version) {
            if (!best)
                *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        /* Of two with the same version the one for the per-thread stream, where that is asked for. */
        if (!best || proc->since > best->since || (proc->since == best->since && proc->flavour != LEGACY))
            best = proc;
    }
    if (!best)
        return NULL;
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return (void *)best->function;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;

    CALL(cuGetProcAddress, NEEDS_NOTHING);
    if (!symbol || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = find(symbol, version, flags, &status);
    return *function || !*symbol ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult own;

    CALL(cuGetProcAddress_v2, NEEDS_NOTHING);
    if (!symbol || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = find(symbol, version, flags, &own);
    if (status)
        *status = own;
    return *function || status || !*symbol ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
