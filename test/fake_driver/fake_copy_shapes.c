/* Copies of two and three dimensions, arrays included. */

#include "fake.h"
#include "fake_both.h"
#include "fake_copy.h"

struct place {
    CUmemorytype type;
    uint64_t host, device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static CUresult place_find(const struct place *place, uint64_t *address, uint64_t *pitch, uint64_t *slice,
                           bool *device)
{
    uint64_t base;

    *pitch = place->pitch;
    *slice = place->pitch * place->height;
    switch (place->type) {
    case CU_MEMORYTYPE_HOST:
        base = place->host;
        *device = false;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = place->device;
        *device = true;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = place->device;
        *device = block_find(base) || range_find(&fake.reservations, base);
        break;
    case CU_MEMORYTYPE_ARRAY:
        base = array_address(place->array, pitch, slice);
        *device = true;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!base)
        return CUDA_ERROR_INVALID_VALUE;
    *address = base + place->z * *slice + place->y * *pitch + place->x;
    return CUDA_SUCCESS;
}

CUresult copy_from_3d(struct context *context, const CUDA_MEMCPY3D *from, struct copy_work *copy)
{
    const struct place source = {from->srcMemoryType, (uintptr_t)from->srcHost, from->srcDevice,
                                 from->srcArray,      from->srcXInBytes,        from->srcY,
                                 from->srcZ,          from->srcPitch,           from->srcHeight};
    const struct place target = {from->dstMemoryType, (uintptr_t)from->dstHost, from->dstDevice,
                                 from->dstArray,      from->dstXInBytes,        from->dstY,
                                 from->dstZ,          from->dstPitch,           from->dstHeight};
    CUresult result;

    *copy = (struct copy_work){.width = from->WidthInBytes, .height = from->Height, .depth = from->Depth};
    result =
        place_find(&source, &copy->source, &copy->source_pitch, &copy->source_slice, &copy->source_device);
    if (result == CUDA_SUCCESS)
        result = place_find(&target, &copy->target, &copy->target_pitch, &copy->target_slice,
                            &copy->target_device);
    if (result != CUDA_SUCCESS)
        return result;
    /* A pitch of 0 means rows without gaps. */
    if (!copy->source_pitch)
        copy->source_pitch = copy->width;
    if (!copy->target_pitch)
        copy->target_pitch = copy->width;
    if (copy->height > 1 && (copy->source_pitch < copy->width || copy->target_pitch < copy->width))
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy->source_slice)
        copy->source_slice = copy->source_pitch * copy->height;
    if (!copy->target_slice)
        copy->target_slice = copy->target_pitch * copy->height;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(struct stream *stream, const CUDA_MEMCPY3D *from, bool synchronous)
{
    struct copy_work copy;
    CUresult result;

    if (!from)
        return CUDA_ERROR_INVALID_VALUE;
    result = copy_from_3d(stream->context, from, &copy);
    return result == CUDA_SUCCESS ? copy_submit(stream, &copy, synchronous) : result;
}

static CUresult copy_2d(struct stream *stream, const CUDA_MEMCPY2D *from, bool synchronous)
{
    CUDA_MEMCPY3D wide;

    if (!from)
        return CUDA_ERROR_INVALID_VALUE;
    wide = (CUDA_MEMCPY3D){
        .srcXInBytes = from->srcXInBytes,
        .srcY = from->srcY,
        .srcMemoryType = from->srcMemoryType,
        .srcHost = from->srcHost,
        .srcDevice = from->srcDevice,
        .srcArray = from->srcArray,
        .srcPitch = from->srcPitch,
        .dstXInBytes = from->dstXInBytes,
        .dstY = from->dstY,
        .dstMemoryType = from->dstMemoryType,
        .dstHost = from->dstHost,
        .dstDevice = from->dstDevice,
        .dstArray = from->dstArray,
        .dstPitch = from->dstPitch,
        .WidthInBytes = from->WidthInBytes,
        .Height = from->Height,
        .Depth = 1,
    };
    return copy_3d(stream, &wide, synchronous);
}

BOTH_SYNC(cuMemcpy2D_v2, copy_2d, (const CUDA_MEMCPY2D *from), (stream, from, true))
BOTH_SYNC(cuMemcpy2DUnaligned_v2, copy_2d, (const CUDA_MEMCPY2D *from), (stream, from, true))
BOTH_SYNC(cuMemcpy3D_v2, copy_3d, (const CUDA_MEMCPY3D *from), (stream, from, true))
BOTH(cuMemcpy2DAsync_v2, copy_2d, (const CUDA_MEMCPY2D *from, CUstream handle), (stream, from, false))
BOTH(cuMemcpy3DAsync_v2, copy_3d, (const CUDA_MEMCPY3D *from, CUstream handle), (stream, from, false))

/* ---- arrays of one dimension: bytes from an offset on */

static CUresult copy_array(struct stream *stream, struct place target, struct place source, size_t size,
                           bool synchronous)
{
    struct copy_work copy = {.width = size, .height = 1, .depth = 1};
    CUresult result =
        place_find(&source, &copy.source, &copy.source_pitch, &copy.source_slice, &copy.source_device);

    if (result == CUDA_SUCCESS)
        result =
            place_find(&target, &copy.target, &copy.target_pitch, &copy.target_slice, &copy.target_device);
    return result == CUDA_SUCCESS ? copy_submit(stream, &copy, synchronous) : result;
}

#define IN_ARRAY(handle, offset)                                                                             \
    ((struct place){.type = CU_MEMORYTYPE_ARRAY, .array = (handle), .x = (offset)})
#define ON_DEVICE(address) ((struct place){.type = CU_MEMORYTYPE_DEVICE, .device = (address)})
#define ON_HOST(pointer)   ((struct place){.type = CU_MEMORYTYPE_HOST, .host = (uintptr_t)(pointer)})

BOTH_SYNC(cuMemcpyDtoA_v2, copy_array, (CUarray target, size_t offset, CUdeviceptr source, size_t size),
          (stream, IN_ARRAY(target, offset), ON_DEVICE(source), size, true))
BOTH_SYNC(cuMemcpyAtoD_v2, copy_array, (CUdeviceptr target, CUarray source, size_t offset, size_t size),
          (stream, ON_DEVICE(target), IN_ARRAY(source, offset), size, true))
BOTH_SYNC(cuMemcpyHtoA_v2, copy_array, (CUarray target, size_t offset, const void *source, size_t size),
          (stream, IN_ARRAY(target, offset), ON_HOST(source), size, true))
BOTH_SYNC(cuMemcpyAtoH_v2, copy_array, (void *target, CUarray source, size_t offset, size_t size),
          (stream, ON_HOST(target), IN_ARRAY(source, offset), size, true))
BOTH_SYNC(cuMemcpyAtoA_v2, copy_array,
          (CUarray target, size_t target_offset, CUarray source, size_t source_offset, size_t size),
          (stream, IN_ARRAY(target, target_offset), IN_ARRAY(source, source_offset), size, true))
BOTH(cuMemcpyHtoAAsync_v2, copy_array,
     (CUarray target, size_t offset, const void *source, size_t size, CUstream handle),
     (stream, IN_ARRAY(target, offset), ON_HOST(source), size, false))
BOTH(cuMemcpyAtoHAsync_v2, copy_array,
     (void *target, CUarray source, size_t offset, size_t size, CUstream handle),
     (stream, ON_HOST(target), IN_ARRAY(source, offset), size, false))
