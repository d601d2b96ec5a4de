/*
 * Allocations and frees in the order of a stream, and the calls that wait for the device: after them pools give back
 * what they need not keep. The memory itself: stream_memory.h.
 */
#include "kinds.h"

#include "device_memory.h"
#include "driver_api.h"
#include "kind_pool.h"
#include "stream_memory.h"
#include "tracked.h"
#include "unsaveable.h"

static CUstream legacy(CUstream stream)
{
    return stream ? stream : CU_STREAM_LEGACY;
}

static CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* In a capture, these calls make nodes of a graph. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!capture_in_progress())
        return false;
    driver.cuStreamIsCapturing(stream, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult context_of(CUstream stream, CUcontext *context)
{
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        return driver.cuStreamGetCtx(stream, context);
    return driver.cuCtxGetCurrent(context);
}

static CUresult device_of(CUcontext context, CUdevice *device)
{
    CUcontext popped;
    CUresult result;

    if (context == context_current())
        return driver.cuCtxGetDevice(device);
    result = driver.cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuCtxGetDevice(device);
    driver.cuCtxPopCurrent_v2(&popped);
    return result;
}

static bool served_here(struct stream_pool *pool, CUdevice device)
{
    return pool && !stream_pool_is_foreign(pool) && stream_pool_device(pool) == device;
}

/* from: NULL for the current pool of the stream's device. */
static CUresult allocate(CUdeviceptr *address, size_t size, CUmemoryPool from, CUstream stream)
{
    struct stream_pool *pool;
    CUcontext context;
    CUdevice device;
    CUresult result;

    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_captured(stream) && context_of(stream, &context) == CUDA_SUCCESS &&
        device_of(context, &device) == CUDA_SUCCESS) {
        pool = from ? pool_memory(from) : pool_current(device);
        if (served_here(pool, device))
            return stream_memory_alloc(pool, context, stream, size, address);
    }
    if (from)
        result = driver.cuMemAllocFromPoolAsync(address, size, from, stream);
    else
        result = driver.cuMemAllocAsync(address, size, stream);
    if (result == CUDA_SUCCESS)
        unsaveable_note("cuMemAllocAsync: memory of a graph, or of a pool that others may use");
    return result;
}

CUresult track_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return allocate(dptr, bytesize, NULL, legacy(hStream));
}

CUresult track_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return allocate(dptr, bytesize, NULL, per_thread(hStream));
}

CUresult track_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    return pool ? allocate(dptr, bytesize, pool, legacy(hStream)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult track_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    return pool ? allocate(dptr, bytesize, pool, per_thread(hStream)) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_in_order(CUdeviceptr address, CUstream stream)
{
    struct stream_block_info info;
    struct device_block block;
    CUcontext context;
    CUresult result;

    if (!device_memory_owns(address) || is_captured(stream))
        return driver.cuMemFreeAsync(address, stream);
    result = context_of(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stream_memory_find(address, &info))
        return stream_memory_free(address, context, stream);
    /* memory of cuMemAlloc */
    if (!device_memory_find(address, &block) || block.address != address)
        return CUDA_ERROR_INVALID_VALUE;
    result = driver.cuStreamSynchronize(stream);
    return result == CUDA_SUCCESS ? device_memory_free(address) : result;
}

CUresult track_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    return free_in_order(dptr, legacy(hStream));
}

CUresult track_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    return free_in_order(dptr, per_thread(hStream));
}

/* ---- waiting */

static CUresult synchronised(CUresult result)
{
    if (result == CUDA_SUCCESS)
        stream_memory_synchronised();
    return result;
}

CUresult track_cuCtxSynchronize(void)
{
    return synchronised(driver.cuCtxSynchronize());
}

CUresult track_cuCtxSynchronize_v2(CUcontext ctx)
{
    return synchronised(driver.cuCtxSynchronize_v2(ctx));
}

CUresult track_cuStreamSynchronize(CUstream hStream)
{
    return synchronised(driver.cuStreamSynchronize(hStream));
}

CUresult track_cuStreamSynchronize_ptsz(CUstream hStream)
{
    return synchronised(driver.cuStreamSynchronize_ptsz(hStream));
}

CUresult track_cuEventSynchronize(CUevent hEvent)
{
    return synchronised(driver.cuEventSynchronize(hEvent));
}
