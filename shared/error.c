#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The text travels as one line of the protocol and ends up on a terminal. */
static void text_make_one_line(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
    }
}

static void set(struct error *err, enum error_code code, const char *format, va_list args)
{
    err->code = code;
    if (vsnprintf(err->text, sizeof(err->text), format, args) < 0)
        err->text[0] = '\0';
}

void error_set(struct error *err, enum error_code code, const char *format, ...)
{
    int saved = errno;
    va_list args;

    if (err->code != ERROR_NONE)
        return;
    va_start(args, format);
    set(err, code, format, args);
    va_end(args);
    text_make_one_line(err->text);
    errno = saved;
}

void error_set_errno(struct error *err, enum error_code code, int number, const char *format, ...)
{
    int saved = errno;
    /* Not strerror: it translates into the program's language, and may allocate for that. */
    const char *meaning = strerrordesc_np(number);
    va_list args;
    size_t length;

    if (err->code != ERROR_NONE)
        return;
    va_start(args, format);
    set(err, code, format, args);
    va_end(args);
    length = strlen(err->text);
    if (meaning)
        snprintf(err->text + length, sizeof(err->text) - length, ": %s", meaning);
    else
        snprintf(err->text + length, sizeof(err->text) - length, ": error number %d", number);
    text_make_one_line(err->text);
    errno = saved;
}

void error_prefix(struct error *err, const char *format, ...)
{
    int saved = errno;
    char prefix[sizeof(err->text)];
    size_t length, rest;
    va_list args;

    if (err->code == ERROR_NONE)
        return;
    va_start(args, format);
    if (vsnprintf(prefix, sizeof(prefix) - 2, format, args) < 0)
        prefix[0] = '\0';
    va_end(args);
    strcat(prefix, ": ");
    length = strlen(prefix);
    rest = strnlen(err->text, sizeof(err->text) - 1 - length);
    memmove(err->text + length, err->text, rest);
    memcpy(err->text, prefix, length);
    err->text[length + rest] = '\0';
    text_make_one_line(err->text);
    errno = saved;
}

void error_clear(struct error *err)
{
    err->code = ERROR_NONE;
    err->text[0] = '\0';
}
