/* Arrays: rows in device memory. */

#include <stdlib.h>

#include "fake.h"

struct array {
    enum object_kind kind;
    CUDA_ARRAY3D_DESCRIPTOR description;
    struct block *block;
    uint64_t pitch, rows;
    struct list node; /* in context->arrays */
};

uint64_t array_address(CUarray handle, uint64_t *pitch, uint64_t *slice)
{
    const struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array)
        return 0;
    *pitch = array->pitch;
    *slice = array->pitch * array->rows;
    return array->block->range.address;
}

static unsigned int element_size(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static CUresult create(struct thread *self, struct context *context, CUarray *handle,
                       const CUDA_ARRAY3D_DESCRIPTOR *from)
{
    unsigned int size = element_size(from->Format) * from->NumChannels;
    struct array *array;
    CUresult result;

    if (!handle || !size || !from->Width)
        return CUDA_ERROR_INVALID_VALUE;
    array = handle_alloc(self, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->kind = OBJECT_ARRAY;
    array->description = *from;
    array->pitch = (from->Width * size + 511) & ~511ull;
    array->rows = from->Height ? from->Height : 1;
    result = block_new(context, NULL, BLOCK_DEVICE,
                       array->pitch * array->rows * (from->Depth ? from->Depth : 1), &array->block);
    if (result != CUDA_SUCCESS || object_add(array, OBJECT_ARRAY)) {
        free(array);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    list_insert(&context->arrays, &array->node);
    *handle = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *from)
{
    CALL(cuArrayCreate_v2, NEEDS_CONTEXT);
    CUDA_ARRAY3D_DESCRIPTOR description;

    if (!from)
        return CUDA_ERROR_INVALID_VALUE;
    description = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = from->Width,
        .Height = from->Height,
        .Format = from->Format,
        .NumChannels = from->NumChannels,
    };
    return create(self, context, handle, &description);
}

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *from)
{
    CALL(cuArray3DCreate_v2, NEEDS_CONTEXT);
    return from ? create(self, context, handle, from) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *description, CUarray handle)
{
    CALL(cuArray3DGetDescriptor_v2, NEEDS_CONTEXT);
    const struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    *description = array->description;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *description, CUarray handle)
{
    CALL(cuArrayGetDescriptor_v2, NEEDS_CONTEXT);
    const struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    *description = (CUDA_ARRAY_DESCRIPTOR){
        .Width = array->description.Width,
        .Height = array->description.Height,
        .Format = array->description.Format,
        .NumChannels = array->description.NumChannels,
    };
    return CUDA_SUCCESS;
}

static void array_delete(struct array *array)
{
    object_remove(array);
    list_remove(&array->node);
    block_delete(array->block);
    free(array);
}

void arrays_delete_all(struct context *context)
{
    list_each(node, &context->arrays) array_delete(container_of(node, struct array, node));
}

CUresult cuArrayDestroy(CUarray handle)
{
    CALL(cuArrayDestroy, NEEDS_CONTEXT);
    struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    device_wait(array->block->device);
    array_delete(array);
    return CUDA_SUCCESS;
}
