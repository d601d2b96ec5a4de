/* A thread of a copy: with two pinned slots and a stream it moves one piece after the other. */
#include "copy_internal.h"

#include "copy_stream.h"
#include "driver_api.h"
#include "ledger.h"

/* A pinned slot and the piece under way in it. */
struct slot {
    char *memory;
    CUevent event; /* after the device's part */
    struct copy_piece piece;
    bool busy;
};

/* What a worker has in the context that it works in. */
struct lane {
    struct copy *copy;
    CUstream stream;
    struct slot slots[COPY_SLOTS];
};

static bool slot_begin(struct lane *lane, struct slot *slot, const struct copy_piece *piece)
{
    struct copy *copy = lane->copy;

    slot->piece = *piece;
    if (copy->direction == COPY_OUT) {
        if (!copy_check(copy,
                        driver.cuMemcpyDtoHAsync_v2(slot->memory, piece->device, piece->size, lane->stream),
                        "cuMemcpyDtoHAsync", piece->device))
            return false;
    } else {
        copy_stream(slot->memory, piece->host, piece->size);
        if (!copy_check(copy,
                        driver.cuMemcpyHtoDAsync_v2(piece->device, slot->memory, piece->size, lane->stream),
                        "cuMemcpyHtoDAsync", piece->device))
            return false;
    }
    slot->busy = true;
    return copy_check(copy, driver.cuEventRecord(slot->event, lane->stream), "cuEventRecord", piece->device);
}

static bool slot_finish(struct lane *lane, struct slot *slot)
{
    struct copy *copy = lane->copy;

    if (!slot->busy)
        return true;
    if (!copy_check(copy, driver.cuEventSynchronize(slot->event), "cuEventSynchronize", slot->piece.device))
        return false;
    if (copy->direction == COPY_OUT)
        copy_stream(slot->piece.host, slot->memory, slot->piece.size);
    slot->busy = false;
    __atomic_fetch_add(&copy->done, slot->piece.size, __ATOMIC_RELAXED);
    return true;
}

static bool lane_open(struct lane *lane, CUdeviceptr device)
{
    if (!copy_check(lane->copy, driver.cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING),
                    "cuStreamCreate", device))
        return false;
    for (int i = 0; i < COPY_SLOTS; i++) {
        if (!copy_check(lane->copy, driver.cuEventCreate(&lane->slots[i].event, CU_EVENT_DISABLE_TIMING),
                        "cuEventCreate", device))
            return false;
    }
    return true;
}

static void lane_close(struct lane *lane)
{
    /* After an error the device may still be at work in a slot; the slots are about to be unpinned or used
     * again. */
    if (lane->stream)
        driver.cuStreamSynchronize(lane->stream);
    for (int i = 0; i < COPY_SLOTS; i++) {
        if (lane->slots[i].event)
            driver.cuEventDestroy_v2(lane->slots[i].event);
    }
    if (lane->stream)
        driver.cuStreamDestroy_v2(lane->stream);
}

/* While the device has one slot, the other one is emptied (or filled), given back to the device, and so on.
 */
static bool lane_run(struct lane *lane, struct copy_group *group, struct copy_piece *piece)
{
    int turn = 0;

    do {
        if (!slot_begin(lane, &lane->slots[turn], piece))
            return false;
        turn = !turn;
        if (!slot_finish(lane, &lane->slots[turn]))
            return false;
    } while (copy_take_piece(lane->copy, group, piece));
    return slot_finish(lane, &lane->slots[!turn]);
}

static void group_work(const struct copy_worker *worker, struct copy_group *group)
{
    struct lane lane = {.copy = worker->copy};
    struct copy_piece piece;

    if (!copy_take_piece(worker->copy, group, &piece))
        return;
    for (int i = 0; i < COPY_SLOTS; i++)
        lane.slots[i].memory = worker->slots + (size_t)i * COPY_SLOT;
    if (!copy_check(worker->copy, driver.cuCtxSetCurrent(group->context), "cuCtxSetCurrent", piece.device))
        return;
    if (lane_open(&lane, piece.device))
        lane_run(&lane, group, &piece);
    lane_close(&lane);
    driver.cuCtxSetCurrent(NULL);
}

void *copy_work(void *argument)
{
    struct copy_worker *worker = argument;
    struct copy *copy = worker->copy;

    ledger_thread_is_ours();
    /* Each begins with another context, so that all devices are busy; then it helps with the others. */
    for (size_t i = 0; i < copy->group_count; i++)
        group_work(worker, &copy->groups[(worker->number + i) % copy->group_count]);

    pthread_mutex_lock(&copy->lock);
    copy->running--;
    pthread_cond_signal(&copy->finished);
    pthread_mutex_unlock(&copy->lock);
    return NULL;
}
