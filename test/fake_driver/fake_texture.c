/* Texture and surface objects: small numbers. */

#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* Sizes of the driver's structs, which only pass through. */
enum { RESOURCE_SIZE = 144, TEXTURE_SIZE = 104, VIEW_SIZE = 112, TEXTURES = 256 };

struct texture {
    bool surface;
    char resource[RESOURCE_SIZE], texture[TEXTURE_SIZE], view[VIEW_SIZE];
};

static CUresult create(unsigned long long *object, const void *resource, const void *texture,
                       const void *view, bool surface)
{
    int index = 0;

    if (!object || !resource)
        return CUDA_ERROR_INVALID_VALUE;
    while (index < TEXTURES && fake.textures[index])
        index++;
    if (index == TEXTURES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake.textures[index] = calloc(1, sizeof(*fake.textures[index]));
    if (!fake.textures[index])
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake.textures[index]->surface = surface;
    memcpy(fake.textures[index]->resource, resource, RESOURCE_SIZE);
    if (texture)
        memcpy(fake.textures[index]->texture, texture, TEXTURE_SIZE);
    if (view)
        memcpy(fake.textures[index]->view, view, VIEW_SIZE);
    *object = (unsigned long long)index + 1;
    return CUDA_SUCCESS;
}

static struct texture *find(unsigned long long object, bool surface)
{
    struct texture *texture = object && object <= TEXTURES ? fake.textures[object - 1] : NULL;

    return texture && texture->surface == surface ? texture : NULL;
}

static CUresult destroy(unsigned long long object, bool surface)
{
    struct texture *texture = find(object, surface);

    if (!texture)
        return CUDA_ERROR_INVALID_VALUE;
    free(texture);
    fake.textures[object - 1] = NULL;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    CALL(cuTexObjectCreate, NEEDS_CONTEXT);
    return texture ? create(object, resource, texture, view, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectDestroy(CUtexObject object)
{
    CALL(cuTexObjectDestroy, NEEDS_CONTEXT);
    return destroy(object, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject object)
{
    CALL(cuTexObjectGetResourceDesc, NEEDS_CONTEXT);
    const struct texture *texture = find(object, false);

    if (!texture)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(resource, texture->resource, RESOURCE_SIZE);
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *description, CUtexObject object)
{
    CALL(cuTexObjectGetTextureDesc, NEEDS_CONTEXT);
    const struct texture *texture = find(object, false);

    if (!texture)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(description, texture->texture, TEXTURE_SIZE);
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource)
{
    CALL(cuSurfObjectCreate, NEEDS_CONTEXT);
    return create(object, resource, NULL, NULL, true);
}

CUresult cuSurfObjectDestroy(CUsurfObject object)
{
    CALL(cuSurfObjectDestroy, NEEDS_CONTEXT);
    return destroy(object, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject object)
{
    CALL(cuSurfObjectGetResourceDesc, NEEDS_CONTEXT);
    const struct texture *texture = find(object, true);

    if (!texture)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(resource, texture->resource, RESOURCE_SIZE);
    return CUDA_SUCCESS;
}
