/*
 * Module variables, changed by kernels and by the host, keep their contents; also those whose names nobody
 * has asked for before the suspend.
 */

#include "device.h"

#define SILENT 3 /* modules of which only kernels are asked for, until verify asks for the variable */

static CUmodule asked;
static CUfunction bump, read_const;
static CUdeviceptr counter, table, word;
static uint32_t bumps, seed;
static struct silent {
    CUmodule module;
    CUfunction bump;
    uint32_t bumps;
} silent[SILENT];

static void silent_load(struct silent *s)
{
    CHECK(cuModuleLoadData(&s->module, kernels_ptx));
    s->bump = kernel_get(s->module, "bump");
    s->bumps = 0;
}

static void table_write(uint32_t new_seed)
{
    uint32_t values[KERNELS_CONST_COUNT];

    seed = new_seed;
    for (uint32_t i = 0; i < KERNELS_CONST_COUNT; i++)
        values[i] = KERNELS_FILL(i, seed);
    CHECK(cuMemcpyHtoD_v2(table, values, sizeof values));
}

/* As kernels see it, through the constant cache. */
static void table_check(void)
{
    for (uint32_t i = 0; i < KERNELS_CONST_COUNT; i += 7) {
        LAUNCH(read_const, 1, 1, NULL, &word, &i);
        CHECK(cuCtxSynchronize());
        EXPECT_EQ(word_get(word), KERNELS_FILL(i, seed));
    }
}

static void check_asked(void)
{
    EXPECT_EQ(word_get(counter), bumps);
    table_check();
}

static void check_all(void)
{
    check_asked();
    EXPECT_EQ(global_get(asked, "g_counter", 4), counter);
    EXPECT_EQ(global_get(asked, "c_table", 4 * KERNELS_CONST_COUNT), table);
    for (int i = 0; i < SILENT; i++) {
        EXPECT_EQ(word_get(global_get(silent[i].module, "g_counter", 4)),
                  KERNELS_GLOBAL_INITIAL + silent[i].bumps);
        CHECK(cuModuleUnload(silent[i].module));
        silent_load(&silent[i]); /* its variable has not been asked for again */
    }
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    CHECK(cuModuleLoadData(&asked, kernels_ptx));
    bump = kernel_get(asked, "bump");
    read_const = kernel_get(asked, "read_const");
    counter = global_get(asked, "g_counter", 4);
    table = global_get(asked, "c_table", 4 * KERNELS_CONST_COUNT);
    CHECK(cuMemAlloc_v2(&word, 4));
    table_write(1);
    bumps = KERNELS_GLOBAL_INITIAL;
    for (int i = 0; i < SILENT; i++)
        silent_load(&silent[i]);
    program_ready(check_all);
    while (program_running()) {
        LAUNCH_PLAIN(bump, NULL);
        CHECK(cuCtxSynchronize());
        bumps++;
        if (program_random() % 8 == 0) { /* the host writes, too */
            bumps = program_random();
            word_set(counter, bumps);
            table_write(program_random());
        }
        for (int i = 0; i < SILENT; i++) {
            LAUNCH_PLAIN(silent[i].bump, NULL);
            silent[i].bumps++;
        }
        CHECK(cuCtxSynchronize());
        check_asked();
    }
    for (int i = 0; i < SILENT; i++)
        CHECK(cuModuleUnload(silent[i].module));
    CHECK(cuModuleUnload(asked));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
