/*
 * Module images: PTX text, or a fat binary with uncompressed PTX in it. Of PTX only what stands at the outer
 * level is read: kernels with their parameters, device functions, variables. The code itself is in kernels.c.
 */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* libc's strdup would take its memory past our own imports of malloc. */
static char *copy_string(const char *from, size_t length)
{
    char *copy = malloc(length + 1);

    if (copy) {
        memcpy(copy, from, length);
        copy[length] = 0;
    }
    return copy;
}

/* ---- words of PTX text */

struct text {
    const char *at;
    char word[256]; /* a name, a directive, a number, or one character */
};

static void skip_blank(struct text *text)
{
    for (;;) {
        while (isspace((unsigned char)*text->at))
            text->at++;
        if (text->at[0] == '/' && text->at[1] == '/') {
            text->at += strcspn(text->at, "\n");
        } else if (text->at[0] == '/' && text->at[1] == '*') {
            const char *end = strstr(text->at + 2, "*/");

            text->at = end ? end + 2 : text->at + strlen(text->at);
        } else {
            return;
        }
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || strchr("._$%-", c);
}

/* False at the end of the text. */
static bool next(struct text *text)
{
    size_t length = 0;

    skip_blank(text);
    if (!*text->at)
        return false;
    while (text->at[length] && is_word(text->at[length]))
        length++;
    if (!length)
        length = 1;
    if (length >= sizeof(text->word))
        length = sizeof(text->word) - 1;
    memcpy(text->word, text->at, length);
    text->word[length] = 0;
    text->at += length;
    return true;
}

static bool is(const struct text *text, const char *word)
{
    return !strcmp(text->word, word);
}

/* Behind the closing one; the opening one was read. */
static void skip_braces(struct text *text)
{
    int depth = 1;

    while (depth && next(text)) {
        if (is(text, "{"))
            depth++;
        else if (is(text, "}"))
            depth--;
    }
}

/* Bytes of a type, 0: not one. */
static uint32_t type_size(const char *word)
{
    static const char letters[] = "usbf";
    int bits;

    if (word[0] != '.' || !word[1] || !strchr(letters, word[1]) || !isdigit((unsigned char)word[2]))
        return 0;
    bits = atoi(word + 2);
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? (uint32_t)bits / 8 : 0;
}

/* ---- declarations: [.align N] .type name [ [N] ]... */

struct declaration {
    char name[256];
    uint32_t alignment, element;
    uint64_t count;
    bool is_array;
};

/* Reads up to the word that ends it, which stays in text->word. */
static void read_declaration(struct text *text, struct declaration *declaration)
{
    bool pointer = false; /* an alignment behind .ptr is that of what it points to */

    *declaration = (struct declaration){.count = 1};
    while (next(text) && !strchr(";,)={", text->word[0])) {
        if (is(text, ".align") && next(text)) {
            declaration->alignment = pointer ? declaration->alignment : (uint32_t)atoi(text->word);
        } else if (is(text, ".ptr")) {
            pointer = true;
        } else if (is(text, ".attribute")) {
            while (next(text) && !is(text, ")"))
                ;
        } else if (is(text, "[")) {
            if (next(text) && !is(text, "]")) {
                declaration->count *= strtoull(text->word, NULL, 0);
                next(text);
            } else {
                declaration->count = 0; /* as long as its initial value */
            }
            declaration->is_array = true;
        } else if (type_size(text->word)) {
            declaration->element = type_size(text->word);
        } else if (text->word[0] != '.') {
            memcpy(declaration->name, text->word, sizeof(declaration->name));
        }
    }
    if (!declaration->alignment)
        declaration->alignment = declaration->element;
}

static void store(uint8_t *place, uint32_t size, const char *word)
{
    uint64_t value = strtoull(word, NULL, 0);

    /* 0f3F800000 and 0d...: floating-point numbers by their bits. */
    if (word[0] == '0' && (word[1] == 'f' || word[1] == 'F' || word[1] == 'd' || word[1] == 'D'))
        value = strtoull(word + 2, NULL, 16);
    memcpy(place, &value, size < 8 ? size : 8);
}

/* What follows the "=", up to the ";". A short array is filled with zeros. */
static int read_initial(struct text *text, struct declaration *declaration, uint8_t **initial)
{
    const char *start = text->at;
    uint64_t count = 0;

    while (next(text) && !is(text, ";")) {
        if (!strchr("{},", text->word[0]))
            count++;
    }
    if (!declaration->count)
        declaration->count = count;
    *initial = calloc(declaration->count ? declaration->count : 1, declaration->element);
    if (!*initial)
        return -1;
    text->at = start;
    for (uint64_t i = 0; next(text) && !is(text, ";");) {
        if (!strchr("{},", text->word[0]) && i < declaration->count)
            store(*initial + i++ * declaration->element, declaration->element, text->word);
    }
    return 0;
}

/* ---- the parts of an image */

static int add_variable(struct image *image, struct text *text)
{
    struct image_variable *variables, *variable;
    struct declaration declaration;
    uint8_t *initial = NULL;

    read_declaration(text, &declaration);
    if (is(text, "=") && read_initial(text, &declaration, &initial))
        return -1;
    if (!declaration.element || !declaration.count || !*declaration.name) {
        free(initial);
        return 0;
    }
    variables = realloc(image->variables, (image->variable_count + 1) * sizeof(*variables));
    if (!variables) {
        free(initial);
        return -1;
    }
    image->variables = variables;
    variable = &variables[image->variable_count++];
    *variable = (struct image_variable){
        .name = copy_string(declaration.name, strlen(declaration.name)),
        .size = declaration.element * declaration.count,
        .alignment = declaration.alignment,
        .initial = initial,
    };
    return variable->name ? 0 : -1;
}

static int add_parameters(struct image_function *function, struct text *text)
{
    struct declaration declaration;

    do {
        struct image_parameter *parameters;
        uint32_t size;

        read_declaration(text, &declaration);
        size = (uint32_t)(declaration.element * declaration.count);
        if (!size)
            continue;
        parameters = realloc(function->parameters, (function->parameter_count + 1) * sizeof(*parameters));
        if (!parameters)
            return -1;
        function->parameters = parameters;
        function->parameters_size =
            (function->parameters_size + declaration.alignment - 1) & ~(declaration.alignment - 1);
        parameters[function->parameter_count++] = (struct image_parameter){function->parameters_size, size};
        function->parameters_size += size;
    } while (is(text, ","));
    return 0;
}

static int add_function(struct image *image, struct text *text, bool entry)
{
    struct image_function *functions, *function;
    int depth = 0;

    /* A device function's result stands in parentheses before its name. */
    while (next(text) && (is(text, "(") || depth)) {
        depth = is(text, "(") ? depth + 1 : is(text, ")") ? depth - 1 : depth;
        if (!depth) {
            next(text);
            break;
        }
    }
    functions = realloc(image->functions, (image->function_count + 1) * sizeof(*functions));
    if (!functions)
        return -1;
    image->functions = functions;
    function = &functions[image->function_count];
    *function = (struct image_function){.name = copy_string(text->word, strlen(text->word)), .entry = entry};
    if (!function->name)
        return -1;
    image->function_count++;
    if (next(text) && is(text, "(") && add_parameters(function, text))
        return -1;
    while (!is(text, "{") && !is(text, ";") && next(text))
        ;
    if (is(text, "{")) {
        skip_braces(text);
    } else {
        /* Only declared. */
        free(function->name);
        free(function->parameters);
        image->function_count--;
    }
    return 0;
}

/* Entries before device functions, in the order of the text. */
static int sort_functions(struct image *image)
{
    struct image_function *sorted = calloc(image->function_count + 1u, sizeof(*sorted));
    uint32_t place = 0;

    if (!sorted)
        return -1;
    for (int entry = 1; entry >= 0; entry--) {
        for (uint32_t i = 0; i < image->function_count; i++) {
            if (image->functions[i].entry == (bool)entry)
                sorted[place++] = image->functions[i];
        }
        if (entry)
            image->entry_count = place;
    }
    free(image->functions);
    image->functions = sorted;
    return 0;
}

static CUresult parse_ptx(const char *ptx, struct image *image)
{
    struct text text = {.at = ptx};
    bool external = false, versioned = false;
    int failed = 0;

    while (!failed && next(&text)) {
        if (is(&text, ".version"))
            versioned = true;
        if (is(&text, ".extern"))
            external = true;
        else if (is(&text, ";"))
            external = false;
        else if (is(&text, "{"))
            skip_braces(&text);
        else if (is(&text, ".entry") || is(&text, ".func"))
            failed = add_function(image, &text, is(&text, ".entry"));
        else if ((is(&text, ".global") || is(&text, ".const")) && !external)
            failed = add_variable(image, &text);
    }
    if (failed || sort_functions(image))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return versioned ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

void image_free(struct image *image)
{
    for (uint32_t i = 0; i < image->function_count; i++) {
        free(image->functions[i].name);
        free(image->functions[i].parameters);
    }
    for (uint32_t i = 0; i < image->variable_count; i++) {
        free(image->variables[i].name);
        free(image->variables[i].initial);
    }
    free(image->functions);
    free(image->variables);
    free(image);
}

/* ---- what the bytes are */

enum { WRAPPER_MAGIC = 0x466243b1, FATBIN_MAGIC = (int)0xba55ed50, ELF_MAGIC = 0x464c457f, FATBIN_PTX = 1 };

struct wrapper {
    uint32_t magic, version;
    const void *fatbin;
    void *unused;
};

struct fatbin {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size; /* of the entries */
};

struct fatbin_entry {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t size; /* of the payload */
    uint32_t compressed_size, unknown;
    uint16_t minor, major;
    uint32_t architecture, name_offset, name_size;
    uint64_t flags;
};

enum { ENTRY_COMPRESSED = 0x2000, ENTRY_COMPRESSED_ZSTD = 0x8000 };

/* Its PTX as a string of its own, NULL: none that can be read. */
static char *fatbin_ptx(const struct fatbin *fatbin)
{
    const uint8_t *place = (const uint8_t *)fatbin + fatbin->header_size;
    const uint8_t *end = place + fatbin->size;

    while (place + sizeof(struct fatbin_entry) <= end) {
        const struct fatbin_entry *entry = (const struct fatbin_entry *)place;

        if (entry->kind == FATBIN_PTX && !entry->compressed_size &&
            !(entry->flags & (ENTRY_COMPRESSED | ENTRY_COMPRESSED_ZSTD)))
            return copy_string((const char *)place + entry->header_size, entry->size);
        place += entry->header_size + entry->size;
    }
    return NULL;
}

CUresult image_parse(const void *data, struct image **out)
{
    struct image *image;
    char *copy = NULL;
    uint32_t magic;
    CUresult result;

    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&magic, data, sizeof(magic));
    if (magic == WRAPPER_MAGIC) {
        data = ((const struct wrapper *)data)->fatbin;
        memcpy(&magic, data, sizeof(magic));
    }
    if (magic == (uint32_t)FATBIN_MAGIC) {
        copy = fatbin_ptx(data);
        if (!copy)
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
    } else if (magic == ELF_MAGIC) {
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    } else if (!isprint((unsigned char)*(const char *)data) && !isspace((unsigned char)*(const char *)data)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    image = calloc(1, sizeof(*image));
    result = image ? parse_ptx(copy ? copy : data, image) : CUDA_ERROR_OUT_OF_MEMORY;
    free(copy);
    if (result != CUDA_SUCCESS && image)
        image_free(image);
    if (result == CUDA_SUCCESS)
        *out = image;
    return result;
}
