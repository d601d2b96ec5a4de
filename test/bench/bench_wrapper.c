/*
 * What a call of the driver costs: bench_wrapper THREADS prints "CALL NS" for each kind of call, NS being CPU time of
 * the calling thread, the median over batches, the mean of the threads. bench_wrapper.sh runs it with the preload and
 * without.
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>

#define THREADS_MAX 8
#define BATCHES     31

enum { GET_CURRENT, STREAM_QUERY, EVENT_RECORD, MEMORY, LAUNCH, CALLS };

static const struct {
    const char *name;
    unsigned count; /* calls in a batch; what is queued must fit into the driver's queues */
} calls[CALLS] = {
    [GET_CURRENT] = {"cuCtxGetCurrent", 20000}, [STREAM_QUERY] = {"cuStreamQuery", 5000},
    [EVENT_RECORD] = {"cuEventRecord", 500},    [MEMORY] = {"cuMemAlloc+cuMemFree", 500},
    [LAUNCH] = {"cuLaunchKernel", 300},
};

static CUcontext context;
static CUfunction kernel;
static pthread_barrier_t barrier;

struct job {
    pthread_t thread;
    CUstream stream;
    CUevent event;
    double ns[CALLS];
};

/* One batch. */
static void call_often(const struct job *job, int call)
{
    CUcontext current;
    CUdeviceptr block;

    for (unsigned i = 0; i < calls[call].count; i++) {
        switch (call) {
        case GET_CURRENT: MUST(cuCtxGetCurrent(&current)); break;
        case STREAM_QUERY: MUST(cuStreamQuery(job->stream)); break;
        case EVENT_RECORD: MUST(cuEventRecord(job->event, job->stream)); break;
        case MEMORY:
            MUST(cuMemAlloc_v2(&block, 4096));
            MUST(cuMemFree_v2(block));
            break;
        case LAUNCH: MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, job->stream, NULL, NULL)); break;
        }
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void *measure(void *argument)
{
    struct job *job = argument;
    double batches[BATCHES];

    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&job->stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&job->event, CU_EVENT_DISABLE_TIMING));
    for (int call = 0; call < CALLS; call++) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < BATCHES; i++) {
            uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);

            call_often(job, call);
            batches[i] = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / calls[call].count;
            MUST(cuStreamSynchronize(job->stream));
        }
        qsort(batches, BATCHES, sizeof(batches[0]), compare);
        job->ns[call] = batches[BATCHES / 2];
    }
    MUST(cuEventDestroy_v2(job->event));
    MUST(cuStreamDestroy_v2(job->stream));
    return NULL;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1;
    struct job jobs[THREADS_MAX];

    if (count < 1 || count > THREADS_MAX) {
        fprintf(stderr, "usage: bench_wrapper THREADS (1 to %d)\n", THREADS_MAX);
        return 2;
    }
    memset(jobs, 0, sizeof(jobs));
    MUST(cuModuleGetFunction(&kernel, bench_start(&context), "bump"));
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        pthread_create(&jobs[i].thread, NULL, measure, &jobs[i]);
    for (int i = 0; i < count; i++)
        pthread_join(jobs[i].thread, NULL);
    for (int call = 0; call < CALLS; call++) {
        double sum = 0;

        for (int i = 0; i < count; i++)
            sum += jobs[i].ns[call];
        printf("%s %.1f\n", calls[call].name, sum / count);
    }
    return 0;
}
