#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUES_MAX 4096

/* ---- values */

int values_add(struct values *values, const char *name, const char *text, struct error *err)
{
    struct value *grown;

    if (values->count == VALUES_MAX) {
        error_set(err, ERROR_REFUSED, "the reply has more than %d values: is that process really ours?",
                  VALUES_MAX);
        return -1;
    }
    grown = realloc(values->entries, (values->count + 1) * sizeof(*grown));
    if (!grown)
        goto no_memory;
    values->entries = grown;
    grown[values->count].name = strdup(name);
    grown[values->count].text = strdup(text);
    values->count++;
    if (grown[values->count - 1].name && grown[values->count - 1].text)
        return 0;
no_memory:
    error_set(err, ERROR_MEMORY, "cudackpt-ctl has no memory left");
    return -1;
}

const char *values_find(const struct values *values, const char *name)
{
    for (size_t i = 0; i < values->count; i++) {
        if (!strcmp(values->entries[i].name, name))
            return values->entries[i].text;
    }
    return NULL;
}

void values_free(struct values *values)
{
    for (size_t i = 0; i < values->count; i++) {
        free(values->entries[i].name);
        free(values->entries[i].text);
    }
    free(values->entries);
    memset(values, 0, sizeof(*values));
}

/* ---- text */

/* Length of the valid UTF-8 character at text, 0 if there is none or it is a control character. */
static size_t character_length(const unsigned char *text)
{
    static const unsigned int smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned int code;
    size_t length;

    if (text[0] < 0x80)
        return text[0] >= ' ' && text[0] != 0x7f;
    if ((text[0] & 0xe0) == 0xc0)
        length = 2;
    else if ((text[0] & 0xf0) == 0xe0)
        length = 3;
    else if ((text[0] & 0xf8) == 0xf0)
        length = 4;
    else
        return 0;
    code = text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) /* a string that ends here stops it too */
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || code < 0xa0)
        return 0;
    return length;
}

void output_clean(char *text)
{
    while (*text) {
        size_t length = character_length((const unsigned char *)text);

        if (!length) {
            *text = '?';
            length = 1;
        }
        text += length;
    }
}

void output_values(const struct values *values)
{
    size_t width = 0;

    for (size_t i = 0; i < values->count; i++) {
        size_t length = strlen(values->entries[i].name);

        width = length > width ? length : width;
    }
    for (size_t i = 0; i < values->count; i++) {
        const struct value *value = &values->entries[i];
        size_t length = strlen(value->name);

        for (const char *c = value->name; *c; c++)
            putchar(*c == '_' ? ' ' : *c);
        printf(":%*s %s\n", (int)(width - length), "", value->text);
    }
}

/* ---- JSON */

static bool json_first;

void json_begin(void)
{
    putchar('{');
    json_first = true;
}

void json_end(void)
{
    puts("}");
}

/* All text has been through output_clean: valid UTF-8 without control characters. */
static void json_quote(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void json_name(const char *name)
{
    if (!json_first)
        fputs(", ", stdout);
    json_first = false;
    json_quote(name);
    fputs(": ", stdout);
}

void json_string(const char *name, const char *text)
{
    json_name(name);
    json_quote(text);
}

void json_integer(const char *name, int number)
{
    json_name(name);
    printf("%d", number);
}

void json_seconds(const char *name, uint64_t milliseconds)
{
    json_name(name);
    printf("%llu.%03llu", (unsigned long long)(milliseconds / 1000),
           (unsigned long long)(milliseconds % 1000));
}

/* Written like a JSON integer, and small enough for the 64 bits that most readers have. */
static bool is_integer(const char *text)
{
    const char *digits = text + (*text == '-');
    size_t length = strspn(digits, "0123456789");

    return length && length <= 18 && !digits[length] && (digits[0] != '0' || length == 1);
}

static void json_value(const char *text)
{
    if (is_integer(text))
        fputs(text, stdout);
    else
        json_quote(text);
}

/* The next value of that name from index on; count if there is none. */
static size_t next_of_name(const struct values *values, const char *name, size_t index)
{
    while (index < values->count && strcmp(values->entries[index].name, name))
        index++;
    return index;
}

void json_values(const struct values *values)
{
    for (size_t i = 0; i < values->count; i++) {
        const char *name = values->entries[i].name;
        size_t next = next_of_name(values, name, i + 1);

        if (next_of_name(values, name, 0) < i)
            continue; /* written with the first of its name */
        json_name(name);
        if (next == values->count) {
            json_value(values->entries[i].text);
            continue;
        }
        putchar('[');
        json_value(values->entries[i].text);
        for (; next < values->count; next = next_of_name(values, name, next + 1)) {
            fputs(", ", stdout);
            json_value(values->entries[next].text);
        }
        putchar(']');
    }
}

/* ---- progress */

static bool progress_wanted, progress_shown;

void progress_start(bool wanted)
{
    progress_wanted = wanted && isatty(STDERR_FILENO);
}

void progress_show(const char *action, const char *phase, uint64_t done, uint64_t total)
{
    if (!progress_wanted)
        return;
    fprintf(stderr, "\r%s", action);
    if (strcmp(action, phase))
        fprintf(stderr, ": %s", phase);
    if (total)
        fprintf(stderr, " %3.0f %%", 100.0 * (double)done / (double)total);
    fputs("\033[K", stderr);
    fflush(stderr);
    progress_shown = true;
}

void progress_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}
