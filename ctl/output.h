#ifndef CUDACKPT_OUTPUT_H
#define CUDACKPT_OUTPUT_H
/* Text, JSON and progress, as the person or the script wants them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* What a reply told, in its order. */
struct values {
    struct value {
        char *name, *text;
    } *entries;
    size_t count;
};

/* -1 with err set: no memory, or more than a sane library sends. */
int values_add(struct values *values, const char *name, const char *text, struct error *err);
const char *values_find(const struct values *values, const char *name); /* the first; NULL if there is none */
void values_free(struct values *values);

/*
 * In place: what could command a terminal, or is no UTF-8, becomes '?'. The text comes from a process that
 * may belong to somebody else than the person at the terminal.
 */
void output_clean(char *text);

/* Lines "name: value", the values under each other. */
void output_values(const struct values *values);

/* A JSON object, member by member, on standard output. */
void json_begin(void);
void json_string(const char *name, const char *text);
void json_integer(const char *name, int number);
void json_seconds(const char *name, uint64_t milliseconds);
/* Texts that are integers become numbers, and values that have one name become an array. */
void json_values(const struct values *values);
void json_end(void);

/* One line on standard error that is written over; nothing where that is no terminal. */
void progress_start(bool wanted);
void progress_show(const char *action, const char *phase, uint64_t done, uint64_t total);
void progress_end(void); /* the line is wiped */

#endif
