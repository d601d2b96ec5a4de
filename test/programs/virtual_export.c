/*
 * A handle is exported as a descriptor after the program was off the device and back: that must work as before. From
 * then on another process may hold the memory, and a suspend is refused.
 */
// expect: suspend-exit=0,6 message=cuMemExportToShareableHandle

#include <unistd.h>

#include "device.h"

static struct kernels kernels;
static size_t piece;
static CUdeviceptr space;
static CUmemGenericAllocationHandle handle;

static void export(void)
{
    int descriptor = -1;

    words_check(&kernels, space, piece / 4, 42, NULL);
    words_checked(&kernels, "memory that is exported");
    CHECK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(descriptor >= 0);
    EXPECT(close(descriptor) == 0);
}

int main(int argc, char **argv)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&space, piece, 0, 0, 0));
    CHECK(cuMemCreate(&handle, piece, &properties, 0));
    CHECK(cuMemMap(space, piece, 0, handle, 0));
    CHECK(cuMemSetAccess(space, piece, &access, 1));
    words_fill(&kernels, space, piece / 4, 42, NULL);
    CHECK(cuCtxSynchronize());
    program_ready(export);
    while (program_running()) {
        words_check(&kernels, space, piece / 4, 42, NULL);
        words_checked(&kernels, "mapped memory");
    }
    CHECK(cuMemUnmap(space, piece));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(space, piece));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
