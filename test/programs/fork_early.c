/* Forked before anybody called CUDA: the child is a CUDA program of its own and is toggled. */

#include "device.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kernels kernels;
static CUdeviceptr global;
static uint32_t count;

static void check_all(void)
{
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
}

static int child_main(void)
{
    device_start();
    kernels_load(&kernels);
    global = global_get(kernels.module, "g_counter", 4);
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(kernels.bump, NULL);
        CHECK(cuCtxSynchronize());
        count++;
        check_all();
    }
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}

int main(int argc, char **argv)
{
    int version, status;
    pid_t child;

    program_start(argc, argv);
    CHECK(cuDriverGetVersion(&version)); /* loads the driver, but starts nothing */
    EXPECT(version >= 11000);
    child = fork();
    if (child < 0)
        FAIL("fork: %s", strerror(errno));
    if (!child)
        return child_main();
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
