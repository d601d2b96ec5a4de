#include "copy_stream.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__

#include <immintrin.h>

#define LINE 128 /* bytes per round: two cache lines */

/* to is 32-byte aligned, size a multiple of LINE. */
__attribute__((target("avx2"))) static void copy_lines(char *to, const char *from, size_t size)
{
    for (const char *end = from + size; from < end; from += LINE, to += LINE) {
        __m256i a = _mm256_loadu_si256((const __m256i *)from);
        __m256i b = _mm256_loadu_si256((const __m256i *)(from + 32));
        __m256i c = _mm256_loadu_si256((const __m256i *)(from + 64));
        __m256i d = _mm256_loadu_si256((const __m256i *)(from + 96));

        _mm256_stream_si256((__m256i *)to, a);
        _mm256_stream_si256((__m256i *)(to + 32), b);
        _mm256_stream_si256((__m256i *)(to + 64), c);
        _mm256_stream_si256((__m256i *)(to + 96), d);
    }
    /* Such stores are weakly ordered: they must be out before the device or another thread is told of them.
     */
    _mm_sfence();
}

void copy_stream(void *to, const void *from, size_t size)
{
    size_t head = -(uintptr_t)to % LINE, lines;

    if (size < 4 * LINE || !__builtin_cpu_supports("avx2")) {
        memcpy(to, from, size);
        return;
    }
    memcpy(to, from, head);
    lines = (size - head) / LINE * LINE;
    copy_lines((char *)to + head, (const char *)from + head, lines);
    memcpy((char *)to + head + lines, (const char *)from + head + lines, size - head - lines);
}

#else

void copy_stream(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}

#endif
