/* Contexts that the program creates: stacks of them, ids, destruction with all that is in them. */

#include "device.h"

#define CONTEXTS 3

static struct created {
    CUcontext context;
    unsigned flags;
    unsigned long long id;
    unsigned version;
    struct kernels kernels;
    CUdeviceptr words;
    CUstream stream;
    uint32_t seed;
} created[CONTEXTS];

#define WORDS 3000

static void create(struct created *c, unsigned flags)
{
    CUcontext popped;

    CHECK(cuCtxCreate_v2(&c->context, flags, 0));
    CHECK(cuCtxGetFlags(&c->flags)); /* the driver may have chosen for CU_CTX_SCHED_AUTO */
    CHECK(cuCtxGetId(c->context, &c->id));
    CHECK(cuCtxGetApiVersion(c->context, &c->version));
    kernels_load(&c->kernels);
    CHECK(cuMemAlloc_v2(&c->words, WORDS * 4));
    CHECK(cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));
    c->seed = program_random();
    words_fill(&c->kernels, c->words, WORDS, c->seed, c->stream);
    CHECK(cuStreamSynchronize(c->stream));
    CHECK(cuCtxPopCurrent_v2(&popped)); /* creating made it current */
    EXPECT(popped == c->context);
}

static void check_current(CUcontext expected)
{
    CUcontext current;

    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == expected);
}

static void check_created(struct created *c)
{
    unsigned long long id;
    unsigned flags, version;
    CUcontext popped;

    CHECK(cuCtxPushCurrent_v2(c->context));
    check_current(c->context);
    CHECK(cuCtxGetId(c->context, &id));
    EXPECT_EQ(id, c->id);
    CHECK(cuCtxGetFlags(&flags));
    EXPECT_EQ(flags, c->flags);
    CHECK(cuCtxGetApiVersion(c->context, &version));
    EXPECT_EQ(version, c->version);
    words_check(&c->kernels, c->words, WORDS, c->seed, c->stream);
    words_checked(&c->kernels, "memory of a created context");
    CHECK(cuCtxPopCurrent_v2(&popped));
    EXPECT(popped == c->context);
}

static void check_all(void)
{
    CUcontext popped;

    /* The stack of the main thread is created[0], created[1], created[0] all the time. */
    check_current(created[0].context);
    for (int i = 0; i < CONTEXTS; i++)
        check_created(&created[i]);
    CHECK(cuCtxPopCurrent_v2(&popped));
    EXPECT(popped == created[0].context);
    check_current(created[1].context);
    CHECK(cuCtxPopCurrent_v2(&popped));
    check_current(created[0].context);
    CHECK(cuCtxPushCurrent_v2(created[1].context));
    CHECK(cuCtxPushCurrent_v2(created[0].context));
    check_current(created[0].context);
}

int main(int argc, char **argv)
{
    unsigned round = 0;

    program_start(argc, argv);
    CHECK(cuInit(0));
    create(&created[0], CU_CTX_SCHED_AUTO);
    create(&created[1], CU_CTX_SCHED_SPIN);
    create(&created[2], CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST);
    check_current(NULL);
    CHECK_GIVES(cuCtxPopCurrent_v2(&(CUcontext){NULL}), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxPushCurrent_v2(created[0].context));
    CHECK(cuCtxPushCurrent_v2(created[1].context));
    CHECK(cuCtxPushCurrent_v2(created[0].context));
    program_ready(check_all);
    while (program_running()) {
        round++;
        check_all();
        if (round % 50 == 49) { /* with its content, while it is not on any stack */
            CHECK(cuCtxDestroy_v2(created[2].context));
            create(&created[2], round % 100 == 49 ? CU_CTX_SCHED_YIELD : CU_CTX_SCHED_BLOCKING_SYNC);
        }
        /* Another current one for a moment: set replaces the top of the stack. */
        CHECK(cuCtxSetCurrent(created[2].context));
        check_current(created[2].context);
        CHECK(cuCtxSetCurrent(created[0].context));
        program_sleep_ms(2);
    }
    for (int i = 0; i < CONTEXTS; i++)
        CHECK(cuCtxDestroy_v2(created[i].context));
    return program_end();
}
