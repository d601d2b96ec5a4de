/*
 * Events. A new event reads as completed, so a recorded one needs nothing more than to be made again; but the times
 * between recorded events are gone. They are measured before the suspend, against the system's clock, and
 * cuEventElapsedTime answers from them for events that were not recorded since.
 */
#include "kinds.h"

#include <stdlib.h>
#include <time.h>

#include "driver_api.h"
#include "tracked.h"
#include "unsaveable.h"

struct event {
    struct record record;
    unsigned flags;
    bool recorded;   /* before the last suspend */
    double recorded_ms; /* when, on the system's clock */
};

static struct event *event_of(struct record *record)
{
    return container_of(record, struct event, record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    CUevent made = NULL;
    CUresult result = driver.cuEventCreate(&made, event_of(record)->flags);

    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuEventDestroy_v2((CUevent)handle);
}

const struct record_kind event_kind = {.name = "event", .replay = replay, .undo = undo, .warm_up = true};

CUresult track_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct event *event;
    CUresult result;

    journal_note();
    result = driver.cuEventCreate(phEvent, Flags);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    event = journal_record_new(&event_kind, sizeof *event);
    if (event)
        event->flags = Flags;
    journal_commit(event ? &event->record : NULL, (uint64_t)*phEvent, context_owner());
    if (Flags & CU_EVENT_INTERPROCESS)
        unsaveable_note("cuEventCreate: an event that another process may hold");
    return result;
}

CUresult track_cuEventDestroy_v2(CUevent hEvent)
{
    struct record *record = journal_detach(&event_kind, (uint64_t)hEvent);
    CUresult result = driver.cuEventDestroy_v2(hEvent);

    if (result == CUDA_SUCCESS)
        journal_drop(record);
    else
        journal_attach(record);
    return result;
}

CUresult track_cuEventDestroy(CUevent hEvent)
{
    return track_cuEventDestroy_v2(hEvent);
}

/* ---- times */

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    if (driver_api_has(ROW_cuEventElapsedTime_v2))
        return driver.cuEventElapsedTime_v2(ms, start, end);
    return driver.cuEventElapsedTime(ms, start, end);
}

/* Milliseconds since the first call: a double of a small number still has nanoseconds. */
static double system_ms(void)
{
    static time_t start;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now); /* the one clock that goes on while a process lies in a CRIU image */
    if (!start)
        start = now.tv_sec;
    return (double)(now.tv_sec - start) * 1e3 + (double)now.tv_nsec / 1e6;
}

/* An event recorded now in the current context, with the system's time of that moment. */
static CUresult make_anchor(CUevent *anchor, double *anchor_ms)
{
    CUresult result = driver.cuEventCreate(anchor, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuEventRecord(*anchor, CU_STREAM_LEGACY);
    if (result == CUDA_SUCCESS)
        result = driver.cuEventSynchronize(*anchor);
    *anchor_ms = system_ms();
    if (result != CUDA_SUCCESS)
        driver.cuEventDestroy_v2(*anchor);
    return result;
}

/* When an event was recorded: since the resume (the driver knows), or before (we know). */
static CUresult time_of(CUevent handle, CUevent anchor, double anchor_ms, double *ms)
{
    struct record *record = journal_find(&event_kind, (uint64_t)handle);
    float since;
    CUresult result = elapsed(&since, handle, anchor);

    if (result == CUDA_SUCCESS) {
        *ms = anchor_ms - since;
        return result;
    }
    if (result != CUDA_ERROR_INVALID_HANDLE || !record || !event_of(record)->recorded)
        return result;
    *ms = event_of(record)->recorded_ms;
    return CUDA_SUCCESS;
}

static CUresult elapsed_across(float *ms, CUevent start, CUevent end)
{
    double anchor_ms, start_ms, end_ms;
    CUevent anchor;
    CUresult result = make_anchor(&anchor, &anchor_ms);

    if (result != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_HANDLE;
    result = time_of(start, anchor, anchor_ms, &start_ms);
    if (result == CUDA_SUCCESS)
        result = time_of(end, anchor, anchor_ms, &end_ms);
    if (result == CUDA_SUCCESS)
        *ms = (float)(end_ms - start_ms);
    driver.cuEventDestroy_v2(anchor);
    return result;
}

/* It was recorded before a suspend. */
static bool kept_time(CUevent handle)
{
    struct record *record = journal_find(&event_kind, (uint64_t)handle);

    return record && event_of(record)->recorded;
}

static CUresult elapsed_time(CUresult result, float *ms, CUevent start, CUevent end)
{
    if (result == CUDA_ERROR_INVALID_HANDLE && ms && (kept_time(start) || kept_time(end)))
        return elapsed_across(ms, start, end);
    return result;
}

CUresult track_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed_time(driver.cuEventElapsedTime(pMilliseconds, hStart, hEnd), pMilliseconds, hStart, hEnd);
}

CUresult track_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed_time(driver.cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd), pMilliseconds, hStart, hEnd);
}

/* ---- before a suspend */

struct event_list {
    CUcontext context;
    struct event **events;
    size_t count, capacity;
    CUevent anchor;
    double anchor_ms;
};

static int collect(struct record *record, void *arg)
{
    struct event_list *list = arg;
    struct event *event = event_of(record);
    float since;

    if (record->context != list->context || (event->flags & CU_EVENT_DISABLE_TIMING))
        return 0;
    if (elapsed(&since, (CUevent)record->handle, list->anchor) != CUDA_SUCCESS)
        return 0; /* never recorded in this life of the driver: what is kept of an earlier one stays */
    event->recorded = true;
    event->recorded_ms = list->anchor_ms - since;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        struct event **grown = realloc(list->events, capacity * sizeof *grown);

        if (!grown)
            return 1;
        list->events = grown;
        list->capacity = capacity;
    }
    list->events[list->count++] = event;
    return 0;
}

static int later_first(const void *a, const void *b)
{
    double x = (*(struct event *const *)a)->recorded_ms, y = (*(struct event *const *)b)->recorded_ms;

    return (x < y) - (x > y);
}

/*
 * The driver tells times as float: an hour back from the anchor only to a quarter of a millisecond. So the order comes
 * from the anchor, and the distances from each event to the next one, which are short.
 */
static int save_context(CUcontext context, void *arg, struct error *err)
{
    struct event_list list = {.context = context};
    CUresult result = make_anchor(&list.anchor, &list.anchor_ms);
    CUevent before;
    double ms;

    if (result != CUDA_SUCCESS) {
        error_set(err, ERROR_REFUSED, "the times of events can't be read: error %d", (int)result);
        return -1;
    }
    journal_each(&event_kind, collect, &list);
    if (list.count > 0)
        qsort(list.events, list.count, sizeof *list.events, later_first);
    before = list.anchor;
    ms = list.anchor_ms;
    for (size_t i = 0; i < list.count; i++) {
        float distance;

        if (elapsed(&distance, (CUevent)list.events[i]->record.handle, before) == CUDA_SUCCESS)
            list.events[i]->recorded_ms = ms - distance;
        before = (CUevent)list.events[i]->record.handle;
        ms = list.events[i]->recorded_ms;
    }
    free(list.events);
    driver.cuEventDestroy_v2(list.anchor);
    return 0;
}

int event_save(struct error *err)
{
    return context_each(save_context, NULL, err);
}
