#ifndef CUDACKPT_TEST_KERNELS_PTX_H
#define CUDACKPT_TEST_KERNELS_PTX_H
/* clang-format off */
/*
 * The test kernels, as PTX text that every driver since CUDA 11.0 compiles for any device. The fake driver has
 * C twins of them under the same names (test/fake_driver/), so that a name always means the same:
 *
 *   fill(u32 *p, u64 n, u32 seed)                   p[i] = (u32)(i * 2654435761) ^ seed
 *   check(const u32 *p, u64 n, u32 seed, u64 *bad)  *bad += number of elements that fill stores otherwise
 *   increment(u32 *p, u32 by)                       *p += by
 *   bump()                                          g_counter += 1
 *   read_const(u32 *out, u32 index)                 *out = c_table[index]
 *   spin_until(volatile u32 *flag, u32 value)       waits until *flag == value; flag is in pinned host memory
 *   sleep_ns(u64 ns)                                waits
 *   shared_sum(u32 *out, u32 n)                     *out = 0 + ... + n-1, in n words of dynamic shared memory
 *   get_fn(u64 *out)                                *out = address of the device function add_one
 *   call_fn(const u64 *fn, u32 x, u32 *out)         *out = (*fn)(x)
 *   grid_count(u32 *counter)                        every block adds 1
 *   illegal()                                       stores to address 0
 *   copy_words(u32 *dst, const u32 *src, u64 n)     copies
 *   stamp(u64 *out)                                 *out = time of the device, ns
 *
 * fill, check and copy_words take any grid; the others are meant for one thread, shared_sum for one block,
 * grid_count for any number of blocks.
 */

#define KERNELS_GLOBAL_INITIAL 7  /* g_counter in a module just loaded */
#define KERNELS_CONST_COUNT    64 /* elements of c_table, 0 in a module just loaded */
#define KERNELS_FILL(i, seed)  ((uint32_t)((uint64_t)(i) * 2654435761u) ^ (uint32_t)(seed))

/* %r1 = global thread index in x, %r2 = number of threads in x, as 64-bit %rd1 and %rd2. */
#define PTX_GRID_STRIDE                                                                                      \
    "    mov.u32 %r1, %ctaid.x;\n"                                                                           \
    "    mov.u32 %r2, %ntid.x;\n"                                                                            \
    "    mov.u32 %r3, %tid.x;\n"                                                                             \
    "    mov.u32 %r4, %nctaid.x;\n"                                                                          \
    "    mul.wide.u32 %rd1, %r1, %r2;\n"                                                                     \
    "    cvt.u64.u32 %rd3, %r3;\n"                                                                           \
    "    add.u64 %rd1, %rd1, %rd3;\n"                                                                        \
    "    mul.wide.u32 %rd2, %r2, %r4;\n"

#define PTX_REGISTERS                                                                                        \
    "    .reg .pred %p<4>;\n"                                                                                \
    "    .reg .b32 %r<16>;\n"                                                                                \
    "    .reg .b64 %rd<16>;\n"

/* %r9 = what fill leaves at index %rd1, with the seed in %r8. */
#define PTX_FILL_VALUE                                                                                       \
    "    cvt.u32.u64 %r9, %rd1;\n"                                                                           \
    "    mul.lo.u32 %r9, %r9, 2654435761;\n"                                                                 \
    "    xor.b32 %r9, %r9, %r8;\n"

