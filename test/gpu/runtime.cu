// A program of the CUDA runtime: kernels, __device__ and __constant__ variables, streams, events, pinned memory. Built
// twice by `make check-gpu`, with the static and with the shared cudart; the frame is that of test/programs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

extern "C" {
void program_start(int argc, char **argv);
void program_ready(void (*verify)(void));
bool program_running(void);
int program_end(void);
void program_sleep_ms(unsigned ms);
}

#define WORDS 4096
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t result_ = (call);                                                                        \
        if (result_ != cudaSuccess) {                                                                        \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result_));          \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("FAIL %s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

__device__ unsigned counter = 5;
static __device__ unsigned hidden[16]; // its name is asked for by nobody
__constant__ unsigned factor;

__global__ void step(unsigned *words)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    words[i] += factor;
    if (i == 0)
        counter++;
    if (i < 16)
        hidden[i] += i;
}

__global__ void read_hidden(unsigned *out)
{
    out[threadIdx.x] = hidden[threadIdx.x];
}

static unsigned *words, *pinned, steps;
static cudaStream_t stream;
static cudaEvent_t begin, end;
static void *counter_address;

static void check_all()
{
    unsigned value, *out;
    void *again;
    float ms;

    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    EXPECT(value == 5 + steps);
    CHECK(cudaGetSymbolAddress(&again, counter));
    EXPECT(again == counter_address);
    CHECK(cudaMemcpyAsync(pinned, words, WORDS * sizeof *words, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++)
        EXPECT(pinned[i] == (unsigned)i + 3 * steps);
    CHECK(cudaMalloc(&out, 16 * sizeof *out));
    read_hidden<<<1, 16, 0, stream>>>(out);
    CHECK(cudaMemcpyAsync(pinned, out, 16 * sizeof *out, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < 16; i++)
        EXPECT(pinned[i] == i * steps);
    CHECK(cudaFree(out));
    CHECK(cudaEventQuery(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    EXPECT(ms >= 0 && ms < 1e6f);
}

int main(int argc, char **argv)
{
    unsigned three = 3;

    program_start(argc, argv);
    CHECK(cudaMalloc(&words, WORDS * sizeof *words));
    CHECK(cudaMallocHost(&pinned, WORDS * sizeof *pinned));
    for (int i = 0; i < WORDS; i++)
        pinned[i] = i;
    CHECK(cudaMemcpy(words, pinned, WORDS * sizeof *words, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(factor, &three, sizeof three));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaGetSymbolAddress(&counter_address, counter));
    program_ready(check_all);
    while (program_running()) {
        step<<<WORDS / 256, 256, 0, stream>>>(words);
        CHECK(cudaGetLastError());
        steps++;
        CHECK(cudaStreamSynchronize(stream));
        check_all();
        program_sleep_ms(1);
    }
    CHECK(cudaDeviceReset());
    return program_end();
}
