#ifndef CUDACKPT_LEDGER_INTERNAL_H
#define CUDACKPT_LEDGER_INTERNAL_H
/* Between the files of the ledger: ledger.c (descriptors, mappings), ledger_threads.c, ledger_handlers.c. */

#include "error.h"

unsigned ledger_threads_count(void);
/* Cancels and joins every thread of the driver. */
int ledger_threads_end(struct error *err);
void ledger_threads_lock(void);
void ledger_threads_unlock(void);
void ledger_threads_forget(void);

unsigned ledger_keys_count(void);
int ledger_keys_delete(struct error *err);

void ledger_handlers_forget(void);
void ledger_handlers_prepare(void);
void ledger_handlers_parent(void);
void ledger_handlers_child(void);

#endif
