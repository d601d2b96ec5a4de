/* The driver by dlopen and dlsym, closed and opened again, as programs do that must start without it. */

#include "found.h"

#include <dlfcn.h>

static struct found found;
static struct found_state state;

static void *open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        FAIL("%s", dlerror());
    return library;
}

static void find_all(void *library, struct found *f)
{
#define FIND(base, symbol, version)                                                                          \
    f->base = (__typeof__(f->base))dlsym(library, #symbol);                                                  \
    EXPECT(f->base != NULL);
    FOUND_FUNCTIONS(FIND)
#undef FIND
}

/* Opened once more, it is the same library; what isn't there isn't found. */
static void check_all(void)
{
    void *again = open_driver();
    struct found same;

    find_all(again, &same);
    EXPECT(same.cuMemAlloc == found.cuMemAlloc && same.cuLaunchKernel == found.cuLaunchKernel);
    EXPECT(dlsym(again, "cuNoSuchFunction") == NULL);
    EXPECT(dlerror() != NULL);
    EXPECT_EQ(dlclose(again), 0);
    found_check(&found, &state);
}

int main(int argc, char **argv)
{
    void *library;

    program_start(argc, argv);
    EXPECT_EQ(dlclose(open_driver()), 0);
    EXPECT(dlopen("libno-such-library.so.1", RTLD_NOW) == NULL);
    EXPECT(dlerror() != NULL);
    library = open_driver();
    find_all(library, &found);
    found_set_up(&found, &state);
    program_ready(check_all);
    while (program_running()) {
        found_round(&found, &state);
        found_check(&found, &state);
    }
    found_tear_down(&found, &state);
    return program_end();
}
