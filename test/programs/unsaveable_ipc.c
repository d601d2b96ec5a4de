/* An event that another process may hold: the suspend is refused before anything is torn down, and says why.
 */
// expect: suspend-exit=6 message=cuIpcGetEventHandle

#include "device.h"

static struct kernels kernels;
static CUevent event;
static CUdeviceptr global;
static uint32_t count;

static void check_all(void)
{
    CHECK(cuEventQuery(event));
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
}

int main(int argc, char **argv)
{
    CUipcEventHandle handle;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    global = global_get(kernels.module, "g_counter", 4);
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuIpcGetEventHandle(&handle, event));
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(kernels.bump, NULL);
        CHECK(cuEventRecord(event, NULL));
        CHECK(cuEventSynchronize(event));
        count++;
        check_all();
    }
    CHECK(cuEventDestroy_v2(event));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
