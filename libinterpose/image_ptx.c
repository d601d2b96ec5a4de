/* PTX text: the variables that it declares. Just enough of the language to find them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_parts.h"

/* `.global .u32 r<N>;` declares r0 to r(N-1). */
#define NUMBERED_MAX      1000000ul
#define NUMBERED_NAME_MAX 4096 /* of a numbered name */

enum token_kind {
    TOKEN_END,
    TOKEN_BROKEN, /* a comment or a string without end */
    TOKEN_WORD,   /* name, %r1, $str */
    TOKEN_DOT,    /* .global; the text is without the dot */
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_MARK, /* any other single character */
};

struct scanner {
    const char *at, *end;
    enum token_kind kind;
    const char *text;
    size_t length;
};

/* No isalpha and the like: what they say depends on the program's locale. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* To the next token: past white space, comments, and lines of a preprocessor. False if a comment does not
 * end. */
static bool skip_blank(struct scanner *scan)
{
    while (scan->at < scan->end) {
        const char *at = scan->at, *close;
        size_t left = scan->end - at;

        if (is_space(*at)) {
            scan->at++;
        } else if (*at == '#' || (left > 1 && at[0] == '/' && at[1] == '/')) {
            close = memchr(at, '\n', left);
            scan->at = close ? close : scan->end;
        } else if (left > 1 && at[0] == '/' && at[1] == '*') {
            close = memmem(at + 2, left - 2, "*/", 2);
            if (!close)
                return false;
            scan->at = close + 2;
        } else {
            break;
        }
    }
    return true;
}

static void take_while(struct scanner *scan, bool (*belongs)(char))
{
    while (scan->at < scan->end && belongs(*scan->at))
        scan->at++;
    scan->length = scan->at - scan->text;
}

static enum token_kind take_string(struct scanner *scan)
{
    while (scan->at < scan->end && *scan->at != '"')
        scan->at += *scan->at == '\\' && scan->end - scan->at > 1 ? 2 : 1;
    if (scan->at == scan->end)
        return TOKEN_BROKEN;
    scan->length = scan->at - scan->text;
    scan->at++;
    return TOKEN_STRING;
}

static void next(struct scanner *scan)
{
    char c;

    if (!skip_blank(scan)) {
        scan->kind = TOKEN_BROKEN;
        return;
    }
    scan->text = scan->at;
    scan->length = 0;
    if (scan->at == scan->end) {
        scan->kind = TOKEN_END;
        return;
    }
    c = *scan->at++;
    if (is_digit(c)) {
        scan->kind = TOKEN_NUMBER;
        take_while(scan, is_word);
    } else if (is_word(c) || c == '%') {
        scan->kind = TOKEN_WORD;
        take_while(scan, is_word);
    } else if (c == '.') {
        scan->kind = TOKEN_DOT;
        scan->text++;
        take_while(scan, is_word);
    } else if (c == '"') {
        scan->text++;
        scan->kind = take_string(scan);
    } else {
        scan->kind = TOKEN_MARK;
        scan->length = 1;
    }
}

static bool is_mark(const struct scanner *scan, char mark)
{
    return scan->kind == TOKEN_MARK && *scan->text == mark;
}

static bool is_dot(const struct scanner *scan, const char *word)
{
    return scan->kind == TOKEN_DOT && scan->length == strlen(word) &&
           memcmp(scan->text, word, scan->length) == 0;
}

static bool is_over(const struct scanner *scan)
{
    return scan->kind == TOKEN_END || scan->kind == TOKEN_BROKEN;
}

static int refuse(const struct scanner *scan, struct error *err)
{
    if (is_over(scan))
        error_set(err, ERROR_REFUSED, "a module's PTX ends too early, so its variables can't be saved");
    else
        error_set(err, ERROR_REFUSED,
                  "a module's PTX can't be understood at \"%.*s\", so its variables can't be saved",
                  scan->length < 40 ? (int)scan->length : 40, scan->text);
    return -1;
}

/* Whether .global begins a declaration; it is a part of ld.global, .ptr .global and L2::128B.global too. */
static bool begins_declaration(const struct scanner *scan, enum token_kind before)
{
    return is_dot(scan, "global") && before != TOKEN_WORD && before != TOKEN_DOT && !is_word(scan->text[-2]);
}

/*
 * Past the mark that closes the one the scanner stands on; inside, parentheses, brackets and braces must
 * match up in number, not in kind: text that gets this wrong is no PTX, and the driver says so.
 *
 * A variable that is declared inside of a function keeps its value from launch to launch, but it gets a name
 * that only the driver's compiler knows. nvcc never does this (it moves static variables out).
 */
