#ifndef CUDACKPT_CUDA_PROCESS_H
#define CUDACKPT_CUDA_PROCESS_H
/*
 * What /proc tells about a process's use of CUDA, without asking the process: it may be frozen, and most
 * processes that are asked about have nothing to do with CUDA.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The process that a thread belongs to, the number itself for a process; 0 if there is none. */
pid_t cuda_process_of(pid_t tid);

/* The control thread of our library, as seen from here; 0: the process has none. */
pid_t cuda_process_control_thread(pid_t pid);

/*
 * Does the thread wait for a lock while others of its process are frozen by a debugger, such as CRIU? ticks:
 * processor time of the whole process so far, in the kernel's unit.
 */
bool cuda_process_waits_for_frozen(pid_t pid, pid_t tid, uint64_t *ticks);

/* Has it a file of a GPU open? */
bool cuda_process_uses_device(pid_t pid);

#endif
