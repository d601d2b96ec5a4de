/*
 * What depends on the processor: thunks (thunk.h), and dlopen and dlsym as the program finds them
 * (loader_hooks.h). System V ABI. The unwind tables are complete, so that exceptions and stack traces go
 * through.
 */
#ifndef __x86_64__
#error "there is no arch_*.S for this processor yet"
#endif

#include "thunk.h"

    .text
    .hidden thunk_enter
    .hidden gate_self
    .hidden loader_resolve
    .hidden loader_dlopen_filter
    .hidden loader_dlsym_filter
    .hidden loader_real_dlopen
    .hidden loader_real_dlsym

/* ---- thunks: each stub brings its number along in r11, which the ABI gives to nobody across a call */

    .hidden thunk_stubs
    .globl thunk_stubs
    .type thunk_stubs, @function
    .balign THUNK_STUB_SIZE
thunk_stubs:
    .cfi_startproc
    .set thunk_index, 0
    .rept THUNK_COUNT
    .balign THUNK_STUB_SIZE
    movl $thunk_index, %r11d
    jmp thunk_common
    .set thunk_index, thunk_index + 1
    .endr
    .balign THUNK_STUB_SIZE
    .cfi_endproc
    .size thunk_stubs, . - thunk_stubs

/* The exported functions of the driver whose parameters are not known. */
    .macro raw_entry symbol
    .globl \symbol
    .type \symbol, @function
    .balign THUNK_STUB_SIZE
\symbol:
    .cfi_startproc
    movl $thunk_index, %r11d
    jmp thunk_common
    .cfi_endproc
    .size \symbol, . - \symbol
    .set thunk_index, thunk_index + 1
    .endm

#define ENTRY_RAW(symbol, reason) raw_entry symbol
#include "driver_raw.inc"
#undef ENTRY_RAW

/*
 * The frame, from rsp up: the stack arguments for the real function; the argument registers while thunk_enter
 * runs; rbx, which keeps what to leave the gate with; rbp. rax is an argument too (al: how many vector
 * registers a call of a variadic function uses), and r10 (the static chain of languages that have one).
 */
#define ARGUMENTS (THUNK_STACK_WORDS * 8)
#define INTEGERS  ARGUMENTS
#define VECTORS   (INTEGERS + 8 * 8)
#define FRAME     (VECTORS + 8 * 16 + 8) /* 8: rsp is a multiple of 16 at the call */

    .type thunk_common, @function
    .balign 16
thunk_common:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq %rbx
    .cfi_offset %rbx, -24
    subq $FRAME, %rsp

    movq %rdi, INTEGERS(%rsp)
    movq %rsi, INTEGERS + 8(%rsp)
    movq %rdx, INTEGERS + 16(%rsp)
    movq %rcx, INTEGERS + 24(%rsp)
    movq %r8, INTEGERS + 32(%rsp)
    movq %r9, INTEGERS + 40(%rsp)
    movq %rax, INTEGERS + 48(%rsp)
    movq %r10, INTEGERS + 56(%rsp)
    movups %xmm0, VECTORS(%rsp)
    movups %xmm1, VECTORS + 16(%rsp)
    movups %xmm2, VECTORS + 32(%rsp)
    movups %xmm3, VECTORS + 48(%rsp)
    movups %xmm4, VECTORS + 64(%rsp)
    movups %xmm5, VECTORS + 80(%rsp)
    movups %xmm6, VECTORS + 96(%rsp)
    movups %xmm7, VECTORS + 112(%rsp)

    movl %r11d, %edi
    movq 8(%rbp), %rsi
    call thunk_enter
    movq %rax, %r11
    movl %edx, %ebx

    /* 16(%rbp) is where the caller put its stack arguments: above its return address and our rbp. */
    .set offset, 0
    .rept THUNK_STACK_WORDS / 2
    movups 16 + offset(%rbp), %xmm0
    movups %xmm0, offset(%rsp)
    .set offset, offset + 16
    .endr

    movq INTEGERS(%rsp), %rdi
    movq INTEGERS + 8(%rsp), %rsi
    movq INTEGERS + 16(%rsp), %rdx
    movq INTEGERS + 24(%rsp), %rcx
    movq INTEGERS + 32(%rsp), %r8
    movq INTEGERS + 40(%rsp), %r9
    movq INTEGERS + 48(%rsp), %rax
    movq INTEGERS + 56(%rsp), %r10
    movups VECTORS(%rsp), %xmm0
    movups VECTORS + 16(%rsp), %xmm1
    movups VECTORS + 32(%rsp), %xmm2
    movups VECTORS + 48(%rsp), %xmm3
    movups VECTORS + 64(%rsp), %xmm4
    movups VECTORS + 80(%rsp), %xmm5
    movups VECTORS + 96(%rsp), %xmm6
    movups VECTORS + 112(%rsp), %xmm7
    call *%r11

    /* gate_leave, with registers that hold no result; inside is at offset 0 (gate.c asserts it) */
    movq gate_self@gottpoff(%rip), %rcx
    movq %fs:(%rcx), %rcx
    movl %ebx, (%rcx)

    movq -8(%rbp), %rbx
    .cfi_restore %rbx
    leave
    .cfi_def_cfa %rsp, 8
    .cfi_restore %rbp
    ret
    .cfi_endproc
    .size thunk_common, . - thunk_common

/*
 * ---- the dynamic linker: a filter's answer, or a jump that leaves the caller's return address where it was
 */

    .globl dlopen
    .type dlopen, @function
    .balign 16
dlopen:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    cmpq $0, loader_real_dlopen(%rip)
    jne 1f
    call loader_resolve
1:
    movq 16(%rsp), %rdi
    movl 8(%rsp), %esi
    movq 24(%rsp), %rdx
    call loader_dlopen_filter
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jne 2f
    jmp *loader_real_dlopen(%rip)
2:
    ret
    .cfi_endproc
    .size dlopen, . - dlopen

    .globl dlsym
    .type dlsym, @function
    .balign 16
dlsym:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    cmpq $0, loader_real_dlsym(%rip)
    jne 1f
    call loader_resolve
1:
    /* The filter may replace both where they lie. */
    leaq 16(%rsp), %rdi
    leaq 8(%rsp), %rsi
    movq 24(%rsp), %rdx
    call loader_dlsym_filter
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jne 2f
    jmp *loader_real_dlsym(%rip)
2:
    ret
    .cfi_endproc
    .size dlsym, . - dlsym

    .section .note.GNU-stack, "", @progbits
