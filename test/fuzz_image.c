/*
 * Changes valid images at random and reads them, for a sanitizer to watch: fuzz_image SECONDS [SEED]
 * What comes out does not matter, only that nothing outside of the image is read, and that every failure says
 * why.
 */
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "image_samples.h"

/*
 * A size out of a broken header may ask for more memory than there is: a failure like any other, of which the
 * sanitizer warns. Large blocks are not what this looks for, and they are slow here.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=64";
}

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t random_below(uint64_t limit)
{
    return random_next() % limit;
}

static const struct sample_symbol symbols[] = {
    {"k", STT_FUNC, SAMPLE_TEXT, 0},        {"plain", STT_OBJECT, SAMPLE_GLOBAL, 0},
    {"init", STT_OBJECT, SAMPLE_INIT, 0},   {"constant", STT_OBJECT, SAMPLE_CONSTANT3, 0},
    {"common", 13, SHN_COMMON, 0},          {"far", STT_OBJECT, SHN_XINDEX, SAMPLE_INIT},
    {"$str$3", STT_OBJECT, SAMPLE_INIT, 0},
};

static const char ptx[] = "// comment\n/* more */ .version 8.0\n.file 1 \"a\\\"b\"\n"
                          ".global .align 4 .u32 a, b[2][3] = {{1,2,3},{4}}, r<4>;\n"
                          ".const .attribute(.managed) .v2 .f32 c = 1;\n.global .texref t;\n"
                          ".visible .entry k(.param .u64 .ptr .global p) { ld.global.u32 %r1, [a]; ret; }\n";

static void make_sample(unsigned int which, struct blob *blob, enum image_form *form)
{
    struct sample_options options = {
        .relocatable = which & 1, .count_in_section = which & 2, .global_size = 64};

    if (random_below(4) == 0) {
        *form = IMAGE_PTX;
        *blob = (struct blob){0};
        blob_add(blob, ptx, sizeof(ptx));
    } else {
        *form = IMAGE_ELF;
        sample_cubin(blob, symbols, sizeof(symbols) / sizeof(symbols[0]), options);
    }
}

static void mutate(struct blob *blob)
{
    static const uint64_t edges[] = {0,          1,          7,         63,         64,
                                     0xff,       0xffff,     0xfff2,    0x7fffffff, 0xffffffff,
                                     1ull << 30, 1ull << 40, INT64_MAX, UINT64_MAX, UINT64_MAX - 15};
    static const char marks[] = "{}()[]<>,;=.\"/*\\#%$ \n0a";
    unsigned int changes = random_below(6);

    while (changes-- && blob->size) {
        size_t place = random_below(blob->size), left = blob->size - place;
        uint64_t value = edges[random_below(sizeof(edges) / sizeof(edges[0]))];
        size_t width = (size_t)1 << random_below(4);

        switch (random_below(6)) {
        case 0:
            blob->data[place] ^= 1u << random_below(8);
            break;
        case 1:
            blob->data[place] = random_next();
            break;
        case 2:
            blob->data[place] = marks[random_below(sizeof(marks) - 1)];
            break;
        case 3:
            value += random_below(3) - 1;
            memcpy(blob->data + place, &value, left < width ? left : width);
            break;
        case 4: { /* numbers in headers are aligned, and often a size of something here */
            value = random_below(2) ? random_below(blob->size + 64) : value;
            place -= place % 8;
            left = blob->size - place;
            memcpy(blob->data + place, &value, left < 8 ? left : 8);
            break;
        }
        case 5:
            if (random_below(4) == 0)
                blob->size = place;
            break;
        }
    }
}

static void note_name(const char *name, void *arg)
{
    *(size_t *)arg += strlen(name);
}

static void check_failure(int rc, const struct error *err)
{
    if (rc != 0 && (err->code == ERROR_NONE || !err->text[0])) {
        fprintf(stderr, "a failure without a reason\n");
        abort();
    }
}

static void read_names(enum image_form form, const struct blob *blob)
{
    struct image image = {form, malloc(blob->size ? blob->size : 1), blob->size}; /* no spare byte */
    struct error err = {0};
    size_t total = 0;

    if (!image.data)
        abort();
    memcpy(image.data, blob->data, blob->size);
    check_failure(image_each_variable(&image, note_name, &total, &err), &err);
    image_free(&image);
}

static void copy_and_read(const void *from)
{
    struct error err = {0};
    struct image image;
    size_t total = 0;
    int rc = image_copy(from, &image, &err);

    check_failure(rc, &err);
    if (rc == 0) {
        check_failure(image_each_variable(&image, note_name, &total, &err), &err);
        image_free(&image);
    }
}

static void one_round(void)
{
    struct blob inner, fatbin;
    enum image_form form;
    struct sample_wrapper wrapper = {SAMPLE_WRAPPER_MAGIC, 1 + random_below(2), NULL, NULL};
    const void *list[3] = {0};
    bool broken_inside = random_below(2);

    make_sample(random_below(4), &inner, &form);
    if (broken_inside)
        mutate(&inner);
    read_names(form, &inner);

    sample_fatbin_begin(&fatbin);
    for (uint64_t entries = 1 + random_below(3); entries; entries--)
        sample_fatbin_add(&fatbin, form == IMAGE_ELF ? SAMPLE_KIND_ELF : SAMPLE_KIND_PTX, random_below(3),
                          inner.data, inner.size);
    if (!broken_inside)
        mutate(&fatbin);
    read_names(IMAGE_FATBIN, &fatbin);

    blob_add(&fatbin, NULL, 32); /* room for the header where the blob was cut */
    list[0] = list[1] = wrapper.fatbin = fatbin.data;
    wrapper.more = list;
    copy_and_read(&wrapper);
    copy_and_read(fatbin.data);
    blob_add(&inner, NULL, 64);
    copy_and_read(inner.data);
    blob_free(&inner);
    blob_free(&fatbin);
}

int main(int argc, char **argv)
{
    time_t end;
    unsigned long rounds = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: fuzz_image SECONDS [SEED]\n");
        return 2;
    }
    end = time(NULL) + atoi(argv[1]);
    random_state = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) * 0x9e3779b97f4a7c15ull;
    random_state |= random_state == 0;
    fprintf(stderr, "fuzz_image: seed %#llx\n", (unsigned long long)random_state);
    for (; time(NULL) < end; rounds++)
        one_round();
    fprintf(stderr, "fuzz_image: %lu rounds\n", rounds);
    return 0;
}
