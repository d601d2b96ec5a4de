/* The driver called behind the library's back, through a handle from dlmopen: noticed, and the suspend is refused. */
// expect: suspend-exit=6 message=without

#include "device.h"

#include <dlfcn.h>

static struct kernels kernels;
static CUdeviceptr global;
static CUstream unseen;
static uint32_t count;

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
    create = (CUresult(*)(CUstream *, unsigned))dlsym(driver, "cuStreamCreate");
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
