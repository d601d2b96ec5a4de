/* Thunks, the raw entry points, and the dlopen and dlsym stubs. */
#include "thunk.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "driver_api.h"
#include "elf_library.h"
#include "gate.h"
#include "loader_hooks.h"
#include "unsaveable.h"

/* ---- the parts around it */

const char *driver_row_name(uint32_t row)
{
    return row < ROW_COUNT ? "a row" : thunk_name(row - ROW_COUNT);
}

static int raw_real(int a, int b)
{
    ck_assert_uint_gt(gate_self->inside, ROW_COUNT + THUNK_COUNT);
    return a * 10 + b;
}

/* The driver has one of the raw functions. */
void *elf_library_symbol(const struct elf_library *library, const char *name)
{
    return !strcmp(name, "cuMemGetAttribute") ? (void *)raw_real : NULL;
}

static int set_ups;

static void set_up(void)
{
    if (!set_ups) {
        set_ups = 1;
        thunk_start(NULL);
    }
}

const struct gate_hooks gate_default_hooks = {set_up, NULL};

/* A sanitizer's runtime asks for symbols before it is ready for code that it instruments. */
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

void *(*loader_real_dlopen)(const char *, int);
void *(*loader_real_dlsym)(void *, const char *);
static int resolved;

EARLY void loader_resolve(void)
{
    resolved++;
    loader_real_dlopen = (void *(*)(const char *, int))dlvsym(RTLD_NEXT, "dlopen", "GLIBC_2.34");
    loader_real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
}

static char answer_handle;
static void *last_caller;

EARLY void *loader_dlopen_filter(const char *name, int flags, void *caller)
{
    last_caller = caller;
    return name && !strcmp(name, "libanswer.so") && flags == RTLD_NOW ? &answer_handle : NULL;
}

EARLY void *loader_dlsym_filter(void **handle, const char **symbol, void *caller)
{
    last_caller = caller;
    if (*handle != &answer_handle)
        return NULL;
    if (!strcmp(*symbol, "answer"))
        return &answer_handle;
    if (!strcmp(*symbol, "renamed"))
        *symbol = "strlen";
    *handle = RTLD_DEFAULT;
    return NULL;
}

/* ---- functions of many forms, which also look at where they are called */

#define REAL __attribute__((noinline, noclone))

static uint32_t inside_seen;

static void look(void)
{
    inside_seen = gate_self->inside;
    /* vector registers that the caller's arguments were in are free now */
    __asm__ volatile("pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1" ::: "xmm0", "xmm1");
}

REAL static uint64_t sixteen(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                             uint64_t g, uint64_t h, uint64_t i, uint64_t j, uint64_t k, uint64_t l,
                             uint64_t m, uint64_t n, uint64_t o, uint64_t p)
{
    look();
    return a + 3 * b + 5 * c + 7 * d + 11 * e + 13 * f + 17 * g + 19 * h + 23 * i + 29 * j + 31 * k + 37 * l +
           41 * m + 43 * n + 47 * o + 53 * p;
}

REAL static double floats(float a, double b, int c, double d, double e, double f, double g, double h, float i,
                          double j, double k)
{
    double sum = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k;

    look();
    return sum;
}

struct handle {
    char bytes[64];
};

REAL static int by_value(int a, struct handle handle, int b, struct handle second)
{
    look();
    return a + b + handle.bytes[0] + handle.bytes[63] * 100 + second.bytes[31] * 10000;
}

struct pair {
    uint64_t a, b;
};

REAL static struct pair two_words(uint64_t a)
{
    look();
    return (struct pair){a, a + 1};
}

struct doubles {
    double a, b;
};

REAL static struct doubles two_vectors(double a)
{
    look();
    return (struct doubles){a, a * 2};
}

REAL static struct handle large_result(char c)
{
    struct handle result;

    look();
    memset(&result, c, sizeof(result));
    return result;
}

REAL static long double long_double(long double a, int b)
{
    look();
    return a * b;
}

