/*
 * A program that holds something while it is suspended and resumed:
 *   bench_holder memory MIB | events N | streams N
 * Says "READY N" when it holds N of them, which may be fewer than asked for where the driver has no more; "PASS" for
 * each line on its standard input, after it has checked them all. Ends at the end of the input.
 */
#include "bench.h"

#include <string.h>

#define BLOCK_WORDS (UINT64_C(64) << 20) /* 256 MiB */
#define WORDS_MIB   (UINT64_C(1) << 18)

static CUfunction fill, check;
static CUdeviceptr bad;
static void **held; /* events, streams, or addresses of blocks */
static uint64_t held_count, words;

static uint64_t block_words(uint64_t block)
{
    uint64_t left = words - block * BLOCK_WORDS;

    return left < BLOCK_WORDS ? left : BLOCK_WORDS;
}

static void launch(CUfunction function, uint64_t block)
{
    CUdeviceptr address = (CUdeviceptr)held[block];
    uint64_t count = block_words(block);
    uint32_t seed = (uint32_t)block;
    void *arguments[] = {&address, &count, &seed, &bad};

    MUST(cuLaunchKernel(function, 1024, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
}

static void hold_memory(uint64_t mib)
{
    words = mib * WORDS_MIB;
    held_count = (words + BLOCK_WORDS - 1) / BLOCK_WORDS;
    held = calloc(held_count, sizeof(*held));
    for (uint64_t i = 0; i < held_count; i++) {
        MUST(cuMemAlloc_v2((CUdeviceptr *)&held[i], block_words(i) * 4));
        launch(fill, i);
    }
    MUST(cuCtxSynchronize());
}

static void check_memory(void)
{
    uint64_t differ;

    for (uint64_t i = 0; i < held_count; i++)
        launch(check, i);
    MUST(cuMemcpyDtoH_v2(&differ, bad, sizeof(differ)));
    if (differ) {
        fprintf(stderr, "bench_holder: %llu words differ\n", (unsigned long long)differ);
        exit(1);
    }
}

static void hold_events(uint64_t count)
{
    held = calloc(count, sizeof(*held));
    while (held_count < count && cuEventCreate((CUevent *)&held[held_count], CU_EVENT_DEFAULT) == CUDA_SUCCESS)
        MUST(cuEventRecord(held[held_count++], NULL));
}

static void check_events(void)
{
    for (uint64_t i = 0; i < held_count; i++)
        MUST(cuEventSynchronize(held[i]));
}

static void hold_streams(uint64_t count)
{
    held = calloc(count, sizeof(*held));
    while (held_count < count &&
           cuStreamCreate((CUstream *)&held[held_count], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        held_count++;
}

static void check_streams(void)
{
    for (uint64_t i = 0; i < held_count; i++)
        MUST(cuStreamSynchronize(held[i]));
}

static const struct kind {
    const char *name;
    void (*hold)(uint64_t count);
    void (*check)(void);
} kinds[] = {
    {"memory", hold_memory, check_memory},
    {"events", hold_events, check_events},
    {"streams", hold_streams, check_streams},
};

int main(int argc, char **argv)
{
    const struct kind *kind = NULL;
    char line[16];
    CUcontext context;
    CUmodule module;

    for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!strcmp(argv[1], kinds[i].name))
            kind = &kinds[i];
    if (!kind) {
        fprintf(stderr, "usage: bench_holder memory MIB | events N | streams N\n");
        return 2;
    }
    module = bench_start(&context);
    MUST(cuModuleGetFunction(&fill, module, "fill"));
    MUST(cuModuleGetFunction(&check, module, "check"));
    MUST(cuMemAlloc_v2(&bad, sizeof(uint64_t)));
    MUST(cuMemsetD32_v2(bad, 0, 2));
    kind->hold(strtoull(argv[2], NULL, 10));
    printf("READY %llu\n", (unsigned long long)(words ? words / WORDS_MIB : held_count));
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        kind->check();
        printf("PASS\n");
        fflush(stdout);
    }
    return 0;
}
