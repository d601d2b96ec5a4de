/*
 * The copy engine against a driver whose streams do nothing until they are waited for: what is used too
 * early, or overwritten too early, shows in the bytes.
 */
#include "copy.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copy_stream.h"
#include "driver_api.h"
#include "fault.h"
#include "ledger.h"

#define MIB          (1ull << 20)
#define CONTEXT(n)   ((CUcontext)(uintptr_t)(0x1000 * (n)))
#define QUEUE_MAX    16
#define DEVICE_BYTES (44 * MIB)

/* Instead of the real ones, which would bring the rest of the library along. */
__attribute__((weak)) struct driver_api driver;

static unsigned int our_threads, signals_open; /* atomic */

__attribute__((weak)) void ledger_thread_is_ours(void)
{
    sigset_t set;

    pthread_sigmask(SIG_SETMASK, NULL, &set);
    if (!sigismember(&set, SIGTERM) || !sigismember(&set, SIGUSR1))
        __atomic_fetch_add(&signals_open, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&our_threads, 1, __ATOMIC_RELAXED);
}

/* ---- the driver */

struct CUstream_st {
    struct {
        void *to;
        const void *from;
        size_t size;
    } queue[QUEUE_MAX];
    size_t first, last; /* in the queue, counted up */
    CUcontext context;
};

struct CUevent_st {
    CUstream stream;
    size_t last;
};

static char *device_bytes; /* device addresses are addresses in here; as much again follows for comparing */
static __thread CUcontext current, pushed_over;
static int live_streams, live_events, async_calls, plain_calls, fail_async_at, fail_wait_at, wait_calls;
static int fail_register, fail_stream, context_mistakes, pin_mistakes, slow_us;
static char *pinned;
static size_t pinned_size, pinned_most;

/* Context 1 has the first half of device memory, context 2 the second one. */
static CUcontext context_of(const void *device)
{
    return (const char *)device < device_bytes + DEVICE_BYTES / 2 ? CONTEXT(1) : CONTEXT(2);
}

static int count_up(int *counter)
{
    return __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
}

static CUresult fake_push(CUcontext context)
{
    pushed_over = current;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context)
{
    *context = current;
    current = pushed_over;
    return CUDA_SUCCESS;
}