REAL static double variadic(int count, ...)
{
    double sum = 0;
    va_list args;

    va_start(args, count);
    for (int i = 0; i < count; i++)
        sum += i % 2 ? va_arg(args, double) : va_arg(args, int);
    va_end(args);
    look();
    return sum;
}

REAL static int aligned_stack(void)
{
    char buffer[64] __attribute__((aligned(16)));

    __asm__ volatile("movaps %%xmm0, (%0)" ::"r"(buffer) : "memory");
    look();
    return ((uintptr_t)__builtin_frame_address(0) & 15) == 0;
}

#define THUNK(function) ((__typeof__(&(function)))thunk_of((void *)(function), #function))

static void *thunk_of(void *function, const char *name)
{
    void *thunk = thunk_make(function, name);

    ck_assert_ptr_nonnull(thunk);
    ck_assert_ptr_ne(thunk, function);
    return thunk;
}

static void check_inside(const char *name)
{
    ck_assert_uint_gt(inside_seen, ROW_COUNT);
    ck_assert_str_eq(thunk_name(inside_seen - 1 - ROW_COUNT), name);
    ck_assert_uint_eq(gate_self->inside, 0);
}

START_TEST(arguments_of_all_kinds_arrive)
{
    struct handle one, two, large;
    struct pair pair;
    struct doubles doubles;

    errno = 77;
    ck_assert_uint_eq(THUNK(sixteen)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1ull << 50),
                      sixteen(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1ull << 50));
    ck_assert_int_eq(errno, 77);
    THUNK(sixteen)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    check_inside("sixteen");

    ck_assert_double_eq(THUNK(floats)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
                        floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));

    memset(&one, 1, sizeof(one));
    memset(&two, 2, sizeof(two));
    ck_assert_int_eq(THUNK(by_value)(7, one, 8, two), 15 + 1 + 100 + 20000);
    check_inside("by_value");

    pair = THUNK(two_words)(41);
    ck_assert_uint_eq(pair.a, 41);
    ck_assert_uint_eq(pair.b, 42);
    doubles = THUNK(two_vectors)(1.5);
    ck_assert_double_eq(doubles.a, 1.5);
    ck_assert_double_eq(doubles.b, 3);
    large = THUNK(large_result)('x');
    ck_assert_int_eq(large.bytes[0], 'x');
    ck_assert_int_eq(large.bytes[63], 'x');
    ck_assert(THUNK(long_double)(1.25L, 4) == 5.0L);

    ck_assert_double_eq(THUNK(variadic)(12, 1, 2.0, 3, 4.0, 5, 6.0, 7, 8.0, 9, 10.0, 11, 12.0), 78);
    check_inside("variadic");
    ck_assert_int_eq(THUNK(aligned_stack)(), 1);
}
END_TEST

START_TEST(thunks_nest)
{
    uint32_t outer = gate_enter(3);

    ck_assert_uint_eq(THUNK(two_words)(1).a, 1);
    ck_assert_uint_eq(gate_self->inside, 4);
    gate_leave(outer);
}
END_TEST

START_TEST(each_function_has_one_thunk)
{
    void *thunk = thunk_make((void *)sixteen, "sixteen");
    uint32_t row;

    ck_assert_ptr_eq(thunk_make((void *)sixteen, "another name"), thunk);
    ck_assert_ptr_ne(thunk_make((void *)floats, "floats"), thunk);
    ck_assert_ptr_eq(thunk_make(thunk, "a thunk"), thunk);
    ck_assert_ptr_null(thunk_make(NULL, "nothing"));

    row = thunk_row("nvmlInit");
    ck_assert_uint_ge(row, ROW_COUNT);
    ck_assert_str_eq(driver_row_name(row), "nvmlInit");
    ck_assert_uint_eq(thunk_row("nvmlInit"), row);
    ck_assert_uint_ne(thunk_row("nvmlShutdown"), row);
    ck_assert_str_eq(thunk_name(1000000), "an unnamed function");

    thunk_set_real(thunk, (void *)two_words);
    ck_assert_uint_eq(((__typeof__(&two_words))thunk)(8).b, 9);
}
END_TEST

