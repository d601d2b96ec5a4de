/* Children by fork and exec: the preload starts afresh in them. */

#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;
static struct kernels kernels;
static CUdeviceptr global;
static uint32_t count;
static pid_t sleeper;
static int to_sleeper;

static int compute_main(void)
{
    CUdeviceptr word;
    uint32_t one = 1;

    device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&word, 4));
    word_set(word, 41);
    LAUNCH(kernels.increment, 1, 1, NULL, &word, &one);
    CHECK(cuCtxSynchronize());
    return word_get(word) == 42 ? 0 : 1;
}

static int sleeper_main(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) == 1)
        ;
    return 0;
}

static pid_t start(const char *part, int input)
{
    pid_t child = fork();

    if (child < 0)
        FAIL("fork: %s", strerror(errno));
    if (!child) {
        dup2(input, STDIN_FILENO);
        execl(self, self, part, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void compute_in_child(void)
{
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC), status;
    pid_t child = start("compute", input);

    close(input);
    if (waitpid(child, &status, 0) != child || status)
        FAIL("the child ended with status 0x%x", status);
}

/* Runs right after a resume, so that no child is on the device when the runner looks. */
static void check_all(void)
{
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
    EXPECT_EQ(waitpid(sleeper, NULL, WNOHANG), 0);
    compute_in_child();
}

int main(int argc, char **argv)
{
    int pipe_ends[2];

    if (argc > 1)
        return strcmp(argv[1], "compute") ? sleeper_main() : compute_main();
    self = "/proc/self/exe";
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    global = global_get(kernels.module, "g_counter", 4);
    if (pipe2(pipe_ends, O_CLOEXEC))
        FAIL("pipe: %s", strerror(errno));
    sleeper = start("sleep", pipe_ends[0]);
    to_sleeper = pipe_ends[1];
    compute_in_child();
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(kernels.bump, NULL);
        CHECK(cuCtxSynchronize());
        count++;
        program_sleep_ms(1);
    }
    close(to_sleeper);
    waitpid(sleeper, NULL, 0);
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
