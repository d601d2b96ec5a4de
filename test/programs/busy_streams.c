/* Long kernels and queued copies are under way at each suspend; their results are complete afterwards. */

#include "device.h"

#include <string.h>

#define STREAMS 4
#define WORDS   (256 * 1024)

static struct kernels kernels;
static struct lane {
    CUstream stream;
    CUevent done;
    CUdeviceptr first, second;
    uint32_t *in, *out; /* pinned */
    uint32_t seed;
    bool queued;
} lanes[STREAMS];

/* Fills in; in -> first -> second -> out, with a pause between the steps. */
static void lane_queue(struct lane *lane)
{
    uint64_t ns = 2000000 + program_random() % 4000000, words = WORDS;

    lane->seed = program_random();
    for (uint32_t i = 0; i < WORDS; i += 64)
        lane->in[i] = KERNELS_FILL(i, lane->seed);
    memset(lane->out, 0, WORDS * 4);
    CHECK(cuMemcpyHtoDAsync_v2(lane->first, lane->in, WORDS * 4, lane->stream));
    LAUNCH(kernels.sleep_ns, 1, 1, lane->stream, &ns);
    LAUNCH(kernels.copy_words, 64, 256, lane->stream, &lane->second, &lane->first, &words);
    LAUNCH(kernels.sleep_ns, 1, 1, lane->stream, &ns);
    CHECK(cuMemcpyDtoHAsync_v2(lane->out, lane->second, WORDS * 4, lane->stream));
    CHECK(cuEventRecord(lane->done, lane->stream));
    lane->queued = true;
}

static void lane_wait(struct lane *lane)
{
    if (!lane->queued)
        return;
    CHECK(cuEventSynchronize(lane->done));
    for (uint32_t i = 0; i < WORDS; i += 64)
        if (lane->out[i] != KERNELS_FILL(i, lane->seed))
            FAIL("word %u did not get through", i);
    lane->queued = false;
}

static void check_all(void)
{
    for (int i = 0; i < STREAMS; i++)
        lane_wait(&lanes[i]);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    for (int i = 0; i < STREAMS; i++) {
        struct lane *lane = &lanes[i];

        CHECK(cuStreamCreate(&lane->stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        CHECK(cuEventCreate(&lane->done, CU_EVENT_DISABLE_TIMING));
        CHECK(cuMemAlloc_v2(&lane->first, WORDS * 4));
        CHECK(cuMemAlloc_v2(&lane->second, WORDS * 4));
        CHECK(cuMemHostAlloc((void **)&lane->in, WORDS * 4, 0));
        CHECK(cuMemAllocHost_v2((void **)&lane->out, WORDS * 4));
        memset(lane->in, 0, WORDS * 4);
    }
    program_ready(check_all);
    for (unsigned round = 0; program_running(); round++) {
        struct lane *lane = &lanes[round % STREAMS];

        lane_wait(lane);
        lane_queue(lane);
    }
    check_all();
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuMemFreeHost(lanes[i].in));
        CHECK(cuMemFreeHost(lanes[i].out));
        CHECK(cuMemFree_v2(lanes[i].first));
        CHECK(cuMemFree_v2(lanes[i].second));
        CHECK(cuEventDestroy_v2(lanes[i].done));
        CHECK(cuStreamDestroy_v2(lanes[i].stream));
    }
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
