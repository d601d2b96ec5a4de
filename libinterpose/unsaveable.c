#include "unsaveable.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "unsaveable"
#include "log.h"

/*
 * A fixed table: a reason may be noted below the driver's own malloc, where the program's must not be called.
 * It only grows, and a reason's text never changes once reason_count covers it, so that readers need no lock.
 * Real programs have a handful of reasons; those that don't fit are counted together.
 */
#define REASON_MAX  128
#define REASON_TEXT 240

static struct reason {
    char text[REASON_TEXT];
    uint64_t count; /* atomic */
} reasons[REASON_MAX];

static uint32_t reason_count; /* atomic; grows under lock only, after the text is complete */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const overflow_text = "other reasons, too many to list";

static struct reason *reason_find(const char *text)
{
    uint32_t count = __atomic_load_n(&reason_count, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(reasons[i].text, text))
            return &reasons[i];
    return NULL;
}

/* Another thread may have added the same text since the caller looked. *added tells. */
static struct reason *reason_add(const char *text, bool *added)
{
    struct reason *reason;

    pthread_mutex_lock(&lock);
    reason = reason_find(text);
    if (!reason && reason_count == REASON_MAX) {
        reason = &reasons[REASON_MAX - 1];
    } else if (!reason) {
        reason = &reasons[reason_count];
        if (reason_count == REASON_MAX - 1)
            text = overflow_text;
        snprintf(reason->text, sizeof(reason->text), "%s", text);
        reason->count = 0;
        *added = true;
        __atomic_store_n(&reason_count, reason_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return reason;
}

void unsaveable_note(const char *format, ...)
{
    int saved_errno = errno;
    char text[REASON_TEXT];
    struct reason *reason;
    bool added = false;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    reason = reason_find(text);
    if (!reason)
        reason = reason_add(text, &added);
    __atomic_fetch_add(&reason->count, 1, __ATOMIC_RELAXED);
    if (added)
        log_warn("can't be suspended from now on: %s", reason->text);
    errno = saved_errno;
}

bool unsaveable_any(void)
{
    return __atomic_load_n(&reason_count, __ATOMIC_ACQUIRE) != 0;
}

void unsaveable_each(void (*f)(const char *reason, uint64_t count, void *arg), void *arg)
{
    uint32_t count = __atomic_load_n(&reason_count, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < count; i++)
        f(reasons[i].text, __atomic_load_n(&reasons[i].count, __ATOMIC_RELAXED), arg);
}

int unsaveable_check(struct error *err)
{
    uint32_t count = __atomic_load_n(&reason_count, __ATOMIC_ACQUIRE);
    char text[sizeof(err->text) - 100]; /* room for the words around the list */
    size_t used = 0;
    uint32_t told;

    if (!count)
        return 0;

    for (told = 0; told < count; told++) {
        uint64_t times = __atomic_load_n(&reasons[told].count, __ATOMIC_RELAXED);
        char one[REASON_TEXT + 40];
        int length;

        if (times > 1)
            length = snprintf(one, sizeof(one), "%s%s (%llu times)", told ? "; " : "", reasons[told].text,
                              (unsigned long long)times);
        else
            length = snprintf(one, sizeof(one), "%s%s", told ? "; " : "", reasons[told].text);
        if (used + (size_t)length >= sizeof(text))
            break;
        memcpy(text + used, one, (size_t)length + 1);
        used += (size_t)length;
    }

    if (told < count)
        error_set(err, ERROR_UNSAVEABLE,
                  "the process can't be saved: %s; and %u more reasons (ask for its status)", text,
                  count - told);
    else
        error_set(err, ERROR_UNSAVEABLE, "the process can't be saved: %s", text);
    return -1;
}

void unsaveable_clear(void)
{
    /* Another thread of the parent may have held the lock; only the caller exists here. */
    pthread_mutex_init(&lock, NULL);
    __atomic_store_n(&reason_count, 0, __ATOMIC_RELEASE);
}
