/* What the devices are. */

#include <stdio.h>
#include <string.h>

#include "fake.h"

struct device *device_find(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < fake.device_count ? &fake.devices[ordinal] : NULL;
}

CUresult cuDeviceGetCount(int *count)
{
    CALL(cuDeviceGetCount, NEEDS_INIT);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = fake.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CALL(cuDeviceGet, NEEDS_INIT);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CALL(cuDeviceGetName, NEEDS_INIT);
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "fakegpu-0000000", 16);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CALL(cuDeviceGetUuid, NEEDS_INIT);
    return get_uuid(uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CALL(cuDeviceGetUuid_v2, NEEDS_INIT);
    return get_uuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CALL(cuDeviceTotalMem_v2, NEEDS_INIT);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = device_find(device)->size;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    CALL(cuDeviceComputeCapability, NEEDS_INIT);
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    CALL(cuDeviceGetPCIBusId, NEEDS_INIT);
    if (!id || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)length, "0000:%02x:00.0", 0x10 + device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    unsigned int domain, bus;

    CALL(cuDeviceGetByPCIBusId, NEEDS_INIT);
    if (!device || !id || sscanf(id, "%x:%x:", &domain, &bus) != 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (domain || bus < 0x10 || !device_find((int)bus - 0x10))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (int)bus - 0x10;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CALL(cuDeviceCanAccessPeer, NEEDS_INIT);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device) || !device_find(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    CALL(cuDeviceGetP2PAttribute, NEEDS_INIT);
    if (!value || attribute < 1 || attribute > 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device) || !device_find(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == 1 ? 0 : 1;
    return CUDA_SUCCESS;
}

/* Attributes that are not 0; numbers without a name in cuda_abi.h: limits that programs ask for. */
static const struct {
    int attribute, value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {2, 1024}, /* block x, y, z */
    {3, 1024},
    {4, 64},
    {5, 2147483647}, /* grid x, y, z */
    {6, 65535},
    {7, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {9, 65536}, /* constant memory */
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {12, 65536},   /* registers per block */
    {13, 1980000}, /* clock, kHz */
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {15, 1}, /* copies and kernels overlap */
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {31, 1}, /* concurrent kernels */
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0x10},
    {36, 2619000}, /* memory clock, kHz */
    {37, 512},     /* memory bus, bits */
    {38, 4 << 20}, /* L2 */
    {39, 2048},    /* threads per multiprocessor */
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {78, 1},      /* stream priorities */
    {79, 1},      /* global L1 */
    {80, 1},      /* local L1 */
    {81, 233472}, /* shared memory per multiprocessor */
    {82, 65536},  /* registers per multiprocessor */
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {90, 1}, /* preemption */
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {92, 1},
    {94, 1},      /* 64-bit memory operations in streams */
    {95, 1},      /* cooperative launch */
    {97, 232448}, /* shared memory that a block may ask for */
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {106, 32},   /* blocks per multiprocessor */
    {111, 1024}, /* shared memory that the system takes of a block */
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {120, 1}, /* cluster launch */
};

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CALL(cuDeviceGetAttribute, NEEDS_INIT);
    if (!value || attribute < 1 || attribute > 150)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++) {
        if (attributes[i].attribute == attribute)
            *value = attributes[i].value;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        *value += device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
    CALL(cuDeviceGetProperties, NEEDS_INIT);
    if (!properties)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_find(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *properties = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = 1980000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}