static int skip_nested(struct scanner *scan, struct error *err)
{
    enum token_kind before = TOKEN_MARK;
    size_t depth = 0;

    do {
        if (is_over(scan))
            return refuse(scan, err);
        if (is_mark(scan, '(') || is_mark(scan, '{') || is_mark(scan, '[')) {
            depth++;
        } else if (is_mark(scan, ')') || is_mark(scan, '}') || is_mark(scan, ']')) {
            depth--;
        } else if (begins_declaration(scan, before)) {
            error_set(err, ERROR_REFUSED,
                      "a module's PTX declares a .global variable inside of a function, so it can't "
                      "be saved; declare it at module level");
            return -1;
        }
        before = scan->kind;
        next(scan);
    } while (depth > 0);
    return 0;
}

/* From the name on, past what belongs to one declarator: [sizes], <count>, = value. */
static int read_declarator(struct scanner *scan, bool is_memory, struct image_names *names, struct error *err)
{
    const char *name = scan->text;
    size_t length = scan->length;
    unsigned long count = 0;
    bool numbered = false;

    next(scan);
    if (is_mark(scan, '<')) {
        numbered = true;
        next(scan);
        if (scan->kind != TOKEN_NUMBER || scan->length > 9)
            return refuse(scan, err);
        for (size_t i = 0; i < scan->length; i++) {
            if (!is_digit(scan->text[i]))
                return refuse(scan, err);
            count = count * 10 + (scan->text[i] - '0');
        }
        next(scan);
        if (!is_mark(scan, '>') || count > NUMBERED_MAX || length > NUMBERED_NAME_MAX)
            return refuse(scan, err);
        next(scan);
    }
    while (is_mark(scan, '['))
        if (skip_nested(scan, err))
            return -1;
    if (is_mark(scan, '=')) {
        while (!is_mark(scan, ',') && !is_mark(scan, ';')) {
            if (is_over(scan))
                return refuse(scan, err);
            if (is_mark(scan, '{') || is_mark(scan, '(')) {
                if (skip_nested(scan, err))
                    return -1;
            } else {
                next(scan);
            }
        }
    }
    if (!is_memory)
        return 0;
    if (!numbered)
        return image_names_add(names, name, length, err);
    for (unsigned long i = 0; i < count; i++) {
        char numbered_name[NUMBERED_NAME_MAX + 24];
        int n = snprintf(numbered_name, sizeof(numbered_name), "%.*s%lu", (int)length, name, i);

        if (image_names_add(names, numbered_name, n, err))
            return -1;
    }
    return 0;
}

/*
 * From .global or .const on, past the semicolon. `.extern` makes no difference: a variable that no module
 * defines is made by the driver after all when it compiles PTX by itself.
 */
static int read_declaration(struct scanner *scan, struct image_names *names, struct error *err)
{
    bool is_memory = true;

    next(scan);
    while (scan->kind != TOKEN_WORD) {
        if (is_dot(scan, "texref") || is_dot(scan, "surfref") || is_dot(scan, "samplerref"))
            is_memory = false;
        /* .attribute(.managed), and the number of a bank in old PTX: .const[3] */
        if (is_mark(scan, '(') || is_mark(scan, '[')) {
            if (skip_nested(scan, err))
                return -1;
        } else if (scan->kind == TOKEN_DOT || scan->kind == TOKEN_NUMBER) {
            next(scan);
        } else {
            return refuse(scan, err);
        }
    }
    for (;;) {
        if (scan->kind != TOKEN_WORD)
            return refuse(scan, err);
        if (read_declarator(scan, is_memory, names, err))
            return -1;
        if (is_mark(scan, ';'))
            break;
        if (!is_mark(scan, ','))
            return refuse(scan, err);
        next(scan);
    }
    next(scan);
    return 0;
}

int image_ptx_names(struct image_bytes text, struct image_names *names, struct error *err)
{
    const char *start = (const char *)text.data;
    struct scanner scan = {.at = start, .end = start + strnlen(start, text.size)};

    next(&scan);
    while (!is_over(&scan)) {
        if (is_dot(&scan, "global") || is_dot(&scan, "const")) {
            if (read_declaration(&scan, names, err))
                return -1;
        } else if (is_mark(&scan, '{') || is_mark(&scan, '(')) {
            /* The body of a function or of a .section; parameters, which may say `.param .u64 .ptr .global
             * p`. */
            if (skip_nested(&scan, err))
                return -1;
        } else {
            next(&scan);
        }
    }
    return scan.kind == TOKEN_END ? 0 : refuse(&scan, err);
}
