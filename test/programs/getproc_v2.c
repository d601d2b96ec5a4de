/* Every driver function by cuGetProcAddress as of CUDA 12, for both default streams, and old versions. */

#include "found.h"

#include <dlfcn.h>

static struct found legacy, per_thread; /* the same functions for both meanings of the default stream */
static struct found_state state;
static __typeof__(cuGetProcAddress_v2) *get_proc_address;

static void *find(const char *base, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult query = -1;
    void *function = NULL;

    program_expect_result(__FILE__, __LINE__, base, get_proc_address(base, &function, version, flags, &query),
                          CUDA_SUCCESS);
    EXPECT_EQ(query, CU_GET_PROC_ADDRESS_SUCCESS);
    if (!function)
        FAIL("%s: no address", base);
    return function;
}

static void find_all(struct found *f, cuuint64_t flags)
{
#define FIND(base, symbol, version)                                                                          \
    f->base = (__typeof__(f->base))find(#base, version > 7000 ? version : 7000, flags);
    FOUND_FUNCTIONS(FIND)
#undef FIND
}

static void check_misses(void)
{
    CUdriverProcAddressQueryResult query = -1;
    void *none = &query;

    get_proc_address("cuNoSuchFunction", &none, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &query);
    EXPECT_EQ(query, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(none == NULL);
    none = &query;
    get_proc_address("cuLibraryLoadData", &none, 11000, CU_GET_PROC_ADDRESS_DEFAULT, &query);
    EXPECT_EQ(query, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT(none == NULL);
}

static void check_versions(void)
{
    /* cuMemAlloc has an ABI of before CUDA 3.2 and one of since then. */
    EXPECT(find("cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_DEFAULT) == (void *)legacy.cuMemAlloc);
    EXPECT(find("cuMemAlloc", 3000, CU_GET_PROC_ADDRESS_DEFAULT) != (void *)legacy.cuMemAlloc);
    /* The two meanings of the default stream are different functions where there is one, and only there. */
    EXPECT(per_thread.cuLaunchKernel != legacy.cuLaunchKernel);
    EXPECT(per_thread.cuMemcpyDtoH != legacy.cuMemcpyDtoH);
    EXPECT(per_thread.cuMemAlloc == legacy.cuMemAlloc);
    EXPECT(find("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM) == (void *)legacy.cuLaunchKernel);
    /* It finds itself, and what that finds is the same. */
    EXPECT(find("cuGetProcAddress", 12000, CU_GET_PROC_ADDRESS_DEFAULT) == (void *)get_proc_address);
}

static void check_all(void)
{
    check_misses();
    check_versions();
    found_check(&legacy, &state);
    found_check(&per_thread, &state);
}

int main(int argc, char **argv)
{
    CUstream stream;
    void *library;

    program_start(argc, argv);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        FAIL("%s", dlerror());
    get_proc_address = (__typeof__(get_proc_address))dlsym(library, "cuGetProcAddress_v2");
    if (!get_proc_address)
        program_skip("the driver is older than CUDA 12");
    find_all(&legacy, CU_GET_PROC_ADDRESS_DEFAULT);
    find_all(&per_thread, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    found_set_up(&per_thread, &state);
    program_ready(check_all);
    stream = state.stream;
    while (program_running()) {
        state.stream = NULL; /* this thread's default stream */
        found_round(&per_thread, &state);
        found_check(&per_thread, &state);
        state.stream = stream;
        found_round(&legacy, &state);
        found_check(&legacy, &state);
    }
    found_tear_down(&legacy, &state);
    return program_end();
}
