/*
 * Children forked without exec after cuInit: one sleeps on and must not keep the device open; others are
 * forked all the time, also while suspended. CUDA is of no use to them, as without the preload.
 */

#include "device.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kernels kernels;
static CUdeviceptr words;
static pid_t sleeper;
static int to_sleeper, from_sleeper;

#define WORDS 1000

/* Each byte that comes in is answered with the number of device descriptors. */
_Noreturn static void sleep_and_count(int in, int out)
{
    int count;

    CHECK_GIVES(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_GIVES(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    for (char byte; read(in, &byte, 1) == 1;) {
        byte = (char)program_device_descriptors();
        if (write(out, &byte, 1) != 1)
            break;
    }
    _exit(0);
}

static void sleeper_start(void)
{
    int in[2], out[2];

    if (pipe(in) || pipe(out))
        FAIL("pipe: %s", strerror(errno));
    sleeper = fork();
    if (sleeper < 0)
        FAIL("fork: %s", strerror(errno));
    if (!sleeper) {
        close(in[1]);
        close(out[0]);
        sleep_and_count(in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    to_sleeper = in[1];
    from_sleeper = out[0];
}

static void sleeper_check(void)
{
    char byte = 0;

    if (write(to_sleeper, &byte, 1) != 1 || read(from_sleeper, &byte, 1) != 1)
        FAIL("the child is gone");
    if (program_is_preloaded())
        EXPECT_EQ(byte, 0);
}

/* Without CUDA in this thread; the fork must not wait for anything that the suspend holds. */
static void fork_now_and_then(uint64_t tick)
{
    int status;
    pid_t child;

    if (tick % 50)
        return;
    child = fork();
    if (child < 0)
        FAIL("fork: %s", strerror(errno));
    if (!child)
        _exit(program_is_preloaded() && program_device_descriptors() ? 1 : 0);
    if (waitpid(child, &status, 0) != child || status)
        FAIL("a forked child ended with status 0x%x", status);
}

static void check_all(void)
{
    words_check(&kernels, words, WORDS, 5, NULL);
    words_checked(&kernels, "memory of the parent");
    sleeper_check();
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&words, WORDS * 4));
    words_fill(&kernels, words, WORDS, 5, NULL);
    CHECK(cuCtxSynchronize());
    sleeper_start();
    program_on_tick(fork_now_and_then);
    program_ready(check_all);
    while (program_running()) {
        check_all();
        program_sleep_ms(1);
    }
    close(to_sleeper);
    waitpid(sleeper, NULL, 0);
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
