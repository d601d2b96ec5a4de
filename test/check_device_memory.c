/* Device memory against ops that only keep a list of what is reserved and mapped. */
#include "device_memory.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

#define CONTEXT(n) ((CUcontext)(uintptr_t)(0x1000 * (n)))

static struct mapping {
    uint64_t address, size, handle;
    int device;
} mappings[4096];
static int mapping_count, mapping_calls, unmapping_calls;
static uint64_t last_handle;
static struct {
    uint64_t address, size;
} reservations[256];
static int reservation_count;
static int reserve_fails, map_fails, unmap_fails; /* this many times */
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult fake_reserve(uint64_t address, uint64_t size)
{
    if (reserve_fails && reserve_fails--)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ck_assert_uint_eq(address % DEVICE_MEMORY_RANGE, 0);
    for (int i = 0; i < reservation_count; i++)
        ck_assert(address + size <= reservations[i].address ||
                  address >= reservations[i].address + reservations[i].size);
    reservations[reservation_count].address = address;
    reservations[reservation_count++].size = size;
    return CUDA_SUCCESS;
}

static bool is_reserved(uint64_t address, uint64_t size)
{
    for (int i = 0; i < reservation_count; i++) {
        if (address >= reservations[i].address &&
            address + size <= reservations[i].address + reservations[i].size)
            return true;
    }
    return false;
}

static CUresult fake_map(int device, uint64_t address, uint64_t size, uint64_t *handle)
{
    struct device_memory_stats stats;

    device_memory_get_stats(-1, &stats); /* the lock is not held */
    pthread_mutex_lock(&fake_lock);
    mapping_calls++;
    if (map_fails) {
        map_fails--;
        pthread_mutex_unlock(&fake_lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ck_assert_uint_eq(address % DEVICE_MEMORY_CHUNK, 0);
    ck_assert(size && size % DEVICE_MEMORY_CHUNK == 0);
    ck_assert(is_reserved(address, size));
    for (int i = 0; i < mapping_count; i++)
        ck_assert(address + size <= mappings[i].address || address >= mappings[i].address + mappings[i].size);
    *handle = ++last_handle;
    mappings[mapping_count++] =
        (struct mapping){.address = address, .size = size, .handle = *handle, .device = device};
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(uint64_t address, uint64_t size, uint64_t handle)
{
    struct device_memory_stats stats;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    device_memory_get_stats(-1, &stats);
    pthread_mutex_lock(&fake_lock);
    unmapping_calls++;
    if (unmap_fails) {
        unmap_fails--;
        pthread_mutex_unlock(&fake_lock);
        return 700;
    }
    for (int i = 0; i < mapping_count; i++) {
        if (mappings[i].address == address && mappings[i].size == size && mappings[i].handle == handle) {
            mappings[i] = mappings[--mapping_count];
            result = CUDA_SUCCESS;
            break;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    ck_assert_int_eq(result, CUDA_SUCCESS);
    return result;
}

static const struct device_memory_ops ops = {fake_reserve, fake_map, fake_unmap};

static void set_up(void)
{
    device_memory_start(&ops);
}

static CUdeviceptr alloc_in(int device, CUcontext context, uint64_t size)
{
    CUdeviceptr address = 0;

    ck_assert_int_eq(device_memory_alloc(device, context, size, &address), CUDA_SUCCESS);
    ck_assert_uint_eq(address % DEVICE_MEMORY_ALIGNMENT, 0);
    return address;
}

static CUdeviceptr alloc(uint64_t size)
{
    return alloc_in(0, CONTEXT(1), size);
}

static void check_free(CUdeviceptr address)
{
    ck_assert_int_eq(device_memory_free(address), CUDA_SUCCESS);
}

START_TEST(nothing_for_size_zero)
{
    CUdeviceptr address;

    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), 0, &address), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), 1ull << 60, &address), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), ~0ull, &address), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(mapping_calls, 0);
    ck_assert_int_eq(reservation_count, 0);
}
END_TEST

