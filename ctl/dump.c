#include "dump.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "criu.h"
#include "cuda_process.h"
#include "io.h"
#include "manifest.h"
#include "output.h"
#include "protocol.h"

static int ask(pid_t pid, enum protocol_action action, uint64_t timeout_ms, struct values *values,
               struct error *err)
{
    struct protocol_request request = {.action = action, .timeout_ms = timeout_ms};
    struct client client = {.fd = -1};
    int result = client_connect(&client, pid, err);

    if (result == 0)
        result = client_ask(&client, &request, values, err);
    client_close(&client);
    return result;
}

static bool has_state(const struct values *values, const char *state)
{
    const char *found = values_find(values, "state");

    return found && !strcmp(found, state);
}

/*
 * An interrupt must not end the tool between the suspend and the resume that undoes it. CRIU, which takes the
 * longest, ends at an interrupt as ever.
 */
static void ignore_interrupts(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

/* ---- the tree of processes */

/* Adds the children that one thread has forked. */
static void children_add(pid_t pid, const char *tid, pid_t *list, size_t *count)
{
    char path[64], text[4096], *end;
    const char *next = text;
    long child;

    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, tid);
    if (io_read_file(path, text, sizeof(text)) < 0)
        return;
    while (*count < MANIFEST_PROCESSES && (child = strtol(next, &end, 10)) > 0) {
        list[(*count)++] = (pid_t)child;
        next = end;
    }
}

/* Lists pid and its descendants, parents first. Some may come and go meanwhile: CRIU looks again, with all
 * frozen. */
static size_t tree_list(pid_t pid, pid_t list[MANIFEST_PROCESSES])
{
    size_t count = 1;

    list[0] = pid;
    for (size_t i = 0; i < count; i++) {
        char path[64];
        const struct dirent *task;
        DIR *tasks;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)list[i]);
        tasks = opendir(path);
        while (tasks && (task = readdir(tasks))) {
            if (task->d_name[0] != '.')
                children_add(list[i], task->d_name, list, &count);
        }
        if (tasks)
            closedir(tasks);
    }
    return count;
}

/* ---- dump */

static int directory_prepare(const char *directory, struct error *err)
{
    char path[PATH_MAX];

    if (mkdir(directory, 0700) < 0 && errno != EEXIST) {
        error_set_errno(err, ERROR_REFUSED, errno, "can't make %s", directory);
        return -1;
    }
    snprintf(path, sizeof(path), "%s/" MANIFEST_NAME, directory);
    if (access(path, F_OK) == 0) {
        error_set(err, ERROR_REFUSED, "%s holds a dump already: give another directory, or remove it",
                  directory);
        return -1;
    }
    return 0;
}

/* Takes one process off the GPU, if it uses one, and notes whether it was running. */
static int suspend_one(pid_t pid, uint64_t timeout_ms, struct manifest *manifest, struct error *err)
{
    struct values values = {0};
    bool running;
    int result = ask(pid, ACTION_STATUS, 0, &values, err);

    running = has_state(&values, "running");
    if (result == 0 && (running || has_state(&values, "locked")))
        result = ask(pid, ACTION_SUSPEND, running ? timeout_ms : 0, &values, err);
    if (result == 0 && running)
        manifest->resume[manifest->resume_count++] = pid;
    values_free(&values);
    return result;
}

static void note_facts(pid_t pid, struct manifest *manifest)
{
    struct values values = {0};
    struct error unused = {0};
    const char *driver, *bytes;

    if (ask(pid, ACTION_STATUS, 0, &values, &unused) == 0) {
        driver = values_find(&values, "driver-version");
        bytes = values_find(&values, "host-copy-bytes");
        if (driver)
            snprintf(manifest->driver, sizeof(manifest->driver), "%s", driver);
        if (bytes)
            manifest->host_copy_bytes += strtoull(bytes, NULL, 10);
    }
    values_free(&values);
}

static int suspend_tree(pid_t pid, uint64_t timeout_ms, struct manifest *manifest, struct error *err)
{
    pid_t tree[MANIFEST_PROCESSES];
    size_t count = tree_list(pid, tree);

    for (size_t i = 0; i < count; i++) {
        /* The first one is asked in any case, so that a process without our library is told so. */
        if (i > 0 && !cuda_process_control_thread(tree[i]))
            continue;
        if (suspend_one(tree[i], timeout_ms, manifest, err) < 0) {
            error_prefix(err, "process %d can't be suspended", (int)tree[i]);
            return -1;
        }
        note_facts(tree[i], manifest);
    }
    return 0;
}

/* Resumes what was running; the last suspended first. */
static int resume_tree(const struct manifest *manifest, struct error *err)
{
    int result = 0;

    for (size_t i = manifest->resume_count; i-- > 0;) {
        struct values values = {0};
        struct error own = {0};
        pid_t pid = manifest->resume[i];

        /* CRIU's CUDA plugin, where there is one, resumes by itself. */
        if (ask(pid, ACTION_STATE, 0, &values, &own) < 0 ||
            (!has_state(&values, "running") && ask(pid, ACTION_RESUME, 0, &values, &own) < 0)) {
            error_set(err, own.code,
                      "process %d is there but still suspended: %.700s; try cudackpt-ctl resume %d", (int)pid,
                      own.text, (int)pid);
            result = -1;
        }
        values_free(&values);
    }
    return result;
}

/* After a failure: what was running runs on. */
static int undo(const struct manifest *manifest, struct error *err)
{
    struct error second = {0};

    if (resume_tree(manifest, &second) == 0) {
        if (err->code != ERROR_TIMEOUT)
            error_prefix(err, "not dumped, the program is as it was before");
        return -1;
    }
    error_prefix(err, "not dumped, and %.300s; the cause was", second.text);
    return -1;
}

int dump_run(pid_t pid, const struct dump_options *options, struct error *err)
{
    struct manifest manifest = {.pid = pid};
    struct process process;
    struct error unused = {0};
    char number[16];
    const char *fixed[] = {"--tree", number, options->leave_running ? "--leave-running" : NULL, NULL};

    snprintf(number, sizeof(number), "%d", (int)pid);
    if (process_read(pid, &process, err) < 0 || criu_version(manifest.criu, sizeof(manifest.criu), err) < 0 ||
        directory_prepare(options->directory, err) < 0)
        return -1;
    snprintf(manifest.program, sizeof(manifest.program), "%s", process.name);
    ignore_interrupts();
    /* The manifest before the dump: a full disk must not be noticed when the processes have ended. */
    if (suspend_tree(pid, options->timeout_ms, &manifest, err) < 0 ||
        manifest_write(&manifest, options->directory, err) < 0)
        return undo(&manifest, err);
    if (criu_run("dump", options->directory, fixed, options->criu_options, err) < 0) {
        manifest_remove(options->directory);
        return undo(&manifest, err);
    }
    /* Once more, for the sizes: without them it is a dump all the same. */
    (void)!manifest_write(&manifest, options->directory, &unused);
    return options->leave_running ? resume_tree(&manifest, err) : 0;
}

int restore_run(const struct dump_options *options, struct error *err)
{
    static const char *const fixed[] = {"--restore-detached", NULL};
    struct manifest manifest;
    char version[64];

    if (manifest_read(&manifest, options->directory, err) < 0 ||
        criu_version(version, sizeof(version), err) < 0)
        return -1;
    ignore_interrupts();
    if (criu_run("restore", options->directory, fixed, options->criu_options, err) < 0)
        return -1;
    printf("%d\n", (int)manifest.pid);
    return resume_tree(&manifest, err);
}
