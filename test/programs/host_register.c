/* Memory of the program's own, registered in pieces with all flags; written by the CPU while suspended. */

#include "device.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096

/* Pieces of one mapping; pieces that touch, and one that is not aligned in memory from malloc. */
static struct piece {
    size_t page, pages; /* pages 0: from malloc */
    unsigned flags;
    volatile uint32_t *host; /* word 0 belongs to the ticking thread, word 1 to the device */
    size_t size;
    CUdeviceptr device;
    uint32_t seed, count;
} pieces[] = {
    {.page = 0, .pages = 1, .flags = 0},
    {.page = 1, .pages = 3, .flags = CU_MEMHOSTREGISTER_PORTABLE},
    {.page = 4, .pages = 16, .flags = CU_MEMHOSTREGISTER_DEVICEMAP},
    {.page = 30, .pages = 600, .flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP},
    {.pages = 0, .flags = CU_MEMHOSTREGISTER_PORTABLE},
};

#define PIECES        (sizeof pieces / sizeof pieces[0])
#define MAPPING_PAGES 640
#define MALLOC_SIZE   50000

static struct kernels kernels;
static CUdeviceptr word;

static void piece_register(struct piece *piece)
{
    CHECK(cuMemHostRegister_v2((void *)(uintptr_t)piece->host, piece->size, piece->flags));
    CHECK(cuMemHostGetDevicePointer_v2(&piece->device, (void *)(uintptr_t)piece->host, 0));
}

static void write_ticks(uint64_t tick)
{
    for (size_t i = 0; i < PIECES; i++)
        pieces[i].host[0] = (uint32_t)tick;
}

static void piece_check(struct piece *piece)
{
    uint32_t one = 1, before, seen, after;
    uint64_t words = 1;
    CUdeviceptr device, counter = piece->device + 4;

    CHECK(cuMemHostGetDevicePointer_v2(&device, (void *)(uintptr_t)piece->host, 0));
    EXPECT_EQ(device, piece->device);
    before = piece->host[0];
    LAUNCH(kernels.copy_words, 1, 1, NULL, &word, &device, &words);
    CHECK(cuCtxSynchronize());
    after = piece->host[0];
    seen = word_get(word);
    if (seen < before || seen > after)
        FAIL("the device saw tick %u in piece %zu, the CPU wrote %u before and %u after", seen,
             (size_t)(piece - pieces), before, after);
    LAUNCH(kernels.increment, 1, 1, NULL, &counter, &one);
    CHECK(cuCtxSynchronize());
    piece->count++;
    EXPECT_EQ(piece->host[1], piece->count);
}

static void check_all(void)
{
    for (size_t i = 0; i < PIECES; i++) {
        struct piece *piece = &pieces[i];
        uint64_t words = piece->size / 4 - 2;

        piece_check(piece);
        for (size_t j = 0; j < words; j++)
            if (piece->host[j + 2] != KERNELS_FILL(j, piece->seed))
                FAIL("word %zu of piece %zu is wrong for the CPU", j + 2, i);
        words_check(&kernels, piece->device + 8, words, piece->seed, NULL);
    }
    words_checked(&kernels, "registered memory as the device sees it");
}

int main(int argc, char **argv)
{
    char *mapping =
        mmap(NULL, MAPPING_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *heap = malloc(MALLOC_SIZE);

    program_start(argc, argv);
    if (mapping == MAP_FAILED || !heap)
        FAIL("no memory");
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&word, 4));
    for (size_t i = 0; i < PIECES; i++) {
        struct piece *piece = &pieces[i];

        piece->host = piece->pages ? (void *)(mapping + piece->page * PAGE) : (void *)(heap + 112);
        piece->size = piece->pages ? piece->pages * PAGE : MALLOC_SIZE - 200;
        piece->seed = program_random();
        for (size_t j = 2; j < piece->size / 4; j++)
            piece->host[j] = KERNELS_FILL(j - 2, piece->seed);
        piece->host[0] = piece->host[1] = 0;
        piece_register(piece);
    }
    CHECK_GIVES(cuMemHostRegister_v2(mapping, PAGE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_GIVES(cuMemHostUnregister(mapping + 25 * PAGE), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    program_on_tick(write_ticks);
    program_ready(check_all);
    while (program_running()) {
        struct piece *again = &pieces[program_random() % PIECES];

        for (size_t i = 0; i < PIECES; i++)
            piece_check(&pieces[i]);
        CHECK(cuMemHostUnregister((void *)(uintptr_t)again->host));
        piece_register(again);
    }
    for (size_t i = 0; i < PIECES; i++)
        CHECK(cuMemHostUnregister((void *)(uintptr_t)pieces[i].host));
    kernels_unload(&kernels);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
