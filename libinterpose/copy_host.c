/* Host memory for copies, and for the ring that they go through. */
#include "copy_internal.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "fault.h"

#define PAGE      4096ull
#define HUGE_PAGE (2ull << 20)

/* Small copies keep to small pages: a huge one for each would take more than the copy. */
static size_t alignment_for(size_t size)
{
    return size < HUGE_PAGE ? PAGE : HUGE_PAGE;
}

static size_t mapped_size(size_t size)
{
    size_t alignment = alignment_for(size);

    return (size + alignment - 1) & ~(alignment - 1);
}

void *copy_host_map(size_t size, struct error *err)
{
    size_t alignment = alignment_for(size), mapped = mapped_size(size), spare = alignment - PAGE;
    char *whole, *host;

    whole = size <= PTRDIFF_MAX
                ? mmap(NULL, mapped + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                : MAP_FAILED;
    if (whole == MAP_FAILED) {
        error_set_errno(err, ERROR_MEMORY, size <= PTRDIFF_MAX ? errno : ENOMEM,
                        "no host memory for %zu bytes of copies; free some and try again", size);
        return NULL;
    }
    /*
     * The highest aligned place, since the kernel goes downwards: it adjoins the mapping before and becomes
     * one with it. The number of mappings of a process is limited.
     */
    host = (char *)(((uintptr_t)whole + spare) & ~(alignment - 1));
    if (host > whole)
        munmap(whole, (size_t)(host - whole));
    if (whole + spare > host)
        munmap(host + mapped, (size_t)(whole + spare - host));
    if (alignment == HUGE_PAGE)
        madvise(host, mapped, MADV_HUGEPAGE); /* slower without, not wrong */
    madvise(host, mapped, MADV_DONTFORK); /* a child can't use it, and writing would copy every page for it */
    return host;
}

void *copy_host_alloc(size_t size, struct error *err)
{
    if (fault_here(FAULT_copy_out_memory, err))
        return NULL;
    return copy_host_map(size, err);
}

void copy_host_free(void *host, size_t size)
{
    if (host)
        munmap(host, mapped_size(size));
}
