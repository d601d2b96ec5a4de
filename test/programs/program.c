#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMANDS_MAX 4

static struct {
    void (*verify)(void);
    void (*on_tick)(uint64_t tick);
    struct {
        const char *name;
        void (*f)(void);
    } commands[COMMANDS_MAX];
    int command_count;
    uint64_t rounds, ticks;
    uint32_t random;
    int threads; /* of the program's own, main included */
    bool verify_wanted, quit;
    pthread_t reader, ticker;
} program = {.threads = 1, .random = 1};

/* One write, so that lines of several threads do not mix; the driver's or stdio's locks do not matter. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    for (int done = 0; done < length;) {
        ssize_t n = write(STDOUT_FILENO, line + done, length - done);

        if (n < 0 && errno != EINTR)
            _exit(3); /* the runner is gone */
        done += n > 0 ? (int)n : 0;
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

_Noreturn void program_fail(const char *file, int line, const char *format, ...)
{
    char text[800];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say("FAIL %s:%d: %s", base_name(file), line, text);
    _exit(1);
}

_Noreturn void program_skip(const char *format, ...)
{
    char text[800];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say("SKIP %s", text);
    _exit(PROGRAM_SKIPPED);
}

const char *program_result_name(int result)
{
    static const struct {
        int result;
        const char *name;
    } names[] = {
        {0, "CUDA_SUCCESS"},
        {1, "CUDA_ERROR_INVALID_VALUE"},
        {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {4, "CUDA_ERROR_DEINITIALIZED"},
        {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"},
        {200, "CUDA_ERROR_INVALID_IMAGE"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {218, "CUDA_ERROR_INVALID_PTX"},
        {301, "CUDA_ERROR_FILE_NOT_FOUND"},
        {304, "CUDA_ERROR_OPERATING_SYSTEM"},
        {400, "CUDA_ERROR_INVALID_HANDLE"},
        {401, "CUDA_ERROR_ILLEGAL_STATE"},
        {500, "CUDA_ERROR_NOT_FOUND"},
        {600, "CUDA_ERROR_NOT_READY"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
        {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
        {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {800, "CUDA_ERROR_NOT_PERMITTED"},
        {801, "CUDA_ERROR_NOT_SUPPORTED"},
        {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {999, "CUDA_ERROR_UNKNOWN"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].result == result)
            return names[i].name;
    return "CUresult";
}

void program_expect_result(const char *file, int line, const char *call, int result, int expected)
{
    if (result != expected)
        program_fail(file, line, "%s gave %s (%d), not %s (%d)", call, program_result_name(result), result,
                     program_result_name(expected), expected);
}

/* One character at a time: no stdio buffer that a fork could take along. */
static bool read_line(char *line, size_t size)
{
    size_t length = 0;

    for (;;) {
        char c;
        ssize_t n = read(STDIN_FILENO, &c, 1);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        if (c == '\n')
            break;
        if (length < size - 1)
            line[length++] = c;
    }
    line[length] = 0;
    return true;
}

static void obey(const char *command)
{
    if (!strcmp(command, "beat")) {
        say("BEAT rounds=%llu ticks=%llu threads=%d",
            (unsigned long long)__atomic_load_n(&program.rounds, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&program.ticks, __ATOMIC_RELAXED),
            __atomic_load_n(&program.threads, __ATOMIC_SEQ_CST));
        return;
    }
    if (!strcmp(command, "verify")) {
        __atomic_store_n(&program.verify_wanted, true, __ATOMIC_SEQ_CST);
        return;
    }
    if (!strcmp(command, "quit")) {
        __atomic_store_n(&program.quit, true, __ATOMIC_SEQ_CST);
        return;
    }
    if (!strcmp(command, "exit"))
        exit(0);
    for (int i = 0; i < program.command_count; i++)
        if (!strcmp(command, program.commands[i].name)) {
            program.commands[i].f();
            return;
        }
    FAIL("unknown command \"%s\"", command);
}

static void *read_commands(void *arg)
{
    char line[64];

    while (!__atomic_load_n(&program.quit, __ATOMIC_SEQ_CST)) {
        if (!read_line(line, sizeof line)) {
            /* The runner is gone. A main thread that waits at the gate never comes back to program_running.
             */
            __atomic_store_n(&program.quit, true, __ATOMIC_SEQ_CST);
            program_sleep_ms(5000);
            _exit(2);
        }
        obey(line);
    }
    return NULL;
}

static void *count_ticks(void *arg)
{
    while (!__atomic_load_n(&program.quit, __ATOMIC_SEQ_CST)) {
        uint64_t tick = __atomic_add_fetch(&program.ticks, 1, __ATOMIC_RELAXED);

        if (program.on_tick)
            program.on_tick(tick);
        program_sleep_ms(1);
    }
    return NULL;
}

void program_start(int argc, char **argv)
{
    program.random = (uint32_t)program_setting("TEST_SEED", 1) * 2654435761u + 1;
}

void program_ready(void (*verify)(void))
{
    program.verify = verify;
    program.reader = program_thread(read_commands, NULL);
    program.ticker = program_thread(count_ticks, NULL);
    say("READY %d", (int)getpid());
}

bool program_running(void)
{
    __atomic_add_fetch(&program.rounds, 1, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&program.verify_wanted, false, __ATOMIC_SEQ_CST)) {
        if (program.verify)
            program.verify();
        say("PASS");
    }
    return program_goes_on();
}

bool program_goes_on(void)
{
    return !__atomic_load_n(&program.quit, __ATOMIC_SEQ_CST);
}

int program_end(void)
{
    program_thread_join(program.reader);
    program_thread_join(program.ticker);
    return 0;
}

/* Counted by the thread itself where it ends, so that the count is never lower than the number of threads. */
struct thread_start {
    void *(*f)(void *arg);
    void *arg;
};

static void *thread_run(void *arg)
{
    struct thread_start start = *(struct thread_start *)arg;

    free(arg);
    return start.f(start.arg);
}

pthread_t program_thread(void *(*f)(void *arg), void *arg)
{
    struct thread_start *start = malloc(sizeof *start);
    pthread_t thread;

    if (!start)
        FAIL("no memory");
    start->f = f;
    start->arg = arg;
    __atomic_add_fetch(&program.threads, 1, __ATOMIC_SEQ_CST);
    errno = pthread_create(&thread, NULL, thread_run, start);
    if (errno)
        FAIL("pthread_create: %s", strerror(errno));
    return thread;
}

void program_thread_join(pthread_t thread)
{
    pthread_join(thread, NULL);
    __atomic_sub_fetch(&program.threads, 1, __ATOMIC_SEQ_CST);
}

void program_on_tick(void (*f)(uint64_t tick))
{
    program.on_tick = f;
}

void program_command(const char *name, void (*f)(void))
{
    if (program.command_count == COMMANDS_MAX)
        FAIL("too many commands");
    program.commands[program.command_count].name = name;
    program.commands[program.command_count].f = f;
    program.command_count++;
}

uint32_t program_random(void)
{
    uint32_t before = __atomic_load_n(&program.random, __ATOMIC_RELAXED), after;

    do {
        after = before * 1664525u + 1013904223u;
    } while (!__atomic_compare_exchange_n(&program.random, &before, after, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return after >> 8; /* the low bits of such a sequence repeat soon */
}

uint64_t program_setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

bool program_is_preloaded(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload && strstr(preload, "libcudackpt.so");
}

int program_device_descriptors(void)
{
    const char *fake = getenv("FAKE_GPU_DIR");
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    if (!directory)
        FAIL("/proc/self/fd: %s", strerror(errno));
    while ((entry = readdir(directory))) {
        char target[512];
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);

        if (length < 0)
            continue;
        target[length] = 0;
        if (!strncmp(target, "/dev/nvidia", 11) || (fake && *fake && !strncmp(target, fake, strlen(fake))))
            count++;
    }
    closedir(directory);
    return count;
}

void program_sleep_ms(unsigned ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

uint64_t program_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
