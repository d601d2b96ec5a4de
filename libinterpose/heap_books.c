#include "heap_internal.h"

#include <sys/mman.h>

#define ARENA_SIZE (256ull << 10)

struct book_arena {
    struct book_arena *next;
    size_t used;
    size_t unused_; /* keeps what follows 16-byte aligned */
    size_t size;
};

struct heap_books *heap_books;
pthread_mutex_t heap_books_lock = PTHREAD_MUTEX_INITIALIZER;

static void *map_memory(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

struct heap_books *books_new(void)
{
    size_t size = sizeof(struct heap_books) + LARGE_PAGES * sizeof(struct extent *);
    struct heap_books *books = map_memory(size); /* most of it is never touched */

    if (!books)
        return NULL;
    books->mapped = size;
    span_start(books);
    return books;
}

void books_delete(struct heap_books *books)
{
    while (books->arenas) {
        struct book_arena *arena = books->arenas;

        books->arenas = arena->next;
        munmap(arena, arena->size);
    }
    munmap(books, books->mapped);
}

void *books_alloc(struct heap_books *books, size_t size)
{
    struct book_arena *arena;
    void *memory = NULL;

    size = (size + 15) & ~(size_t)15;
    pthread_mutex_lock(&heap_books_lock);
    arena = books->arenas;
    if (!arena || arena->used + size > arena->size) {
        arena = map_memory(ARENA_SIZE);
        if (!arena)
            goto out;
        arena->used = sizeof(*arena);
        arena->size = ARENA_SIZE;
        arena->next = books->arenas;
        books->arenas = arena;
    }
    memory = (char *)arena + arena->used;
    arena->used += size;
out:
    pthread_mutex_unlock(&heap_books_lock);
    return memory;
}
