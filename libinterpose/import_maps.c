/* Import hooks for mappings: the driver's address reservations get places that it can have again. */
#include "import_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ledger.h"
#include "placement.h"
#define LOG_PREFIX "imports"
#include "log.h"

/*
 * Before it reserves address space at a place of its choice the driver looks there: it reads /proc/self/maps, or asks
 * msync. Placeholders must look like free space to it, since they hold what it shall have again.
 */
bool import_names_maps(const char *path)
{
    char own[32];

    snprintf(own, sizeof own, "/proc/%d/maps", (int)getpid());
    return !strcmp(path, "/proc/self/maps") || !strcmp(path, own);
}

int import_open_maps(int flags)
{
    int fd = memfd_create("maps", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    FILE *maps = fd >= 0 ? fopen("/proc/self/maps", "re") : NULL;
    char line[PATH_MAX + 128];

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && ledger_map_is_placeholder(start, end - start))
            continue;
        if (write(fd, line, strlen(line)) < 0)
            break;
    }
    if (maps)
        fclose(maps);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static int hook_msync(void *address, size_t size, int flags)
{
    if (ledger_map_is_placeholder((uint64_t)address, size)) {
        errno = ENOMEM;
        return -1;
    }
    return msync(address, size, flags);
}

/*
 * Address reservations are how the driver chooses every device address. One that may lie anywhere gets a place in our own
 * region; at replay each gets the place that the record noted, over the placeholder that holds it.
 */
static void *reserve(void *address, size_t size, int flags)
{
    uint64_t place = address ? (uint64_t)address : placement_map_wanted(size);
    bool over_placeholder = place && ledger_map_take_placeholder(place, size);
    void *result;

    if (over_placeholder)
        flags |= MAP_FIXED;
    else if (!address)
        place = ledger_map_choose(size);
    if (!place)
        return MAP_FAILED;
    result = mmap((void *)place, size, PROT_NONE, flags | (address || over_placeholder ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
    if (result == MAP_FAILED)
        return result;
    log_debug("reservation of %#zx bytes, asked for at %p: at %p%s", size, address, result,
              over_placeholder ? ", as before" : "");
    ledger_map_add((uint64_t)result, size);
    placement_map_got((uint64_t)result, size);
    return result;
}

static void *hook_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *result = MAP_FAILED;

    ledger_check_caller();
    if (protection == PROT_NONE && fd < 0 && !(flags & MAP_FIXED))
        result = reserve(address, size, flags);
    if (result == MAP_FAILED) {
        result = mmap(address, size, protection, flags, fd, offset);
        if (result != MAP_FAILED)
            ledger_map_add((uint64_t)result, size);
    }
    return result;
}

static int hook_munmap(void *address, size_t size)
{
    int result;

    /* before the address is free: another thread of the driver may be given it at once */
    ledger_map_remove((uint64_t)address, size, placement_is_noting());
    result = munmap(address, size);
    if (result)
        ledger_map_add((uint64_t)address, size);
    return result;
}

static void *hook_mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
    va_list list;
    void *wanted, *result;

    va_start(list, flags);
    wanted = va_arg(list, void *);
    va_end(list);
    ledger_map_remove((uint64_t)address, old_size, false);
    result = mremap(address, old_size, new_size, flags, wanted);
    if (result != MAP_FAILED)
        ledger_map_add((uint64_t)result, new_size);
    else
        ledger_map_add((uint64_t)address, old_size);
    return result;
}

const struct import_hook import_maps[] = {
    {"mmap", hook_mmap},
    {"mmap64", hook_mmap},
    {"munmap", hook_munmap},
    {"mremap", hook_mremap},
    {"msync", hook_msync},
    {NULL, NULL},
};
