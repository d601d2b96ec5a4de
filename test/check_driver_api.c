/* The rows of the driver's entry points and what is looked up in them. */
#include "driver_api.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "thunk.h"

/* ---- drivers to load */

static char code[ROW_COUNT * 16];

/* A driver that has every function, each at an address of its own. */
static void *lookup_all(void *library, const char *symbol)
{
    int row = driver_row_by_symbol(symbol);

    ck_assert_ptr_eq(library, code);
    ck_assert_int_ge(row, 0);
    return code + row * 16;
}

/* One that lacks what has a version number, as an old one does. */
static void *lookup_old(void *library, const char *symbol)
{
    return strstr(symbol, "_v") ? NULL : lookup_all(library, symbol);
}

static CUresult say_42(void)
{
    return 42;
}

static void *lookup_42(void *library, const char *symbol)
{
    return (void *)say_42;
}

static void *lookup_nothing(void *library, const char *symbol)
{
    return NULL;
}

/* Calls a row's pointer without arguments; only for functions that look at none. */
static CUresult call(int row)
{
    CUresult (*function)(void);

    memcpy(&function, (char *)&driver + row * sizeof(void *), sizeof(function));
    return function();
}

static bool is_ungated(int row)
{
    return row == ROW_cuGetErrorString || row == ROW_cuGetErrorName;
}

/* ---- rows */

START_TEST(rows_are_sorted_and_named_after_their_base)
{
    for (int row = 0; row < ROW_COUNT; row++) {
        const struct driver_entry *entry = &driver_entries[row];
        const char *twin = entry->flavour == PTDS ? "_ptds" : entry->flavour == PTSZ ? "_ptsz" : "";
        size_t length = strlen(entry->symbol);

        ck_assert_ptr_nonnull(entry->base);
        ck_assert_msg(strncmp(entry->symbol, entry->base, strlen(entry->base)) == 0, "%s", entry->symbol);
        ck_assert_str_eq(entry->symbol + length - strlen(twin), twin);
        ck_assert_msg(entry->since >= 2000 && entry->since % 10 == 0, "%s", entry->symbol);
        if (row)
            ck_assert_msg(strcmp(driver_entries[row - 1].symbol, entry->symbol) < 0, "%s", entry->symbol);
    }
}
END_TEST

START_TEST(only_unsaveable_rows_have_a_reason)
{
    ck_assert(driver_entries[ROW_cuIpcGetMemHandle].unsaveable);
    ck_assert(!driver_entries[ROW_cuMemcpy].unsaveable);
    for (int row = 0; row < ROW_COUNT; row++) {
        const struct driver_entry *entry = &driver_entries[row];

        ck_assert_msg(entry->unsaveable == (entry->reason != NULL), "%s", entry->symbol);
        ck_assert_msg(!entry->reason || (*entry->reason && entry->reason[strlen(entry->reason) - 1] != '.'),
                      "%s", entry->symbol);
    }
}
END_TEST

/* ---- loading */

START_TEST(nothing_is_found_before_loading)
{
    CUipcMemHandle handle = {{0}};
    CUdeviceptr address;

    ck_assert_int_eq(driver.cuInit(0), CUDA_ERROR_NOT_FOUND);
    ck_assert_int_eq(driver.cuMemAlloc_v2(&address, 1), CUDA_ERROR_NOT_FOUND);
    ck_assert_int_eq(driver.cuIpcOpenMemHandle_v2(&address, handle, 0), CUDA_ERROR_NOT_FOUND);
    ck_assert_int_eq(driver.cuParamSetf(NULL, 0, 1.0f), CUDA_ERROR_NOT_FOUND);
    for (int row = 0; row < ROW_COUNT; row++) {
        ck_assert_int_eq(call(row), CUDA_ERROR_NOT_FOUND);
        ck_assert(!driver_api_has(row));
        ck_assert_ptr_null(driver_row_real(row));
    }
    ck_assert_int_eq(driver_row_by_address(code), -1);
}
END_TEST

