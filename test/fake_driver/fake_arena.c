/* Small pieces of device memory: first fit in reserved address space that is backed as it is needed. */

#include <stdlib.h>

#include "fake.h"

enum { ARENA_RESERVED = 256 << 20 };

static CUresult arena_grow(struct arena *arena, uint64_t size)
{
    uint64_t piece = (size + PAGE_SIZE_2M - 1) & -(uint64_t)PAGE_SIZE_2M;
    uint64_t end, offset;
    CUresult result;

    if (!arena->base) {
        arena->base = address_reserve(0, ARENA_RESERVED, PAGE_SIZE_2M);
        if (!arena->base)
            return CUDA_ERROR_OUT_OF_MEMORY;
        arena->reserved = ARENA_RESERVED;
    }
    if (arena->backed + piece > arena->reserved)
        return CUDA_ERROR_OUT_OF_MEMORY;
    end = arena->base + arena->backed;
    /* Page by page, so that they can be given back one by one. */
    for (uint64_t done = 0; done < piece; done += PAGE_SIZE_2M) {
        result = vidmem_alloc(arena->device, PAGE_SIZE_2M, &offset);
        if (result != CUDA_SUCCESS)
            return result;
        result = pages_map(arena->device, end + done, offset, PAGE_SIZE_2M, 1u << arena->device->ordinal,
                           true, NULL);
        if (result != CUDA_SUCCESS) {
            vidmem_free(arena->device, offset, PAGE_SIZE_2M);
            return result;
        }
        arena->backed += PAGE_SIZE_2M;
        if (holes_give(&arena->holes, end + done, PAGE_SIZE_2M))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult arena_alloc(struct arena *arena, uint64_t size, uint64_t alignment, uint64_t *address)
{
    CUresult result;

    if (!holes_take(&arena->holes, size, alignment, address))
        return CUDA_SUCCESS;
    result = arena_grow(arena, size);
    if (result != CUDA_SUCCESS)
        return result;
    return holes_take(&arena->holes, size, alignment, address) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void arena_shrink(struct arena *arena, uint64_t size)
{
    while (size) {
        arena->backed -= PAGE_SIZE_2M;
        size -= PAGE_SIZE_2M;
        pages_unmap((struct page_range *)range_find(&fake.pages, arena->base + arena->backed));
    }
}

void arena_free(struct arena *arena, uint64_t address, uint64_t size)
{
    if (holes_give(&arena->holes, address, size))
        return;
    arena_shrink(arena, holes_trim_end(&arena->holes, arena->base + arena->backed, PAGE_SIZE_2M));
}

void arena_release(struct arena *arena)
{
    arena_shrink(arena, arena->backed);
    if (arena->base)
        address_release(arena->base, arena->reserved);
    free(arena->holes.items);
    *arena = (struct arena){.device = arena->device};
}