static CUresult fake_set(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult fake_context_wait(void)
{
    return CUDA_SUCCESS;
}

static CUresult fake_stream_create(CUstream *stream, unsigned int flags)
{
    ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
    if (fail_stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *stream = calloc(1, sizeof(**stream));
    (*stream)->context = current;
    count_up(&live_streams);
    return CUDA_SUCCESS;
}

static void stream_run(CUstream stream, size_t last)
{
    for (; stream->first < last; stream->first++)
        memcpy(stream->queue[stream->first % QUEUE_MAX].to, stream->queue[stream->first % QUEUE_MAX].from,
               stream->queue[stream->first % QUEUE_MAX].size);
    if (slow_us)
        usleep((useconds_t)slow_us);
}

static CUresult fake_stream_destroy(CUstream stream)
{
    ck_assert_uint_eq(stream->first, stream->last);
    free(stream);
    __atomic_fetch_sub(&live_streams, 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

static CUresult fake_stream_wait(CUstream stream)
{
    stream_run(stream, stream->last);
    return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *event, unsigned int flags)
{
    ck_assert_uint_eq(flags, CU_EVENT_DISABLE_TIMING);
    *event = calloc(1, sizeof(**event));
    count_up(&live_events);
    return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
    free(event);
    __atomic_fetch_sub(&live_events, 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
    event->stream = stream;
    event->last = stream->last;
    return CUDA_SUCCESS;
}

static CUresult fake_event_wait(CUevent event)
{
    if (count_up(&wait_calls) == fail_wait_at)
        return 700;
    stream_run(event->stream, event->last);
    return CUDA_SUCCESS;
}

static CUresult fake_register(void *memory, size_t size, unsigned int flags)
{
    ck_assert_uint_eq(flags, CU_MEMHOSTREGISTER_PORTABLE);
    ck_assert_ptr_null(pinned);
    if (fail_register)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pinned = memory;
    pinned_size = size;
    pinned_most = size > pinned_most ? size : pinned_most;
    return CUDA_SUCCESS;
}

static CUresult fake_unregister(void *memory)
{
    ck_assert_ptr_eq(memory, pinned);
    ck_assert_int_eq(live_streams, 0);
    pinned = NULL;
    return CUDA_SUCCESS;
}

static CUresult queue_copy(void *to, const void *from, size_t size, const void *device, const char *host,
                           CUstream stream)
{
    if (current != context_of(device) || stream->context != current)
        count_up(&context_mistakes);
    if (!pinned || host < pinned || host + size > pinned + pinned_size)
        count_up(&pin_mistakes);
    if (count_up(&async_calls) == fail_async_at)
        return 700;
    ck_assert_uint_lt(stream->last - stream->first, QUEUE_MAX);
    stream->queue[stream->last % QUEUE_MAX].to = to;
    stream->queue[stream->last % QUEUE_MAX].from = from;
    stream->queue[stream->last % QUEUE_MAX].size = size;
    stream->last++;
    return CUDA_SUCCESS;
}

static CUresult fake_out_async(void *host, CUdeviceptr device, size_t size, CUstream stream)
{
    return queue_copy(host, (void *)device, size, (void *)device, host, stream);
}

static CUresult fake_in_async(CUdeviceptr device, const void *host, size_t size, CUstream stream)
{
    return queue_copy((void *)device, host, size, (void *)device, host, stream);
}

static CUresult fake_plain(void *to, const void *from, size_t size, const void *device)
{
    if (current != context_of(device))
        count_up(&context_mistakes);
    if (count_up(&plain_calls) == fail_async_at)
        return 700;
    memcpy(to, from, size);
    return CUDA_SUCCESS;
}

static CUresult fake_out(void *host, CUdeviceptr device, size_t size)
{
    return fake_plain(host, (void *)device, size, (void *)device);
}

static CUresult fake_in(CUdeviceptr device, const void *host, size_t size)
{
    return fake_plain((void *)device, host, size, (void *)device);
}

static void set_up(void)
{
    driver.cuCtxPushCurrent_v2 = fake_push;
    driver.cuCtxPopCurrent_v2 = fake_pop;
    driver.cuCtxSetCurrent = fake_set;
    driver.cuCtxSynchronize = fake_context_wait;
    driver.cuStreamCreate = fake_stream_create;
    driver.cuStreamDestroy_v2 = fake_stream_destroy;
    driver.cuStreamSynchronize = fake_stream_wait;
    driver.cuEventCreate = fake_event_create;
    driver.cuEventDestroy_v2 = fake_event_destroy;
    driver.cuEventRecord = fake_event_record;
    driver.cuEventSynchronize = fake_event_wait;
    driver.cuMemHostRegister_v2 = fake_register;
    driver.cuMemHostUnregister = fake_unregister;
    driver.cuMemcpyDtoH_v2 = fake_out;
    driver.cuMemcpyHtoD_v2 = fake_in;
    driver.cuMemcpyDtoHAsync_v2 = fake_out_async;
    driver.cuMemcpyHtoDAsync_v2 = fake_in_async;
    current = CONTEXT(7);
    device_bytes = mmap(NULL, 2 * DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(device_bytes, MAP_FAILED);
    madvise(device_bytes, 2 * DEVICE_BYTES, MADV_HUGEPAGE); /* only faster */
}

static void tear_down(void)
{
    munmap(device_bytes, 2 * DEVICE_BYTES);
}

/* Everything that the copy took was given back. */
static void check_clean(void)
{
    ck_assert_int_eq(live_streams, 0);
    ck_assert_int_eq(live_events, 0);
    ck_assert_ptr_null(pinned);
    ck_assert_ptr_eq(current, CONTEXT(7));
    ck_assert_int_eq(context_mistakes, 0);
    ck_assert_int_eq(pin_mistakes, 0);
    ck_assert_uint_eq(signals_open, 0);
}

static void fill(char *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i += sizeof(seed)) {
        seed = (seed + 1) * 6364136223846793005ull;
        memcpy(bytes + i, &seed, size - i < sizeof(seed) ? size - i : sizeof(seed));
    }
}

/* ---- the tests */

#define RANGES_MAX 64

struct copies {
    struct copy_range ranges[RANGES_MAX];
    size_t count, total;
    char *host,
        *expected; /* all of the ranges' host bytes, with gaps between them; expected: what they must be */
    size_t host_size;
};

/* Ranges of odd sizes and alignments, of both contexts by turns; GAP bytes on both sides must stay as they
 * are. */
#define GAP 61

static void copies_make(struct copies *copies, const size_t *sizes, size_t count)
{
    size_t device_at[2] = {0, DEVICE_BYTES / 2}, host_at = GAP;

    copies->count = count;
    copies->total = 0;
    for (size_t i = 0; i < count; i++) {
        copies->ranges[i] = (struct copy_range){
            .device = (CUdeviceptr)device_bytes + device_at[i % 2],
            .host = (void *)host_at,
            .size = sizes[i],
            .context = CONTEXT(i % 2 + 1),
        };
        copies->total += sizes[i];
        device_at[i % 2] += sizes[i] + 7;
        ck_assert_uint_le(device_at[i % 2], DEVICE_BYTES / 2 * (i % 2 + 1));
        host_at += sizes[i] + GAP;
    }
    copies->host_size = host_at;
    copies->host = malloc(host_at);
    copies->expected = malloc(host_at);
    for (size_t i = 0; i < count; i++)
        copies->ranges[i].host = copies->host + (uintptr_t)copies->ranges[i].host;
}

static void copies_free(struct copies *copies)
{
    free(copies->host);
    free(copies->expected);
}

static void copies_check_out(struct copies *copies)
{
    struct error err = {0};

    fill(device_bytes, DEVICE_BYTES, copies->total);
    memset(copies->host, 0x5a, copies->host_size);
    memset(copies->expected, 0x5a, copies->host_size);
    for (size_t i = 0; i < copies->count; i++)
        memcpy(copies->expected + ((char *)copies->ranges[i].host - copies->host),
               (void *)copies->ranges[i].device, copies->ranges[i].size);
    ck_assert_msg(!copy_ranges(COPY_OUT, copies->ranges, copies->count, NULL, &err), "%s", err.text);
    ck_assert(!memcmp(copies->host, copies->expected, copies->host_size));
    check_clean();
}

static void copies_check_in(struct copies *copies)
{
    char *expected = device_bytes + DEVICE_BYTES;
    struct error err = {0};

    fill(copies->host, copies->host_size, copies->total + 1);
    memset(device_bytes, 0x33, DEVICE_BYTES);
    memset(expected, 0x33, DEVICE_BYTES);
    for (size_t i = 0; i < copies->count; i++)
        memcpy(expected + ((char *)copies->ranges[i].device - device_bytes), copies->ranges[i].host,
               copies->ranges[i].size);
    ck_assert_msg(!copy_ranges(COPY_IN, copies->ranges, copies->count, NULL, &err), "%s", err.text);
    ck_assert(!memcmp(device_bytes, expected, DEVICE_BYTES));
    check_clean();
}

static void check_both_ways(const size_t *sizes, size_t count)
{
    struct copies copies;

    copies_make(&copies, sizes, count);
    copies_check_out(&copies);
    copies_check_in(&copies);
    copies_free(&copies);
}

START_TEST(nothing_to_copy)
{
    struct copy_range empty = {.device = 1, .context = CONTEXT(1)};
    struct error err = {0};

    ck_assert_int_eq(copy_ranges(COPY_OUT, NULL, 0, NULL, &err), 0);
    ck_assert_int_eq(copy_ranges(COPY_IN, &empty, 1, NULL, &err), 0);
    ck_assert_int_eq(async_calls + plain_calls, 0);
    check_clean();
}
END_TEST

START_TEST(little_goes_without_a_ring)
{
    const size_t sizes[] = {1, 2, 511, 0, 4096, 100000, MIB, 3};

    check_both_ways(sizes, 8);
    ck_assert_uint_eq(pinned_most, 0);
    ck_assert_uint_eq(our_threads, 0);
    ck_assert_int_gt(plain_calls, 0);
}
END_TEST

START_TEST(much_goes_through_the_ring)
{
    const size_t sizes[] = {5 * MIB + 3, 1,           9 * MIB + 4095, 4 * MIB, 0,
                            4 * MIB + 1, 4 * MIB - 1, 12345,          MIB,     64};
    size_t many[RANGES_MAX];

    check_both_ways(sizes, 10);
    ck_assert_int_eq(plain_calls, 0);
    ck_assert_uint_gt(our_threads, 0);
    ck_assert_uint_le(pinned_most, 128 * MIB);
    for (size_t i = 0; i < RANGES_MAX; i++)
        many[i] = 1000 + i * 8191;
    check_both_ways(many, RANGES_MAX);
}
END_TEST

START_TEST(one_range_of_one_context)
{
    const size_t sizes[] = {4 * MIB, 4 * MIB + 1, 21 * MIB - 1};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_both_ways(&sizes[i], 1);
}
END_TEST

START_TEST(goes_on_when_nothing_can_be_pinned)
{
    const size_t sizes[] = {10 * MIB + 3, 7 * MIB};

    fail_register = 1;
    check_both_ways(sizes, 2);
    ck_assert_int_eq(async_calls, 0);
    ck_assert_int_gt(plain_calls, 0);
}
END_TEST

static void check_fails(struct copies *copies, enum copy_direction direction, const char *text,
                        enum error_code code)
{
    struct error err = {0};

    ck_assert_int_eq(copy_ranges(direction, copies->ranges, copies->count, NULL, &err), -1);
    ck_assert_msg(!strncmp(err.text, text, strlen(text)), "%s", err.text);
    ck_assert_int_eq(err.code, code);
    check_clean();
}

START_TEST(errors_stop_the_copy)
{
    const size_t sizes[] = {20 * MIB, 20 * MIB}, small = 1000;
    struct copies copies;
    struct error err = {0};
    char text[200];

    copies_make(&copies, sizes, 2);
    for (fail_async_at = 1; fail_async_at < 10; fail_async_at += 2) {
        async_calls = 0;
        check_fails(&copies, COPY_OUT, "cuMemcpyDtoHAsync: error 700 at device address 0x", ERROR_REFUSED);
        ck_assert_int_lt(async_calls, 13);
        async_calls = 0;
        check_fails(&copies, COPY_IN, "cuMemcpyHtoDAsync: error 700 at device address 0x", ERROR_REFUSED);
    }
    fail_async_at = 0;
    for (fail_wait_at = 1; fail_wait_at < 10; fail_wait_at += 3) {
        wait_calls = 0;
        check_fails(&copies, COPY_OUT, "cuEventSynchronize: error 700 at device address 0x", ERROR_REFUSED);
        wait_calls = 0;
        check_fails(&copies, COPY_IN, "cuEventSynchronize: error 700 at device address 0x", ERROR_REFUSED);
    }
    fail_wait_at = 0;
    fail_stream = 1;
    check_fails(&copies, COPY_OUT, "cuStreamCreate: error 2", ERROR_MEMORY);
    fail_stream = 0;
    copies_check_out(&copies); /* and it works again */
    copies_free(&copies);

    copies_make(&copies, &small, 1);
    fail_async_at = 1;
    plain_calls = 0;
    snprintf(text, sizeof(text), "cuMemcpyDtoH: error 700 at device address 0x%llx", copies.ranges[0].device);
    ck_assert_int_eq(copy_ranges(COPY_OUT, copies.ranges, 1, NULL, &err), -1);
    ck_assert_str_eq(err.text, text);
    copies_free(&copies);
}
END_TEST

struct watch {
    uint64_t last, calls, stop_at;
    pthread_t thread;
};

static int watch_tick(uint64_t done, uint64_t total, void *arg)
{
    struct watch *watch = arg;

    ck_assert(pthread_equal(watch->thread, pthread_self()));
    ck_assert_uint_ge(done, watch->last);
    ck_assert_uint_le(done, total);
    ck_assert_uint_eq(total, 40 * MIB);
    watch->last = done;
    return ++watch->calls == watch->stop_at;
}

START_TEST(progress_is_told)
{
    const size_t sizes[] = {20 * MIB, 20 * MIB};
    struct watch watch = {.thread = pthread_self()};
    struct copy_progress progress = {watch_tick, &watch};
    struct copies copies;
    struct error err = {0};

    copies_make(&copies, sizes, 2);
    slow_us = 20000;
    ck_assert_int_eq(copy_ranges(COPY_OUT, copies.ranges, 2, &progress, &err), 0);
    ck_assert_uint_gt(watch.calls, 2);
    ck_assert_uint_eq(watch.last, 40 * MIB);
    watch = (struct watch){.thread = pthread_self(), .stop_at = 2};
    ck_assert_int_eq(copy_ranges(COPY_IN, copies.ranges, 2, &progress, &err), -1);
    ck_assert_str_eq(err.text, "the copy was stopped before its end");
    ck_assert_uint_lt(watch.last, 40 * MIB);
    check_clean();
    copies_free(&copies);
}
END_TEST

START_TEST(fault_points)
{
    struct error err = {0};

    setenv("CUDACKPT_FAULT", "copy_out,copy_in,copy_out_memory", 1);
    fault_start();
    ck_assert_int_eq(copy_ranges(COPY_OUT, NULL, 0, NULL, &err), -1);
    ck_assert_int_eq(copy_ranges(COPY_IN, NULL, 0, NULL, &err), -1);
    ck_assert_ptr_null(copy_host_alloc(1, &err));
    ck_assert_int_eq(copy_ranges(COPY_OUT, NULL, 0, NULL, &err), 0);
    ck_assert_str_eq(err.text, "fault point copy_out");
}
END_TEST

START_TEST(host_memory)
{
    const size_t sizes[] = {1, 4096, 5000, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 20 * MIB};
    struct error err = {0};
    char *host[7];

    for (int i = 0; i < 7; i++) {
        host[i] = copy_host_alloc(sizes[i], &err);
        ck_assert_ptr_nonnull(host[i]);
        ck_assert_uint_eq((uintptr_t)host[i] % (sizes[i] < 2 * MIB ? 4096 : 2 * MIB), 0);
        ck_assert_int_eq(host[i][0] | host[i][sizes[i] - 1], 0);
        memset(host[i], i, sizes[i]);
    }
    for (int i = 0; i < 7; i++)
        ck_assert(host[i][0] == i && host[i][sizes[i] - 1] == i);
    for (int i = 0; i < 7; i++) {
        unsigned char resident;

        copy_host_free(host[i], sizes[i]);
        ck_assert_int_eq(mincore(host[i], 4096, &resident), -1); /* not mapped */
    }
    copy_host_free(NULL, 5);
    ck_assert_ptr_null(copy_host_alloc(1ull << 60, &err));
    ck_assert_int_eq(err.code, ERROR_MEMORY);
    ck_assert_ptr_null(copy_host_alloc(SIZE_MAX, &err));
}
END_TEST

/* The thread sanitizer puts mappings of its own in between. */
#ifndef __SANITIZE_THREAD__
static size_t count_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t lines = 0;
    int c;

    while ((c = fgetc(maps)) != EOF)
        lines += c == '\n';
    fclose(maps);
    return lines;
}

/* A process may have 65530 mappings; a large program has more chunks. */
START_TEST(host_memory_is_few_mappings)
{
    struct error err = {0};
    size_t before = count_maps();
    void *host[500];

    for (int i = 0; i < 500; i++)
        host[i] = copy_host_alloc(2 * MIB, &err);
    ck_assert_uint_lt(count_maps(), before + 50);
    for (int i = 0; i < 500; i++)
        copy_host_free(host[i], 2 * MIB);
    ck_assert_uint_le(count_maps(), before + 5);
}
END_TEST
#endif

START_TEST(stream_copies_like_memcpy)
{
    static char from[70000], to[70000], expected[70000];

    fill(from, sizeof(from), 3);
    for (size_t size = 0; size < 66000; size = size < 700 ? size + 1 : size * 2 + 13) {
        for (size_t shift = 0; shift < 160; shift += 1 + size / 300 * 7) {
            memset(to, 1, sizeof(to));
            memset(expected, 1, sizeof(expected));
            copy_stream(to + shift, from + (shift * 7) % 97, size);
            memcpy(expected + shift, from + (shift * 7) % 97, size);
            ck_assert(!memcmp(to, expected, size + 200));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("copy");
    TCase *tcase = tcase_create("copy");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, nothing_to_copy);
    tcase_add_test(tcase, little_goes_without_a_ring);
    tcase_add_test(tcase, much_goes_through_the_ring);
    tcase_add_test(tcase, one_range_of_one_context);
    tcase_add_test(tcase, goes_on_when_nothing_can_be_pinned);
    tcase_add_test(tcase, errors_stop_the_copy);
    tcase_add_test(tcase, progress_is_told);
    tcase_add_test(tcase, fault_points);
    tcase_add_test(tcase, host_memory);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(tcase, host_memory_is_few_mappings);
#endif
    tcase_add_test(tcase, stream_copies_like_memcpy);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
