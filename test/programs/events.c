/* Events: what was complete stays so; times between events from before, after and across a suspend. */

#include "device.h"

#define EVENTS     200
#define RESOLUTION 0.0005f /* ms: what the driver promises for elapsed times */

static struct kernels kernels;
static CUstream stream;
static CUevent never_recorded, no_timing, blocking;
static struct pair {
    CUevent begin, end;
    float elapsed; /* as measured when it was made */
    uint64_t recorded_ns;
} pairs[EVENTS];

static void pair_record(struct pair *pair)
{
    uint64_t ns = 10000 + program_random() % 100000;

    pair->recorded_ns = program_now_ns();
    CHECK(cuEventRecord(pair->begin, stream));
    LAUNCH(kernels.sleep_ns, 1, 1, stream, &ns);
    CHECK(cuEventRecord(pair->end, stream));
    CHECK(cuEventSynchronize(pair->end));
    CHECK(cuEventElapsedTime(&pair->elapsed, pair->begin, pair->end));
    if (pair->elapsed < (float)ns * 0.5e-6f || pair->elapsed > 10000.0f)
        FAIL("a sleep of %llu ns took %g ms", (unsigned long long)ns, pair->elapsed);
}

static void pair_check(const struct pair *pair)
{
    float elapsed = -1;

    CHECK(cuEventQuery(pair->begin));
    CHECK(cuEventQuery(pair->end));
    CHECK(cuEventSynchronize(pair->end));
    CHECK(cuEventElapsedTime(&elapsed, pair->begin, pair->end));
    if (elapsed < pair->elapsed - RESOLUTION || elapsed > pair->elapsed + RESOLUTION)
        FAIL("the elapsed time was %g ms and is %g ms now", pair->elapsed, elapsed);
}

/* From an event recorded some time ago, maybe before a suspend, to one recorded now. */
static void check_across(const struct pair *old)
{
    double wall = (double)(program_now_ns() - old->recorded_ns) * 1e-6;
    float elapsed = -1;
    CUevent now;

    CHECK(cuEventCreate(&now, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(now, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventElapsedTime(&elapsed, old->end, now));
    if (!(elapsed >= 0) || elapsed > wall + 1000)
        FAIL("%g ms passed for the device, %g ms for the CPU", elapsed, wall);
    CHECK(cuEventDestroy_v2(now));
}

static void check_special(void)
{
    float elapsed;

    CHECK(cuEventQuery(never_recorded));
    CHECK(cuEventSynchronize(never_recorded));
    CHECK_GIVES(cuEventElapsedTime(&elapsed, never_recorded, never_recorded), CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuEventQuery(no_timing));
    CHECK_GIVES(cuEventElapsedTime(&elapsed, no_timing, no_timing), CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuEventSynchronize(blocking));
    CHECK(cuStreamWaitEvent(stream, blocking, 0));
    CHECK(cuStreamWaitEvent(stream, never_recorded, 0));
}

static void check_all(void)
{
    for (int i = 0; i < EVENTS; i++)
        pair_check(&pairs[i]);
    check_special();
    check_across(&pairs[0]);
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&never_recorded, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&no_timing, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&blocking, CU_EVENT_BLOCKING_SYNC));
    CHECK(cuEventRecord(no_timing, stream));
    CHECK(cuEventRecord(blocking, stream));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < EVENTS; i++) {
        CHECK(cuEventCreate(&pairs[i].begin, i % 2 ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT));
        CHECK(cuEventCreate(&pairs[i].end, CU_EVENT_DEFAULT));
        pair_record(&pairs[i]);
    }
    program_ready(check_all);
    while (program_running()) {
        struct pair *pair = &pairs[1 + program_random() % (EVENTS - 1)];

        pair_check(pair);
        if (program_random() % 2) { /* recorded again */
            pair_record(pair);
        } else { /* made new */
            CHECK(cuEventDestroy_v2(pair->begin));
            CHECK(cuEventCreate(&pair->begin, CU_EVENT_DEFAULT));
            pair_record(pair);
        }
        check_across(&pairs[0]);
        check_special();
    }
    for (int i = 0; i < EVENTS; i++) {
        CHECK(cuEventDestroy_v2(pairs[i].begin));
        CHECK(cuEventDestroy_v2(pairs[i].end));
    }
    CHECK(cuEventDestroy_v2(never_recorded));
    CHECK(cuEventDestroy_v2(no_timing));
    CHECK(cuEventDestroy_v2(blocking));
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
