#ifndef CUDACKPT_COPY_STREAM_H
#define CUDACKPT_COPY_STREAM_H
/* memcpy for large pieces that nobody reads again soon: goes past the caches where the processor can. Any
 * thread. */

#include <stddef.h>

void copy_stream(void *to, const void *from, size_t size);

#endif
