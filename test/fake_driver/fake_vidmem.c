/*
 * Device memory: pieces of one unlinked file per process and device, mapped where the driver reserved address
 * space. All processes together can't have more than the device has.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"
#include "fake_share.h"

static uint64_t used_by_all(struct device *device, const struct share_table *table)
{
    uint64_t sum = device->used;

    for (int i = 0; i < SHARES; i++) {
        if (i != device->slot && table->shares[i].bytes &&
            share_is_locked(device->file, SHARE_LOCK_SLOTS + i))
            sum += table->shares[i].bytes;
    }
    return sum;
}

uint64_t vidmem_used(struct device *device)
{
    struct share_table table;

    if (pread(device->file, &table, sizeof(table), 0) != sizeof(table))
        return device->used;
    return used_by_all(device, &table);
}

static int share_write(struct device *device)
{
    struct share share = {.pid = getpid(), .bytes = device->used};
    off_t place = offsetof(struct share_table, shares) + device->slot * sizeof(share);

    return pwrite(device->file, &share, sizeof(share), place) == sizeof(share) ? 0 : -1;
}

/* Takes size from what the device has left. */
static CUresult share_take(struct device *device, uint64_t size)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (share_lock(device->file, SHARE_LOCK_TABLE, F_WRLCK, 1))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (size <= device->size && vidmem_used(device) + size <= device->size) {
        device->used += size;
        result = share_write(device) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    }
    share_lock(device->file, SHARE_LOCK_TABLE, F_UNLCK, 0);
    return result;
}

static void share_give(struct device *device, uint64_t size)
{
    device->used -= size;
    share_write(device);
}

CUresult vidmem_open(struct device *device)
{
    char path[256];

    if (device->vidmem >= 0)
        return CUDA_SUCCESS;
    snprintf(path, sizeof(path), "%s/vidmem-%d-%d", fake.directory, getpid(), device->ordinal);
    device->vidmem = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (device->vidmem < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    unlink(path);
    return CUDA_SUCCESS;
}

CUresult vidmem_alloc(struct device *device, uint64_t size, uint64_t *offset)
{
    CUresult result = share_take(device, size);

    if (result != CUDA_SUCCESS)
        return result;
    if (holes_take(&device->vidmem_holes, size, PAGE_SIZE_2M, offset)) {
        *offset = device->vidmem_end;
        device->vidmem_end += size;
    }
    if (fallocate(device->vidmem, 0, (off_t)*offset, (off_t)size)) {
        holes_give(&device->vidmem_holes, *offset, size);
        share_give(device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void vidmem_free(struct device *device, uint64_t offset, uint64_t size)
{
    fallocate(device->vidmem, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    holes_give(&device->vidmem_holes, offset, size);
    share_give(device, size);
}

/* ---- address space */

static uint64_t map_nothing(uint64_t wanted, uint64_t size, int flags)
{
    void *place = mmap((void *)(uintptr_t)wanted, size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

    return place == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)place;
}

uint64_t address_reserve(uint64_t wanted, uint64_t size, uint64_t alignment)
{
    struct reservation *reservation;
    uint64_t place = map_nothing(wanted, size, 0);
    uint64_t start;

    if (place && place % alignment) {
        /* Once more with room to cut an aligned piece out of it. */
        munmap((void *)(uintptr_t)place, size);
        place = map_nothing(0, size + alignment, 0);
        start = (place + alignment - 1) & ~(alignment - 1);
        if (place) {
            if (start > place)
                munmap((void *)(uintptr_t)place, start - place);
            munmap((void *)(uintptr_t)(start + size), place + alignment - start);
        }
        place = place ? start : 0;
    }
    if (!place)
        return 0;
    reservation = malloc(sizeof(*reservation));
    if (!reservation) {
        munmap((void *)(uintptr_t)place, size);
        return 0;
    }
    reservation->range = (struct range){place, size};
    if (range_insert(&fake.reservations, &reservation->range)) {
        munmap((void *)(uintptr_t)place, size);
        free(reservation);
        return 0;
    }
    return place;
}

void address_release(uint64_t address, uint64_t size)
{
    struct range *range = range_find(&fake.reservations, address);

    munmap((void *)(uintptr_t)address, size);
    if (range) {
        range_remove(&fake.reservations, range);
        free(range);
    }
}

/* ---- what is mapped */

static struct page_range *pages_add(const struct page_range *values)
{
    struct page_range *pages = malloc(sizeof(*pages));

    if (!pages)
        return NULL;
    *pages = *values;
    if (range_insert(&fake.pages, &pages->range)) {
        free(pages);
        return NULL;
    }
    return pages;
}

CUresult pages_map(struct device *device, uint64_t address, uint64_t offset, uint64_t size, uint32_t access,
                   bool plain, struct physical *physical)
{
    struct page_range values = {
        .range = {address, size},
        .device = device,
        .offset = offset,
        .access = access,
        .plain = plain,
        .physical = physical,
    };
    struct page_range *pages = pages_add(&values);

    if (!pages)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mmap((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, device->vidmem,
             (off_t)offset) == MAP_FAILED) {
        range_remove(&fake.pages, &pages->range);
        free(pages);
        return CUDA_ERROR_MAP_FAILED;
    }
    return CUDA_SUCCESS;
}

void pages_unmap(struct page_range *pages)
{
    map_nothing(pages->range.address, pages->range.size, MAP_FIXED);
    range_remove(&fake.pages, &pages->range);
    if (pages->physical)
        physical_put(pages->physical);
    else
        vidmem_free(pages->device, pages->offset, pages->range.size);
    free(pages);
}

CUresult pages_add_host(uint64_t address, uint64_t size)
{
    struct page_range values = {.range = {address, size}, .access = UINT32_MAX};

    return pages_add(&values) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void pages_remove_host(uint64_t address)
{
    struct range *range = range_find(&fake.pages, address);

    if (range) {
        range_remove(&fake.pages, range);
        free(range);
    }
}

static bool may_access(const struct context *context, const struct page_range *pages)
{
    uint32_t own = context ? 1u << context->device->ordinal : UINT32_MAX;

    if (pages->access & own)
        return true;
    return pages->plain && context->peers & 1u << pages->device->ordinal;
}

bool pages_accessible(const struct context *context, uint64_t address, uint64_t size)
{
    uint64_t end = address + size;

    if (end < address)
        return false;
    while (address < end) {
        const struct page_range *pages = (struct page_range *)range_find(&fake.pages, address);

        if (!pages || !may_access(context, pages))
            return false;
        address = pages->range.address + pages->range.size;
    }
    return true;
}