START_TEST(finds_blocks_by_any_address_in_them)
{
    const uint64_t sizes[] = {1, 511, 512, 513, 5000, 100 * KIB, MIB, MIB + 1, 2 * MIB, 5 * MIB, 8 * GIB};
    CUdeviceptr address[11];
    struct device_block block;
    uint64_t last_id = 0;

    for (int i = 0; i < 11; i++)
        address[i] = alloc(sizes[i]);
    for (int i = 0; i < 11; i++) {
        ck_assert(device_memory_find(address[i], &block));
        ck_assert_uint_eq(block.address, address[i]);
        ck_assert_uint_eq(block.size, sizes[i]);
        ck_assert_ptr_eq(block.context, CONTEXT(1));
        ck_assert_int_eq(block.device, 0);
        ck_assert_uint_gt(block.id, last_id);
        ck_assert_uint_le(block.chunk_address, address[i]);
        ck_assert_uint_ge(block.chunk_address + block.chunk_size, address[i] + sizes[i]);
        last_id = block.id;
        ck_assert(device_memory_find(address[i] + sizes[i] - 1, &block));
        ck_assert_uint_eq(block.address, address[i]);
        if (device_memory_find(address[i] + sizes[i], &block))
            ck_assert_uint_ne(block.address, address[i]);
        ck_assert(device_memory_owns(address[i]));
    }
    ck_assert(!device_memory_find(address[0] + 1, &block));
    for (int i = 0; i < 11; i++) {
        check_free(address[i]);
        ck_assert(!device_memory_find(address[i], &block));
    }
    ck_assert(!device_memory_owns(0));
    ck_assert(!device_memory_owns(DEVICE_MEMORY_BASE - 1));
    ck_assert(device_memory_owns(DEVICE_MEMORY_BASE));
    ck_assert(!device_memory_owns(DEVICE_MEMORY_BASE + DEVICE_MEMORY_RANGE));
    ck_assert(!device_memory_owns(~0ull));
    ck_assert(!device_memory_find(~0ull, &block));
}
END_TEST

