/* A module from a file that is deleted right after the load. */

#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CUmodule module;
static CUfunction bump;
static CUdeviceptr global;
static uint32_t count;

static void load_from_file(void)
{
    const char *directory = getenv("TMPDIR");
    char path[512];
    int fd;

    snprintf(path, sizeof path, "%s/module_file.XXXXXX", directory && *directory ? directory : "/tmp");
    fd = mkstemp(path);
    if (fd < 0 || write(fd, kernels_ptx, sizeof kernels_ptx - 1) != sizeof kernels_ptx - 1)
        FAIL("%s: %s", path, strerror(errno));
    close(fd);
    CHECK(cuModuleLoad(&module, path));
    unlink(path);
    bump = kernel_get(module, "bump");
    global = global_get(module, "g_counter", sizeof(uint32_t));
}

static void check_all(void)
{
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
    EXPECT(kernel_get(module, "bump") == bump);
}

int main(int argc, char **argv)
{
    CUmodule none;

    program_start(argc, argv);
    device_start();
    CHECK_GIVES(cuModuleLoad(&none, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
    load_from_file();
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(bump, NULL);
        CHECK(cuCtxSynchronize());
        count++;
        check_all();
    }
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
