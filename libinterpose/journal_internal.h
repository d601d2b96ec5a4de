#ifndef CUDACKPT_JOURNAL_INTERNAL_H
#define CUDACKPT_JOURNAL_INTERNAL_H
/* What the journal's files share: journal.c (the records), journal_tombstone.c, journal_replay.c. */

#include "journal.h"

/* All records in the order of the calls, tombstones included; a node of kind NULL is journal_each's place
 * mark. */
extern struct list journal_records;
/* Tombstones in the order of their deaths. */
extern struct list journal_dead;

extern uint64_t journal_position; /* the last one given */

extern void (*journal_set_current)(CUcontext context);

void journal_record_free(struct record *record);

/* All below with the journal locked. A record whose order matters was appended. */
void tombstone_note_birth(struct record *record);
/* Makes a tombstone of a record that is being dropped, and of what it owns; they vanish if none is needed. */
void tombstone_make(struct record *record);
/* Takes a record, live or a tombstone, and all that it owns out of all lists and frees them, with the
 * tombstones that stayed only for them. */
void journal_vanish(struct record *record);
void tombstone_forget(void);

#endif
