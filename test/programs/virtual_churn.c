/* Reservations, handles and mappings come and go in every order, while the program is taken off the device. */

#include "device.h"

#define SLOTS  24
#define SPACES 3

static struct kernels kernels;
static size_t piece;
static CUdeviceptr spaces[SPACES]; /* SLOTS pieces each */
static struct slot {
    CUmemGenericAllocationHandle handle; /* 0: nothing is mapped there, or it was given back at once */
    uint32_t seed;
    bool mapped;
} slots[SPACES][SLOTS];

static CUdeviceptr place(unsigned space, unsigned slot)
{
    return spaces[space] + slot * piece;
}

static void map_one(unsigned space, unsigned at)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct slot *slot = &slots[space][at];

    CHECK(cuMemCreate(&slot->handle, piece, &properties, 0));
    CHECK(cuMemMap(place(space, at), piece, 0, slot->handle, 0));
    CHECK(cuMemSetAccess(place(space, at), piece, &access, 1));
    slot->mapped = true;
    slot->seed = program_random();
    words_fill(&kernels, place(space, at), piece / 4, slot->seed, NULL);
    CHECK(cuCtxSynchronize());
    if (program_random() % 2) {
        CHECK(cuMemRelease(slot->handle));
        slot->handle = 0;
    }
}

static void unmap_one(unsigned space, unsigned at)
{
    struct slot *slot = &slots[space][at];

    words_check(&kernels, place(space, at), piece / 4, slot->seed, NULL);
    words_checked(&kernels, "a piece that is unmapped");
    CHECK(cuMemUnmap(place(space, at), piece));
    slot->mapped = false;
    if (slot->handle)
        CHECK(cuMemRelease(slot->handle));
}

static void change_one(unsigned space, unsigned at)
{
    if (slots[space][at].mapped)
        unmap_one(space, at);
    else
        map_one(space, at);
}

static void renew(unsigned space)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[space][i].mapped)
            unmap_one(space, i);
    if (spaces[space])
        CHECK(cuMemAddressFree(spaces[space], SLOTS * piece));
    CHECK(cuMemAddressReserve(&spaces[space], SLOTS * piece, 0, 0, 0));
    for (unsigned i = 0; i < SLOTS; i += 2)
        map_one(space, i);
}

static void check_all(void)
{
    for (unsigned space = 0; space < SPACES; space++)
        for (unsigned i = 0; i < SLOTS; i++)
            if (slots[space][i].mapped)
                words_check(&kernels, place(space, i), piece / 4, slots[space][i].seed, NULL);
    words_checked(&kernels, "all pieces");
}

int main(int argc, char **argv)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    for (unsigned i = 0; i < SPACES; i++)
        renew(i);
    program_ready(check_all);
    while (program_running()) {
        unsigned choice = program_random();

        if (choice % 64 == 0)
            renew(program_random() % SPACES);
        else
            change_one(program_random() % SPACES, program_random() % SLOTS);
    }
    check_all();
    for (unsigned space = 0; space < SPACES; space++) {
        for (unsigned i = 0; i < SLOTS; i++)
            if (slots[space][i].mapped)
                unmap_one(space, i);
        CHECK(cuMemAddressFree(spaces[space], SLOTS * piece));
    }
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
