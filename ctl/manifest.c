#include "manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io.h"

#define FORMAT 1

static uint64_t directory_bytes(const char *directory)
{
    const struct dirent *entry;
    struct stat status;
    uint64_t bytes = 0;
    DIR *folder = opendir(directory);

    while (folder && (entry = readdir(folder))) {
        if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode))
            bytes += (uint64_t)status.st_blocks * 512;
    }
    if (folder)
        closedir(folder);
    return bytes;
}

/* The texts come through output_clean: there is nothing to quote in them but these two. */
static void write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "  \"%s\": \"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', file);
        fputc(*text, file);
    }
    fputs("\",\n", file);
}

static void write_all(FILE *file, const struct manifest *manifest, const char *directory)
{
    time_t now = time(NULL);
    char date[32];
    struct tm utc;

    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    fprintf(file, "{\n  \"format\": %d,\n", FORMAT);
    write_text(file, "program", manifest->program);
    write_text(file, "date", date);
    write_text(file, "cudackpt", CUDACKPT_VERSION);
    write_text(file, "criu", manifest->criu);
    write_text(file, "cuda_driver", manifest->driver);
    fprintf(file, "  \"device_memory_copy_bytes\": %llu,\n", (unsigned long long)manifest->host_copy_bytes);
    fprintf(file, "  \"files_bytes\": %llu,\n", (unsigned long long)directory_bytes(directory));
    fprintf(file, "  \"pid\": %d,\n  \"resume\": [", (int)manifest->pid);
    for (size_t i = 0; i < manifest->resume_count; i++)
        fprintf(file, "%s%d", i ? ", " : "", (int)manifest->resume[i]);
    fputs("]\n}\n", file);
}

int manifest_write(const struct manifest *manifest, const char *directory, struct error *err)
{
    char path[PATH_MAX], draft[PATH_MAX];
    FILE *file;
    int failed;

    snprintf(path, sizeof(path), "%s/" MANIFEST_NAME, directory);
    snprintf(draft, sizeof(draft), "%s/" MANIFEST_NAME ".new", directory);
    file = fopen(draft, "we");
    if (!file) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't write %s", draft);
        return -1;
    }
    write_all(file, manifest, directory);
    failed = ferror(file);
    failed |= fclose(file);
    if (!failed && rename(draft, path) == 0)
        return 0;
    error_set_errno(err, ERROR_REFUSED, errno, "can't write %s", path);
    unlink(draft);
    return -1;
}

void manifest_remove(const char *directory)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/" MANIFEST_NAME, directory);
    unlink(path);
}

/* What follows the name of a member and its colon; NULL if there is none. */
static const char *member(const char *text, const char *name)
{
    char quoted[64];
    const char *found;

    snprintf(quoted, sizeof(quoted), "\n  \"%s\": ", name);
    found = strstr(text, quoted);
    return found ? found + strlen(quoted) : NULL;
}

/* The number at *text, which moves behind it; 0 if there is none. */
static pid_t read_pid(const char **text)
{
    char *end;
    long number = strtol(*text, &end, 10);

    *text = end;
    return number > 0 && number < INT_MAX ? (pid_t)number : 0;
}

int manifest_read(struct manifest *manifest, const char *directory, struct error *err)
{
    char path[PATH_MAX], text[16384];
    const char *pid, *resume, *format;

    memset(manifest, 0, sizeof(*manifest));
    snprintf(path, sizeof(path), "%s/" MANIFEST_NAME, directory);
    if (io_read_file(path, text, sizeof(text)) < 0) {
        error_set_errno(err, ERROR_NOT_FOUND, errno, "%s holds no dump made by cudackpt-ctl: " MANIFEST_NAME,
                        directory);
        return -1;
    }
    format = member(text, "format");
    pid = member(text, "pid");
    resume = member(text, "resume");
    if (!format || read_pid(&format) != FORMAT || !pid || !(manifest->pid = read_pid(&pid)) || !resume ||
        *resume != '[') {
        error_set(err, ERROR_REFUSED, "can't understand %s: it is damaged, or a newer cudackpt-ctl wrote it",
                  path);
        return -1;
    }
    while (*resume && *resume != ']' && manifest->resume_count < MANIFEST_PROCESSES) {
        pid_t one;

        resume++; /* the bracket or the comma */
        one = read_pid(&resume);
        if (one)
            manifest->resume[manifest->resume_count++] = one;
    }
    return 0;
}
