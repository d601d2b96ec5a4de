/*
 * Takes a process off the GPU and puts it back by the driver's own functions: bench_peer PID ROUNDS
 * prints "SUSPEND RESUME" in seconds for each round. Exit status 77 and a sentence where the driver has no such
 * functions. The process must not have the preload.
 */
#include "bench.h"

#include <unistd.h>

static void no_functions(const char *why)
{
    printf("this driver has no checkpoint functions: %s\n", why);
    exit(77);
}

int main(int argc, char **argv)
{
    int pid, rounds, version;

    if (argc != 3) {
        fprintf(stderr, "usage: bench_peer PID ROUNDS\n");
        return 2;
    }
    pid = atoi(argv[1]);
    rounds = atoi(argv[2]);
    MUST(cuInit(0));
    MUST(cuDriverGetVersion(&version));
    if (version < 12080)
        no_functions("it is older than CUDA 12.8");
    for (int i = 0; i < rounds; i++) {
        uint64_t begin = clock_ns(CLOCK_MONOTONIC), off, back;
        CUresult result = cuCheckpointProcessLock(pid, NULL);

        if (result == CUDA_ERROR_NOT_SUPPORTED)
            no_functions("cuCheckpointProcessLock is not supported");
        MUST(result);
        MUST(cuCheckpointProcessCheckpoint(pid, NULL));
        off = clock_ns(CLOCK_MONOTONIC);
        usleep(100000);
        back = clock_ns(CLOCK_MONOTONIC);
        MUST(cuCheckpointProcessRestore(pid, NULL));
        MUST(cuCheckpointProcessUnlock(pid, NULL));
        printf("%.4f %.4f\n", (double)(off - begin) / 1e9, (double)(clock_ns(CLOCK_MONOTONIC) - back) / 1e9);
        fflush(stdout);
    }
    return 0;
}
