/* Streams, captures in progress, and draining the work of a context. */
#include "kinds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver_api.h"
#include "stream_memory.h"
#include "tracked.h"
#include "unsaveable.h"

/* An attribute that was set: one per attribute, the last value counts. */
struct attribute {
    CUstreamAttrID id;
    CUstreamAttrValue value;
};

struct stream {
    struct record record;
    unsigned flags;
    bool with_priority;
    int priority;
    unsigned long long id; /* told to the program; 0: not asked for */
    struct attribute *attributes;
    unsigned attribute_count;
};

static struct stream *stream_of(struct record *record)
{
    return container_of(record, struct stream, record);
}

static CUresult replay(struct record *record, uint64_t *handle)
{
    struct stream *stream = stream_of(record);
    CUstream made = NULL;
    CUresult result;

    if (stream->with_priority)
        result = driver.cuStreamCreateWithPriority(&made, stream->flags, stream->priority);
    else
        result = driver.cuStreamCreate(&made, stream->flags);
    for (unsigned i = 0; i < stream->attribute_count && result == CUDA_SUCCESS; i++)
        result = driver.cuStreamSetAttribute(made, stream->attributes[i].id, &stream->attributes[i].value);
    *handle = (uint64_t)made;
    return result;
}

static CUresult undo(struct record *record, uint64_t handle)
{
    return driver.cuStreamDestroy_v2((CUstream)handle);
}

static void capture_ended(CUstream stream);

static void release(struct record *record)
{
    capture_ended((CUstream)record->handle); /* its context was destroyed while it captured */
    free(stream_of(record)->attributes);
}

static const struct record_kind stream_kind = {
    .name = "stream", .replay = replay, .undo = undo, .release = release, .warm_up = true};

/* ---- creating and destroying */

static CUresult created(CUresult result, CUstream *handle, unsigned flags, bool with_priority, int priority)
{
    struct stream *stream;

    if (result != CUDA_SUCCESS)
        return journal_discard(result);
    stream = journal_record_new(&stream_kind, sizeof *stream);
    if (stream) {
        stream->flags = flags;
        stream->with_priority = with_priority;
        stream->priority = priority;
    }
    journal_commit(stream ? &stream->record : NULL, (uint64_t)*handle, context_owner());
    return result;
}

CUresult track_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    journal_note();
    return created(driver.cuStreamCreate(phStream, Flags), phStream, Flags, false, 0);
}

CUresult track_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    journal_note();
    return created(driver.cuStreamCreateWithPriority(phStream, flags, priority), phStream, flags, true, priority);
}

CUresult track_cuStreamDestroy_v2(CUstream hStream)
{
    struct record *record = journal_detach(&stream_kind, (uint64_t)hStream);
    CUresult result;

    stream_memory_stream_ending(hStream);
    result = driver.cuStreamDestroy_v2(hStream);
    if (result == CUDA_SUCCESS) {
        capture_ended(hStream);
        journal_drop(record);
    } else {
        journal_attach(record);
    }
    return result;
}

CUresult track_cuStreamDestroy(CUstream hStream)
{
    return track_cuStreamDestroy_v2(hStream);
}

/* ---- attributes and ids; the default streams are not in the journal, their attributes can't be kept */

static void keep_in(struct stream *stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
    struct attribute *grown;
    unsigned i;

    for (i = 0; i < stream->attribute_count && stream->attributes[i].id != id; i++)
        ;
    if (i == stream->attribute_count) {
        grown = realloc(stream->attributes, (i + 1) * sizeof *grown);
        if (!grown) {
            unsaveable_note("no memory to note an attribute of a stream");
            return;
        }
        stream->attributes = grown;
        stream->attribute_count++;
    }
    stream->attributes[i].id = id;
    stream->attributes[i].value = *value;
}

static void keep_attribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct record *record = journal_find(&stream_kind, (uint64_t)handle);

    if (!record) {
        unsaveable_note("cuStreamSetAttribute: an attribute of a default stream");
        return;
    }
    pthread_mutex_lock(&lock);
    keep_in(stream_of(record), id, value);
    pthread_mutex_unlock(&lock);
}

CUresult track_cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param)
{
    CUresult result = driver.cuStreamSetAttribute(hStream, attr, param);

    if (result == CUDA_SUCCESS)
        keep_attribute(hStream, attr, param);
    return result;
}

CUresult track_cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    CUresult result = driver.cuStreamSetAttribute_ptsz(hStream, attr, value);

    if (result == CUDA_SUCCESS)
        keep_attribute(hStream, attr, value);
    return result;
}

static void copy_attributes(CUstream destination, CUstream source)
{
    struct record *record = journal_find(&stream_kind, (uint64_t)source);

    for (unsigned i = 0; record && i < stream_of(record)->attribute_count; i++)
        keep_attribute(destination, stream_of(record)->attributes[i].id, &stream_of(record)->attributes[i].value);
}

CUresult track_cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream)
{
    CUresult result = driver.cuStreamCopyAttributes(dstStream, srcStream);

    if (result == CUDA_SUCCESS)
        copy_attributes(dstStream, srcStream);
    return result;
}

CUresult track_cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
    CUresult result = driver.cuStreamCopyAttributes_ptsz(dst, src);

    if (result == CUDA_SUCCESS)
        copy_attributes(dst, src);
    return result;
}

