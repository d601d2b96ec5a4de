/* What can be set in a context. */

#include "fake.h"

static struct context *asked_or_current(CUcontext handle, struct context *current)
{
    return handle ? context_find(handle) : current;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    CALL(cuCtxGetId, NEEDS_INIT);
    if (!asked_or_current(handle, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *id = asked_or_current(handle, context)->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    CALL(cuCtxGetApiVersion, NEEDS_INIT);
    if (!asked_or_current(handle, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    CALL(cuCtxGetFlags, NEEDS_CONTEXT);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    CALL(cuCtxSetFlags, NEEDS_CONTEXT);
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    CALL(cuCtxGetLimit, NEEDS_CONTEXT);
    if (!value || limit < 0 || limit > 9)
        return CUDA_ERROR_INVALID_VALUE;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    CALL(cuCtxSetLimit, NEEDS_CONTEXT);
    if (limit < 0 || limit > 9)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    CALL(cuCtxGetCacheConfig, NEEDS_CONTEXT);
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    CALL(cuCtxSetCacheConfig, NEEDS_CONTEXT);
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    CALL(cuCtxGetSharedMemConfig, NEEDS_CONTEXT);
    *config = context->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    CALL(cuCtxSetSharedMemConfig, NEEDS_CONTEXT);
    if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS; /* devices of this kind have one bank size */
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CALL(cuCtxGetStreamPriorityRange, NEEDS_CONTEXT);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    CALL(cuCtxResetPersistingL2Cache, NEEDS_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    CALL(cuCtxEnablePeerAccess, NEEDS_CONTEXT);
    struct context *peer = context_find(handle);

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (context->peers & 1u << peer->device->ordinal)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers |= 1u << peer->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    CALL(cuCtxDisablePeerAccess, NEEDS_CONTEXT);
    struct context *peer = context_find(handle);

    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(context->peers & 1u << peer->device->ordinal))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~(1u << peer->device->ordinal);
    return CUDA_SUCCESS;
}