START_TEST(refuses_to_free_what_is_no_block)
{
    CUdeviceptr small = alloc(1024), large = alloc(4 * MIB), keep = alloc(1024);

    ck_assert_int_eq(device_memory_free(0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(device_memory_free(small + 512), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(device_memory_free(large + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    check_free(small);
    check_free(large);
    ck_assert_int_eq(device_memory_free(small), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(device_memory_free(large), CUDA_ERROR_INVALID_VALUE);
    check_free(keep);
}
END_TEST

START_TEST(wastes_at_most_a_quarter)
{
    for (uint64_t size = 4 * KIB; size <= 512 * KIB; size += 3 * KIB + 512) {
        struct device_memory_stats stats;
        CUdeviceptr blocks[520];
        int count = 0;

        do
            blocks[count++] = alloc(size);
        while (mapping_count < 2);
        check_free(blocks[--count]); /* the first of a second chunk */
        device_memory_get_stats(0, &stats);
        ck_assert_uint_eq(stats.blocks, count);
        /* A slot is at most 5/4 of the size, and of a chunk less than one slot is left over. */
        ck_assert_uint_ge(stats.block_bytes * 5 / 4 + size * 5 / 4 + 512 * (uint64_t)count,
                          DEVICE_MEMORY_CHUNK);
        while (count)
            check_free(blocks[--count]);
        device_memory_free_context(CONTEXT(1));
        ck_assert_int_eq(mapping_count, 0);
    }
}
END_TEST

START_TEST(large_space_is_found_again)
{
    CUdeviceptr a = alloc(10 * MIB), b = alloc(6 * MIB), c = alloc(2 * MIB), d = alloc(4 * MIB);

    ck_assert_uint_eq(a, DEVICE_MEMORY_BASE);
    ck_assert_uint_eq(b, a + 10 * MIB);
    ck_assert_uint_eq(d, c + 2 * MIB);
    check_free(a);
    check_free(c);
    check_free(b);
    ck_assert_uint_eq(alloc(18 * MIB), a); /* all three in one piece */
    check_free(a);
    ck_assert_uint_eq(alloc(20 * MIB), d + 4 * MIB);
    ck_assert_uint_eq(alloc(7 * MIB), a); /* rounded up to 8 */
    ck_assert_uint_eq(alloc(10 * MIB), a + 8 * MIB);
}
END_TEST

START_TEST(each_device_has_its_ranges)
{
    CUdeviceptr a = alloc_in(0, CONTEXT(1), GIB), b = alloc_in(1, CONTEXT(2), GIB);
    CUdeviceptr c = alloc_in(0, CONTEXT(1), 200 * GIB), d = alloc_in(0, CONTEXT(1), 100 * GIB);
    CUdeviceptr e = alloc_in(1, CONTEXT(2), 600 * GIB), f = alloc_in(2, CONTEXT(3), 1);
    struct device_memory_stats stats;

    ck_assert_uint_eq(a, DEVICE_MEMORY_BASE);
    ck_assert_uint_eq(b, DEVICE_MEMORY_BASE + DEVICE_MEMORY_RANGE);
    ck_assert_uint_eq(c, a + GIB);
    ck_assert_uint_eq(d, DEVICE_MEMORY_BASE + 2 * DEVICE_MEMORY_RANGE);
    ck_assert_uint_eq(e, DEVICE_MEMORY_BASE + 3 * DEVICE_MEMORY_RANGE);
    ck_assert_uint_eq(f, DEVICE_MEMORY_BASE + 6 * DEVICE_MEMORY_RANGE);
    ck_assert(device_memory_owns(e + 700 * GIB));
    for (int i = 0; i < mapping_count; i++)
        ck_assert_int_eq(mappings[i].device, mappings[i].address == b || mappings[i].address == e ? 1
                                             : mappings[i].address == f                           ? 2
                                                                                                  : 0);
    device_memory_get_stats(1, &stats);
    ck_assert_uint_eq(stats.blocks, 2);
    ck_assert_uint_eq(stats.chunk_bytes, 601 * GIB);
    check_free(e);
    ck_assert_uint_eq(alloc_in(1, CONTEXT(2), 255 * GIB), b + GIB);
    ck_assert_uint_eq(alloc_in(1, CONTEXT(2), 256 * GIB), e);
}
END_TEST

START_TEST(passes_over_addresses_that_are_taken)
{
    CUdeviceptr address;

    reserve_fails = 3;
    ck_assert_uint_eq(alloc(1), DEVICE_MEMORY_BASE + 3 * DEVICE_MEMORY_RANGE);
    ck_assert(!device_memory_owns(DEVICE_MEMORY_BASE));
    reserve_fails = 1000;
    ck_assert_int_eq(device_memory_alloc(1, CONTEXT(2), 1, &address), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_gt(reserve_fails, 900);
    reserve_fails = 0;
    ck_assert_uint_eq(alloc_in(1, CONTEXT(2), 1), DEVICE_MEMORY_BASE + 4 * DEVICE_MEMORY_RANGE);
}
END_TEST

START_TEST(one_empty_chunk_is_kept)
{
    CUdeviceptr a, b;

    for (int i = 0; i < 100; i++)
        check_free(alloc(1000));
    ck_assert_int_eq(mapping_calls, 1);
    ck_assert_int_eq(mapping_count, 1);
    a = alloc(100 * KIB); /* of another class, in the same chunk */
    b = alloc_in(0, CONTEXT(2), 1000);
    ck_assert_int_eq(mapping_calls, 2);
    check_free(a);
    check_free(b);
    ck_assert_int_eq(mapping_count, 1);
    device_memory_free_context(CONTEXT(2));
    ck_assert_int_eq(mapping_count, 0);
}
END_TEST

START_TEST(contexts_share_no_chunk)
{
    CUdeviceptr mine[100], other[100];
    struct device_block block;
    struct device_memory_stats stats;

    for (int i = 0; i < 100; i++) {
        mine[i] = alloc_in(0, CONTEXT(1), 30 * KIB);
        other[i] = alloc_in(0, CONTEXT(2), i ? 30 * KIB : 3 * MIB);
        ck_assert_uint_ne(mine[i] / DEVICE_MEMORY_CHUNK, other[i] / DEVICE_MEMORY_CHUNK);
    }
    device_memory_free_context(CONTEXT(2));
    device_memory_free_context(CONTEXT(3));
    for (int i = 0; i < 100; i++) {
        ck_assert(device_memory_find(mine[i], &block));
        ck_assert(!device_memory_find(other[i], &block));
    }
    device_memory_get_stats(-1, &stats);
    ck_assert_uint_eq(stats.blocks, 100);
    ck_assert_uint_eq(stats.chunks, 2);
    device_memory_free_context(CONTEXT(1));
    device_memory_get_stats(-1, &stats);
    ck_assert_uint_eq(stats.blocks + stats.block_bytes + stats.chunks + stats.chunk_bytes, 0);
    ck_assert_int_eq(mapping_count, 0);
}
END_TEST

START_TEST(map_failure_gives_the_kept_chunk_back_first)
{
    CUdeviceptr address, large;

    check_free(alloc(1)); /* now one is kept */
    map_fails = 1;
    large = alloc(3 * MIB);
    ck_assert_int_eq(unmapping_calls, 1);
    ck_assert_int_eq(mapping_count, 1);
    map_fails = 1;
    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), 3 * MIB, &address), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(map_fails, 0); /* nothing kept: one try */
    map_fails = 1;
    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), 100, &address), CUDA_ERROR_OUT_OF_MEMORY);
    check_free(alloc_in(0, CONTEXT(1), 1));
    map_fails = 2;
    ck_assert_int_eq(device_memory_alloc(0, CONTEXT(1), 3 * MIB, &address), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(mapping_count, 1);
    check_free(large);
    ck_assert_uint_eq(alloc(64 * MIB), DEVICE_MEMORY_BASE); /* no address space was lost */
}
END_TEST

START_TEST(unmap_failure_is_told_and_the_addresses_rest)
{
    CUdeviceptr address = alloc(3 * MIB);
    struct device_block block;

    unmap_fails = 1;
    ck_assert_int_eq(device_memory_free(address), 700);
    ck_assert(!device_memory_find(address, &block));
    ck_assert_int_eq(device_memory_free(address), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(alloc(3 * MIB), address + 4 * MIB);
}
END_TEST

START_TEST(sync_memops_belong_to_the_block)
{
    CUdeviceptr a = alloc(600), b = alloc(600);
    struct device_block block;

    device_memory_set_sync_memops(a + 17, 0);
    device_memory_set_sync_memops(0, 0);
    ck_assert(device_memory_find(a, &block) && block.sync_memops == 0);
    ck_assert(device_memory_find(b, &block) && block.sync_memops == 1);
    check_free(a);
    ck_assert_uint_eq(alloc(600), a);
    ck_assert(device_memory_find(a, &block) && block.sync_memops == 1);
}
END_TEST

struct visit {
    uint64_t last, bytes, total;
    int chunks, stop_at;
    bool resume;
};

static int visit_chunk(struct device_chunk *chunk, void *arg)
{
    struct visit *visit = arg;
    struct device_memory_stats stats;

    device_memory_get_stats(-1, &stats);
    visit->total = stats.chunk_bytes;
    ck_assert_uint_gt(chunk->address, visit->last);
    visit->last = chunk->address;
    visit->bytes += chunk->size;
    ck_assert_ptr_eq(chunk->context, chunk->device ? CONTEXT(2) : CONTEXT(1));
    if (visit->resume) {
        ck_assert_uint_eq(chunk->handle, 0);
        ck_assert_ptr_eq(chunk->host, (char *)visit + chunk->address % 1000);
        ck_assert_int_eq(fake_map(chunk->device, chunk->address, chunk->size, &chunk->handle), CUDA_SUCCESS);
        chunk->host = NULL;
    } else {
        ck_assert_int_eq(fake_unmap(chunk->address, chunk->size, chunk->handle), CUDA_SUCCESS);
        ck_assert_ptr_null(chunk->host);
        chunk->handle = 0;
        chunk->host = (char *)visit + chunk->address % 1000;
    }
    return ++visit->chunks == visit->stop_at ? 5 : 0;
}

static int count_range(int device, uint64_t address, uint64_t size, void *arg)
{
    ck_assert_uint_eq(address, DEVICE_MEMORY_BASE + (uint64_t)device * DEVICE_MEMORY_RANGE);
    ck_assert_uint_eq(size, DEVICE_MEMORY_RANGE);
    ++*(int *)arg;
    return 0;
}

START_TEST(chunks_are_taken_away_and_put_back)
{
    CUdeviceptr small[50], large = alloc(9 * MIB), other = alloc_in(1, CONTEXT(2), 77),
                           empty = alloc(600 * KIB);
    struct visit visit = {0};
    struct device_block block;
    int ranges = 0;

    for (int i = 0; i < 50; i++)
        small[i] = alloc(100 * KIB);
    check_free(empty); /* kept, and gone before the visit */
    ck_assert_int_eq(device_memory_each_chunk(visit_chunk, &visit), 0);
    ck_assert_int_eq(mapping_count, 0);
    ck_assert_int_eq(visit.chunks, 5); /* 20 slots to a chunk */
    ck_assert_uint_eq(visit.bytes, 18 * MIB);
    ck_assert_uint_eq(visit.total, 18 * MIB);
    ck_assert(device_memory_find(large + MIB, &block));
    ck_assert_int_eq(device_memory_each_range(count_range, &ranges), 0);
    ck_assert_int_eq(ranges, 2);

    visit.last = 0;
    visit.chunks = 0;
    visit.resume = true;
    ck_assert_int_eq(device_memory_each_chunk(visit_chunk, &visit), 0);
    ck_assert_int_eq(mapping_count, 5);
    visit = (struct visit){.stop_at = 2};
    ck_assert_int_eq(device_memory_each_chunk(visit_chunk, &visit), 5);
    ck_assert_int_eq(visit.chunks, 2);
    ck_assert_int_eq(mapping_count, 3);
    visit.last = 0;
    visit.resume = true;
    visit.stop_at = 4;
    ck_assert_int_eq(device_memory_each_chunk(visit_chunk, &visit), 5);
    check_free(large);
    check_free(other);
    for (int i = 0; i < 50; i++)
        check_free(small[i]);
    ck_assert_int_eq(mapping_count, 2); /* one kept on each device */
}
END_TEST

START_TEST(forked_child_forgets)
{
    CUdeviceptr address = alloc(1000);
    struct device_block block;
    int status;
    pid_t pid;

    device_memory_before_fork();
    pid = fork();
    device_memory_after_fork(pid == 0);
    if (!pid) {
        bool good = !device_memory_owns(address) && !device_memory_find(address, &block);

        reservation_count = mapping_count = 0;
        good = good && device_memory_alloc(3, CONTEXT(9), 5, &address) == CUDA_SUCCESS &&
               address == DEVICE_MEMORY_BASE;
        _exit(good ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(device_memory_find(address, &block));
}
END_TEST

static void *churn(void *arg)
{
    unsigned int seed = (unsigned int)(uintptr_t)arg;
    CUcontext context = CONTEXT(seed % 3 + 1);
    CUdeviceptr held[32] = {0};
    uint64_t sizes[32] = {0};

    for (int round = 0; round < 3000; round++) {
        int i = rand_r(&seed) % 32;
        struct device_block block;

        if (held[i]) {
            ck_assert(device_memory_find(held[i] + sizes[i] - 1, &block));
            ck_assert_uint_eq(block.size, sizes[i]);
            ck_assert_ptr_eq(block.context, context);
            check_free(held[i]);
            held[i] = 0;
        } else {
            sizes[i] = 1 + (uint64_t)rand_r(&seed) % (1ull << (rand_r(&seed) % 24));
            held[i] = alloc_in(0, context, sizes[i]);
        }
    }
    for (int i = 0; i < 32; i++) {
        if (held[i])
            check_free(held[i]);
    }
    return NULL;
}

START_TEST(threads_allocate_at_once)
{
    struct device_memory_stats stats;
    pthread_t threads[8];

    for (uintptr_t i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    device_memory_get_stats(0, &stats);
    ck_assert_uint_eq(stats.blocks + stats.block_bytes, 0);
    ck_assert_uint_eq(stats.chunks, (uint64_t)mapping_count);
    ck_assert_int_le(mapping_count, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_memory");
    TCase *tcase = tcase_create("device_memory");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, nothing_for_size_zero);
    tcase_add_test(tcase, finds_blocks_by_any_address_in_them);
    tcase_add_test(tcase, refuses_to_free_what_is_no_block);
    tcase_add_test(tcase, wastes_at_most_a_quarter);
    tcase_add_test(tcase, large_space_is_found_again);
    tcase_add_test(tcase, each_device_has_its_ranges);
    tcase_add_test(tcase, passes_over_addresses_that_are_taken);
    tcase_add_test(tcase, one_empty_chunk_is_kept);
    tcase_add_test(tcase, contexts_share_no_chunk);
    tcase_add_test(tcase, map_failure_gives_the_kept_chunk_back_first);
    tcase_add_test(tcase, unmap_failure_is_told_and_the_addresses_rest);
    tcase_add_test(tcase, sync_memops_belong_to_the_block);
    tcase_add_test(tcase, chunks_are_taken_away_and_put_back);
    tcase_add_test(tcase, forked_child_forgets);
    tcase_add_test(tcase, threads_allocate_at_once);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
