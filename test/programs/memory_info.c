/* What the driver tells about memory: sizes, ranges and pointer attributes are the same after a resume. */

#include "device.h"

#include <string.h>

#define MIB  (1ull << 20)
#define SIZE 100000

static CUcontext context;
static CUdeviceptr block;
static void *host;
static uint64_t buffer_id;
static size_t total_before, all_before;

static uint64_t attribute_get(CUpointer_attribute attribute, CUdeviceptr address)
{
    uint64_t value[2] = {0, 0}; /* attributes of 4 bytes leave the rest 0 */

    CHECK(cuPointerGetAttribute(value, attribute, address));
    return value[0];
}

static void check_sizes(void)
{
    size_t available, total, less, all;
    CUdeviceptr large;

    CHECK(cuMemGetInfo_v2(&available, &total));
    EXPECT_EQ(total, total_before);
    EXPECT(available > 0 && available <= total);
    CHECK(cuDeviceTotalMem_v2(&all, 0));
    EXPECT_EQ(all, all_before);
    CHECK(cuMemAlloc_v2(&large, 64 * MIB));
    CHECK(cuMemGetInfo_v2(&less, &total));
    EXPECT(less + 32 * MIB <= available);
    CHECK(cuMemFree_v2(large));
}

static void check_device(void)
{
    CUdeviceptr base, inside = block + 12345;
    size_t size;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned type = 0;
    unsigned long long id = 0;
    CUcontext owner = NULL;
    void *values[] = {&type, &id, &owner};
    uint64_t none[2];

    CHECK(cuMemGetAddressRange_v2(&base, &size, inside));
    EXPECT_EQ(base, block);
    EXPECT_EQ(size, SIZE);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_CONTEXT, inside), (uintptr_t)context);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CU_MEMORYTYPE_DEVICE);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside), buffer_id);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), 0);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), block);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), SIZE);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside), 1);
    CHECK_GIVES(cuPointerGetAttribute(none, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside),
                CUDA_ERROR_INVALID_VALUE);
    CHECK(cuPointerGetAttributes(3, names, values, inside));
    EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
    EXPECT_EQ(id, buffer_id);
    EXPECT(owner == context);
}

static void check_host(void)
{
    CUdeviceptr inside = (CUdeviceptr)(uintptr_t)host + 100;

    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CU_MEMORYTYPE_HOST);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), inside);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
    EXPECT_EQ(attribute_get(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), (uintptr_t)host);
}

/* A new allocation has a new id, never one that was in use before. */
static void check_new_id(void)
{
    static uint64_t last;
    CUdeviceptr another;
    uint64_t id;

    CHECK(cuMemAlloc_v2(&another, 1000));
    id = attribute_get(CU_POINTER_ATTRIBUTE_BUFFER_ID, another);
    EXPECT(id != buffer_id && id > last);
    last = id;
    CHECK(cuMemFree_v2(another));
}

static void check_errors(void)
{
    CUdeviceptr none;

    CHECK_GIVES(cuMemAlloc_v2(&none, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_GIVES(cuMemAlloc_v2(&none, 1ull << 45), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_GIVES(cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree_v2(0));
}

static void check_all(void)
{
    check_device();
    check_host();
    check_new_id();
    check_sizes();
    check_errors();
}

int main(int argc, char **argv)
{
    unsigned one = 1;
    size_t available;

    program_start(argc, argv);
    context = device_start();
    CHECK(cuMemGetInfo_v2(&available, &total_before));
    CHECK(cuDeviceTotalMem_v2(&all_before, 0));
    CHECK(cuMemAlloc_v2(&block, SIZE));
    CHECK(cuMemHostAlloc(&host, 8192, 0));
    CHECK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    buffer_id = attribute_get(CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
    check_all();
    program_ready(check_all);
    while (program_running()) {
        check_device();
        check_host();
        check_new_id();
        program_sleep_ms(1);
    }
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree_v2(block));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
