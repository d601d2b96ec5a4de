/* Modules loaded and unloaded in an order that leaves holes: handles and addresses of variables stay where
 * they were. */

#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8

/* Each module is the test kernels and one more variable, of a size of its own. */
static struct slot {
    CUmodule module;
    CUfunction bump;
    CUdeviceptr counter, extra;
    uint32_t extra_size, seed, bumps;
} slots[SLOTS];
static struct kernels kernels;

static void slot_load(struct slot *slot)
{
    static const uint32_t sizes[] = {4, 100, 4096, 70000, 1 << 20, 3 << 20};
    char *text = malloc(sizeof kernels_ptx + 100);

    if (!text)
        FAIL("no memory");
    slot->extra_size = sizes[program_random() % (sizeof sizes / sizeof sizes[0])];
    snprintf(text, sizeof kernels_ptx + 100, "%s\n.visible .global .align 4 .b8 extra[%u];\n", kernels_ptx,
             slot->extra_size);
    CHECK(cuModuleLoadData(&slot->module, text));
    free(text);
    slot->bump = kernel_get(slot->module, "bump");
    slot->counter = global_get(slot->module, "g_counter", 4);
    slot->extra = global_get(slot->module, "extra", slot->extra_size);
    slot->seed = program_random();
    slot->bumps = 0;
    words_fill(&kernels, slot->extra, slot->extra_size / 4, slot->seed, NULL);
    CHECK(cuCtxSynchronize());
}

static void slot_unload(struct slot *slot)
{
    CHECK(cuModuleUnload(slot->module));
    slot->module = NULL;
}

static void check_all(void)
{
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &slots[i];

        if (!slot->module)
            continue;
        EXPECT(kernel_get(slot->module, "bump") == slot->bump);
        EXPECT_EQ(global_get(slot->module, "g_counter", 4), slot->counter);
        EXPECT_EQ(global_get(slot->module, "extra", slot->extra_size), slot->extra);
        EXPECT_EQ(word_get(slot->counter), KERNELS_GLOBAL_INITIAL + slot->bumps);
        words_check(&kernels, slot->extra, slot->extra_size / 4, slot->seed, NULL);
    }
    words_checked(&kernels, "module variables");
}

int main(int argc, char **argv)
{
    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    /* A, B, unload A, C: what is loaded again must not fill the hole that A left in another order. */
    slot_load(&slots[0]);
    slot_load(&slots[1]);
    slot_unload(&slots[0]);
    slot_load(&slots[2]);
    slot_load(&slots[3]);
    slot_unload(&slots[1]);
    slot_load(&slots[4]);
    program_ready(check_all);
    while (program_running()) {
        struct slot *slot = &slots[program_random() % SLOTS];

        if (slot->module)
            slot_unload(slot);
        else
            slot_load(slot);
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].module) {
                LAUNCH_PLAIN(slots[i].bump, NULL);
                slots[i].bumps++;
            }
        CHECK(cuCtxSynchronize());
        check_all();
        program_sleep_ms(5);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].module)
            slot_unload(&slots[i]);
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
