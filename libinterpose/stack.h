#ifndef CUDACKPT_STACK_H
#define CUDACKPT_STACK_H
/*
 * Where threads are, for messages. No malloc, no signals: another thread's stack is not walked, what the
 * kernel tells about it must do. dladdr and the unwinder of libgcc are used. dladdr takes the dynamic
 * linker's lock, so nobody may call these while a thread that holds it (in dlopen) waits for the caller.
 */

#include <stddef.h>
#include <sys/types.h>

/* Functions that stack_of_self names at most. */
#define STACK_FRAMES 8

/*
 * "function (library.so)", "library.so" where no function is known, "" where nothing is. Always terminated.
 */
void stack_symbol(const void *address, char *out, size_t size);

/*
 * What a thread of this process is doing: "worker, running" or "worker, sleeping in futex_wait_queue from
 * pthread_cond_wait (libc.so.6)". -1 with an empty text if there is no such thread.
 */
int stack_of_thread(pid_t tid, char *out, size_t size);

/*
 * The calling thread's functions, innermost first, beginning with the caller: "f (a.so) < g (a.so) < main
 * (prog)".
 */
void stack_of_self(char *out, size_t size);

/*
 * Who called into [low, high): walks the calling thread's stack outwards, into the range and out of it again.
 * Returns the file name of the library or program there (it stays as long as that is loaded). *address is the
 * return address there, NULL if the stack does not lead through the range; NULL is returned then, or if the
 * place has no file.
 */
const char *stack_caller_outside(const void *low, const void *high, void **address);

#endif
