/* Address space that the program reserved for itself: cuMemAddressReserve. */
#include "kinds.h"

#include "device_memory.h"
#include "driver_api.h"
#include "tracked.h"
#include "virtual_memory.h"

struct reservation {
    struct record record; /* handle: the address */
    size_t size, alignment;
    unsigned long long flags;
};

static struct reservation *reservation_of(struct record *record)
{
    return container_of(record, struct reservation, record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    const struct reservation *reservation = reservation_of(record);
    CUdeviceptr address = 0;
    CUresult result = driver.cuMemAddressReserve(&address, reservation->size, reservation->alignment, record->handle,
                                                 reservation->flags);

    *handle = address;
    return result;
}

static const struct record_kind reservation_kind = {.name = "address reservation", .replay = replay};

bool address_range_begins(CUdeviceptr address)
{
    return journal_find(&reservation_kind, address) != NULL;
}

CUresult track_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                   unsigned long long flags)
{
    struct reservation *reservation;
    CUresult result;

    journal_note();
    result = driver.cuMemAddressReserve(ptr, size, alignment, addr, flags);
    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    reservation = journal_record_new(&reservation_kind, sizeof *reservation);
    if (reservation) {
        reservation->size = size;
        reservation->alignment = alignment;
        reservation->flags = flags;
        reservation->record.context = NULL; /* it belongs to none, and outlives them */
    }
    journal_commit(reservation ? &reservation->record : NULL, *ptr, NULL);
    return result;
}

CUresult track_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    struct record *record;
    CUresult result;

    if (device_memory_owns(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    record = journal_detach(&reservation_kind, ptr);
    result = driver.cuMemAddressFree(ptr, size);
    if (result == CUDA_SUCCESS)
        journal_drop(record);
    else
        journal_attach(record);
    return result;
}
