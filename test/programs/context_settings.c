/* Limits, cache configuration, flags and ids of contexts read the same after a resume. */

#include "device.h"

static CUcontext contexts[2]; /* the primary one, a created one */
static struct settings {
    size_t limits[3]; /* stack size, printf buffer, device heap */
    CUfunc_cache cache;
    CUsharedconfig shared;
    unsigned flags, version;
    unsigned long long id;
    int least, greatest;
} settings[2];

static void settings_read(struct settings *s, CUcontext context)
{
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxGetLimit(&s->limits[0], CU_LIMIT_STACK_SIZE));
    CHECK(cuCtxGetLimit(&s->limits[1], CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK(cuCtxGetLimit(&s->limits[2], CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK(cuCtxGetCacheConfig(&s->cache));
    CHECK(cuCtxGetSharedMemConfig(&s->shared));
    CHECK(cuCtxGetFlags(&s->flags));
    CHECK(cuCtxGetApiVersion(context, &s->version));
    CHECK(cuCtxGetId(context, &s->id));
    CHECK(cuCtxGetStreamPriorityRange(&s->least, &s->greatest));
}

static void check_all(void)
{
    for (int i = 0; i < 2; i++) {
        struct settings now;

        settings_read(&now, contexts[i]);
        for (int j = 0; j < 3; j++)
            EXPECT_EQ(now.limits[j], settings[i].limits[j]);
        EXPECT_EQ(now.cache, settings[i].cache);
        EXPECT_EQ(now.shared, settings[i].shared);
        EXPECT_EQ(now.flags, settings[i].flags);
        EXPECT_EQ(now.version, settings[i].version);
        EXPECT_EQ(now.id, settings[i].id);
        EXPECT_EQ(now.least, settings[i].least);
        EXPECT_EQ(now.greatest, settings[i].greatest);
    }
}

static void change_stack_size(int i)
{
    size_t size = 1024 * (1 + program_random() % 8);

    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size));
    CHECK(cuCtxGetLimit(&settings[i].limits[0], CU_LIMIT_STACK_SIZE));
    EXPECT(settings[i].limits[0] >= size);
}

int main(int argc, char **argv)
{
    static const CUfunc_cache caches[] = {CU_FUNC_CACHE_PREFER_NONE, CU_FUNC_CACHE_PREFER_SHARED,
                                          CU_FUNC_CACHE_PREFER_L1, CU_FUNC_CACHE_PREFER_EQUAL};

    program_start(argc, argv);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
    CHECK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    CHECK(cuCtxCreate_v2(&contexts[1], CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_LMEM_RESIZE_TO_MAX, 0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        /* The heap and the printf buffer must be set before any kernel is loaded. */
        CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, (i + 2ull) << 20));
        CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (i + 1ull) * (16 << 20)));
        CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096 * (i + 1)));
        CHECK(cuCtxSetCacheConfig(caches[i + 1]));
        settings_read(&settings[i], contexts[i]);
        EXPECT(settings[i].limits[0] >= 4096u * (i + 1));
    }
    program_ready(check_all);
    while (program_running()) {
        int i = (int)(program_random() % 2);

        check_all();
        change_stack_size(i);
        CHECK(cuCtxSetCacheConfig(caches[program_random() % 4]));
        CHECK(cuCtxGetCacheConfig(&settings[i].cache));
        program_sleep_ms(1);
    }
    CHECK(cuCtxDestroy_v2(contexts[1]));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
