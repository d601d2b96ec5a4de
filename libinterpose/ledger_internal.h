#ifndef CUDACKPT_LEDGER_INTERNAL_H
#define CUDACKPT_LEDGER_INTERNAL_H
/* Between the files of the ledger: ledger.c (descriptors, mappings), ledger_threads.c, ledger_handlers.c. */

#include <stdbool.h>

#include "error.h"

unsigned ledger_threads_count(void);
/* Cancels and joins every thread of the driver. */
int ledger_threads_end(struct error *err);
void ledger_threads_lock(void);
void ledger_threads_unlock(void);
void ledger_threads_forget(void);

unsigned ledger_keys_count(void);
void ledger_keys_delete(void);

void ledger_handlers_forget(void);
/* The calling thread runs code of the driver's outside of the gate: that is no by-passing. */
void ledger_thread_works_for_driver(bool does);

#endif
