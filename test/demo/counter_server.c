/*
 * A server whose state is on the device: it answers each UDP packet with a number that a kernel counts up in a global
 * variable of its module. Prints "PORT N" when it listens, on loopback only; ends at the end of its standard input.
 * It knows nothing of cudackpt.
 */
#include "cuda_abi.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels.ptx.h"

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) CUresult symbol parameters;
#include "driver_api.inc"
#undef ENTRY

#define BALLAST (UINT64_C(64) << 20) /* so that there is something to see in a list of memory */

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "counter_server: %s failed\n", what);
        exit(1);
    }
}

#define MUST(call) must((call) == CUDA_SUCCESS, #call)

static int listen_on_loopback(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    must(fd >= 0, "socket");
    must(!bind(fd, (struct sockaddr *)&address, size), "bind");
    must(!getsockname(fd, (struct sockaddr *)&address, &size), "getsockname");
    printf("PORT %u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void answer(int fd, CUfunction bump, CUdeviceptr counter)
{
    struct sockaddr_in sender;
    socklen_t size = sizeof(sender);
    char packet[64];
    uint32_t count;
    int length;

    if (recvfrom(fd, packet, sizeof(packet), 0, (struct sockaddr *)&sender, &size) < 0)
        return;
    MUST(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    MUST(cuMemcpyDtoH_v2(&count, counter, sizeof(count)));
    length = snprintf(packet, sizeof(packet), "%u\n", count - KERNELS_GLOBAL_INITIAL);
    sendto(fd, packet, (size_t)length, 0, (struct sockaddr *)&sender, size);
}

int main(void)
{
    struct pollfd inputs[2] = {{.fd = STDIN_FILENO}, {.events = POLLIN}};
    CUdeviceptr counter, ballast;
    CUcontext context;
    CUfunction bump;
    CUmodule module;
    size_t size;

    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, kernels_ptx));
    MUST(cuModuleGetFunction(&bump, module, "bump"));
    MUST(cuModuleGetGlobal_v2(&counter, &size, module, "g_counter"));
    MUST(cuMemAlloc_v2(&ballast, BALLAST));
    MUST(cuMemsetD32_v2(ballast, 0x5a5a5a5a, BALLAST / 4));
    MUST(cuCtxSynchronize());
    inputs[1].fd = listen_on_loopback();
    while (poll(inputs, 2, -1) > 0 && !(inputs[0].revents & (POLLHUP | POLLERR)))
        if (inputs[1].revents)
            answer(inputs[1].fd, bump, counter);
    return 0;
}
