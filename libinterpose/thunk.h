#ifndef CUDACKPT_THUNK_H
#define CUDACKPT_THUNK_H
/*
 * Thunks: gated forwarders for functions whose arguments we don't know: entries of private tables, functions
 * newer than driver_api.inc, NVML. A thunk enters the gate, calls the real function with all integer and
 * vector argument registers and THUNK_STACK_WORDS words of the caller's stack, leaves the gate, and returns
 * what the real one returned (rax, rdx, xmm0, xmm1, st0).
 *
 * The code is built beforehand (arch_x86_64.S), none is made at run time. A thunk is never given back. Any
 * thread may call; nothing here locks or takes memory.
 */

#define THUNK_COUNT       2048
#define THUNK_STACK_WORDS 24
#define THUNK_STUB_SIZE   16

#ifndef __ASSEMBLER__

#include <stdint.h>

/*
 * The exported functions of the driver whose parameters we don't know (driver_raw.inc) have the indexes after
 * the stubs.
 */
enum thunk_raw {
    THUNK_RAW_FIRST = THUNK_COUNT - 1,
#define ENTRY_RAW(symbol, reason) THUNK_RAW_##symbol,
#include "driver_raw.inc"
#undef ENTRY_RAW
    THUNK_INDEX_COUNT
};

/* Thunk number index is row ROW_COUNT + index for the gate (driver_row_name asks thunk_name). */

/*
 * The thunk for a function, the same one each time; for a thunk, itself. name (copied, up to 63 bytes) is for
 * messages. NULL when there are no more.
 */
void *thunk_make(void *real, const char *name);

/*
 * The same for a function that nobody knows: its first call notes the process as unsaveable, with its name.
 */
void *thunk_unknown(void *real, const char *name);

/*
 * Row for a hand-written wrapper that is not in driver_api.inc, for gate_enter. The same one for the same
 * name.
 */
uint32_t thunk_row(const char *name);

/* Never NULL. index counts from 0, as in row - ROW_COUNT. */
const char *thunk_name(uint32_t index);

/* What the thunk calls from now on; not NULL. thunk is what thunk_make gave. */
void thunk_set_real(void *thunk, void *real);

/*
 * Finds the real functions of driver_raw.inc in the driver. Part of the set-up: a call before that runs the
 * set-up at the gate. One that the driver lacks returns CUDA_ERROR_NOT_FOUND.
 */
struct elf_library;
void thunk_start(const struct elf_library *driver_library);

/* For the assembly: enters the gate; what to call, and what to leave with. */
struct thunk_call {
    void *real;
    uint64_t outer;
};
struct thunk_call thunk_enter(uint32_t index, const void *caller);

#endif
#endif
