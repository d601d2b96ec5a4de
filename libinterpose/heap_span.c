#include "heap_internal.h"

#include <sys/mman.h>

#define LOG_PREFIX "heap"
#include "log.h"

/* In place of a size, for slots that hold no block. */
#define SLOT_FREE     0xffffu
#define SLOT_RESERVED 0xfffeu

struct span {
    struct list node; /* in partial, if a slot is free */
    uint32_t class, index, slots, free;
    struct heap_bits free_slots;
    uint16_t *sizes; /* as asked for; behind the serials */
    uint64_t serials[];
};

pthread_mutex_t heap_class_locks[CLASS_COUNT] = {[0 ... CLASS_COUNT - 1] = PTHREAD_MUTEX_INITIALIZER};

/* 16 to 128 in steps of 16, then four to each doubling. */
static uint32_t class_of(uint64_t size)
{
    uint32_t log;

    if (size <= 128)
        return size ? (uint32_t)(size - 1) / 16 : 0;
    log = 63 - (uint32_t)__builtin_clzll(size - 1);
    return 8 + (log - 7) * 4 + (uint32_t)((size - 1 - (1ull << log)) >> (log - 2));
}

static uint64_t class_size(uint32_t class)
{
    uint32_t step, log;

    if (class < 8)
        return (class + 1) * 16ull;
    step = (class - 8) % 4 + 1;
    log = 7 + (class - 8) / 4;
    return (1ull << log) + ((uint64_t)step << (log - 2));
}

void span_start(struct heap_books *books)
{
    for (uint32_t class = 0; class < CLASS_COUNT; class ++) {
        struct heap_bits *unused = &books->classes[class].unused;

        list_init(&books->classes[class].partial);
        unused->summary = ~0ull;
        for (uint32_t word = 0; word < 64; word++)
            unused->words[word] = ~0ull;
    }
}

static uint64_t span_address(const struct span *span)
{
    return DRIVER_HEAP_BASE + span->class * CLASS_BYTES + span->index * SPAN_SIZE;
}

/* Makes the span with that index in its class; all slots are free. */
static struct span *span_new(struct heap_books *books, uint32_t class, uint32_t index)
{
    struct span_class *owner = &books->classes[class];
    uint32_t slots = (uint32_t)(SPAN_SIZE / class_size(class));
    struct span *span = owner->spare;

    if (span)
        owner->spare = *(void **)span;
    else
        span = books_alloc(books, sizeof(*span) + slots * (sizeof(uint64_t) + sizeof(uint16_t)));
    if (!span)
        return NULL;
    span->class = class;
    span->index = index;
    span->slots = span->free = slots;
    span->sizes = (uint16_t *)(span->serials + slots);
    span->free_slots = (struct heap_bits){0};
    for (uint32_t slot = 0; slot < slots; slot++) {
        span->sizes[slot] = SLOT_FREE;
        bits_add(&span->free_slots, slot);
    }
    list_insert(&owner->partial, &span->node);
    bits_remove(&owner->unused, index);
    books->spans[class][index] = span;
    owner->spans++;
    return span;
}

/* An empty span's memory goes back to the system. */
static void span_delete(struct span_class *owner, struct span *span)
{
    list_remove(&span->node);
    heap_books->spans[span->class][span->index] = NULL;
    bits_add(&owner->unused, span->index);
    owner->spans--;
    madvise((void *)span_address(span), SPAN_SIZE, MADV_DONTNEED);
    *(void **)span = owner->spare;
    owner->spare = span;
}

static void slot_take(struct span_class *owner, struct span *span, uint32_t slot, uint16_t size)
{
    bits_remove(&span->free_slots, slot);
    if (!--span->free)
        list_remove(&span->node);
    if (owner->idle == span)
        owner->idle = NULL;
    span->sizes[slot] = size;
}

static void slot_give(struct span_class *owner, struct span *span, uint32_t slot)
{
    span->sizes[slot] = SLOT_FREE;
    bits_add(&span->free_slots, slot);
    if (!span->free++)
        list_insert(owner->partial.next, &span->node);
    if (span->free < span->slots)
        return;
    /* One empty span is kept: a block that comes and goes at the edge of a span must not cost two system
     * calls. */
    if (owner->idle) {
        span_delete(owner, span);
        return;
    }
    owner->idle = span;
    list_remove(&span->node);
    list_insert(&owner->partial, &span->node);
}

static void slot_fill(struct span_class *owner, struct span *span, uint32_t slot, uint64_t size)
{
    span->sizes[slot] = (uint16_t)size;
    span->serials[slot] = heap_next_serial();
    owner->blocks++;
    owner->bytes += size;
}