START_TEST(loading_fills_every_pointer)
{
    ck_assert_int_eq(driver_api_load(lookup_all, code), ROW_COUNT);
    ck_assert_ptr_eq((void *)driver.cuInit, code + ROW_cuInit * 16);
    for (int row = 0; row < ROW_COUNT; row++) {
        void *pointer;

        memcpy(&pointer, (char *)&driver + row * sizeof(void *), sizeof(pointer));
        ck_assert_ptr_eq(pointer, code + row * 16);
        ck_assert(driver_api_has(row));
        ck_assert_ptr_eq(driver_row_real(row), code + row * 16);
        ck_assert_int_eq(driver_row_by_address(code + row * 16), row);
        ck_assert_int_eq(driver_row_by_address(code + row * 16 + 1), -1);
    }
    ck_assert_int_eq(driver_row_by_address(NULL), -1);
}
END_TEST

START_TEST(what_a_driver_lacks_is_not_found)
{
    int found = driver_api_load(lookup_old, code);

    ck_assert_int_gt(found, 0);
    ck_assert_int_lt(found, ROW_COUNT);
    ck_assert(driver_api_has(ROW_cuMemAlloc));
    ck_assert(!driver_api_has(ROW_cuMemAlloc_v2));
    ck_assert_ptr_null(driver_row_real(ROW_cuMemAlloc_v2));
    ck_assert_int_eq(driver.cuMemAlloc_v2(NULL, 1), CUDA_ERROR_NOT_FOUND);
    ck_assert_int_eq(driver_row_by_address(code + ROW_cuMemAlloc * 16), ROW_cuMemAlloc);
    ck_assert_int_eq(driver_row_by_address(code + ROW_cuMemAlloc_v2 * 16), -1);
}
END_TEST

