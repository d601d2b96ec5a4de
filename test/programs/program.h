#ifndef CUDACKPT_TEST_PROGRAM_H
#define CUDACKPT_TEST_PROGRAM_H
/*
 * The frame of a test program: it sets up a state, says that it is ready, goes on until it is told to verify,
 * and says whether all is well. Meanwhile test/run_programs takes it off the GPU and puts it back, from
 * outside.
 *
 *     int main(int argc, char **argv)
 *     {
 *         program_start(argc, argv);
 *         ...set up...
 *         program_ready(verify);            prints "READY pid"
 *         while (program_running()) {
 *             ...one round, with checks...
 *         }
 *         ...give back what a program gives back...
 *         return program_end();
 *     }
 *
 * Commands come as lines on standard input; each answer is one line on standard output (docs/testing.md):
 *     beat      BEAT rounds=N ticks=N threads=N    at once, whatever the main thread waits for
 *     verify    PASS                               after a round; verify() ran on the main thread
 *     quit      (no answer)                        program_running gives false
 *     exit      (no answer)                        exit(0) at once, from the thread that reads commands
 * and what program_command adds. The first check that fails prints "FAIL file:line: what" and ends the
 * process with 1.
 *
 * The frame itself calls no CUDA, so it serves programs that find the driver in any way. It has two threads
 * beside the main thread: one reads commands, one counts ticks of a millisecond, which shows that CPU threads
 * run on.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRAM_SKIPPED 77 /* exit status of a program that can't run here */

/* First of all; before any call into CUDA. */
void program_start(int argc, char **argv);

/* The state is set up. verify runs on the main thread, in program_running. NULL: the rounds check everything.
 */
void program_ready(void (*verify)(void));

/* Begins a round; false when the program shall end. Main thread only. */
bool program_running(void);

/* What main returns. */
int program_end(void);

/* Threads are counted, so that the runner can tell them from the driver's. f must return by itself at the
 * end. */
pthread_t program_thread(void *(*f)(void *arg), void *arg);
void program_thread_join(pthread_t thread);

/* True until the program shall end; for the loops of other threads than the main one. */
bool program_goes_on(void);

/* f runs every millisecond on the ticking thread, also while suspended; it must not call CUDA. Before
 * program_ready. */
void program_on_tick(void (*f)(uint64_t tick));

/* A command of the program's own: f runs on the thread that reads commands and may not call CUDA. Before
 * program_ready. */
void program_command(const char *name, void (*f)(void));

/* Numbers from TEST_SEED; the same in each run. Any thread. */
uint32_t program_random(void);

/* A number from the environment, or the default. */
uint64_t program_setting(const char *name, uint64_t otherwise);

/* Whether libcudackpt.so is preloaded: what only it provides can be checked then. */
bool program_is_preloaded(void);

/* Number of descriptors of the calling process that are open on the device. */
int program_device_descriptors(void);

void program_sleep_ms(unsigned ms);
uint64_t program_now_ns(void);

/* Ends the process with status 77 and the reason: what the program tests isn't there. */
_Noreturn void program_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Name of a CUresult, as far as the tests meet it. */
const char *program_result_name(int result);

_Noreturn void program_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void program_expect_result(const char *file, int line, const char *call, int result, int expected);

#define FAIL(...) program_fail(__FILE__, __LINE__, __VA_ARGS__)

/* The call gives CUDA_SUCCESS. */
#define CHECK(call) program_expect_result(__FILE__, __LINE__, #call, (int)(call), 0)
/* The call gives this result. */
#define CHECK_GIVES(call, expected)                                                                          \
    program_expect_result(__FILE__, __LINE__, #call, (int)(call), (int)(expected))

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            FAIL("not so: %s", #condition);                                                                  \
    } while (0)
#define EXPECT_EQ(value, expected)                                                                           \
    do {                                                                                                     \
        unsigned long long value_ = (unsigned long long)(value), expected_ = (unsigned long long)(expected); \
        if (value_ != expected_)                                                                             \
            FAIL("%s is %llu (0x%llx), not %llu (0x%llx)", #value, value_, value_, expected_, expected_);    \
    } while (0)

#endif
