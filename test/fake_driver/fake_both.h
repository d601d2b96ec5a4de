#ifndef FAKE_BOTH_H
#define FAKE_BOTH_H
/*
 * Entry points that exist for both meanings of the null stream: SYMBOL and SYMBOL_ptsz (or _ptds) call one
 * function. Their parameters name the stream `handle`; the arguments may use stream, self and context.
 */

#include "fake.h"

#define STREAM_ENTRY(symbol, meaning, function, parameters, arguments)                                       \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        CALL(symbol, NEEDS_CONTEXT);                                                                         \
        struct stream *stream = stream_find(self, context, meaning);                                         \
        return stream ? function arguments : CUDA_ERROR_INVALID_HANDLE;                                      \
    }
#define BOTH(symbol, function, parameters, arguments)                                                        \
    STREAM_ENTRY(symbol, handle, function, parameters, arguments)                                            \
    STREAM_ENTRY(symbol##_ptsz, per_thread(handle), function, parameters, arguments)
/* Without a stream among the parameters. */
#define BOTH_SYNC(symbol, function, parameters, arguments)                                                   \
    STREAM_ENTRY(symbol, NULL, function, parameters, arguments)                                              \
    STREAM_ENTRY(symbol##_ptds, CU_STREAM_PER_THREAD, function, parameters, arguments)

#endif
