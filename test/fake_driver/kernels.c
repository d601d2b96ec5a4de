/*
 * The kernels: C twins of the PTX in test/programs/kernels.ptx.h, by name. Each does at once what all threads
 * of the grid do together.
 */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

/* ---- what kernels see. Memory that can't be touched gives NULL and makes the launch fail. */

static void *kernel_memory(struct kernel_call *call, uint64_t address, uint64_t size)
{
    bool accessible;

    if (!size)
        return (void *)(uintptr_t)address;
    pthread_mutex_lock(&fake.lock);
    accessible = pages_accessible(call->context, address, size);
    pthread_mutex_unlock(&fake.lock);
    if (accessible)
        return (void *)(uintptr_t)address;
    call->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    return NULL;
}

static uint64_t kernel_parameter(const struct kernel_call *call, uint32_t index)
{
    uint64_t value = 0;

    if (index < call->image->parameter_count) {
        const struct image_parameter *parameter = &call->image->parameters[index];

        memcpy(&value, call->parameters + parameter->offset, parameter->size < 8 ? parameter->size : 8);
    }
    return value;
}

static void *kernel_variable(struct kernel_call *call, const char *name)
{
    const struct variable *variable = module_find_variable(call->function->module, name);

    if (!variable) {
        call->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        return NULL;
    }
    return kernel_memory(call, variable->address, variable->image->size);
}

static uint64_t kernel_device_function(const struct kernel_call *call, const char *name)
{
    return module_device_function(call->function->module, name);
}

static uint32_t blocks_of(const struct kernel_call *call)
{
    return call->grid[0] * call->grid[1] * call->grid[2];
}

static uint32_t pattern(uint64_t index, uint32_t seed)
{
    return (uint32_t)(index * 2654435761u) ^ seed;
}

static void pause_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&time, NULL);
}

/* ---- the kernels */

/* fill(u32 *p, u64 n, u32 seed) */
static void fill(struct kernel_call *call)
{
    uint64_t n = kernel_parameter(call, 1);
    uint32_t seed = (uint32_t)kernel_parameter(call, 2);
    uint32_t *p = kernel_memory(call, kernel_parameter(call, 0), n * 4);

    for (uint64_t i = 0; p && i < n; i++)
        p[i] = pattern(i, seed);
}

/* check(const u32 *p, u64 n, u32 seed, u64 *bad) */
static void check(struct kernel_call *call)
{
    uint64_t n = kernel_parameter(call, 1);
    uint32_t seed = (uint32_t)kernel_parameter(call, 2);
    const uint32_t *p = kernel_memory(call, kernel_parameter(call, 0), n * 4);
    uint64_t *bad = kernel_memory(call, kernel_parameter(call, 3), 8);
    uint64_t count = 0;

    for (uint64_t i = 0; p && i < n; i++)
        count += p[i] != pattern(i, seed);
    if (bad)
        __atomic_add_fetch(bad, count, __ATOMIC_RELAXED);
}

/* increment(u32 *p, u32 by) */
static void increment(struct kernel_call *call)
{
    uint32_t *p = kernel_memory(call, kernel_parameter(call, 0), 4);

    if (p)
        __atomic_add_fetch(p, (uint32_t)kernel_parameter(call, 1), __ATOMIC_RELAXED);
}

/* bump(): g_counter += 1 */
static void bump(struct kernel_call *call)
{
    uint32_t *counter = kernel_variable(call, "g_counter");

    if (counter)
        __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* read_const(u32 *out, u32 index): *out = c_table[index] */
static void read_const(struct kernel_call *call)
{
    const uint32_t *table = kernel_variable(call, "c_table");
    uint32_t *out = kernel_memory(call, kernel_parameter(call, 0), 4);

    if (table && out)
        *out = table[kernel_parameter(call, 1) % 64];
}

/* spin_until(volatile u32 *flag, u32 value) */
static void spin_until(struct kernel_call *call)
{
    const uint32_t *flag = kernel_memory(call, kernel_parameter(call, 0), 4);
    uint32_t value = (uint32_t)kernel_parameter(call, 1);

    while (flag && __atomic_load_n(flag, __ATOMIC_ACQUIRE) != value)
        pause_ns(20000);
}

/* sleep_ns(u64 ns) */
static void sleep_ns(struct kernel_call *call)
{
    pause_ns(kernel_parameter(call, 0));
}

/* shared_sum(u32 *out, u32 n): through n words of dynamic shared memory */
static void shared_sum(struct kernel_call *call)
{
    uint32_t n = (uint32_t)kernel_parameter(call, 1);
    uint32_t *out = kernel_memory(call, kernel_parameter(call, 0), 4);
    uint32_t *shared;
    uint32_t sum = 0;

    if (!out)
        return;
    if ((uint64_t)n * 4 > call->shared) {
        call->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        return;
    }
    shared = malloc((size_t)n * 4 + 4);
    for (uint32_t i = 0; shared && i < n; i++)
        shared[i] = i;
    for (uint32_t i = 0; shared && i < n; i++)
        sum += shared[i];
    free(shared);
    *out = sum;
}

/* get_fn(u64 *out): address of the device function add_one */
static void get_fn(struct kernel_call *call)
{
    uint64_t *out = kernel_memory(call, kernel_parameter(call, 0), 8);

    if (out)
        *out = kernel_device_function(call, "add_one");
}

/* call_fn(const u64 *fn, u32 x, u32 *out) */
static void call_fn(struct kernel_call *call)
{
    const uint64_t *fn = kernel_memory(call, kernel_parameter(call, 0), 8);
    uint32_t *out = kernel_memory(call, kernel_parameter(call, 2), 4);

    if (!fn || !out)
        return;
    if (*fn && *fn == kernel_device_function(call, "add_one"))
        *out = (uint32_t)kernel_parameter(call, 1) + 1;
    else
        call->error = CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* grid_count(u32 *counter): one for each block */
static void grid_count(struct kernel_call *call)
{
    uint32_t *counter = kernel_memory(call, kernel_parameter(call, 0), 4);

    if (counter)
        __atomic_add_fetch(counter, blocks_of(call), __ATOMIC_RELAXED);
}

static void illegal(struct kernel_call *call)
{
    call->error = CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* copy_words(u32 *dst, const u32 *src, u64 n) */
static void copy_words(struct kernel_call *call)
{
    uint64_t n = kernel_parameter(call, 2);
    uint32_t *dst = kernel_memory(call, kernel_parameter(call, 0), n * 4);
    const uint32_t *src = kernel_memory(call, kernel_parameter(call, 1), n * 4);

    if (dst && src)
        memcpy(dst, src, n * 4);
}

/* stamp(u64 *out): a clock */
static void stamp(struct kernel_call *call)
{
    uint64_t *out = kernel_memory(call, kernel_parameter(call, 0), 8);

    if (out)
        *out = now_ns();
}

kernel_twin kernel_twin_find(const char *name)
{
    static const struct {
        const char *name;
        kernel_twin twin;
    } twins[] = {
        {"fill", fill},
        {"check", check},
        {"increment", increment},
        {"bump", bump},
        {"read_const", read_const},
        {"spin_until", spin_until},
        {"sleep_ns", sleep_ns},
        {"shared_sum", shared_sum},
        {"get_fn", get_fn},
        {"call_fn", call_fn},
        {"grid_count", grid_count},
        {"illegal", illegal},
        {"copy_words", copy_words},
        {"stamp", stamp},
    };

    for (size_t i = 0; i < sizeof(twins) / sizeof(*twins); i++) {
        if (!strcmp(twins[i].name, name))
            return twins[i].twin;
    }
    return NULL;
}
