#include "fault.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "fault"
#include "log.h"

const char *const fault_names[FAULT_COUNT] = {
#define FAULT_NAME(name) [FAULT_##name] = #name,
    FAULT_POINTS(FAULT_NAME)
#undef FAULT_NAME
};

/* How often the point must still be reached until it fails; 0: it does not fail (any more). */
static uint32_t remaining[FAULT_COUNT];

static void fault_log_names(const char *item, size_t length)
{
    char names[512];
    size_t used = 0;

    for (int i = 0; i < FAULT_COUNT && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", fault_names[i]);
    log_warn("CUDACKPT_FAULT: '%.*s' is not NAME or NAME@N; the names are:%s", (int)length, item, names);
}

/* One NAME[@N] of length bytes. A name that is given twice counts as given last. */
static void fault_arm(const char *item, size_t length)
{
    const char *at = memchr(item, '@', length);
    size_t name_length = at ? (size_t)(at - item) : length;
    uint64_t nth = at ? 0 : 1;

    for (const char *digit = at ? at + 1 : item + length; digit < item + length; digit++) {
        if (*digit < '0' || *digit > '9' || nth > UINT32_MAX / 16) {
            nth = 0;
            break;
        }
        nth = nth * 10 + (uint64_t)(*digit - '0');
    }

    for (int i = 0; i < FAULT_COUNT; i++) {
        if (nth && strlen(fault_names[i]) == name_length && !memcmp(fault_names[i], item, name_length)) {
            remaining[i] = (uint32_t)nth;
            return;
        }
    }
    fault_log_names(item, length);
}

void fault_start(void)
{
    const char *item = getenv("CUDACKPT_FAULT");

    memset(remaining, 0, sizeof(remaining));
    while (item && *item) {
        size_t length = strcspn(item, ",");

        if (length)
            fault_arm(item, length);
        item += length;
        item += *item == ',';
    }
}

bool fault_here(enum fault_point point, struct error *err)
{
    uint32_t left = __atomic_load_n(&remaining[point], __ATOMIC_RELAXED);

    if (__builtin_expect(!left, 1))
        return false;
    /* The load may be old by now: two threads must neither both fail nor count below zero. */
    while (left && !__atomic_compare_exchange_n(&remaining[point], &left, left - 1, false, __ATOMIC_RELAXED,
                                                __ATOMIC_RELAXED))
        ;
    if (left != 1)
        return false;
    error_set(err, ERROR_REFUSED, "fault point %s", fault_names[point]);
    return true;
}
