/*
 * The fake driver by itself, without the preload: what programs and the restart in place rely on. Each test
 * runs in a process of its own and opens the driver there. FAKE_DRIVER: path of the library.
 */

#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "programs/kernels.ptx.h"

static char directory[64];

static struct {
    void *library;
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) CUresult(*symbol) parameters;
#include "driver_api.inc"
#undef ENTRY
} cu;

static const char *driver_path(void)
{
    const char *path = getenv("FAKE_DRIVER");

    return path ? path : "build/fake/libcuda.so.1";
}

/* Fills cu with what the library exports; NULL where it doesn't. */
static void driver_open(const char *path)
{
    cu.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(cu.library != NULL, "%s", dlerror());
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    cu.symbol = (CUresult(*) parameters)dlsym(cu.library, #symbol);
#include "driver_api.inc"
#undef ENTRY
}

#define OK(call)          ck_assert_int_eq(call, CUDA_SUCCESS)
#define FAILS(call, with) ck_assert_int_eq(call, with)

/* The driver with the primary context of device 0. */
static CUcontext driver_start(void)
{
    CUcontext context;

    driver_open(driver_path());
    OK(cu.cuInit(0));
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    return context;
}

static CUmodule module_load(void)
{
    CUmodule module;

    OK(cu.cuModuleLoadData(&module, kernels_ptx));
    return module;
}

static CUfunction function_get(CUmodule module, const char *name)
{
    CUfunction function;

    OK(cu.cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, CUstream stream, void **parameters)
{
    return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static CUresult launch_sleep(CUmodule module, CUstream stream, uint64_t ms)
{
    uint64_t ns = ms * 1000000;

    return launch(function_get(module, "sleep_ns"), stream, (void *[]){&ns});
}

static uint32_t word_at(CUdeviceptr address)
{
    uint32_t word = 0;

    OK(cu.cuMemcpyDtoH_v2(&word, address, sizeof(word)));
    return word;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Descriptors of this process that lead into the directory of the devices. */
static int device_descriptors(void)
{
    DIR *links = opendir("/proc/self/fd");
    struct dirent *entry;
    char target[512];
    int count = 0;

    while ((entry = readdir(links))) {
        ssize_t length = readlinkat(dirfd(links), entry->d_name, target, sizeof(target) - 1);

        target[length < 0 ? 0 : length] = 0;
        count += !strncmp(target, directory, strlen(directory));
    }
    closedir(links);
    return count;
}

static int thread_count(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2;
}

/* Runs f in a child; its return value is the child's exit status. */
static int in_child(int (*f)(void))
{
    int status;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (!child)
        _exit(f());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- exports, start */

START_TEST(every_row_is_exported)
{
    driver_open(driver_path());
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    ck_assert_msg(cu.symbol != NULL, "%s is not exported", #symbol);
#include "driver_api.inc"
#undef ENTRY
}
END_TEST

START_TEST(what_is_not_implemented_says_so)
{
    driver_start();
    FAILS(cu.cuGLInit(), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(nothing_works_before_init)
{
    CUdevice device;
    int version;

    driver_open(driver_path());
    FAILS(cu.cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    OK(cu.cuDriverGetVersion(&version));
    ck_assert_int_eq(version, 13000);
    ck_assert_int_eq(device_descriptors(), 0);
    OK(cu.cuInit(0));
    OK(cu.cuInit(0));
    OK(cu.cuDeviceGet(&device, 0));
    FAILS(cu.cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(init_takes_what_the_real_one_takes)
{
    int before;

    driver_open(driver_path());
    before = thread_count();
    OK(cu.cuInit(0));
    ck_assert_int_eq(thread_count(), before + 2);
    ck_assert_int_eq(device_descriptors(), 3); /* nvidiactl, nvidia-uvm, nvidia0 */
}
END_TEST

START_TEST(closing_does_not_unload)
{
    CUdevice device;

    driver_start();
    ck_assert_int_eq(dlclose(cu.library), 0);
    OK(cu.cuDeviceGet(&device, 0));
}
END_TEST

static void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    int source = open(from, O_RDONLY), target = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    ssize_t size;

    ck_assert_int_ge(source, 0);
    ck_assert_int_ge(target, 0);
    while ((size = read(source, buffer, sizeof(buffer))) > 0)
        ck_assert_int_eq(write(target, buffer, (size_t)size), size);
    close(source);
    close(target);
}

START_TEST(second_instance_cannot_start)
{
    char copy[128];

    driver_start();
    snprintf(copy, sizeof(copy), "%s/second.so", directory);
    copy_file(driver_path(), copy);
    driver_open(copy);
    FAILS(cu.cuInit(0), CUDA_ERROR_OPERATING_SYSTEM);
}
END_TEST

static int count_in_child(void)
{
    int count;

    return cu.cuDeviceGetCount(&count);
}

static int init_in_child(void)
{
    return cu.cuInit(0);
}

START_TEST(forked_child_has_no_driver)
{
    driver_start();
    ck_assert_int_eq(in_child(count_in_child), CUDA_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(in_child(init_in_child), CUDA_ERROR_NOT_INITIALIZED);
}
END_TEST

/* ---- contexts */

START_TEST(primary_context_keeps_its_place)
{
    CUcontext context = driver_start(), again;
    unsigned int flags;
    int active;

    OK(cu.cuDevicePrimaryCtxRetain(&again, 0));
    ck_assert_ptr_eq(context, again);
    OK(cu.cuDevicePrimaryCtxRelease_v2(0));
    OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    ck_assert_int_eq(active, 1);
    OK(cu.cuDevicePrimaryCtxRelease_v2(0));
    OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    ck_assert_int_eq(active, 0);
    FAILS(cu.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    FAILS(cu.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cu.cuDevicePrimaryCtxRetain(&again, 0));
    ck_assert_ptr_eq(context, again);
    OK(cu.cuCtxSynchronize());
}
END_TEST

START_TEST(context_stack)
{
    CUcontext primary = driver_start(), made, current;
    unsigned long long id, other;

    OK(cu.cuCtxCreate_v2(&made, CU_CTX_SCHED_SPIN, 0));
    OK(cu.cuCtxGetCurrent(&current));
    ck_assert_ptr_eq(current, made);
    OK(cu.cuCtxGetId(primary, &id));
    OK(cu.cuCtxGetId(made, &other));
    ck_assert_uint_ne(id, other);
    OK(cu.cuCtxPopCurrent_v2(&current));
    ck_assert_ptr_eq(current, made);
    OK(cu.cuCtxGetCurrent(&current));
    ck_assert_ptr_eq(current, primary);
    OK(cu.cuCtxPushCurrent_v2(made));
    OK(cu.cuCtxDestroy_v2(made));
    OK(cu.cuCtxGetCurrent(&current));
    ck_assert_ptr_eq(current, primary);
    FAILS(cu.cuCtxPushCurrent_v2(made), CUDA_ERROR_INVALID_CONTEXT);
    OK(cu.cuCtxSetCurrent(NULL));
    FAILS(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(context_destroys_what_is_in_it)
{
    CUcontext made;
    CUdeviceptr memory;
    CUstream stream;
    CUmodule module;
    CUevent event;
    size_t before, after, total;

    driver_start();
    OK(cu.cuMemGetInfo_v2(&before, &total));
    OK(cu.cuCtxCreate_v2(&made, 0, 0));
    OK(cu.cuMemAlloc_v2(&memory, 8 << 20));
    OK(cu.cuStreamCreate(&stream, 0));
    OK(cu.cuEventCreate(&event, 0));
    module = module_load();
    OK(launch(function_get(module, "bump"), stream, NULL));
    OK(cu.cuEventRecord(event, stream));
    OK(cu.cuMemGetInfo_v2(&after, &total));
    ck_assert_uint_le(after, before - (8 << 20));
    OK(cu.cuCtxDestroy_v2(made));
    OK(cu.cuMemGetInfo_v2(&after, &total));
    ck_assert_uint_eq(after, before);
    FAILS(cu.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cu.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cu.cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(context_limits)
{
    size_t value;

    driver_start();
    OK(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    OK(cu.cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    ck_assert_uint_eq(value, 4096);
    FAILS(cu.cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
}
END_TEST

/* ---- memory */

START_TEST(small_allocations_lie_512_apart)
{
    CUdeviceptr first, second, base;
    size_t size;

    driver_start();
    OK(cu.cuMemAlloc_v2(&first, 100));
    OK(cu.cuMemAlloc_v2(&second, 100));
    ck_assert_uint_eq(second, first + 512);
    OK(cu.cuMemGetAddressRange_v2(&base, &size, second + 50));
    ck_assert_uint_eq(base, second);
    ck_assert_uint_eq(size, 100);
    FAILS(cu.cuMemAlloc_v2(&base, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cu.cuMemAlloc_v2(&base, 1ull << 45), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cu.cuMemFree_v2(0));
    FAILS(cu.cuMemFree_v2(first + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemFree_v2(first));
    FAILS(cu.cuMemFree_v2(first), CUDA_ERROR_INVALID_VALUE);
    FAILS(cu.cuMemsetD8_v2(second + 50, 1, 51), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(pitched_allocation_and_2d_copy)
{
    uint32_t from[8][10], to[8][10] = {0};
    CUdeviceptr memory;
    size_t pitch;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = sizeof(from[0])};

    driver_start();
    for (int i = 0; i < 80; i++)
        from[i / 10][i % 10] = (uint32_t)i * 77;
    OK(cu.cuMemAllocPitch_v2(&memory, &pitch, sizeof(from[0]), 8, 4));
    ck_assert_uint_eq(pitch, 512);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.WidthInBytes = sizeof(from[0]);
    copy.Height = 8;
    OK(cu.cuMemcpy2D_v2(&copy));
    ck_assert_uint_eq(word_at(memory + 3 * pitch + 8), from[3][2]);
    copy = (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .srcPitch = pitch,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .dstPitch = sizeof(to[0]),
        .WidthInBytes = sizeof(to[0]),
        .Height = 8,
    };
    OK(cu.cuMemcpy2D_v2(&copy));
    ck_assert_mem_eq(from, to, sizeof(from));
}
END_TEST

START_TEST(memory_sets)
{
    CUdeviceptr memory;

    driver_start();
    OK(cu.cuMemAlloc_v2(&memory, 4096));
    OK(cu.cuMemsetD32_v2(memory, 0x01020304, 1024));
    ck_assert_uint_eq(word_at(memory + 4092), 0x01020304);
    OK(cu.cuMemsetD16_v2(memory, 0x1122, 2));
    ck_assert_uint_eq(word_at(memory), 0x11221122);
    OK(cu.cuMemsetD8_v2(memory, 0x55, 3));
    ck_assert_uint_eq(word_at(memory), 0x11555555);
    OK(cu.cuMemsetD2D32_v2(memory, 1024, 9, 2, 4));
    ck_assert_uint_eq(word_at(memory + 3 * 1024 + 4), 9);
    ck_assert_uint_eq(word_at(memory + 3 * 1024 + 8), 0x01020304);
    FAILS(cu.cuMemsetD32_v2(memory + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Memory that this process holds, as others see it: blocks of the files that it has open. */
static uint64_t held_bytes(void)
{
    DIR *links = opendir("/proc/self/fd");
    struct dirent *entry;
    char target[512];
    uint64_t bytes = 0;

    while ((entry = readdir(links))) {
        ssize_t length = readlinkat(dirfd(links), entry->d_name, target, sizeof(target) - 1);
        struct stat status;

        target[length < 0 ? 0 : length] = 0;
        if (strstr(target, "/vidmem-") && fstatat(dirfd(links), entry->d_name, &status, 0) == 0)
            bytes += (uint64_t)status.st_blocks * 512;
    }
    closedir(links);
    return bytes;
}

START_TEST(memory_is_seen_from_outside)
{
    CUdeviceptr memory;
    uint64_t before;

    driver_start();
    before = held_bytes();
    OK(cu.cuMemAlloc_v2(&memory, 16 << 20));
    ck_assert_uint_ge(held_bytes(), before + (16 << 20));
    OK(cu.cuMemFree_v2(memory));
    ck_assert_uint_eq(held_bytes(), before);
    OK(cu.cuDevicePrimaryCtxRelease_v2(0));
    ck_assert_uint_eq(held_bytes(), 0);
}
END_TEST

static int other_process(int pipes[2], void (*after)(void))
{
    CUdeviceptr memory;
    char byte = 1;

    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child)
        return child;
    driver_start();
    if (cu.cuMemAlloc_v2(&memory, 40 << 20) != CUDA_SUCCESS)
        _exit(1);
    if (after)
        after();
    if (write(pipes[1], &byte, 1) != 1)
        _exit(2);
    pause();
    _exit(3);
}

/* What a restart in place does. Standard streams and the pipe (200 and up) stay. */
static void close_everything(void)
{
    for (int i = 3; i < 200; i++)
        close(i);
}

static void share_with_other(void (*after)(void), CUresult expected)
{
    CUdeviceptr memory;
    int pipes[2], high[2], child;
    char byte;

    setenv("FAKE_GPU_MEMORY_MIB", "64", 1);
    ck_assert_int_eq(pipe(pipes), 0);
    high[0] = fcntl(pipes[0], F_DUPFD, 200);
    high[1] = fcntl(pipes[1], F_DUPFD, 201);
    child = other_process(high, after);
    ck_assert_int_eq(read(high[0], &byte, 1), 1);
    driver_start();
    FAILS(cu.cuMemAlloc_v2(&memory, 40 << 20), expected);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (expected != CUDA_SUCCESS)
        OK(cu.cuMemAlloc_v2(&memory, 40 << 20));
}

START_TEST(device_is_shared)
{
    share_with_other(NULL, CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

START_TEST(closed_descriptors_hold_nothing)
{
    share_with_other(close_everything, CUDA_SUCCESS);
}
END_TEST

START_TEST(pointer_attributes)
{
    CUcontext context = driver_start(), owner;
    CUdeviceptr memory, start;
    unsigned int type;
    uint64_t id, other;
    void *host;

    OK(cu.cuMemAlloc_v2(&memory, 1000));
    OK(cu.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 5));
    ck_assert_ptr_eq(owner, context);
    OK(cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 5));
    ck_assert_uint_eq(start, memory);
    OK(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    FAILS(cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory),
          CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemHostAlloc(&host, 100, 0));
    OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
    OK(cu.cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)host));
    ck_assert_uint_ne(id, other);
    FAILS(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(host_memory_is_registered_once)
{
    void *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address;
    unsigned int flags;

    driver_start();
    FAILS(cu.cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cu.cuMemHostRegister_v2(memory, 8192, CU_MEMHOSTREGISTER_PORTABLE));
    FAILS(cu.cuMemHostRegister_v2(memory, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cu.cuMemHostGetDevicePointer_v2(&address, memory, 0));
    ck_assert_uint_eq(address, (uintptr_t)memory);
    OK(cu.cuMemHostGetFlags(&flags, memory));
    ck_assert_uint_eq(flags, 3);
    OK(cu.cuMemHostUnregister(memory));
    FAILS(cu.cuMemHostRegister_v2(memory, 8192, CU_MEMHOSTREGISTER_IOMEMORY), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* ---- virtual memory */

static CUmemAllocationProp device_memory(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

START_TEST(virtual_memory)
{
    const CUdeviceptr wanted = 0x200000000000;
    const size_t size = 2 << 20;
    CUmemAllocationProp prop = device_memory();
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr place;
    size_t granularity;

    driver_start();
    OK(cu.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ck_assert_uint_eq(granularity, size);
    OK(cu.cuMemAddressReserve(&place, 1ull << 40, 0, wanted, 0));
    ck_assert_uint_eq(place, wanted);
    OK(cu.cuMemCreate(&handle, size, &prop, 0));
    FAILS(cu.cuMemCreate(&handle, size / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemMap(place + size, size, 0, handle, 0));
    FAILS(cu.cuMemMap(place + size, size, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemSetAccess(place + size, size, &access, 1));
    OK(cu.cuMemRelease(handle)); /* the mapping holds it */
    OK(cu.cuMemsetD32_v2(place + size, 42, size / 4));
    ck_assert_uint_eq(word_at(place + 2 * size - 4), 42);
    FAILS(cu.cuMemAddressFree(place, 1ull << 40), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemUnmap(place + size, size));
    FAILS(cu.cuMemUnmap(place + size, size), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemAddressFree(place, 1ull << 40));
    ck_assert_uint_le(held_bytes(), 4 << 20); /* the context's */
}
END_TEST

START_TEST(memory_without_access_faults)
{
    const size_t size = 2 << 20;
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr place;
    CUmodule module;
    uint32_t by = 1;

    driver_start();
    module = module_load();
    OK(cu.cuMemAddressReserve(&place, size, 0, 0, 0));
    OK(cu.cuMemCreate(&handle, size, &prop, 0));
    OK(cu.cuMemMap(place, size, 0, handle, 0));
    OK(launch(function_get(module, "increment"), NULL, (void *[]){&place, &by}));
    FAILS(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(copy_of_unmapped_memory_faults)
{
    CUdeviceptr place;
    uint32_t word;

    driver_start();
    OK(cu.cuMemAddressReserve(&place, 2 << 20, 0, 0, 0));
    FAILS(cu.cuMemcpyDtoH_v2(&word, place, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* ---- modules */

START_TEST(module_variables)
{
    CUdeviceptr counter, table, out;
    CUmodule module, other;
    uint32_t value = 1234, index = 5;
    size_t size;

    driver_start();
    module = module_load();
    OK(cu.cuModuleGetGlobal_v2(&counter, &size, module, "g_counter"));
    ck_assert_uint_eq(size, 4);
    ck_assert_uint_eq(counter % 256, 0);
    ck_assert_uint_eq(word_at(counter), KERNELS_GLOBAL_INITIAL);
    OK(launch(function_get(module, "bump"), NULL, NULL));
    ck_assert_uint_eq(word_at(counter), KERNELS_GLOBAL_INITIAL + 1);
    OK(cu.cuModuleGetGlobal_v2(&table, &size, module, "c_table"));
    ck_assert_uint_eq(size, 4 * KERNELS_CONST_COUNT);
    OK(cu.cuMemcpyHtoD_v2(table + 4 * index, &value, 4));
    OK(cu.cuMemAlloc_v2(&out, 4));
    OK(launch(function_get(module, "read_const"), NULL, (void *[]){&out, &index}));
    ck_assert_uint_eq(word_at(out), value);
    FAILS(cu.cuMemcpyHtoD_v2(table + 4 * 63, &value, 8), CUDA_ERROR_INVALID_VALUE);
    FAILS(cu.cuModuleGetGlobal_v2(&out, &size, module, "none"), CUDA_ERROR_NOT_FOUND);
    /* Each module has its own. */
    other = module_load();
    OK(cu.cuModuleGetGlobal_v2(&out, &size, other, "g_counter"));
    ck_assert_uint_ne(out, counter);
    ck_assert_uint_eq(word_at(out), KERNELS_GLOBAL_INITIAL);
}
END_TEST

/* The order of loading decides about addresses: first fit. */
START_TEST(variables_take_the_first_free_place)
{
    CUdeviceptr first, second, third;
    CUmodule one, two;

    driver_start();
    one = module_load();
    two = module_load();
    OK(cu.cuModuleGetGlobal_v2(&first, NULL, one, "g_counter"));
    OK(cu.cuModuleGetGlobal_v2(&second, NULL, two, "g_counter"));
    ck_assert_uint_lt(first, second);
    OK(cu.cuModuleUnload(one));
    one = module_load();
    OK(cu.cuModuleGetGlobal_v2(&third, NULL, one, "g_counter"));
    ck_assert_uint_eq(third, first);
}
END_TEST

START_TEST(code_is_loaded_at_first_launch)
{
    CUfunctionLoadingState loaded;
    CUfunction bump;

    driver_start();
    bump = function_get(module_load(), "bump");
    OK(cu.cuFuncIsLoaded(&loaded, bump));
    ck_assert_int_eq(loaded, 0);
    OK(launch(bump, NULL, NULL));
    OK(cu.cuFuncIsLoaded(&loaded, bump));
    ck_assert_int_eq(loaded, 1);
}
END_TEST

START_TEST(ptx_is_understood)
{
    static const char ptx[] = ".version 7.0 // comment\n.target sm_52\n.address_size 64\n"
                              ".global .align 8 .u64 pair[2] = {1, 0x20};\n"
                              ".visible .const .f32 half = 0f3F000000;\n"
                              ".global .align 4 .b8 open[] = {1, 2, 3}; /* by its values */\n"
                              ".extern .global .u32 elsewhere;\n"
                              ".visible .func (.param .b32 result) helper(.param .b32 x) { ret; }\n"
                              ".visible .entry stamp(.param .u32 a, .param .align 8 .b8 b[24],\n"
                              "    .param .u64 .ptr .global .align 1 c, .param .u8 d)\n"
                              ".maxntid 32, 1, 1\n{ { ret; } }\n";
    CUdeviceptr address;
    CUfunction function;
    CUmodule module;
    size_t size, offset;

    driver_start();
    OK(cu.cuModuleLoadData(&module, ptx));
    OK(cu.cuModuleGetGlobal_v2(&address, &size, module, "pair"));
    ck_assert_uint_eq(size, 16);
    ck_assert_uint_eq(word_at(address), 1);
    ck_assert_uint_eq(word_at(address + 8), 32);
    OK(cu.cuModuleGetGlobal_v2(&address, &size, module, "half"));
    ck_assert_uint_eq(word_at(address), 0x3f000000);
    OK(cu.cuModuleGetGlobal_v2(&address, &size, module, "open"));
    ck_assert_uint_eq(size, 3);
    FAILS(cu.cuModuleGetGlobal_v2(&address, &size, module, "elsewhere"), CUDA_ERROR_NOT_FOUND);
    FAILS(cu.cuModuleGetFunction(&function, module, "helper"), CUDA_ERROR_NOT_FOUND);
    function = function_get(module, "stamp");
    OK(cu.cuFuncGetParamInfo(function, 1, &offset, &size));
    ck_assert_uint_eq(offset, 8);
    ck_assert_uint_eq(size, 24);
    OK(cu.cuFuncGetParamInfo(function, 2, &offset, &size));
    ck_assert_uint_eq(offset, 32);
    OK(cu.cuFuncGetParamInfo(function, 3, &offset, &size));
    ck_assert_uint_eq(offset, 40);
    FAILS(cu.cuFuncGetParamInfo(function, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(fat_binary_with_ptx)
{
    static struct {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
        uint16_t kind, entry_version;
        uint32_t entry_header_size;
        uint64_t payload_size;
        uint8_t rest[48];
        char payload[sizeof(kernels_ptx)];
    } fatbin = {0xba55ed50, 1, 16, 64 + sizeof(kernels_ptx), 1, 0x101, 64, sizeof(kernels_ptx), {0}, {0}};
    struct {
        uint32_t magic, version;
        const void *data;
        void *unused;
    } wrapper = {0x466243b1, 1, &fatbin, NULL};
    CUlibrary library;
    CUmodule module;
    CUkernel kernel;

    driver_start();
    memcpy(fatbin.payload, kernels_ptx, sizeof(kernels_ptx));
    OK(cu.cuModuleLoadData(&module, &fatbin));
    OK(cu.cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&kernel, library, "bump"));
    fatbin.kind = 2;
    FAILS(cu.cuModuleLoadData(&module, &fatbin), CUDA_ERROR_NO_BINARY_FOR_GPU);
    FAILS(cu.cuModuleLoadData(&module, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    FAILS(cu.cuModuleLoadData(&module, "\1\2\3\4"), CUDA_ERROR_INVALID_IMAGE);
    FAILS(cu.cuModuleLoadData(&module, "nonsense"), CUDA_ERROR_INVALID_PTX);
}
END_TEST

START_TEST(library_kernels)
{
    CUlibrary library;
    CUdeviceptr counter;
    CUfunction function;
    CUmodule module;
    CUkernel bump, fill;
    const char *name;
    int value;

    driver_start();
    OK(cu.cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&fill, library, "fill"));
    OK(cu.cuLibraryGetKernel(&bump, library, "bump"));
    ck_assert_ptr_ne(fill, bump);
    OK(cu.cuKernelGetName(&name, bump));
    ck_assert_str_eq(name, "bump");
    OK(launch((CUfunction)bump, NULL, NULL)); /* a kernel may be launched as it is */
    OK(cu.cuKernelGetFunction(&function, bump));
    OK(launch(function, NULL, NULL));
    OK(cu.cuLibraryGetGlobal(&counter, NULL, library, "g_counter"));
    ck_assert_uint_eq(word_at(counter), KERNELS_GLOBAL_INITIAL + 2);
    OK(cu.cuLibraryGetModule(&module, library));
    ck_assert_ptr_eq(function_get(module, "bump"), function);
    OK(cu.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536, bump, 0));
    OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    ck_assert_int_eq(value, 65536);
    FAILS(cu.cuLibraryGetKernel(&bump, library, "none"), CUDA_ERROR_NOT_FOUND);
    OK(cu.cuLibraryUnload(library));
    FAILS(launch((CUfunction)fill, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(shared_memory_above_48_KiB_must_be_allowed)
{
    uint32_t n = 20000;
    CUfunction function;
    CUdeviceptr out;

    driver_start();
    function = function_get(module_load(), "shared_sum");
    OK(cu.cuMemAlloc_v2(&out, 4));
    FAILS(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, n * 4, NULL, (void *[]){&out, &n}, NULL),
          CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 96 << 10));
    OK(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, n * 4, NULL, (void *[]){&out, &n}, NULL));
    ck_assert_uint_eq(word_at(out), n * (n - 1) / 2);
}
END_TEST

START_TEST(function_pointers_belong_to_their_module)
{
    CUmodule module, other;
    CUdeviceptr pointer, out;
    uint32_t x = 41;

    driver_start();
    module = module_load();
    other = module_load();
    OK(cu.cuMemAlloc_v2(&pointer, 8));
    OK(cu.cuMemAlloc_v2(&out, 4));
    OK(launch(function_get(module, "get_fn"), NULL, (void *[]){&pointer}));
    OK(launch(function_get(module, "call_fn"), NULL, (void *[]){&pointer, &x, &out}));
    ck_assert_uint_eq(word_at(out), 42);
    OK(launch(function_get(other, "call_fn"), NULL, (void *[]){&pointer, &x, &out}));
    FAILS(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(parameters_in_a_buffer)
{
    struct {
        uint64_t p, n;
        uint32_t seed;
    } buffer = {0, 1000, 99};
    uint64_t zero = 0, bad = 1;
    size_t size = 20;
    CUdeviceptr count;
    CUmodule module;

    driver_start();
    module = module_load();
    OK(cu.cuMemAlloc_v2((CUdeviceptr *)&buffer.p, 4000));
    OK(cu.cuMemAlloc_v2(&count, 8));
    OK(cu.cuMemcpyHtoD_v2(count, &zero, 8));
    OK(cu.cuLaunchKernel(function_get(module, "fill"), 4, 1, 1, 64, 1, 1, 0, NULL, NULL,
                         (void *[]){CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                                    &size, CU_LAUNCH_PARAM_END}));
    ck_assert_uint_eq(word_at(buffer.p + 4 * 7), KERNELS_FILL(7, 99));
    OK(cu.cuLaunchKernel(function_get(module, "check"), 4, 1, 1, 64, 1, 1, 0, NULL,
                         (void *[]){&buffer.p, &buffer.n, &buffer.seed, &count}, NULL));
    OK(cu.cuMemcpyDtoH_v2(&bad, count, 8));
    ck_assert_uint_eq(bad, 0);
}
END_TEST

START_TEST(illegal_address_is_sticky)
{
    CUdeviceptr memory;
    CUcontext other;
    CUmodule module;

    driver_start();
    module = module_load();
    OK(launch(function_get(module, "illegal"), NULL, NULL));
    FAILS(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(cu.cuMemAlloc_v2(&memory, 100), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Other contexts go on; a reset ends it. */
    OK(cu.cuCtxCreate_v2(&other, 0, 0));
    OK(cu.cuMemAlloc_v2(&memory, 100));
    OK(cu.cuCtxDestroy_v2(other));
    OK(cu.cuDevicePrimaryCtxReset_v2(0));
    OK(cu.cuDevicePrimaryCtxRetain(&other, 0));
    OK(cu.cuMemAlloc_v2(&memory, 100));
}
END_TEST

/* ---- streams and events */

START_TEST(streams_are_asynchronous)
{
    CUstream one, two;
    CUmodule module;
    double start;

    driver_start();
    module = module_load();
    OK(cu.cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cu.cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    start = seconds();
    OK(launch_sleep(module, one, 100));
    OK(launch_sleep(module, two, 100));
    FAILS(cu.cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    ck_assert(seconds() - start < 0.08);
    OK(cu.cuStreamSynchronize(one));
    OK(cu.cuStreamSynchronize(two));
    ck_assert(seconds() - start >= 0.1);
    ck_assert(seconds() - start < 0.19); /* beside each other */
    OK(cu.cuStreamQuery(one));
}
END_TEST

START_TEST(null_stream_waits_for_blocking_streams)
{
    CUstream blocking, free_running;
    CUdeviceptr word;
    uint32_t by = 1;
    CUmodule module;

    driver_start();
    module = module_load();
    OK(cu.cuMemAlloc_v2(&word, 4));
    OK(cu.cuStreamCreate(&blocking, 0));
    OK(cu.cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
    OK(launch_sleep(module, free_running, 150));
    OK(launch_sleep(module, blocking, 50));
    OK(launch(function_get(module, "increment"), NULL, (void *[]){&word, &by}));
    FAILS(cu.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cu.cuStreamSynchronize(NULL));
    OK(cu.cuStreamQuery(blocking));
    FAILS(cu.cuStreamQuery(free_running), CUDA_ERROR_NOT_READY);
    /* And they for it. */
    OK(launch_sleep(module, NULL, 50));
    OK(launch(function_get(module, "increment"), blocking, (void *[]){&word, &by}));
    FAILS(cu.cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    OK(cu.cuStreamSynchronize(blocking));
    OK(cu.cuStreamQuery(NULL));
}
END_TEST

static struct {
    pid_t tid;
    CUresult inside;
    int calls;
} callback;

static void on_host(void *argument)
{
    struct timespec pause_ = {0, 30000000};

    callback.tid = gettid();
    callback.inside = cu.cuCtxSynchronize();
    nanosleep(&pause_, NULL);
    ++*(int *)argument;
}

START_TEST(host_functions_run_in_the_order_of_the_stream)
{
    CUstream stream;
    uint32_t *flag, value = 1;
    CUmodule module;

    driver_start();
    module = module_load();
    OK(cu.cuStreamCreate(&stream, 0));
    OK(cu.cuMemHostAlloc((void **)&flag, 4, 0));
    *flag = 0;
    OK(launch(function_get(module, "spin_until"), stream, (void *[]){&flag, &value}));
    OK(cu.cuLaunchHostFunc(stream, on_host, &callback.calls));
    usleep(10000);
    ck_assert_int_eq(callback.calls, 0);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    OK(cu.cuStreamSynchronize(stream));
    ck_assert_int_eq(callback.calls, 1);
    ck_assert_int_ne(callback.tid, gettid());
    ck_assert_int_eq(callback.inside, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

START_TEST(per_thread_stream)
{
    CUmodule module;
    CUstream stream = CU_STREAM_PER_THREAD;
    unsigned long long legacy, own;

    driver_start();
    module = module_load();
    OK(cu.cuStreamGetId(NULL, &legacy));
    OK(cu.cuStreamGetId_ptsz(NULL, &own));
    ck_assert_uint_ne(legacy, own);
    OK(launch_sleep(module, stream, 50));
    FAILS(cu.cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
    OK(cu.cuStreamSynchronize_ptsz(NULL));
    OK(cu.cuStreamQuery(stream));
}
END_TEST

START_TEST(stream_settings)
{
    CUstreamAttrValue value = {.syncPolicy = CU_SYNC_POLICY_YIELD}, read_back;
    unsigned long long first, second;
    int least, greatest, priority;
    unsigned int flags;
    CUstream stream, other;
    CUcontext context = driver_start(), owner;

    OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    ck_assert_int_eq(least, 0);
    ck_assert_int_eq(greatest, -5);
    OK(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -9));
    OK(cu.cuStreamGetPriority(stream, &priority));
    ck_assert_int_eq(priority, -5);
    OK(cu.cuStreamGetFlags(stream, &flags));
    ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
    OK(cu.cuStreamGetCtx(stream, &owner));
    ck_assert_ptr_eq(owner, context);
    OK(cu.cuStreamCreate(&other, 0));
    OK(cu.cuStreamGetId(stream, &first));
    OK(cu.cuStreamGetId(other, &second));
    ck_assert_uint_eq(second, first + 1);
    OK(cu.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cu.cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &read_back));
    ck_assert_int_eq(read_back.syncPolicy, CU_SYNC_POLICY_YIELD);
    OK(cu.cuStreamDestroy_v2(stream));
    FAILS(cu.cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(events)
{
    CUevent start, end, untimed;
    CUstream stream, other;
    CUmodule module;
    float ms = -1;

    driver_start();
    module = module_load();
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cu.cuEventCreate(&start, 0));
    OK(cu.cuEventCreate(&end, 0));
    OK(cu.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cu.cuEventQuery(start));
    FAILS(cu.cuEventElapsedTime(&ms, start, start), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuEventRecord(start, stream));
    OK(launch_sleep(module, stream, 50));
    OK(cu.cuEventRecord(end, stream));
    OK(cu.cuStreamWaitEvent(other, end, 0));
    OK(cu.cuEventRecord(untimed, other));
    FAILS(cu.cuEventQuery(end), CUDA_ERROR_NOT_READY);
    FAILS(cu.cuEventQuery(untimed), CUDA_ERROR_NOT_READY);
    FAILS(cu.cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    OK(cu.cuEventSynchronize(untimed));
    OK(cu.cuEventElapsedTime_v2(&ms, start, end));
    ck_assert(ms >= 50 && ms < 500);
    OK(cu.cuEventElapsedTime(&ms, start, start));
    ck_assert(ms == 0);
    FAILS(cu.cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuEventDestroy_v2(start));
    FAILS(cu.cuEventRecord(start, stream), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(stream_memory_operations)
{
    CUstream stream;
    uint32_t *flag;
    CUdeviceptr word;

    driver_start();
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemHostAlloc((void **)&flag, 4, 0));
    *flag = 0;
    OK(cu.cuMemAlloc_v2(&word, 4));
    OK(cu.cuMemsetD32_v2(word, 0, 1));
    OK(cu.cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)flag, 3, 0));
    OK(cu.cuStreamWriteValue32_v2(stream, word, 77, 0));
    usleep(5000);
    FAILS(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 5, __ATOMIC_RELEASE);
    OK(cu.cuStreamSynchronize(stream));
    ck_assert_uint_eq(word_at(word), 77);
}
END_TEST

START_TEST(small_pageable_sources_are_read_at_once)
{
    CUstream stream;
    uint32_t *flag, value = 1, source = 11;
    CUdeviceptr word;
    CUmodule module;

    driver_start();
    module = module_load();
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemHostAlloc((void **)&flag, 4, 0));
    *flag = 0;
    OK(cu.cuMemAlloc_v2(&word, 4));
    OK(launch(function_get(module, "spin_until"), stream, (void *[]){&flag, &value}));
    OK(cu.cuMemcpyHtoDAsync_v2(word, &source, 4, stream));
    source = 12;
    FAILS(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    OK(cu.cuStreamSynchronize(stream));
    ck_assert_uint_eq(word_at(word), 11);
}
END_TEST

/* ---- capture and graphs */

START_TEST(capture_forbids_allocations)
{
    CUstreamCaptureStatus status;
    CUdeviceptr memory;
    CUstream stream;
    CUgraph graph;

    driver_start();
    OK(cu.cuStreamCreate(&stream, 0));
    OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cu.cuStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    FAILS(cu.cuMemAlloc_v2(&memory, 100), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cu.cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuMemAlloc_v2(&memory, 100));
    FAILS(cu.cuMemsetD8Async(memory, 0, 100, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    FAILS(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamSynchronize(stream));
}
END_TEST

START_TEST(captured_graph_runs)
{
    CUstream stream, side;
    CUgraphNode nodes[8];
    CUdeviceptr counter, memory;
    CUgraphExec exec;
    CUevent fork_, join;
    CUmodule module;
    CUgraph graph;
    size_t count = 8, edges = 0;

    driver_start();
    module = module_load();
    OK(cu.cuModuleGetGlobal_v2(&counter, NULL, module, "g_counter"));
    OK(cu.cuMemAlloc_v2(&memory, 4));
    OK(cu.cuMemsetD32_v2(memory, 0, 1));
    OK(cu.cuStreamCreate(&stream, 0));
    OK(cu.cuStreamCreate(&side, 0));
    OK(cu.cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING));
    OK(cu.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(function_get(module, "bump"), stream, NULL));
    OK(cu.cuEventRecord(fork_, stream));
    OK(cu.cuStreamWaitEvent(side, fork_, 0));
    OK(cu.cuMemsetD32Async(memory, 5, 1, side));
    OK(cu.cuEventRecord(join, side));
    OK(launch(function_get(module, "bump"), stream, NULL));
    OK(cu.cuStreamWaitEvent(stream, join, 0));
    OK(launch(function_get(module, "bump"), stream, NULL));
    OK(cu.cuStreamEndCapture(stream, &graph));
    OK(cu.cuGraphGetNodes(graph, nodes, &count));
    ck_assert_uint_eq(count, 4);
    OK(cu.cuGraphGetEdges(graph, NULL, NULL, &edges));
    ck_assert_uint_eq(edges, 4);
    ck_assert_uint_eq(word_at(counter), KERNELS_GLOBAL_INITIAL);
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cu.cuGraphDestroy(graph));
    OK(cu.cuGraphLaunch(exec, stream));
    OK(cu.cuGraphLaunch(exec, stream));
    OK(cu.cuStreamSynchronize(stream));
    ck_assert_uint_eq(word_at(counter), KERNELS_GLOBAL_INITIAL + 6);
    ck_assert_uint_eq(word_at(memory), 5);
    OK(cu.cuGraphExecDestroy(exec));
}
END_TEST

START_TEST(graph_made_by_hand)
{
    CUDA_KERNEL_NODE_PARAMS params = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CUDA_KERNEL_NODE_PARAMS got;
    CUdeviceptr word;
    uint32_t by = 3;
    CUgraphNode first, second;
    CUgraphExec exec;
    CUgraph graph;

    driver_start();
    OK(cu.cuMemAlloc_v2(&word, 4));
    OK(cu.cuMemsetD32_v2(word, 0, 1));
    params.func = function_get(module_load(), "increment");
    params.kernelParams = (void *[]){&word, &by};
    OK(cu.cuGraphCreate(&graph, 0));
    OK(cu.cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &params));
    OK(cu.cuGraphAddEmptyNode(&second, graph, &first, 1));
    ck_assert_ptr_ne(first, second);
    OK(cu.cuGraphKernelNodeGetParams_v2(first, &got));
    ck_assert_ptr_eq(got.func, params.func);
    ck_assert_uint_eq(*(uint32_t *)got.kernelParams[1], 3);
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cu.cuGraphLaunch(exec, NULL));
    by = 10;
    OK(cu.cuGraphExecKernelNodeSetParams_v2(exec, first, &params));
    OK(cu.cuGraphLaunch(exec, NULL));
    ck_assert_uint_eq(word_at(word), 13);
}
END_TEST

/* ---- pools, textures, more devices */

START_TEST(pools)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool, standard;
    CUdeviceptr memory;
    cuuint64_t used;
    CUstream stream;

    driver_start();
    OK(cu.cuStreamCreate(&stream, 0));
    OK(cu.cuDeviceGetDefaultMemPool(&standard, 0));
    OK(cu.cuMemPoolCreate(&pool, &props));
    ck_assert_uint_eq((uintptr_t)pool % 16, 224 % 16);
    OK(cu.cuMemAllocFromPoolAsync(&memory, 1000, pool, stream));
    OK(cu.cuMemPoolGetAttribute(pool, 7, &used));
    ck_assert_uint_eq(used, 1000);
    OK(cu.cuMemsetD8Async(memory, 1, 1000, stream));
    OK(cu.cuMemFreeAsync(memory, stream));
    OK(cu.cuStreamSynchronize(stream));
    OK(cu.cuMemPoolGetAttribute(pool, 7, &used));
    ck_assert_uint_eq(used, 0);
    for (int i = 0; i < 1000; i++) {
        OK(cu.cuMemAllocAsync(&memory, 5000, stream));
        OK(cu.cuMemFreeAsync(memory, stream));
    }
    OK(cu.cuStreamSynchronize(stream));
    OK(cu.cuMemPoolGetAttribute(standard, 7, &used));
    ck_assert_uint_eq(used, 0);
    OK(cu.cuMemPoolDestroy(pool));
    FAILS(cu.cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(texture_objects_are_small_numbers)
{
    char resource[144] = {0}, texture[104] = {0};
    CUtexObject first, second, third;

    driver_start();
    OK(cu.cuTexObjectCreate(&first, (void *)resource, (void *)texture, NULL));
    OK(cu.cuTexObjectCreate(&second, (void *)resource, (void *)texture, NULL));
    ck_assert_uint_eq(second, first + 1);
    OK(cu.cuTexObjectDestroy(first));
    OK(cu.cuTexObjectCreate(&third, (void *)resource, (void *)texture, NULL));
    ck_assert_uint_eq(third, first);
}
END_TEST

START_TEST(two_devices)
{
    CUcontext zero, one;
    CUdeviceptr here, there;
    int count;

    setenv("FAKE_GPU_COUNT", "2", 1);
    zero = driver_start();
    OK(cu.cuDeviceGetCount(&count));
    ck_assert_int_eq(count, 2);
    OK(cu.cuMemAlloc_v2(&here, 4));
    OK(cu.cuMemsetD32_v2(here, 31, 1));
    OK(cu.cuDevicePrimaryCtxRetain(&one, 1));
    OK(cu.cuCtxSetCurrent(one));
    OK(cu.cuMemAlloc_v2(&there, 4));
    OK(cu.cuMemcpyPeer(there, one, here, zero, 4));
    ck_assert_uint_eq(word_at(there), 31);
    OK(cu.cuCtxEnablePeerAccess(zero, 0));
    FAILS(cu.cuCtxEnablePeerAccess(zero, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}
END_TEST

/* ---- finding functions */

START_TEST(proc_address)
{
    CUdriverProcAddressQueryResult status;
    void *function;

    driver_open(driver_path());
    OK(cu.cuGetProcAddress_v2("cuMemAlloc", &function, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    ck_assert_ptr_eq(function, (void *)cu.cuMemAlloc_v2);
    OK(cu.cuGetProcAddress_v2("cuMemAlloc", &function, 3000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    ck_assert_ptr_eq(function, (void *)cu.cuMemAlloc);
    OK(cu.cuGetProcAddress_v2("cuMemcpyHtoD", &function, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                              &status));
    ck_assert_ptr_eq(function, (void *)cu.cuMemcpyHtoD_v2_ptds);
    OK(cu.cuGetProcAddress_v2("cuMemcpyHtoD", &function, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
    ck_assert_ptr_eq(function, (void *)cu.cuMemcpyHtoD_v2);
    OK(cu.cuGetProcAddress_v2("cuGetProcAddress", &function, 11030, 0, &status));
    ck_assert_ptr_eq(function, (void *)cu.cuGetProcAddress);
    cu.cuGetProcAddress_v2("cuLibraryLoadData", &function, 11080, 0, &status);
    ck_assert_ptr_null(function);
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    cu.cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status);
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    FAILS(cu.cuGetProcAddress("cuNothing", &function, 13000, 0), CUDA_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(old_driver_lacks_the_new)
{
    char path[256];
    const char *normal = driver_path();
    const char *name = strrchr(normal, '/');
    int version;

    ck_assert_ptr_nonnull(name);
    snprintf(path, sizeof(path), "%.*s-old%s", (int)(name - normal), normal, name);
    driver_open(path);
    OK(cu.cuDriverGetVersion(&version));
    ck_assert_int_eq(version, 11020);
    ck_assert(!cu.cuGetProcAddress_v2 && !cu.cuLibraryLoadData && !cu.cuKernelGetFunction && !cu.cuFuncLoad);
    ck_assert(!cu.cuMemPoolCreate && !cu.cuCheckpointProcessLock);
    ck_assert(cu.cuMemAlloc_v2 && cu.cuGetProcAddress && cu.cuMemCreate);
    OK(cu.cuInit(0));
}
END_TEST

static int destroyed;

static void on_destroy(CUcontext context, void *key, void *value)
{
    destroyed += *(int *)value;
}

START_TEST(private_tables)
{
    static const CUuuid storage_id = {"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93"};
    static const CUuuid runtime_id = {"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"};
    static const CUuuid integrity_id = {"\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2"};
    const struct {
        CUresult (*put)(CUcontext, void *, void *, void (*)(CUcontext, void *, void *));
        CUresult (*remove)(CUcontext, void *);
        CUresult (*get)(void **, CUcontext, void *);
    } * storage;
    const struct {
        size_t size;
        void *unused;
        CUresult (*primary)(CUcontext *, CUdevice);
    } * runtime;
    const struct {
        size_t size;
        int (*check)(void);
        int (*is_original)(const void *);
    } * integrity;
    CUcontext context, made;
    int key, value = 5;
    void *got = NULL;

    driver_open(driver_path());
    OK(cu.cuGetExportTable((const void **)&integrity, &integrity_id));
    ck_assert_uint_eq(integrity->size, 24);
    ck_assert_int_eq(integrity->check(), 0);
    OK(cu.cuInit(0));
    OK(cu.cuGetExportTable((const void **)&runtime, &runtime_id));
    ck_assert_uint_eq(runtime->size, 104);
    ck_assert_int_eq(integrity->is_original(runtime), 0);
    ck_assert_int_ne(integrity->is_original(&runtime), 0);
    OK(runtime->primary(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuGetExportTable((const void **)&storage, &storage_id));
    OK(cu.cuCtxCreate_v2(&made, 0, 0));
    OK(storage->put(NULL, &key, &value, on_destroy));
    OK(storage->get(&got, made, &key));
    ck_assert_ptr_eq(got, &value);
    ck_assert_int_ne(storage->get(&got, context, &key), CUDA_SUCCESS);
    OK(storage->put(context, &key, &key, NULL));
    OK(storage->remove(context, &key));
    ck_assert_int_ne(storage->put((CUcontext)-1, &key, &value, NULL), CUDA_SUCCESS);
    OK(cu.cuCtxDestroy_v2(made));
    ck_assert_int_eq(destroyed, 5);
}
END_TEST

/* ---- faults */

START_TEST(nth_call_fails)
{
    CUstream stream;
    CUdeviceptr memory;

    setenv("FAKE_GPU_FAIL", "cuStreamCreate:2=2,cuMemAlloc_v2:1=999,cuMemFree:1=1@restart", 1);
    driver_start();
    OK(cu.cuStreamCreate(&stream, 0));
    FAILS(cu.cuStreamCreate(&stream, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cu.cuStreamCreate(&stream, 0));
    FAILS(cu.cuMemAlloc_v2(&memory, 8), CUDA_ERROR_UNKNOWN);
    OK(cu.cuMemAlloc_v2(&memory, 8));
    OK(cu.cuMemFree_v2(memory)); /* that one is for restarts */
}
END_TEST

START_TEST(init_fails_and_can_be_tried_again)
{
    double start;

    setenv("FAKE_GPU_FAIL", "cuInit:1=999", 1);
    setenv("FAKE_GPU_SLOW", "cuInit=50", 1);
    driver_open(driver_path());
    start = seconds();
    FAILS(cu.cuInit(0), CUDA_ERROR_UNKNOWN);
    ck_assert(seconds() - start >= 0.05);
    OK(cu.cuInit(0));
}
END_TEST

/* How far one stream's handle lies from the next, in units of 64 bytes. */
static int stream_distance(void)
{
    CUstream streams[3];
    uintptr_t distance;

    driver_start();
    for (int i = 0; i < 3; i++)
        OK(cu.cuStreamCreate(&streams[i], 0));
    distance = ((uintptr_t)streams[2] - (uintptr_t)streams[1]) / 64;
    return distance < 250 ? (int)distance : 250;
}

/* A new heap hands out one after the other; a moved handle leaves room for one more. */
START_TEST(handles_can_be_moved)
{
    int plain = in_child(stream_distance), moved;

    setenv("FAKE_GPU_MOVE", "cuStreamCreate", 1);
    moved = in_child(stream_distance);
    ck_assert_int_gt(plain, 0);
    ck_assert_int_gt(moved, plain);
    /* Only from the second start on. */
    setenv("FAKE_GPU_MOVE", "cuStreamCreate@restart", 1);
    ck_assert_int_eq(in_child(stream_distance), plain);
}
END_TEST

/* ---- running */

static void environment_clean(void)
{
    unsetenv("FAKE_GPU_COUNT");
    unsetenv("FAKE_GPU_FAIL");
    unsetenv("FAKE_GPU_MOVE");
    unsetenv("FAKE_GPU_SLOW");
    unsetenv("FAKE_GPU_DRIVER_VERSION");
    setenv("FAKE_GPU_MEMORY_MIB", "256", 1);
    setenv("FAKE_GPU_DIR", directory, 1);
}

static void directory_remove(void)
{
    DIR *files = opendir(directory);
    struct dirent *entry;

    while (files && (entry = readdir(files)))
        unlinkat(dirfd(files), entry->d_name, 0);
    if (files)
        closedir(files);
    rmdir(directory);
}

#define ADD(...)                                                                                             \
    do {                                                                                                     \
        const TTest *const tests_[] = {__VA_ARGS__};                                                         \
        for (size_t i_ = 0; i_ < sizeof(tests_) / sizeof(*tests_); i_++)                                     \
            tcase_add_test(tests, tests_[i_]);                                                               \
    } while (0)

int main(void)
{
    Suite *suite = suite_create("fake driver");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int failed;

    snprintf(directory, sizeof(directory), "/tmp/check-fake-XXXXXX");
    if (!mkdtemp(directory))
        return 1;
    environment_clean();
    tcase_set_timeout(tests, 20);
    ADD(every_row_is_exported, what_is_not_implemented_says_so, nothing_works_before_init,
        init_takes_what_the_real_one_takes, closing_does_not_unload, second_instance_cannot_start,
        forked_child_has_no_driver);
    ADD(primary_context_keeps_its_place, context_stack, context_destroys_what_is_in_it, context_limits);
    ADD(small_allocations_lie_512_apart, pitched_allocation_and_2d_copy, memory_sets,
        memory_is_seen_from_outside, device_is_shared, closed_descriptors_hold_nothing, pointer_attributes,
        host_memory_is_registered_once, virtual_memory, memory_without_access_faults,
        copy_of_unmapped_memory_faults);
    ADD(module_variables, variables_take_the_first_free_place, code_is_loaded_at_first_launch,
        ptx_is_understood, fat_binary_with_ptx, library_kernels, shared_memory_above_48_KiB_must_be_allowed,
        function_pointers_belong_to_their_module, parameters_in_a_buffer, illegal_address_is_sticky);
    ADD(streams_are_asynchronous, null_stream_waits_for_blocking_streams,
        host_functions_run_in_the_order_of_the_stream, per_thread_stream, stream_settings, events,
        stream_memory_operations, small_pageable_sources_are_read_at_once);
    ADD(capture_forbids_allocations, captured_graph_runs, graph_made_by_hand);
    ADD(pools, texture_objects_are_small_numbers, two_devices);
    ADD(proc_address, old_driver_lacks_the_new, private_tables);
    ADD(nth_call_fails, init_fails_and_can_be_tried_again, handles_can_be_moved);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    directory_remove();
    return failed != 0;
}