uint64_t span_alloc(uint64_t alignment, uint64_t size)
{
    uint64_t address = 0;

    /* Spans are aligned to their size, so a slot is aligned to what divides its class's size. */
    for (uint32_t class = class_of(size < alignment ? alignment : size); class < CLASS_COUNT && !address;
         class ++) {
        struct span_class *owner = &heap_books->classes[class];
        struct span *span = NULL;
        uint32_t slot;

        if (class_size(class) % alignment)
            continue;
        pthread_mutex_lock(&heap_class_locks[class]);
        if (!list_empty(&owner->partial))
            span = container_of(owner->partial.next, struct span, node);
        else if (owner->unused.summary)
            span = span_new(heap_books, class, bits_first(&owner->unused));
        if (span) {
            slot = bits_first(&span->free_slots);
            slot_take(owner, span, slot, 0);
            slot_fill(owner, span, slot, size);
            address = span_address(span) + slot * class_size(class);
        }
        pthread_mutex_unlock(&heap_class_locks[class]);
    }
    return address;
}

struct slot_place {
    uint32_t class, index, slot;
};

/* Where an address lies; false if it is not the start of a slot. */
static bool slot_locate(uint64_t address, struct slot_place *place)
{
    uint64_t offset = address - DRIVER_HEAP_BASE;
    uint64_t inside;

    place->class = (uint32_t)(offset / CLASS_BYTES);
    place->index = (uint32_t)(offset % CLASS_BYTES / SPAN_SIZE);
    inside = offset % SPAN_SIZE;
    place->slot = (uint32_t)(inside / class_size(place->class));
    return inside % class_size(place->class) == 0 && place->slot < SPAN_SIZE / class_size(place->class);
}

/* The span of a slot with its class locked, or NULL (nothing is locked then). */
static struct span *slot_lock(uint64_t address, struct slot_place *place)
{
    struct span *span;

    if (!slot_locate(address, place))
        return NULL;
    pthread_mutex_lock(&heap_class_locks[place->class]);
    span = heap_books->spans[place->class][place->index];
    if (!span)
        pthread_mutex_unlock(&heap_class_locks[place->class]);
    return span;
}

static bool slot_is_live(const struct span *span, uint32_t slot)
{
    return span->sizes[slot] < SLOT_RESERVED;
}

bool span_alloc_at(uint64_t address, uint64_t size)
{
    struct slot_place place;
    struct span *span = slot_lock(address, &place);
    struct span_class *owner = &heap_books->classes[place.class];
    bool done;

    if (!span)
        return false;
    done = span->sizes[place.slot] == SLOT_RESERVED && size <= class_size(place.class);
    if (done) {
        owner->reserved--;
        slot_fill(owner, span, place.slot, size);
    }
    pthread_mutex_unlock(&heap_class_locks[place.class]);
    return done;
}

bool span_free(uint64_t address)
{
    struct slot_place place;
    struct span *span = slot_lock(address, &place);
    struct span_class *owner = &heap_books->classes[place.class];
    bool done;

    if (!span)
        return false;
    done = slot_is_live(span, place.slot);
    if (done) {
        owner->blocks--;
        owner->bytes -= span->sizes[place.slot];
        slot_give(owner, span, place.slot);
    }
    pthread_mutex_unlock(&heap_class_locks[place.class]);
    return done;
}

bool span_unreserve(uint64_t address)
{
    struct slot_place place;
    struct span *span = slot_lock(address, &place);
    struct span_class *owner = &heap_books->classes[place.class];
    bool done;

    if (!span)
        return false;
    done = span->sizes[place.slot] == SLOT_RESERVED;
    if (done) {
        owner->reserved--;
        slot_give(owner, span, place.slot);
    }
    pthread_mutex_unlock(&heap_class_locks[place.class]);
    return done;
}

uint64_t span_start_of(uint64_t inside)
{
    uint64_t offset = (inside - DRIVER_HEAP_BASE) % SPAN_SIZE;

    return inside - offset % class_size((uint32_t)((inside - DRIVER_HEAP_BASE) / CLASS_BYTES));
}

bool span_info(uint64_t address, struct block_info *info)
{
    struct slot_place place;
    struct span *span = slot_lock(address, &place);
    bool live;

    if (!span)
        return false;
    live = slot_is_live(span, place.slot);
    if (live)
        *info =
            (struct block_info){span->sizes[place.slot], class_size(place.class), span->serials[place.slot]};
    pthread_mutex_unlock(&heap_class_locks[place.class]);
    return live;
}

bool span_resize(uint64_t address, uint64_t size)
{
    struct slot_place place;
    struct span *span = slot_lock(address, &place);
    bool done;

    if (!span)
        return false;
    done = slot_is_live(span, place.slot) && size <= class_size(place.class);
    if (done) {
        heap_books->classes[place.class].bytes += size - span->sizes[place.slot];
        span->sizes[place.slot] = (uint16_t)size;
    }
    pthread_mutex_unlock(&heap_class_locks[place.class]);
    return done;
}

int span_reserve(struct heap_books *books, const struct heap_place *place)
{
    struct slot_place at;
    struct span *span;

    if (!slot_locate(place->address, &at) || place->size > class_size(at.class)) {
        log_warn("place %#lx of %lu bytes can't be one", place->address, place->size);
        return 0;
    }
    span = books->spans[at.class][at.index];
    if (!span)
        span = span_new(books, at.class, at.index);
    if (!span)
        return -1;
    if (span->sizes[at.slot] == SLOT_FREE) {
        slot_take(&books->classes[at.class], span, at.slot, SLOT_RESERVED);
        books->classes[at.class].reserved++;
    }
    return 0;
}
