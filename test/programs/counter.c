/* One of each: a module with a global, a stream, an event, memory; nothing is lost or counted twice. */

#include "device.h"

static struct kernels kernels;
static CUstream stream;
static CUevent event;
static CUdeviceptr global, word, words;
static uint32_t count;

#define WORDS 10000

static void check_all(void)
{
    EXPECT_EQ(word_get(global), KERNELS_GLOBAL_INITIAL + count);
    EXPECT_EQ(word_get(word), 3 * count);
    words_check(&kernels, words, WORDS, 42, stream);
    words_checked(&kernels, "memory");
}

int main(int argc, char **argv)
{
    uint32_t three = 3;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    global = global_get(kernels.module, "g_counter", sizeof(uint32_t));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc_v2(&word, sizeof(uint32_t)));
    CHECK(cuMemAlloc_v2(&words, WORDS * sizeof(uint32_t)));
    word_set(word, 0);
    words_fill(&kernels, words, WORDS, 42, stream);
    CHECK(cuStreamSynchronize(stream));
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(kernels.bump, stream);
        LAUNCH(kernels.increment, 1, 1, stream, &word, &three);
        count++;
        CHECK(cuEventRecord(event, stream));
        CHECK(cuEventSynchronize(event));
        CHECK(cuEventQuery(event));
        check_all();
    }
    CHECK(cuMemFree_v2(words));
    CHECK(cuMemFree_v2(word));
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuStreamDestroy_v2(stream));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