START_TEST(a_library_without_the_driver_has_no_rows)
{
    ck_assert_int_eq(driver_api_load(lookup_nothing, NULL), 0);
    ck_assert_int_eq(driver.cuInit(0), CUDA_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(symbols_may_share_an_address)
{
    ck_assert_int_eq(driver_api_load(lookup_42, NULL), ROW_COUNT);
    ck_assert_int_ge(driver_row_by_address((void *)say_42), 0);
    ck_assert_int_eq(driver.cuMemAlloc_v2(NULL, 1), 42);
}
END_TEST

START_TEST(disabled_functions_return_the_error)
{
    driver_api_load(lookup_42, NULL);
    driver_api_disable(CUDA_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(driver.cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(driver.cuGetErrorString(0, NULL), 42);
    for (int row = 0; row < ROW_COUNT; row++) {
        ck_assert_int_eq(call(row), is_ungated(row) ? 42 : CUDA_ERROR_NOT_INITIALIZED);
        ck_assert(driver_api_has(row));
        ck_assert_ptr_eq(driver_row_real(row), (void *)say_42);
    }
}
END_TEST

/* ---- lookups */

START_TEST(rows_are_found_by_symbol)
{
    static const char *const others[] = {
        "",    "c",   "cu",           "cuMem",  "cuMemAlloc_v9",     "cuInit2",   "cuMemAlloc_",
        "aaa", "zzz", "cudbgApiInit", "CUINIT", "cuMemGetAttribute", "cuwhatever"};

    for (int row = 0; row < ROW_COUNT; row++)
        ck_assert_int_eq(driver_row_by_symbol(driver_entries[row].symbol), row);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_msg(driver_row_by_symbol(others[i]) == -1, "%s", others[i]);
}
END_TEST

START_TEST(each_row_is_what_its_own_version_chooses)
{
    for (int row = 0; row < ROW_COUNT; row++) {
        const struct driver_entry *entry = &driver_entries[row];
        int chosen = driver_row_by_version(entry->base, entry->since, entry->flavour != LEGACY);

        ck_assert_msg(chosen == row, "%s", entry->symbol);
    }
}
END_TEST

START_TEST(the_newest_that_is_old_enough_is_chosen)
{
    static const struct {
        const char *base;
        uint32_t version;
        bool per_thread;
        int row;
    } cases[] = {
        {"cuMemAlloc", 1000, false, -1},
        {"cuMemAlloc", 2000, false, ROW_cuMemAlloc},
        {"cuMemAlloc", 3010, false, ROW_cuMemAlloc},
        {"cuMemAlloc", 3020, false, ROW_cuMemAlloc_v2},
        {"cuMemAlloc", 13000, false, ROW_cuMemAlloc_v2},
        {"cuMemAlloc", 99000, true, ROW_cuMemAlloc_v2}, /* no stream is meant: no twin */
        {"cuCtxCreate", 11030, false, ROW_cuCtxCreate_v2},
        {"cuCtxCreate", 11040, false, ROW_cuCtxCreate_v3},
        {"cuCtxCreate", 12050, false, ROW_cuCtxCreate_v4},
        {"cuMemcpyHtoD", 12000, false, ROW_cuMemcpyHtoD_v2},
        {"cuMemcpyHtoD", 12000, true, ROW_cuMemcpyHtoD_v2_ptds},
        {"cuMemcpyHtoD", 6050, true, -1}, /* twins are of CUDA 7 */
        {"cuStreamSynchronize", 7000, true, ROW_cuStreamSynchronize_ptsz},
        {"cuStreamSynchronize", 7000, false, ROW_cuStreamSynchronize},
        {"cuGetProcAddress", 11030, false, ROW_cuGetProcAddress},
        {"cuGetProcAddress", 12000, true, ROW_cuGetProcAddress_v2},
        {"cuMem", 13000, false, -1},
        {"cuMemAlloc_v2", 13000, false, -1}, /* a symbol, not a base name */
        {"", 13000, false, -1},
        {"zzz", 13000, true, -1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int row = driver_row_by_version(cases[i].base, cases[i].version, cases[i].per_thread);

        ck_assert_msg(row == cases[i].row, "%s %u", cases[i].base, cases[i].version);
    }
}
END_TEST

/* In place of the library's: this test has no thunks. */
const char *thunk_name(uint32_t index)
{
    return index == 0 ? "first" : "other";
}

START_TEST(every_row_number_has_a_name)
{
    ck_assert_str_eq(driver_row_name(ROW_cuMemcpy_ptds), "cuMemcpy_ptds");
    ck_assert_str_eq(driver_row_name(0), driver_entries[0].symbol);
    ck_assert_str_eq(driver_row_name(ROW_COUNT), "first");
    ck_assert_str_eq(driver_row_name(ROW_COUNT + 1), "other");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver_api");
    TCase *rows = tcase_create("rows"), *loading = tcase_create("loading"),
          *lookups = tcase_create("lookups");
    SRunner *runner;
    int failed;

    tcase_add_test(rows, rows_are_sorted_and_named_after_their_base);
    tcase_add_test(rows, only_unsaveable_rows_have_a_reason);
    tcase_add_test(loading, nothing_is_found_before_loading);
    tcase_add_test(loading, loading_fills_every_pointer);
    tcase_add_test(loading, what_a_driver_lacks_is_not_found);
    tcase_add_test(loading, a_library_without_the_driver_has_no_rows);
    tcase_add_test(loading, symbols_may_share_an_address);
    tcase_add_test(loading, disabled_functions_return_the_error);
    tcase_add_test(lookups, rows_are_found_by_symbol);
    tcase_add_test(lookups, each_row_is_what_its_own_version_chooses);
    tcase_add_test(lookups, the_newest_that_is_old_enough_is_chosen);
    tcase_add_test(lookups, every_row_number_has_a_name);
    suite_add_tcase(suite, rows);
    suite_add_tcase(suite, loading);
    suite_add_tcase(suite, lookups);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
