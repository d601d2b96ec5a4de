/* Streams of all flags and priorities keep their handles, ids, attributes and the order of their work. */

#include "device.h"

#define STREAMS 12

static struct kernels kernels;
static struct stream {
    CUstream handle;
    unsigned flags;
    int priority;
    unsigned long long id;
    CUsynchronizationPolicy policy;
    CUdeviceptr word; /* the value, a scratch word, and the value of the last step but one */
    uint32_t value;
} streams[STREAMS];
static CUcontext context;
static CUevent event;
static int least, greatest;

static void stream_make(struct stream *stream, int i)
{
    CUstreamAttrValue value = {0};

    stream->flags = i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    stream->priority = greatest + i % (least - greatest + 1);
    if (i % 3 == 2) {
        stream->priority = 0;
        CHECK(cuStreamCreate(&stream->handle, stream->flags));
    } else {
        CHECK(cuStreamCreateWithPriority(&stream->handle, stream->flags, stream->priority));
    }
    CHECK(cuStreamGetId(stream->handle, &stream->id));
    stream->policy = 0;
    if (i % 4 == 3) {
        stream->policy = CU_SYNC_POLICY_BLOCKING_SYNC;
        value.syncPolicy = stream->policy;
        CHECK(cuStreamSetAttribute(stream->handle, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    }
    stream->value = 0;
    CHECK(cuMemsetD32Async(stream->word, 0, 1, stream->handle));
}

static void stream_check(const struct stream *stream)
{
    CUstreamAttrValue value = {0};
    unsigned long long id;
    unsigned flags;
    int priority;
    CUcontext owner;

    CHECK(cuStreamGetFlags(stream->handle, &flags));
    EXPECT_EQ(flags, stream->flags);
    CHECK(cuStreamGetPriority(stream->handle, &priority));
    EXPECT_EQ(priority, stream->priority);
    CHECK(cuStreamGetId(stream->handle, &id));
    EXPECT_EQ(id, stream->id);
    CHECK(cuStreamGetCtx(stream->handle, &owner));
    EXPECT(owner == context);
    if (stream->policy) {
        CHECK(cuStreamGetAttribute(stream->handle, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
        EXPECT_EQ(value.syncPolicy, stream->policy);
    }
}

/* Adds 2 in steps of which each needs the one before. */
static void stream_work(struct stream *stream)
{
    CUdeviceptr scratch = stream->word + 4;
    uint32_t one = 1;
    uint64_t words = 1;

    LAUNCH(kernels.copy_words, 1, 1, stream->handle, &scratch, &stream->word, &words);
    for (int i = 0; i < 2; i++) {
        CHECK(cuMemcpyDtoDAsync_v2(stream->word + 8, scratch, 4, stream->handle));
        LAUNCH(kernels.increment, 1, 1, stream->handle, &scratch, &one);
    }
    CHECK(cuMemcpyDtoDAsync_v2(stream->word, scratch, 4, stream->handle));
    stream->value += 2;
}

static void words_of_streams_check(void)
{
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuStreamSynchronize(streams[i].handle));
        CHECK(cuStreamQuery(streams[i].handle));
        EXPECT_EQ(word_get(streams[i].word), streams[i].value);
        if (streams[i].value)
            EXPECT_EQ(word_get(streams[i].word + 8), streams[i].value - 1);
    }
}

/* A slow kernel on one stream, work on the other that must wait for it. */
static void check_event_order(struct stream *first, struct stream *second)
{
    uint64_t ns = 1000000;
    uint32_t seven = 7, *pinned = NULL;

    CHECK(cuMemHostAlloc((void **)&pinned, 4, 0));
    CHECK(cuStreamSynchronize(first->handle));
    LAUNCH(kernels.sleep_ns, 1, 1, first->handle, &ns);
    LAUNCH(kernels.increment, 1, 1, first->handle, &first->word, &seven);
    CHECK(cuEventRecord(event, first->handle));
    CHECK(cuStreamWaitEvent(second->handle, event, 0));
    CHECK(cuMemcpyDtoHAsync_v2(pinned, first->word, 4, second->handle));
    CHECK(cuStreamSynchronize(second->handle));
    first->value += 7;
    EXPECT_EQ(*pinned, first->value);
    CHECK(cuMemsetD32_v2(first->word + 8, first->value - 1, 1));
    CHECK(cuMemFreeHost(pinned));
}

/* Handles that are not created. */
static void check_default_streams(void)
{
    static const uintptr_t handles[] = {0, (uintptr_t)CU_STREAM_LEGACY, (uintptr_t)CU_STREAM_PER_THREAD};
    static uint32_t value;
    static CUdeviceptr word;
    uint32_t one = 1;

    if (!word) {
        CHECK(cuMemAlloc_v2(&word, 4));
        word_set(word, 0);
    }
    for (int i = 0; i < 3; i++) {
        CUstream stream = (CUstream)handles[i];

        LAUNCH(kernels.increment, 1, 1, stream, &word, &one);
        CHECK(cuStreamSynchronize(stream));
        EXPECT_EQ(word_get(word), ++value);
    }
}

static void check_all(void)
{
    int low, high;

    CHECK(cuCtxGetStreamPriorityRange(&low, &high));
    EXPECT(low == least && high == greatest);
    for (int i = 0; i < STREAMS; i++)
        stream_check(&streams[i]);
    words_of_streams_check();
    check_event_order(&streams[0], &streams[1]);
    check_event_order(&streams[3], &streams[2]);
    check_default_streams();
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    context = device_start();
    kernels_load(&kernels);
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuMemAlloc_v2(&streams[i].word, 12));
        stream_make(&streams[i], i);
    }
    program_ready(check_all);
    while (program_running()) {
        int i = (int)(program_random() % STREAMS);

        for (int j = 0; j < STREAMS; j++)
            stream_work(&streams[j]);
        words_of_streams_check();
        check_default_streams();
        CHECK(cuStreamDestroy_v2(streams[i].handle));
        stream_make(&streams[i], (int)(program_random() % STREAMS));
        stream_check(&streams[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamDestroy_v2(streams[i].handle));
    CHECK(cuEventDestroy_v2(event));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