static CUresult told_id(CUresult result, CUstream handle, unsigned long long *id)
{
    struct record *record = journal_find(&stream_kind, (uint64_t)handle);

    if (result == CUDA_SUCCESS && record)
        *id = id_keep(&stream_of(record)->id, *id);
    return result;
}

CUresult track_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    return told_id(driver.cuStreamGetId(hStream, streamId), hStream, streamId);
}

CUresult track_cuStreamGetId_ptsz(CUstream hStream, unsigned long long *streamId)
{
    return told_id(driver.cuStreamGetId_ptsz(hStream, streamId), hStream, streamId);
}

/* ---- captures: a lock waits until none is in progress, since its graph exists in the driver only */

#define CAPTURES_MAX 256

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUstream stream;
    const struct gate_thread *thread; /* of a per-thread default stream, whose handle is the same in all threads */
} captures[CAPTURES_MAX];
static unsigned capture_count;

static const struct gate_thread *thread_of(CUstream stream)
{
    return (uint64_t)stream <= (uint64_t)CU_STREAM_PER_THREAD ? gate_thread_self() : NULL;
}

static CUresult capture_begun(CUresult result, CUstream stream)
{
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&capture_lock);
    if (capture_count < CAPTURES_MAX) {
        captures[capture_count].stream = stream;
        captures[capture_count++].thread = thread_of(stream);
    } else {
        unsaveable_note("more than %d stream captures at the same time", CAPTURES_MAX);
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static void capture_ended(CUstream stream)
{
    pthread_mutex_lock(&capture_lock);
    for (unsigned i = 0; i < capture_count; i++)
        if (captures[i].stream == stream && captures[i].thread == thread_of(stream)) {
            captures[i] = captures[--capture_count];
            break;
        }
    pthread_mutex_unlock(&capture_lock);
}

bool capture_in_progress(void)
{
    return __atomic_load_n(&capture_count, __ATOMIC_ACQUIRE) > 0;
}

CUresult track_cuStreamBeginCapture(CUstream hStream)
{
    return capture_begun(driver.cuStreamBeginCapture(hStream), hStream);
}

CUresult track_cuStreamBeginCapture_ptsz(CUstream hStream)
{
    return capture_begun(driver.cuStreamBeginCapture_ptsz(hStream), hStream);
}

CUresult track_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return capture_begun(driver.cuStreamBeginCapture_v2(hStream, mode), hStream);
}

CUresult track_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
    return capture_begun(driver.cuStreamBeginCapture_v2_ptsz(hStream, mode), hStream);
}

CUresult track_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                           const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                           CUstreamCaptureMode mode)
{
    return capture_begun(driver.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
                                                            numDependencies, mode),
                         hStream);
}

CUresult track_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                                const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                CUstreamCaptureMode mode)
{
    return capture_begun(driver.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
                                                                 numDependencies, mode),
                         hStream);
}

/* A capture that became invalid ends with an error; whether it ended, the stream knows. */
static CUresult after_end(CUresult result, CUstream stream, bool capturing, CUgraph *graph)
{
    if (!capturing)
        capture_ended(stream);
    if (result == CUDA_SUCCESS && graph && *graph)
        graph_captured(*graph);
    return result;
}

CUresult track_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    CUresult result = driver.cuStreamEndCapture(hStream, phGraph);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    driver.cuStreamIsCapturing(hStream, &status);
    return after_end(result, hStream, status != CU_STREAM_CAPTURE_STATUS_NONE, phGraph);
}

CUresult track_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
    CUresult result = driver.cuStreamEndCapture_ptsz(hStream, phGraph);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    driver.cuStreamIsCapturing_ptsz(hStream, &status);
    return after_end(result, hStream, status != CU_STREAM_CAPTURE_STATUS_NONE, phGraph);
}

/* ---- draining the current context: on the control thread, the gate is closed
 * An event recorded in the legacy default stream waits for all streams that synchronise with it, the per-thread default
 * streams included. The others (CU_STREAM_NON_BLOCKING) are asked one by one.
 */

static CUevent marker;

CUresult drain_begin(void)
{
    CUresult result = driver.cuEventCreate(&marker, CU_EVENT_DISABLE_TIMING);

    if (result != CUDA_SUCCESS) {
        marker = NULL;
        return result;
    }
    return driver.cuEventRecord(marker, CU_STREAM_LEGACY);
}

struct poll {
    CUcontext context;
    CUresult result;
};

static int poll_stream(struct record *record, void *arg)
{
    struct poll *poll = arg;

    if (record->context != poll->context || !(stream_of(record)->flags & CU_STREAM_NON_BLOCKING))
        return 0;
    poll->result = driver.cuStreamQuery((CUstream)record->handle);
    return poll->result != CUDA_SUCCESS;
}

CUresult drain_poll(void)
{
    struct poll poll = {.result = driver.cuEventQuery(marker)};

    driver.cuCtxGetCurrent(&poll.context);
    if (poll.result == CUDA_SUCCESS)
        journal_each(&stream_kind, poll_stream, &poll);
    /* Nothing is left to wait for, so this returns at once; it tells an error that sticks to the context. */
    if (poll.result == CUDA_SUCCESS)
        poll.result = driver.cuCtxSynchronize();
    return poll.result;
}

void drain_end(void)
{
    if (marker)
        driver.cuEventDestroy_v2(marker);
    marker = NULL;
}
