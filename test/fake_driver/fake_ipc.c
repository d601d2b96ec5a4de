/* Handles for other processes: they can be had, and opened by nobody. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static void fill(char *reserved, uint64_t what)
{
    int pid = getpid();

    memset(reserved, 0, 64);
    memcpy(reserved, &pid, sizeof(pid));
    memcpy(reserved + 8, &what, sizeof(what));
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CALL(cuIpcGetMemHandle, NEEDS_CONTEXT);
    const struct block *block = block_find(address);

    if (!handle || !block || block->kind != BLOCK_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    fill(handle->reserved, address);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle)
{
    CALL(cuIpcGetEventHandle, NEEDS_CONTEXT);
    const struct event *event = object_find(event_handle, OBJECT_EVENT);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!handle || !(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    fill(handle->reserved, (uint64_t)(uintptr_t)event_handle);
    return CUDA_SUCCESS;
}
