/*
 * fake-smi [DIRECTORY]: who holds memory of the fake devices in DIRECTORY ($FAKE_GPU_DIR, /tmp/fakegpu-UID).
 *   device N USED TOTAL     a line per device, MiB, by the devices' own account
 *   PID MIB                 a line per process that has memory of them open or mapped, whatever the account
 * says
 */

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fake_share.h"

enum { FILES_MAX = 64 };

struct held {
    ino_t files[FILES_MAX];
    int count;
    unsigned long long bytes;
};

static void hold(struct held *held, const char *path)
{
    struct stat status;

    if (stat(path, &status))
        return;
    for (int i = 0; i < held->count; i++) {
        if (held->files[i] == status.st_ino)
            return;
    }
    if (held->count < FILES_MAX)
        held->files[held->count++] = status.st_ino;
    held->bytes += (unsigned long long)status.st_blocks * 512;
}

/* Every link in /proc/PID/WHERE that leads to a file of device memory. */
static void hold_links(struct held *held, const char *pid, const char *where, const char *prefix)
{
    char directory[300], path[600], target[600];
    struct dirent *entry;
    DIR *links;

    snprintf(directory, sizeof(directory), "/proc/%.20s/%s", pid, where);
    links = opendir(directory);
    while (links && (entry = readdir(links))) {
        ssize_t length;

        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        length = readlink(path, target, sizeof(target) - 1);
        if (length < 0)
            continue;
        target[length] = 0;
        if (!strncmp(target, prefix, strlen(prefix)))
            hold(held, path);
    }
    if (links)
        closedir(links);
}

static void show_processes(const char *prefix)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;

    while (processes && (entry = readdir(processes))) {
        struct held held = {.count = 0};

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        hold_links(&held, entry->d_name, "fd", prefix);
        hold_links(&held, entry->d_name, "map_files", prefix);
        if (held.bytes)
            printf("%s %llu\n", entry->d_name, held.bytes >> 20);
    }
    if (processes)
        closedir(processes);
}

static void show_device(const char *directory, int number)
{
    struct share_table table;
    char path[4200];
    unsigned long long used = 0;
    int file;

    snprintf(path, sizeof(path), "%s/nvidia%d", directory, number);
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    if (pread(file, &table, sizeof(table), 0) == sizeof(table)) {
        for (int i = 0; i < SHARES; i++) {
            if (table.shares[i].bytes && share_is_locked(file, SHARE_LOCK_SLOTS + i))
                used += table.shares[i].bytes;
        }
        printf("device %d %llu %llu\n", number, used >> 20, (unsigned long long)table.size >> 20);
    }
    close(file);
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : getenv("FAKE_GPU_DIR");
    char otherwise[64], real[4096], prefix[4200];

    snprintf(otherwise, sizeof(otherwise), "/tmp/fakegpu-%u", getuid());
    if (!directory || !*directory)
        directory = otherwise;
    if (!realpath(directory, real))
        return 0; /* nobody was there yet */
    for (int i = 0; i < 16; i++)
        show_device(real, i);
    snprintf(prefix, sizeof(prefix), "%s/vidmem-", real);
    show_processes(prefix);
    return 0;
}
