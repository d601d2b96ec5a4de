#ifndef CUDACKPT_PRIVATE_TABLES_H
#define CUDACKPT_PRIVATE_TABLES_H
/*
 * The private tables that cudart and other libraries ask for with cuGetExportTable. A table must keep its address and the
 * integrity table must stay untouched (cudart checks), so entries of the others are patched in place, live and pristine:
 * each becomes a gated thunk, or a hook where the call makes something that a restore must make again. What is known of
 * which entry: docs/driver-notes.md.
 */

#include "cuda_abi.h"

/* Once per table; later calls for the same table return at once. Any thread, inside of the gate. */
void private_table_patch(void **table, const CUuuid *id);

#endif
