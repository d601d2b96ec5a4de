/*
 * Import hooks for the dynamic loader. The driver's own opens of itself and of its helpers go past our dlopen.
 *
 * At a replay they must not go to the loader at all: a thread of the program may wait at the closed gate inside of dlopen
 * (a constructor that calls CUDA), with the loader's lock, and the replay would wait for it. A replay asks for what was
 * asked for before, so the answers are kept; the libraries stay open.
 */
#include "import_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "loader_hooks.h"
#include "unsaveable.h"
#define LOG_PREFIX "imports"
#include "log.h"

#define ANSWERS_MAX 2048

/* name NULL: the program itself. scope: NULL for a library, the handle that a symbol was looked up in. */
static struct answer {
    void *scope;
    char *name;
    void *result;
} answers[ANSWERS_MAX];
static size_t answer_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool same_name(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static struct answer *find(void *scope, const char *name)
{
    for (size_t i = 0; i < answer_count; i++)
        if (answers[i].scope == scope && same_name(answers[i].name, name))
            return &answers[i];
    return NULL;
}

static bool known(void *scope, const char *name, void **result)
{
    const struct answer *answer;

    pthread_mutex_lock(&lock);
    answer = find(scope, name);
    if (answer)
        *result = answer->result;
    pthread_mutex_unlock(&lock);
    return answer != NULL;
}

/* True if it is a new one. */
static bool keep(void *scope, const char *name, void *result)
{
    bool new = false;

    pthread_mutex_lock(&lock);
    if (!find(scope, name) && answer_count < ANSWERS_MAX) {
        answers[answer_count].scope = scope;
        answers[answer_count].name = name ? strdup(name) : NULL;
        answers[answer_count].result = result;
        new = !name || answers[answer_count].name;
        answer_count += new;
    }
    pthread_mutex_unlock(&lock);
    return new;
}

static void *hook_dlopen(const char *name, int flags)
{
    void *handle;

    if (import_is_replay() && known(NULL, name, &handle))
        return handle;
    loader_resolve();
    handle = loader_real_dlopen(name, flags);
    log_debug("the driver opens %s", name ? name : "itself");
    if (keep(NULL, name, handle) && handle)
        loader_real_dlopen(name, flags); /* one reference more: it stays when the driver closes it */
    if (handle && name && strstr(name, "libcudadebugger.so"))
        unsaveable_note("a debugger has attached to the CUDA driver"); /* it keeps pointers into the driver's heap */
    return handle;
}

/* At a replay the references are not taken again, so they are not given back either. */
static int hook_dlclose(void *handle)
{
    return import_is_replay() ? 0 : dlclose(handle);
}

static void *hook_dlsym(void *handle, const char *symbol)
{
    void *address;

    if (handle != RTLD_NEXT && import_is_replay() && known(handle ? handle : RTLD_NEXT, symbol, &address))
        return address;
    loader_resolve();
    address = loader_real_dlsym(handle, symbol);
    if (handle != RTLD_NEXT)
        keep(handle ? handle : RTLD_NEXT, symbol, address);
    return address;
}

const struct import_hook import_loader[] = {
    {"dlopen", hook_dlopen},
    {"dlclose", hook_dlclose},
    {"dlsym", hook_dlsym},
    {NULL, NULL},
};
