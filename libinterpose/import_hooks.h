#ifndef CUDACKPT_IMPORT_HOOKS_H
#define CUDACKPT_IMPORT_HOOKS_H
/*
 * What the driver libraries call instead of libc's functions once their imports are patched: allocation goes to the
 * driver heap, what comes from the operating system is noted in the ledger. Facts about which functions the libraries
 * import: docs/driver-notes.md.
 */

/* The hook for an imported function, or NULL. */
void *import_hook(const char *name);

/* Once, before the driver may call: keeps the environment that its getenv must see at every restart. */
void import_hooks_keep_environment(void);

/* While records are replayed the driver sees the kept environment. */
void import_hooks_replay_environment(int on);

#endif
