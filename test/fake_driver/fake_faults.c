/*
 * Faults by environment, read at cuInit:
 *   FAKE_GPU_FAIL=NAME:N=CODE,...   the Nth call of NAME returns CODE
 *   FAKE_GPU_MOVE=NAME,...          NAME gives another handle than the order of allocations would
 *   FAKE_GPU_SLOW=NAME=MS,...       NAME takes MS milliseconds longer
 * NAME is an exported name or one without version and stream suffix. With "@restart" behind an item it holds
 * only from the second start of the driver in the process on, with "@startN" only in the Nth start.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    [ROW_##symbol] = {#symbol, #base},
static const struct {
    const char *symbol, *base;
} rows[ROW_COUNT] = {
#include "driver_api.inc"
};
#undef ENTRY

/* Start time of the process: with its pid it names the process for ever. */
static unsigned long long start_time(void)
{
    char text[1024];
    unsigned long long time = 0;
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    const char *field;

    if (file >= 0)
        close(file);
    if (size <= 0)
        return 0;
    text[size] = 0;
    field = strrchr(text, ')');
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    if (field)
        time = strtoull(field, NULL, 10);
    return time;
}

/*
 * How many times the driver was started in this process, this time included. Nothing of the driver's own
 * survives a restart, so a file keeps the count: one byte for each start.
 */
static int count_start(void)
{
    char path[320];
    off_t size = -1;
    int file;

    snprintf(path, sizeof(path), "%s/started-%d-%llu", fake.directory, getpid(), start_time());
    file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0)
        return 1;
    if (write(file, "+", 1) == 1)
        size = lseek(file, 0, SEEK_END);
    close(file);
    return size > 0 ? (int)size : 1;
}

/* Whether an item holds in this start; what says so is cut off. */
static bool applies(char *item, int start)
{
    char *mark = strchr(item, '@');
    bool yes;

    if (!mark)
        return true;
    yes = strncmp(mark, "@restart", 8) ? start == atoi(mark + strcspn(mark, "0123456789")) : start > 1;
    *mark = 0;
    return yes;
}

/* Copies the next item of a list that holds in this start; false when the list ends. */
static bool next_item(const char **list, char *item, size_t size, int start)
{
    const char *place = *list;

    while (place && *place) {
        size_t length = strcspn(place, ",");

        snprintf(item, size, "%.*s", (int)length, place);
        place += length + (place[length] == ',');
        *list = place;
        if (*item && applies(item, start))
            return true;
    }
    return false;
}

void faults_start(void)
{
    struct faults *faults = &fake.faults;
    const char *fail = getenv("FAKE_GPU_FAIL"), *move = getenv("FAKE_GPU_MOVE"),
               *slow = getenv("FAKE_GPU_SLOW");
    bool counted = (fail && strchr(fail, '@')) || (move && strchr(move, '@')) || (slow && strchr(slow, '@'));
    int start;
    char item[96];

    /* A cuInit that failed is called again: numbers of calls go on. */
    if (faults->known)
        return;
    faults->known = true;
    start = counted ? count_start() : 1;
    while (faults->fail_count < 16 && next_item(&fail, item, sizeof(item), start)) {
        struct fault *fault = &faults->fail[faults->fail_count];

        if (sscanf(item, "%63[^:=]:%d=%d", fault->name, &fault->number, &fault->result) == 3)
            faults->fail_count++;
    }
    while (faults->move_count < 8 && next_item(&move, item, sizeof(item), start))
        snprintf(faults->move[faults->move_count++], sizeof(faults->move[0]), "%.63s", item);
    while (faults->slow_count < 8 && next_item(&slow, item, sizeof(item), start)) {
        if (sscanf(item, "%63[^=]=%d", faults->slow[faults->slow_count].name,
                   &faults->slow[faults->slow_count].ms) == 2)
            faults->slow_count++;
    }
    faults->active = faults->fail_count || faults->move_count || faults->slow_count;
}

static bool is_named(const char *name, enum fake_row row)
{
    return !strcmp(name, rows[row].symbol) || !strcmp(name, rows[row].base);
}

CUresult faults_call(enum fake_row row, bool *move)
{
    struct faults *faults = &fake.faults;

    for (int i = 0; i < faults->slow_count; i++) {
        int ms = faults->slow[i].ms;
        struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

        if (is_named(faults->slow[i].name, row))
            nanosleep(&time, NULL);
    }
    for (int i = 0; i < faults->move_count; i++) {
        if (is_named(faults->move[i], row))
            *move = true;
    }
    for (int i = 0; i < faults->fail_count; i++) {
        struct fault *fault = &faults->fail[i];

        if (is_named(fault->name, row) &&
            __atomic_add_fetch(&fault->seen, 1, __ATOMIC_RELAXED) == fault->number)
            return fault->result;
    }
    return CUDA_SUCCESS;
}