static const char kernels_ptx[] =
    ".version 7.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    "\n"
    ".visible .global .align 4 .u32 g_counter = 7;\n"
    ".visible .const .align 4 .u32 c_table[64];\n"
    ".extern .shared .align 4 .b8 dynamic_shared[];\n"
    "\n"
    ".visible .entry fill(.param .u64 fill_p, .param .u64 fill_n, .param .u32 fill_seed)\n"
    "{\n" PTX_REGISTERS PTX_GRID_STRIDE
    "    ld.param.u64 %rd4, [fill_p];\n"
    "    ld.param.u64 %rd5, [fill_n];\n"
    "    ld.param.u32 %r8, [fill_seed];\n"
    "fill_next:\n"
    "    setp.ge.u64 %p1, %rd1, %rd5;\n"
    "    @%p1 bra fill_end;\n" PTX_FILL_VALUE
    "    shl.b64 %rd6, %rd1, 2;\n"
    "    add.u64 %rd6, %rd4, %rd6;\n"
    "    st.u32 [%rd6], %r9;\n"
    "    add.u64 %rd1, %rd1, %rd2;\n"
    "    bra fill_next;\n"
    "fill_end:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry check(.param .u64 check_p, .param .u64 check_n, .param .u32 check_seed,\n"
    "                      .param .u64 check_bad)\n"
    "{\n" PTX_REGISTERS PTX_GRID_STRIDE
    "    ld.param.u64 %rd4, [check_p];\n"
    "    ld.param.u64 %rd5, [check_n];\n"
    "    ld.param.u32 %r8, [check_seed];\n"
    "    ld.param.u64 %rd7, [check_bad];\n"
    "    mov.u64 %rd8, 1;\n"
    "check_next:\n"
    "    setp.ge.u64 %p1, %rd1, %rd5;\n"
    "    @%p1 bra check_end;\n" PTX_FILL_VALUE
    "    shl.b64 %rd6, %rd1, 2;\n"
    "    add.u64 %rd6, %rd4, %rd6;\n"
    "    ld.u32 %r10, [%rd6];\n"
    "    setp.eq.u32 %p2, %r9, %r10;\n"
    "    @%p2 bra check_same;\n"
    "    atom.add.u64 %rd9, [%rd7], %rd8;\n"
    "check_same:\n"
    "    add.u64 %rd1, %rd1, %rd2;\n"
    "    bra check_next;\n"
    "check_end:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry increment(.param .u64 increment_p, .param .u32 increment_by)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [increment_p];\n"
    "    ld.param.u32 %r1, [increment_by];\n"
    "    atom.add.u32 %r2, [%rd1], %r1;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry bump()\n"
    "{\n" PTX_REGISTERS
    "    mov.u64 %rd1, g_counter;\n"
    "    atom.global.add.u32 %r1, [%rd1], 1;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry read_const(.param .u64 read_const_out, .param .u32 read_const_index)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [read_const_out];\n"
    "    ld.param.u32 %r1, [read_const_index];\n"
    "    mul.wide.u32 %rd2, %r1, 4;\n"
    "    mov.u64 %rd3, c_table;\n"
    "    add.u64 %rd3, %rd3, %rd2;\n"
    "    ld.const.u32 %r2, [%rd3];\n"
    "    st.u32 [%rd1], %r2;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry spin_until(.param .u64 spin_until_flag, .param .u32 spin_until_value)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [spin_until_flag];\n"
    "    ld.param.u32 %r1, [spin_until_value];\n"
    "spin_next:\n"
    "    ld.volatile.u32 %r2, [%rd1];\n"
    "    setp.ne.u32 %p1, %r1, %r2;\n"
    "    @%p1 bra spin_next;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry sleep_ns(.param .u64 sleep_ns_ns)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [sleep_ns_ns];\n"
    "    mov.u64 %rd2, %globaltimer;\n"
    "sleep_next:\n"
    "    mov.u64 %rd3, %globaltimer;\n"
    "    sub.u64 %rd4, %rd3, %rd2;\n"
    "    setp.lt.u64 %p1, %rd4, %rd1;\n"
    "    @%p1 bra sleep_next;\n"
    "    ret;\n"
    "}\n"
    "\n"
    /* All threads store, the first one adds up. */
    ".visible .entry shared_sum(.param .u64 shared_sum_out, .param .u32 shared_sum_n)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [shared_sum_out];\n"
    "    ld.param.u32 %r1, [shared_sum_n];\n"
    "    mov.u32 %r2, %tid.x;\n"
    "    mov.u32 %r3, %ntid.x;\n"
    "    mov.u32 %r4, dynamic_shared;\n"
    "    mov.u32 %r5, %r2;\n"
    "shared_store:\n"
    "    setp.ge.u32 %p1, %r5, %r1;\n"
    "    @%p1 bra shared_stored;\n"
    "    shl.b32 %r6, %r5, 2;\n"
    "    add.u32 %r6, %r4, %r6;\n"
    "    st.shared.u32 [%r6], %r5;\n"
    "    add.u32 %r5, %r5, %r3;\n"
    "    bra shared_store;\n"
    "shared_stored:\n"
    "    bar.sync 0;\n"
    "    setp.ne.u32 %p1, %r2, 0;\n"
    "    @%p1 bra shared_end;\n"
    "    mov.u32 %r5, 0;\n"
    "    mov.u32 %r7, 0;\n"
    "shared_add:\n"
    "    setp.ge.u32 %p1, %r5, %r1;\n"
    "    @%p1 bra shared_write;\n"
    "    shl.b32 %r6, %r5, 2;\n"
    "    add.u32 %r6, %r4, %r6;\n"
    "    ld.shared.u32 %r8, [%r6];\n"
    "    add.u32 %r7, %r7, %r8;\n"
    "    add.u32 %r5, %r5, 1;\n"
    "    bra shared_add;\n"
    "shared_write:\n"
    "    st.u32 [%rd1], %r7;\n"
    "shared_end:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".func (.param .b32 add_one_result) add_one(.param .b32 add_one_x)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.b32 %r1, [add_one_x];\n"
    "    add.u32 %r1, %r1, 1;\n"
    "    st.param.b32 [add_one_result], %r1;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry get_fn(.param .u64 get_fn_out)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [get_fn_out];\n"
    "    mov.u64 %rd2, add_one;\n"
    "    st.u64 [%rd1], %rd2;\n"
    "    ret;\n"
    "}\n"
    "\n"
    /* The address comes from memory, so that the call can't be resolved when the module is compiled. */
    ".visible .entry call_fn(.param .u64 call_fn_fn, .param .u32 call_fn_x, .param .u64 call_fn_out)\n"
    "{\n" PTX_REGISTERS
    "    .param .b32 call_x;\n"
    "    .param .b32 call_result;\n"
    "    ld.param.u64 %rd1, [call_fn_fn];\n"
    "    ld.param.u32 %r1, [call_fn_x];\n"
    "    ld.param.u64 %rd2, [call_fn_out];\n"
    "    ld.volatile.u64 %rd3, [%rd1];\n"
    "    st.param.b32 [call_x], %r1;\n"
    "unary: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    "    call (call_result), %rd3, (call_x), unary;\n"
    "    ld.param.b32 %r2, [call_result];\n"
    "    st.u32 [%rd2], %r2;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry grid_count(.param .u64 grid_count_counter)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [grid_count_counter];\n"
    "    mov.u32 %r1, %tid.x;\n"
    "    setp.ne.u32 %p1, %r1, 0;\n"
    "    @%p1 bra grid_end;\n"
    "    atom.add.u32 %r2, [%rd1], 1;\n"
    "grid_end:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry illegal()\n"
    "{\n" PTX_REGISTERS
    "    mov.u64 %rd1, 0;\n"
    "    st.volatile.global.u32 [%rd1], 1;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry copy_words(.param .u64 copy_words_dst, .param .u64 copy_words_src,\n"
    "                           .param .u64 copy_words_n)\n"
    "{\n" PTX_REGISTERS PTX_GRID_STRIDE
    "    ld.param.u64 %rd4, [copy_words_dst];\n"
    "    ld.param.u64 %rd5, [copy_words_src];\n"
    "    ld.param.u64 %rd6, [copy_words_n];\n"
    "copy_next:\n"
    "    setp.ge.u64 %p1, %rd1, %rd6;\n"
    "    @%p1 bra copy_end;\n"
    "    shl.b64 %rd7, %rd1, 2;\n"
    "    add.u64 %rd8, %rd5, %rd7;\n"
    "    add.u64 %rd9, %rd4, %rd7;\n"
    "    ld.u32 %r8, [%rd8];\n"
    "    st.u32 [%rd9], %r8;\n"
    "    add.u64 %rd1, %rd1, %rd2;\n"
    "    bra copy_next;\n"
    "copy_end:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry stamp(.param .u64 stamp_out)\n"
    "{\n" PTX_REGISTERS
    "    ld.param.u64 %rd1, [stamp_out];\n"
    "    mov.u64 %rd2, %globaltimer;\n"
    "    st.u64 [%rd1], %rd2;\n"
    "    ret;\n"
    "}\n";

#undef PTX_GRID_STRIDE
#undef PTX_REGISTERS
#undef PTX_FILL_VALUE

#endif
