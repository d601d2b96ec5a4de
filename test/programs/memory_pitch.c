/* Pitched allocations, written and read as rectangles and row by row; pitch and address stay, the bytes too.
 */

#include "device.h"

#include <stdlib.h>
#include <string.h>

static struct plane {
    size_t width, height, pitch;
    unsigned element;
    CUdeviceptr address;
    unsigned char *content; /* width * height bytes, without gaps */
} planes[] = {
    {.width = 1, .height = 1, .element = 4},      {.width = 100, .height = 10, .element = 4},
    {.width = 513, .height = 33, .element = 8},   {.width = 4096, .height = 64, .element = 16},
    {.width = 1000, .height = 999, .element = 4},
};

#define PLANES (sizeof planes / sizeof planes[0])

static void plane_write(struct plane *plane)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = plane->content,
        .srcPitch = plane->width,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = plane->address,
        .dstPitch = plane->pitch,
        .WidthInBytes = plane->width,
        .Height = plane->height,
    };

    for (size_t i = 0; i < plane->width * plane->height; i++)
        plane->content[i] = (unsigned char)program_random();
    CHECK(cuMemcpy2D_v2(&copy));
}

static void plane_check(const struct plane *plane)
{
    unsigned char *row = malloc(plane->width);

    if (!row)
        FAIL("no memory");
    for (size_t y = 0; y < plane->height; y++) {
        CHECK(cuMemcpyDtoH_v2(row, plane->address + y * plane->pitch, plane->width));
        if (memcmp(row, plane->content + y * plane->width, plane->width))
            FAIL("row %zu of %zu x %zu differs", y, plane->width, plane->height);
    }
    free(row);
}

static void plane_check_as_rectangle(const struct plane *plane)
{
    unsigned char *all = malloc(plane->width * plane->height);
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = plane->address,
        .srcPitch = plane->pitch,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = all,
        .dstPitch = plane->width,
        .WidthInBytes = plane->width,
        .Height = plane->height,
    };

    if (!all)
        FAIL("no memory");
    CHECK(cuMemcpy2D_v2(&copy));
    if (memcmp(all, plane->content, plane->width * plane->height))
        FAIL("%zu x %zu differs", plane->width, plane->height);
    free(all);
}

static void check_all(void)
{
    for (size_t i = 0; i < PLANES; i++) {
        plane_check(&planes[i]);
        plane_check_as_rectangle(&planes[i]);
    }
}

static void plane_make(struct plane *plane)
{
    size_t pitch = 0;

    CHECK(cuMemAllocPitch_v2(&plane->address, &pitch, plane->width, plane->height, plane->element));
    EXPECT(pitch >= plane->width);
    EXPECT_EQ(pitch % 16, 0);
    if (plane->pitch)
        EXPECT_EQ(pitch, plane->pitch); /* the pitch of a width is always the same */
    plane->pitch = pitch;
    plane_write(plane);
}

int main(int argc, char **argv)
{
    CUdeviceptr none;
    size_t pitch;

    program_start(argc, argv);
    device_start();
    for (size_t i = 0; i < PLANES; i++) {
        planes[i].content = malloc(planes[i].width * planes[i].height);
        if (!planes[i].content)
            FAIL("no memory");
        plane_make(&planes[i]);
    }
    program_ready(check_all);
    while (program_running()) {
        struct plane *plane = &planes[program_random() % PLANES];

        plane_check_as_rectangle(plane);
        CHECK(cuMemFree_v2(plane->address));
        plane_make(plane);
        CHECK_GIVES(cuMemAllocPitch_v2(&none, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < PLANES; i++) {
        CHECK(cuMemFree_v2(planes[i].address));
        free(planes[i].content);
    }
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
