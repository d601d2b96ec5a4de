/* The rows whose treatment is SPECIAL: exported functions written by hand. */
#include "driver_api.h"
#include "gate.h"
#include "import_hooks.h"
#include "kinds.h"
#include "lifecycle.h"
#include "private_tables.h"
#include "symbol_lookup.h"
#include "wrappers.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned int flags);
EXPORT CUresult cuInit(unsigned int flags)
{
    uint32_t outer = gate_enter(ROW_cuInit);
    CUresult result;

    import_hooks_keep_environment();
    result = driver_initialise(flags);
    gate_leave(outer);
    if (result == CUDA_SUCCESS)
        lifecycle_driver_started();
    return result;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);
EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    uint32_t outer = gate_enter(ROW_cuGetProcAddress);
    CUresult result = driver.cuGetProcAddress(symbol, pfn, version, flags);

    if (result == CUDA_SUCCESS && pfn && *pfn)
        *pfn = symbol_wrapper(*pfn, symbol, version, flags);
    gate_leave(outer);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    uint32_t outer = gate_enter(ROW_cuGetProcAddress_v2);
    CUresult result = driver.cuGetProcAddress_v2(symbol, pfn, version, flags, status);

    if (result == CUDA_SUCCESS && pfn && *pfn)
        *pfn = symbol_wrapper(*pfn, symbol, version, flags);
    gate_leave(outer);
    return result;
}

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id);
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    uint32_t outer = gate_enter(ROW_cuGetExportTable);
    CUresult result = driver.cuGetExportTable(table, id);

    if (result == CUDA_SUCCESS && table && *table)
        private_table_patch((void **)*table, id);
    gate_leave(outer);
    return result;
}
