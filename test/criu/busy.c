/*
 * Threads that hold locks of libc most of the time (malloc in one arena, dlopen, pthread_create), beside one
 * that uses the device. Frozen at any moment, as CRIU freezes, some lock is held that a resume needs.
 */

#include <dlfcn.h>
#include <malloc.h>

#include "device.h"

#define BLOCKS 64

static void *allocate(void *arg)
{
    void *blocks[BLOCKS] = {NULL};

    for (size_t i = 0; program_goes_on(); i++) {
        free(blocks[i % BLOCKS]);
        blocks[i % BLOCKS] = malloc(program_random() % 40000 + 1);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return arg;
}

static void *open_libraries(void *arg)
{
    while (program_goes_on()) {
        void *handle = dlopen("libutil.so.1", RTLD_NOW);

        if (handle)
            dlclose(handle);
    }
    return arg;
}

static void *nothing(void *arg)
{
    return arg;
}

static void *make_threads(void *arg)
{
    pthread_t thread;

    while (program_goes_on()) {
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return arg;
}

int main(int argc, char **argv)
{
    void *(*const busy[])(void *) = {allocate, open_libraries, make_threads};
    pthread_t threads[3];
    CUdeviceptr word;

    mallopt(M_ARENA_MAX, 1);
    program_start(argc, argv);
    device_start();
    CHECK(cuMemAlloc_v2(&word, sizeof(uint32_t)));
    word_set(word, 7);
    for (int i = 0; i < 3; i++)
        threads[i] = program_thread(busy[i], NULL);
    program_ready(NULL);
    while (program_running())
        EXPECT_EQ(word_get(word), 7);
    for (int i = 0; i < 3; i++)
        program_thread_join(threads[i]);
    CHECK(cuMemFree_v2(word));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return program_end();
}
