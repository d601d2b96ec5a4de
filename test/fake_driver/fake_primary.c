/* The primary context of a device: one place for its whole life, counted. */

#include "fake.h"

CUresult primary_retain(struct device *device, struct context **context)
{
    CUresult result = CUDA_SUCCESS;

    if (!device->primary.active) {
        result = context_open(&device->primary, device, device->primary_flags, true);
        device->primary_refs = 0;
    }
    if (result != CUDA_SUCCESS)
        return result;
    device->primary_refs++;
    *context = &device->primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice ordinal)
{
    CALL(cuDevicePrimaryCtxRetain, NEEDS_INIT);
    struct device *device = device_find(ordinal);
    struct context *primary;
    CUresult result;

    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    result = primary_retain(device, &primary);
    if (result == CUDA_SUCCESS)
        *handle = (CUcontext)primary;
    return result;
}

static CUresult release(CUdevice ordinal)
{
    struct device *device = device_find(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!device->primary.active)
        return CUDA_ERROR_INVALID_CONTEXT;
    /* A context that a private table made on demand has no count. */
    if (device->primary_refs > 0)
        device->primary_refs--;
    if (!device->primary_refs)
        context_close(&device->primary);
    return CUDA_SUCCESS;
}

static CUresult reset(CUdevice ordinal)
{
    struct device *device = device_find(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary.active)
        context_close(&device->primary);
    device->primary_refs = 0;
    return CUDA_SUCCESS;
}

static CUresult set_flags(CUdevice ordinal, unsigned int flags)
{
    struct device *device = device_find(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    device->primary_flags = flags;
    if (device->primary.active)
        device->primary.flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CALL(cuDevicePrimaryCtxRelease, NEEDS_INIT);
    return release(device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CALL(cuDevicePrimaryCtxRelease_v2, NEEDS_INIT);
    return release(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    CALL(cuDevicePrimaryCtxReset, NEEDS_INIT);
    return reset(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CALL(cuDevicePrimaryCtxReset_v2, NEEDS_INIT);
    return reset(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    CALL(cuDevicePrimaryCtxSetFlags, NEEDS_INIT);
    return set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    CALL(cuDevicePrimaryCtxSetFlags_v2, NEEDS_INIT);
    return set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    CALL(cuDevicePrimaryCtxGetState, NEEDS_INIT);
    struct device *device = device_find(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = device->primary_flags;
    *active = device->primary.active;
    return CUDA_SUCCESS;
}
