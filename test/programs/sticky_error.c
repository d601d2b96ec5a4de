/* A kernel stored to an illegal address: nothing can be drained; the refusal names the error. */
// expect: suspend-exit=1 message=ILLEGAL_ADDRESS|illegal

#include "device.h"

static CUdeviceptr word;

/* As without the preload, also after a suspend that was refused. */
static void check_all(void)
{
    uint32_t value;

    CHECK_GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_GIVES(cuMemcpyDtoH_v2(&value, word, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(int argc, char **argv)
{
    struct kernels kernels;

    program_start(argc, argv);
    device_start();
    kernels_load(&kernels);
    CHECK(cuMemAlloc_v2(&word, 4));
    LAUNCH_PLAIN(kernel_get(kernels.module, "illegal"), NULL);
    CHECK_GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    program_ready(check_all);
    while (program_running()) {
        check_all();
        program_sleep_ms(1);
    }
    return program_end(); /* nothing of the context can be given back any more */
}
