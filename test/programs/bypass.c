/* The driver called behind the library's back, found by dlmopen and libc's own dlsym: noticed, the suspend is refused. */
// expect: suspend-exit=6 message=without

#include "device.h"

#include <dlfcn.h>

static struct kernels kernels;
static CUdeviceptr global;
static CUstream unseen;
static uint32_t count;

/* What libc has, not what is preloaded before it. */
static void *libc_dlsym(void *handle, const char *symbol)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(libc, "dlsym", "GLIBC_2.34");

    if (!real)
        FAIL("libc has no dlsym: %s", dlerror());
    return real(handle, symbol);
}

static void check_all(void)
{
    CHECK(cuStreamQuery(unseen));
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
}

int main(int argc, char **argv)
{
    CUresult (*create)(CUstream * stream, unsigned flags);
    void *driver;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    global = global_get(kernels.module, "g_counter", 4);
    driver = dlmopen(LM_ID_BASE, "libcuda.so.1", RTLD_NOW);
    if (!driver)
        FAIL("dlmopen: %s", dlerror());
    create = (CUresult(*)(CUstream *, unsigned))libc_dlsym(driver, "cuStreamCreate");
    if (!create)
        FAIL("dlsym: %s", dlerror());
    CHECK(create(&unseen, CU_STREAM_NON_BLOCKING));
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(kernels.bump, unseen);
        CHECK(cuStreamSynchronize(unseen));
        count++;
        check_all();
    }
    CHECK(cuStreamDestroy_v2(unseen));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
