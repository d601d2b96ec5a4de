/*
 * The virtual-memory functions as PyTorch's expandable segments and others use them: several handles in one
 * reservation with a hole, handles given back while mapped, one handle at two addresses, one mapped nowhere, one
 * mapped without access, one retained more often than released.
 */

#include "device.h"

#define PIECES 6

static struct kernels kernels;
static size_t piece;
static CUdeviceptr space, other; /* reservations; other has room for two pieces */
static CUmemGenericAllocationHandle handles[PIECES], alias, loose, shut;
static uint32_t seed = 1;

static uint64_t words(void)
{
    return piece / 4;
}

static CUmemGenericAllocationHandle create(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle = 0;

    CHECK(cuMemCreate(&handle, piece, &properties, 0));
    return handle;
}

static void give_access(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};

    CHECK(cuMemSetAccess(address, size, &access, 1));
}

static unsigned long long access_of(CUdeviceptr address)
{
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    unsigned long long flags = 99;

    CHECK(cuMemGetAccess(&flags, &location, address));
    return flags;
}

static CUdeviceptr place(unsigned i)
{
    return space + i * piece;
}

/* Pieces 2 and 3 are the hole. */
static bool is_mapped(unsigned i)
{
    return i != 2 && i != 3;
}

static void check_pieces(void)
{
    for (unsigned i = 0; i < PIECES; i++)
        if (is_mapped(i))
            words_check(&kernels, place(i), words(), seed + i, NULL);
    words_check(&kernels, other, words(), seed + PIECES, NULL);
    words_check(&kernels, other + piece, words(), seed + PIECES, NULL);
    words_checked(&kernels, "mapped pieces");
}

static void fill_pieces(void)
{
    seed = program_random();
    for (unsigned i = 0; i < PIECES; i++)
        if (is_mapped(i))
            words_fill(&kernels, place(i), words(), seed + i, NULL);
    /* The same memory at two addresses: written through one, checked through both. */
    words_fill(&kernels, other + piece, words(), seed + PIECES, NULL);
    CHECK(cuCtxSynchronize());
}

/* What no address shows is there all the same; it is mapped into the hole to look. */
static void check_hidden(void)
{
    CHECK(cuMemMap(place(2), piece, 0, loose, 0));
    give_access(place(2), piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    words_check(&kernels, place(2), words(), 4711, NULL);
    words_checked(&kernels, "a handle that was mapped nowhere");
    CHECK(cuMemUnmap(place(2), piece));

    EXPECT_EQ(access_of(place(3)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    give_access(place(3), piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    words_check(&kernels, place(3), words(), 815, NULL);
    words_checked(&kernels, "memory that was mapped without access");
    CHECK(cuMemUnmap(place(3), piece));
    CHECK(cuMemMap(place(3), piece, 0, shut, 0));
}

static void check_handles(void)
{
    CUmemGenericAllocationHandle again = 0;
    CUmemAllocationProp properties = {0};

    /* Given back long ago, but mapped: the driver still knows it by its handle. */
    CHECK(cuMemRetainAllocationHandle(&again, (void *)place(0)));
    EXPECT_EQ(again, handles[0]);
    CHECK(cuMemGetAllocationPropertiesFromHandle(&properties, again));
    EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK(cuMemRelease(again));
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(other + piece + 5)));
    EXPECT_EQ(again, alias);
    CHECK(cuMemRelease(again));
    EXPECT_EQ(access_of(place(1)), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void verify(void)
{
    check_pieces();
    check_handles();
    check_hidden();
}

/* Memory of cuMemAlloc has no handle, and nothing of it can be unmapped. */
static void check_plain(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr plain;

    CHECK(cuMemAlloc_v2(&plain, 4 * piece));
    CHECK_GIVES(cuMemRetainAllocationHandle(&handle, (void *)plain), CUDA_ERROR_INVALID_VALUE);
    CHECK_GIVES(cuMemUnmap(plain, 4 * piece), CUDA_ERROR_INVALID_VALUE);
    CHECK_GIVES(cuMemAddressFree(plain, 4 * piece), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree_v2(plain));
}

static void set_up(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle again;

    CHECK(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK(cuMemAddressReserve(&space, 64 * piece, 0, 0, 0));
    CHECK(cuMemAddressReserve(&other, 2 * piece, 4 * piece, 0, 0));
    for (unsigned i = 0; i < PIECES; i++) {
        handles[i] = create();
        CHECK(cuMemMap(place(i), piece, 0, handles[i], 0));
    }
    give_access(space, PIECES * piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    /* The middle goes, in one call. */
    CHECK(cuMemUnmap(place(2), 2 * piece));
    CHECK(cuMemRelease(handles[2]));
    CHECK(cuMemRelease(handles[3]));
    CHECK(cuMemRelease(handles[0]));

    alias = create();
    CHECK(cuMemMap(other, piece, 0, alias, 0));
    CHECK(cuMemMap(other + piece, piece, 0, alias, 0));
    give_access(other, 2 * piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    for (unsigned i = 0; i < 3; i++)
        CHECK(cuMemRetainAllocationHandle(&again, (void *)other));

    loose = create();
    shut = create();
    CHECK(cuMemMap(place(2), piece, 0, loose, 0));
    CHECK(cuMemMap(place(3), piece, 0, shut, 0));
    give_access(place(2), 2 * piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    words_fill(&kernels, place(2), words(), 4711, NULL);
    words_fill(&kernels, place(3), words(), 815, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemUnmap(place(2), 2 * piece));
    CHECK(cuMemMap(place(3), piece, 0, shut, 0));
}

static void give_back(void)
{
    CHECK(cuMemUnmap(space, 2 * piece));
    CHECK(cuMemUnmap(place(3), 3 * piece));
    CHECK(cuMemRelease(handles[1]));
    CHECK(cuMemRelease(handles[4]));
    CHECK(cuMemRelease(handles[5]));
    CHECK(cuMemRelease(loose));
    CHECK(cuMemRelease(shut));
    CHECK(cuMemUnmap(other, 2 * piece));
    for (unsigned i = 0; i < 4; i++)
        CHECK(cuMemRelease(alias));
    CHECK(cuMemAddressFree(other, 2 * piece));
    CHECK(cuMemAddressFree(space, 64 * piece));
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    set_up();
    check_plain();
    fill_pieces();
    verify();
    program_ready(verify);
    while (program_running()) {
        check_pieces();
        fill_pieces();
    }
    give_back();
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
