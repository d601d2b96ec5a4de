/*
 * The private table by which the CUDA runtime keeps values per context: what was put is there after a resume,
 * at the same address of the table, and is given to its destructor when the context goes.
 */

#include "device.h"

/* c693336e-1121-df11-a8c3-68f355d89593: four entries, without a size before them */
static const CUuuid storage_id = {{(char)0xc6, (char)0x93, 0x33, 0x6e, 0x11, 0x21, (char)0xdf, 0x11,
                                   (char)0xa8, (char)0xc3, 0x68, (char)0xf3, 0x55, (char)0xd8, (char)0x95,
                                   (char)0x93}};

struct storage {
    CUresult (*put)(CUcontext context, void *key, void *value,
                    void (*destructor)(CUcontext context, void *key, void *value));
    CUresult (*delete)(CUcontext context, void *key);
    CUresult (*get)(void **value, CUcontext context, void *key);
};

#define KEYS 20

static const struct storage *storage;
static CUcontext contexts[2];
static char keys[KEYS], changing_key;
static int destroyed;

/* Any address does; nobody looks behind it. */
static void *value_of(int context, int key)
{
    return &keys[(key * 7 + context) % KEYS];
}

static void destructor(CUcontext context, void *key, void *value)
{
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
}

static void check_all(void)
{
    const void *again;

    CHECK(cuGetExportTable(&again, &storage_id));
    EXPECT(again == (const void *)storage);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < KEYS; j++) {
            void *value = NULL;

            CHECK(storage->get(&value, contexts[i], &keys[j]));
            EXPECT(value == value_of(i, j));
        }
}

/* A key that comes and goes. */
static void check_changing(int round)
{
    void *value = NULL;

    CHECK(storage->put(contexts[round % 2], &changing_key, &keys[round % KEYS], destructor));
    CHECK(storage->get(&value, contexts[round % 2], &changing_key));
    EXPECT(value == &keys[round % KEYS]);
    CHECK(storage->delete (contexts[round % 2], &changing_key));
    value = NULL;
    EXPECT(storage->get(&value, contexts[round % 2], &changing_key) != CUDA_SUCCESS || !value);
}

int main(int argc, char **argv)
{
    const void *table = NULL;
    int before;

    program_start(argc, argv);
    if (cuGetExportTable(&table, &storage_id) != CUDA_SUCCESS || !table)
        program_skip("the driver has no table for context-local storage");
    storage = table;
    contexts[0] = device_start();
    CHECK(cuCtxCreate_v2(&contexts[1], CU_CTX_SCHED_AUTO, 0));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < KEYS; j++)
            CHECK(storage->put(contexts[i], &keys[j], value_of(i, j), destructor));
    program_ready(check_all);
    for (int round = 0; program_running(); round++) {
        check_all();
        check_changing(round);
        CHECK(cuCtxSynchronize());
    }
    /* No suspend and no resume gave anything to the destructor; the end of the context does. */
    before = destroyed;
    CHECK(cuCtxDestroy_v2(contexts[1]));
    EXPECT_EQ(destroyed, before + KEYS);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