static int count_reason(const char *wanted)
{
    struct error err = {0};

    return unsaveable_check(&err) < 0 && strstr(err.text, wanted) != NULL;
}

START_TEST(unknown_functions_make_unsaveable_when_called)
{
    __typeof__(&two_words) unknown = (__typeof__(&two_words))thunk_unknown((void *)two_words, "cuBrandNew");

    ck_assert(!unsaveable_any());
    ck_assert_uint_eq(unknown(5).b, 6);
    ck_assert(count_reason("cuBrandNew: "));
    unknown(5);
    ck_assert(!count_reason("times"));
    unsaveable_clear();
    THUNK(floats)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    ck_assert(!unsaveable_any());
}
END_TEST

START_TEST(they_run_out)
{
    static char functions[THUNK_COUNT + 10];
    int made = 0;

    for (size_t i = 0; i < sizeof(functions); i++) {
        char name[32];

        snprintf(name, sizeof(name), "f%zu", i);
        made += thunk_make(&functions[i], name) != NULL;
    }
    ck_assert_int_eq(made, THUNK_COUNT);
    ck_assert_str_eq(thunk_name(THUNK_COUNT - 1), "f2047");
    ck_assert_ptr_null(thunk_make((void *)sixteen, "sixteen"));
    ck_assert_ptr_nonnull(thunk_make(&functions[7], "f7"));
    ck_assert_ptr_nonnull(driver_row_name(thunk_row("more")));
}
END_TEST

START_TEST(all_stubs_call_their_own)
{
    static uint64_t (*stubs[THUNK_COUNT])(uint64_t);

    /* As many different addresses that can be called: into a run of nops before a function. */
    extern char thunk_test_sled[];
    for (int i = 0; i < THUNK_COUNT; i++)
        stubs[i] = (uint64_t(*)(uint64_t))thunk_make(thunk_test_sled + 8 * i, "sled");
    for (int i = 0; i < THUNK_COUNT; i++)
        ck_assert_uint_eq(stubs[i](7), 7 + (uint64_t)i);
}
END_TEST

/* Entry i is 8 bytes: lea i(%rdi), %rax; ret */
__asm__(".text\n"
        "thunk_test_sled:\n"
        ".set i, 0\n"
        ".rept 2048\n"
        ".balign 8\n"
        ".byte 0x48, 0x8d, 0x87\n"
        ".long i\n"
        "ret\n"
        ".set i, i + 1\n"
        ".endr\n");

static void *make_many(void *arg)
{
    static char functions[500];
    void **made = arg;

    for (int i = 0; i < 500; i++)
        made[i] = thunk_make(&functions[i], "f");
    return NULL;
}

START_TEST(threads_agree)
{
    static void *made[4][500];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, make_many, made[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++)
        ck_assert_mem_eq(made[i], made[0], sizeof(made[0]));
}
END_TEST

/* ---- unwinding */

static void *wanted_frame;
static bool frame_seen;

static _Unwind_Reason_Code see_frame(struct _Unwind_Context *context, void *arg)
{
    if (_Unwind_FindEnclosingFunction((void *)_Unwind_GetIP(context)) == wanted_frame)
        frame_seen = true;
    return _URC_NO_REASON;
}

REAL static int unwinds(int a, ...)
{
    _Unwind_Backtrace(see_frame, NULL);
    return a;
}

REAL static int call_unwinds(int (*function)(int, ...))
{
    int result = function(3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);

    __asm__ volatile("" : "+r"(result)); /* not a tail call */
    return result;
}

START_TEST(stacks_can_be_walked_through)
{
    wanted_frame = (void *)call_unwinds;
    ck_assert_int_eq(call_unwinds(THUNK(unwinds)), 3);
    ck_assert(frame_seen);
}
END_TEST

/* ---- raw entry points */

