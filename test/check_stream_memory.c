/* Stream-ordered memory against a driver of which only events exist; the test says when each completes. */
#include "stream_memory.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "device_memory.h"
#include "driver_api.h"
#include "kinds.h"

#define MIB        (1ull << 20)
#define CONTEXT(n) ((CUcontext)(uintptr_t)(0x1000 * (n)))
#define STREAM(n)  ((CUstream)(uintptr_t)(0x100 * (n)))
#define POOL       ((CUmemoryPool)0x77)

/* An event is complete when the work of its stream has got as far as it was recorded. */
struct event {
    CUstream stream;
    unsigned place;
};
static struct {
    CUstream stream;
    unsigned submitted, done;
} queues[16];
static int events, record_fails, map_fails;
static bool capturing;
static uint64_t last_handle;
static int mapped;

static unsigned queue_of(CUstream stream)
{
    unsigned i = 0;

    while (queues[i].stream && queues[i].stream != stream)
        i++;
    queues[i].stream = stream;
    return i;
}

static void finish(CUstream stream)
{
    queues[queue_of(stream)].done = queues[queue_of(stream)].submitted;
}

static CUresult fake_create(CUevent *event, unsigned flags)
{
    events++;
    *event = calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUevent event)
{
    events--;
    free(event);
    return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    if (record_fails && record_fails--)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    *(struct event *)event = (struct event){stream, ++queues[queue_of(stream)].submitted};
    return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent handle)
{
    struct event *event = (struct event *)handle;

    ck_assert(!capturing);
    return queues[queue_of(event->stream)].done >= event->place ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_wait(CUevent handle)
{
    finish(((struct event *)handle)->stream);
    return CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext *context)
{
    *context = CONTEXT(1);
    return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context)
{
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context)
{
    return CUDA_SUCCESS;
}

static CUresult fake_reserve(uint64_t address, uint64_t size)
{
    return CUDA_SUCCESS;
}

static CUresult fake_map(int device, uint64_t address, uint64_t size, uint64_t *handle)
{
    if (map_fails && map_fails--)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++last_handle;
    mapped++;
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(uint64_t address, uint64_t size, uint64_t handle)
{
    mapped--;
    return CUDA_SUCCESS;
}

bool capture_in_progress(void)
{
    return capturing;
}

static struct stream_pool *pool;

static void set_up(void)
{
    static const struct device_memory_ops ops = {fake_reserve, fake_map, fake_unmap};

    driver.cuEventCreate = fake_create;
    driver.cuEventDestroy_v2 = fake_destroy;
    driver.cuEventRecord = fake_record;
    driver.cuEventQuery = fake_query;
    driver.cuEventSynchronize = fake_wait;
    driver.cuCtxGetCurrent = fake_current;
    driver.cuCtxPushCurrent_v2 = fake_push;
    driver.cuCtxPopCurrent_v2 = fake_pop;
    device_memory_start(&ops);
    pool = stream_pool_new(POOL, 0, 0);
    ck_assert_ptr_nonnull(pool);
}

static CUdeviceptr allocate(uint64_t size, CUstream stream)
{
    CUdeviceptr address = 0;

    ck_assert_int_eq(stream_memory_alloc(pool, CONTEXT(1), stream, size, &address), CUDA_SUCCESS);
    return address;
}

static void give(CUdeviceptr address, CUstream stream)
{
    ck_assert_int_eq(stream_memory_free(address, CONTEXT(1), stream), CUDA_SUCCESS);
}

static uint64_t blocks_of_device(void)
{
    struct device_memory_stats stats;

    device_memory_get_stats(-1, &stats);
    return stats.blocks;
}

static struct stream_pool_stats stats_of(struct stream_pool *of)
{
    struct stream_pool_stats stats;

    stream_pool_get_stats(of, &stats);
    return stats;
}

START_TEST(same_stream)
{
    CUdeviceptr first = allocate(5 * MIB, STREAM(1));

    give(first, STREAM(1));
    /* A little smaller fits; much smaller, or larger, does not. */
    ck_assert_uint_ne(allocate(2 * MIB, STREAM(1)), first);
    ck_assert_uint_ne(allocate(7 * MIB, STREAM(1)), first);
    ck_assert_uint_eq(allocate(5 * MIB - 100, STREAM(1)), first);
}
END_TEST

START_TEST(other_stream)
{
    CUdeviceptr first = allocate(3000, STREAM(1));

    give(first, STREAM(1));
    ck_assert_uint_ne(allocate(3000, STREAM(2)), first);
    finish(STREAM(1));
    ck_assert_uint_eq(allocate(3000, STREAM(2)), first);
    give(first, STREAM(2));
    finish(STREAM(2));
    stream_pool_set_reuse(pool, false);
    ck_assert_uint_ne(allocate(3000, STREAM(1)), first);
    stream_pool_set_reuse(pool, true);
    capturing = true; /* must not ask */
    ck_assert_uint_ne(allocate(3000, STREAM(1)), first);
    stream_memory_synchronised();
    capturing = false;
    ck_assert_uint_eq(allocate(3000, STREAM(1)), first);
}
END_TEST

/* A later free in the stream moves the mark of the earlier ones. */
START_TEST(later_free)
{
    CUdeviceptr a = allocate(4096, STREAM(1)), b = allocate(8192, STREAM(1));

    give(a, STREAM(1));
    finish(STREAM(1));
    give(b, STREAM(1));
    ck_assert_uint_ne(allocate(4096, STREAM(2)), a);
    finish(STREAM(1));
    ck_assert_uint_eq(allocate(4096, STREAM(2)), a);
}
END_TEST

START_TEST(ended_stream)
{
    CUdeviceptr first = allocate(4096, STREAM(1));

    give(first, STREAM(1));
    stream_memory_stream_ending(STREAM(1));
    /* the same handle, but another stream */
    ck_assert_uint_ne(allocate(4096, STREAM(1)), first);
    finish(STREAM(1));
    ck_assert_uint_eq(allocate(4096, STREAM(1)), first);
}
END_TEST

static void *allocate_here(void *result)
{
    *(CUdeviceptr *)result = allocate(4096, CU_STREAM_PER_THREAD);
    return NULL;
}

START_TEST(other_thread)
{
    CUdeviceptr first = allocate(4096, CU_STREAM_PER_THREAD), other = 0;
    pthread_t thread;

    give(first, CU_STREAM_PER_THREAD);
    pthread_create(&thread, NULL, allocate_here, &other);
    pthread_join(thread, NULL);
    ck_assert_uint_ne(other, 0);
    ck_assert_uint_ne(other, first);
    ck_assert_uint_eq(allocate(4096, CU_STREAM_PER_THREAD), first);
}
END_TEST

START_TEST(release_threshold)
{
    CUdeviceptr blocks[4];

    for (int i = 0; i < 4; i++)
        blocks[i] = allocate(4 * MIB, STREAM(1));
    for (int i = 0; i < 4; i++)
        give(blocks[i], STREAM(1));
    stream_memory_synchronised(); /* of another stream */
    ck_assert_uint_eq(stats_of(pool).reserved, 16 * MIB);
    ck_assert_uint_eq(stats_of(pool).used, 0);
    ck_assert_uint_eq(stats_of(pool).used_most, 16 * MIB);
    finish(STREAM(1));
    stream_pool_set_threshold(pool, 9 * MIB);
    stream_memory_synchronised();
    ck_assert_uint_eq(stats_of(pool).reserved, 8 * MIB);
    ck_assert_int_eq(mapped, 2);
    stream_pool_trim(pool, 4 * MIB);
    ck_assert_uint_eq(stats_of(pool).reserved, 4 * MIB);
    stream_pool_set_threshold(pool, 0);
    stream_memory_synchronised();
    ck_assert_uint_eq(stats_of(pool).reserved, 0);
    ck_assert_uint_eq(stats_of(pool).reserved_most, 16 * MIB);
    stream_pool_reset_most(pool, true, true);
    ck_assert_uint_eq(stats_of(pool).reserved_most, 0);
    ck_assert_uint_eq(stats_of(pool).used_most, 0);
    ck_assert_int_eq(mapped, 0);
}
END_TEST

START_TEST(short_of_memory)
{
    CUdeviceptr first = allocate(4 * MIB, STREAM(1)), second;

    give(first, STREAM(1));
    map_fails = 2; /* once at first, once when nothing is done yet */
    second = allocate(8 * MIB, STREAM(2));
    ck_assert_uint_ne(second, 0);
    ck_assert_uint_eq(stats_of(pool).reserved, 8 * MIB);
    map_fails = 3;
    ck_assert_int_eq(stream_memory_alloc(pool, CONTEXT(1), STREAM(2), 8 * MIB, &first), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(stream_memory_alloc(pool, CONTEXT(1), STREAM(2), 0, &first), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(stats_of(pool).used, 8 * MIB);
}
END_TEST

START_TEST(largest_pool)
{
    struct stream_pool *small = stream_pool_new(POOL, 0, 4 * MIB);
    CUdeviceptr address, other;

    ck_assert_int_eq(stream_memory_alloc(small, CONTEXT(1), STREAM(1), 3 * MIB, &address), CUDA_SUCCESS);
    ck_assert_int_eq(stream_memory_alloc(small, CONTEXT(1), STREAM(1), 1000, &other), CUDA_ERROR_OUT_OF_MEMORY);
    give(address, STREAM(1));
    ck_assert_int_eq(stream_memory_alloc(small, CONTEXT(1), STREAM(1), 1000, &other), CUDA_SUCCESS);
    ck_assert_int_eq(stream_memory_alloc(small, CONTEXT(1), STREAM(1), 5 * MIB, &address),
                     CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

START_TEST(wrong_frees)
{
    CUdeviceptr address = allocate(4096, STREAM(1)), plain;
    struct stream_block_info info;

    ck_assert(stream_memory_find(address, &info));
    ck_assert_uint_eq(info.size, 4096);
    ck_assert_ptr_eq(info.pool, POOL);
    ck_assert(!info.freed);
    record_fails = 1;
    ck_assert_int_eq(stream_memory_free(address, CONTEXT(1), STREAM(1)), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(stats_of(pool).used, 4096); /* it is not freed */
    give(address, STREAM(1));
    ck_assert(stream_memory_find(address, &info) && info.freed);
    ck_assert_int_eq(stream_memory_free(address, CONTEXT(1), STREAM(1)), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(stream_memory_free_now(address), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), 4096, &plain), CUDA_SUCCESS);
    ck_assert(!stream_memory_find(plain, &info));
    ck_assert_int_eq(stream_memory_free(plain, CONTEXT(1), STREAM(1)), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(free_now)
{
    CUdeviceptr address = allocate(4096, STREAM(1));

    ck_assert_int_eq(stream_memory_free_now(address), CUDA_SUCCESS);
    ck_assert_uint_eq(blocks_of_device(), 0);
    ck_assert_uint_eq(stats_of(pool).reserved, 0);
}
END_TEST

START_TEST(ended_pool)
{
    CUdeviceptr kept = allocate(4 * MIB, STREAM(1)), freed = allocate(4 * MIB, STREAM(1));
    struct stream_block_info info;

    give(freed, STREAM(1));
    stream_pool_end(pool);
    ck_assert(stream_memory_find(kept, &info));
    give(kept, STREAM(1));
    finish(STREAM(1));
    stream_memory_synchronised();
    ck_assert_uint_eq(blocks_of_device(), 0);
    ck_assert_int_eq(events, 0);
}
END_TEST

START_TEST(ended_context)
{
    CUdeviceptr live = allocate(4096, STREAM(1)), freed = allocate(4096, STREAM(1)), other;
    struct stream_block_info info;

    ck_assert_int_eq(stream_memory_alloc(pool, CONTEXT(2), STREAM(3), 4096, &other), CUDA_SUCCESS);
    give(freed, STREAM(1));
    stream_memory_context_ending(CONTEXT(1));
    ck_assert_int_eq(events, 0);
    stream_memory_context_ended(CONTEXT(1));
    device_memory_free_context(CONTEXT(1));
    ck_assert(!stream_memory_find(live, &info));
    ck_assert(stream_memory_find(other, &info));
    ck_assert_uint_eq(blocks_of_device(), 1);
    ck_assert_uint_eq(stats_of(pool).used, 4096);
}
END_TEST

START_TEST(suspended)
{
    CUdeviceptr live = allocate(4096, STREAM(1)), freed = allocate(8 * MIB, STREAM(1));

    stream_pool_set_threshold(pool, UINT64_MAX);
    give(freed, STREAM(1));
    finish(STREAM(1));
    stream_memory_synchronised();
    ck_assert_uint_eq(stats_of(pool).reserved, 8 * MIB + 4096);
    stream_memory_suspend();
    ck_assert_int_eq(events, 0);
    ck_assert_uint_eq(stats_of(pool).reserved, 4096);
    give(live, STREAM(1)); /* with a new event */
    ck_assert_uint_eq(allocate(4096, STREAM(1)), live);
}
END_TEST

START_TEST(many)
{
    CUdeviceptr ring[32] = {0};

    for (unsigned i = 0; i < 30000; i++) {
        CUdeviceptr *address = &ring[i * 7 % 32];
        CUstream stream = STREAM(1 + i % 3);

        if (*address)
            give(*address, stream);
        *address = allocate(1 + i % 1000 * 100, stream);
        finish(stream);
        if (i % 100 == 0)
            stream_memory_synchronised();
    }
    for (unsigned i = 0; i < 32; i++)
        give(ring[i], STREAM(1));
    ck_assert_uint_eq(stats_of(pool).used, 0);
    for (unsigned i = 1; i <= 3; i++)
        finish(STREAM(i));
    stream_memory_synchronised();
    ck_assert_uint_eq(stats_of(pool).reserved, 0);
    ck_assert_uint_eq(blocks_of_device(), 0);
    ck_assert_int_le(events, 3);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {same_stream,     other_stream, later_free,  ended_stream, other_thread,
                                         release_threshold, short_of_memory, largest_pool, wrong_frees, free_now,
                                         ended_pool,      ended_context, suspended,   many};
    Suite *suite = suite_create("stream_memory");
    TCase *test_case = tcase_create("stream_memory");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(test_case, set_up, NULL);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        tcase_add_test(test_case, tests[i]);
    suite_add_tcase(suite, test_case);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
