/* Every driver function by cuGetProcAddress as of CUDA 11.3. */

#include "found.h"

#include <dlfcn.h>

static struct found found;
static struct found_state state;
static __typeof__(cuGetProcAddress) *get_proc_address;

static void *find(const char *base, int version)
{
    void *function = NULL;

    program_expect_result(__FILE__, __LINE__, base,
                          get_proc_address(base, &function, version, CU_GET_PROC_ADDRESS_DEFAULT),
                          CUDA_SUCCESS);
    if (!function)
        FAIL("%s: no address", base);
    return function;
}

static void find_all(struct found *f)
{
#define FIND(base, symbol, version) f->base = (__typeof__(f->base))find(#base, version);
    FOUND_FUNCTIONS(FIND)
#undef FIND
}

static void check_all(void)
{
    struct found same;
    void *none = &same;
    CUresult result = get_proc_address("cuNoSuchFunction", &none, 12000, CU_GET_PROC_ADDRESS_DEFAULT);

    EXPECT(result != CUDA_SUCCESS || none == NULL);
    find_all(&same);
    EXPECT(same.cuMemAlloc == found.cuMemAlloc && same.cuLaunchKernel == found.cuLaunchKernel);
    /* A newer version asked for: the newest that there is. */
    EXPECT(find("cuMemAlloc", 12000) == (void *)found.cuMemAlloc);
    found_check(&found, &state);
}

int main(int argc, char **argv)
{
    void *library;

    program_start(argc, argv);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        FAIL("%s", dlerror());
    get_proc_address = (__typeof__(get_proc_address))dlsym(library, "cuGetProcAddress");
    EXPECT(get_proc_address != NULL);
    find_all(&found);
    found_set_up(&found, &state);
    program_ready(check_all);
    while (program_running()) {
        found_round(&found, &state);
        found_check(&found, &state);
    }
    found_tear_down(&found, &state);
    return program_end();
}