extern int cuMemGetAttribute(int a, int b);
extern int cuMemGetAttribute_v2(int a, int b);

START_TEST(raw_entries_set_up_first)
{
    ck_assert_int_eq(set_ups, 0);
    ck_assert_int_eq(cuMemGetAttribute(4, 2), 42);
    ck_assert_int_eq(set_ups, 1);
    ck_assert(count_reason("cuMemGetAttribute: "));
    unsaveable_clear();
    ck_assert_int_eq(cuMemGetAttribute_v2(4, 2), CUDA_ERROR_NOT_FOUND);
    ck_assert(!unsaveable_any()); /* nothing was done */
    ck_assert_str_eq(thunk_name(THUNK_RAW_cuMemGetAttribute_v2), "cuMemGetAttribute_v2");
    ck_assert_uint_eq(gate_self->inside, 0);
}
END_TEST

/* ---- dlopen and dlsym */

static bool near(const void *address, const void *function)
{
    return address > function && (const char *)address < (const char *)function + 4096;
}

START_TEST(the_filters_answer_first)
{
    void *self;

    loader_real_dlopen = NULL;
    resolved = 0;
    ck_assert_ptr_eq(dlopen("libanswer.so", RTLD_NOW), &answer_handle);
    ck_assert_int_eq(resolved, 1);
    ck_assert(near(last_caller, (void *)the_filters_answer_first_fn));

    ck_assert_ptr_eq(dlsym(&answer_handle, "answer"), &answer_handle);
    ck_assert(near(last_caller, (void *)the_filters_answer_first_fn));
    ck_assert_int_eq(resolved, 1);

    self = dlopen(NULL, RTLD_NOW);
    ck_assert_ptr_nonnull(self);
    ck_assert_ptr_nonnull(dlsym(self, "strlen"));
    ck_assert_ptr_null(dlsym(self, "no_such_symbol"));
    ck_assert_ptr_nonnull(strstr(dlerror(), "no_such_symbol"));
    ck_assert_ptr_null(dlopen("libnosuch.so", RTLD_NOW));
    ck_assert_ptr_nonnull(strstr(dlerror(), "libnosuch.so"));

    /* What the filter put in place of handle and symbol is what the real one gets. */
    ck_assert_ptr_eq(dlsym(&answer_handle, "renamed"), dlsym(RTLD_DEFAULT, "strlen"));
    ck_assert_ptr_eq(dlsym(&answer_handle, "strcmp"), dlsym(RTLD_DEFAULT, "strcmp"));
}
END_TEST

START_TEST(the_real_ones_see_the_caller)
{
    /*
     * RTLD_NEXT is relative to the caller: this program's dlopen comes first in the global scope, libc's is
     * next.
     */
    ck_assert_ptr_eq(dlsym(RTLD_DEFAULT, "thunk_make_nothing"), NULL);
    ck_assert_ptr_eq(dlsym(RTLD_NEXT, "strtoul"), dlsym(RTLD_DEFAULT, "strtoul"));
    ck_assert_ptr_nonnull(dlsym(RTLD_NEXT, "dlopen"));
    ck_assert_ptr_ne(dlsym(RTLD_NEXT, "dlopen"), (void *)dlopen);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("thunk");
    TCase *tcase = tcase_create("thunk");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, arguments_of_all_kinds_arrive);
    tcase_add_test(tcase, thunks_nest);
    tcase_add_test(tcase, each_function_has_one_thunk);
    tcase_add_test(tcase, unknown_functions_make_unsaveable_when_called);
    tcase_add_test(tcase, they_run_out);
    tcase_add_test(tcase, all_stubs_call_their_own);
    tcase_add_test(tcase, threads_agree);
    tcase_add_test(tcase, stacks_can_be_walked_through);
    tcase_add_test(tcase, raw_entries_set_up_first);
    tcase_add_test(tcase, the_filters_answer_first);
    tcase_add_test(tcase, the_real_ones_see_the_caller);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
