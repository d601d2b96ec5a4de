/* Copies of one dimension, and memory set to a value. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "fake_both.h"
#include "fake_copy.h"

enum { STAGED_MAX = 64 << 10 };

static bool is_device(uint64_t address)
{
    return block_find(address) || range_find(&fake.reservations, address);
}

static bool stage(struct copy_work *copy)
{
    if (copy->width > STAGED_MAX || copy->height != 1 || copy->depth != 1 || !memory_is_pinned(copy->target))
        return false;
    copy->staged = malloc(copy->width);
    if (!copy->staged)
        return false;
    memcpy(copy->staged, (const void *)(uintptr_t)copy->source, copy->width);
    copy->source = (uint64_t)(uintptr_t)copy->staged;
    return true;
}

CUresult copy_submit(struct stream *stream, const struct copy_work *copy, bool synchronous)
{
    struct work work = {.kind = WORK_COPY, .copy = *copy};
    CUresult result;

    if (synchronous) {
        result = capture_check_stream(stream);
        return result == CUDA_SUCCESS ? stream_submit_wait(stream, &work) : result;
    }
    if (stream->capture || (memory_is_pinned(copy->source) && memory_is_pinned(copy->target)))
        return stream_submit(stream, &work);
    /* Pageable memory: a small source is read at once, for everything else the call waits. */
    if (stage(&work.copy))
        return stream_submit(stream, &work);
    return stream_submit_wait(stream, &work);
}

enum side { SIDE_HOST, SIDE_DEVICE, SIDE_ANY };

static CUresult side_check(const struct context *context, enum side side, uint64_t address, uint64_t size,
                           bool *device)
{
    *device = side == SIDE_DEVICE || (side == SIDE_ANY && is_device(address));
    if (!*device)
        return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return range_check(context, address, size);
}

static CUresult copy(struct stream *stream, enum side target_side, uint64_t target, enum side source_side,
                     uint64_t source, size_t size, bool synchronous)
{
    struct copy_work work = {.source = source, .target = target, .width = size, .height = 1, .depth = 1};
    CUresult result;

    if (!size)
        return CUDA_SUCCESS;
    result = side_check(stream->context, target_side, target, size, &work.target_device);
    if (result == CUDA_SUCCESS)
        result = side_check(stream->context, source_side, source, size, &work.source_device);
    return result == CUDA_SUCCESS ? copy_submit(stream, &work, synchronous) : result;
}

#define HOST(pointer) (uint64_t)(uintptr_t)(pointer)

BOTH_SYNC(cuMemcpy, copy, (CUdeviceptr target, CUdeviceptr source, size_t size),
          (stream, SIDE_ANY, target, SIDE_ANY, source, size, true))
BOTH_SYNC(cuMemcpyHtoD_v2, copy, (CUdeviceptr target, const void *source, size_t size),
          (stream, SIDE_DEVICE, target, SIDE_HOST, HOST(source), size, true))
BOTH_SYNC(cuMemcpyDtoH_v2, copy, (void *target, CUdeviceptr source, size_t size),
          (stream, SIDE_HOST, HOST(target), SIDE_DEVICE, source, size, true))
BOTH_SYNC(cuMemcpyDtoD_v2, copy, (CUdeviceptr target, CUdeviceptr source, size_t size),
          (stream, SIDE_DEVICE, target, SIDE_DEVICE, source, size, true))
BOTH_SYNC(cuMemcpyPeer, copy,
          (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
           size_t size),
          (stream, SIDE_DEVICE, target, SIDE_DEVICE, source, size, true))
BOTH(cuMemcpyAsync, copy, (CUdeviceptr target, CUdeviceptr source, size_t size, CUstream handle),
     (stream, SIDE_ANY, target, SIDE_ANY, source, size, false))
BOTH(cuMemcpyHtoDAsync_v2, copy, (CUdeviceptr target, const void *source, size_t size, CUstream handle),
     (stream, SIDE_DEVICE, target, SIDE_HOST, HOST(source), size, false))
BOTH(cuMemcpyDtoHAsync_v2, copy, (void *target, CUdeviceptr source, size_t size, CUstream handle),
     (stream, SIDE_HOST, HOST(target), SIDE_DEVICE, source, size, false))
BOTH(cuMemcpyDtoDAsync_v2, copy, (CUdeviceptr target, CUdeviceptr source, size_t size, CUstream handle),
     (stream, SIDE_DEVICE, target, SIDE_DEVICE, source, size, false))
BOTH(cuMemcpyPeerAsync, copy,
     (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context, size_t size,
      CUstream handle),
     (stream, SIDE_DEVICE, target, SIDE_DEVICE, source, size, false))

static CUresult set(struct stream *stream, uint64_t target, uint32_t element, uint32_t value, size_t pitch,
                    size_t width, size_t height, bool synchronous)
{
    struct work work = {
        .kind = WORK_SET,
        .set = {.target = target,
                .pitch = pitch,
                .width = width,
                .height = height,
                .element = element,
                .value = value},
    };
    CUresult result;

    if (!width || !height)
        return CUDA_SUCCESS;
    if (target % element || (height > 1 && (pitch < width * element || pitch % element)))
        return CUDA_ERROR_INVALID_VALUE;
    result = range_check(stream->context, target, width * element + (height - 1) * pitch);
    if (result != CUDA_SUCCESS)
        return result;
    if (!synchronous)
        return stream_submit(stream, &work);
    result = capture_check_stream(stream);
    return result == CUDA_SUCCESS ? stream_submit_wait(stream, &work) : result;
}

#define SET(bits, type)                                                                                      \
    BOTH_SYNC(cuMemsetD##bits##_v2, set, (CUdeviceptr target, type value, size_t count),                     \
              (stream, target, bits / 8, value, 0, count, 1, true))                                          \
    BOTH_SYNC(cuMemsetD2D##bits##_v2, set,                                                                   \
              (CUdeviceptr target, size_t pitch, type value, size_t width, size_t height),                   \
              (stream, target, bits / 8, value, pitch, width, height, true))                                 \
    BOTH(cuMemsetD##bits##Async, set, (CUdeviceptr target, type value, size_t count, CUstream handle),       \
         (stream, target, bits / 8, value, 0, count, 1, false))                                              \
    BOTH(cuMemsetD2D##bits##Async, set,                                                                      \
         (CUdeviceptr target, size_t pitch, type value, size_t width, size_t height, CUstream handle),       \
         (stream, target, bits / 8, value, pitch, width, height, false))
SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned int)
