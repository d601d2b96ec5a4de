/* Import hooks: the table, and those that fit nowhere else: environment, threads, handlers. */
#include "import_hooks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "import_internal.h"
#include "ledger.h"

/* ---- environment */

extern char **environ;
static char **kept_environment;
static int replaying;

void import_hooks_keep_environment(void)
{
    size_t count = 0, bytes = 0;
    char *text;

    if (kept_environment || !environ)
        return;
    for (; environ[count]; count++)
        bytes += strlen(environ[count]) + 1;
    kept_environment = malloc((count + 1) * sizeof *kept_environment + bytes);
    if (!kept_environment)
        return; /* the driver then sees the present one */
    text = (char *)(kept_environment + count + 1);
    for (size_t i = 0; i < count; i++) {
        kept_environment[i] = text;
        text = stpcpy(text, environ[i]) + 1;
    }
    kept_environment[count] = NULL;
}

void import_hooks_replay_environment(int on)
{
    __atomic_store_n(&replaying, on, __ATOMIC_RELEASE);
}

bool import_is_replay(void)
{
    return __atomic_load_n(&replaying, __ATOMIC_ACQUIRE);
}

/* Programs change variables like CUDA_VISIBLE_DEVICES after the driver has read them; a replay must not notice. */
static char *hook_getenv(const char *name)
{
    size_t length = strlen(name);

    if (!import_is_replay() || !kept_environment)
        return getenv(name);
    for (char **entry = kept_environment; *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

/* ---- the table */

static const struct import_hook import_others[] = {
    {"pthread_create", ledger_thread_create},
    {"pthread_join", ledger_thread_join},
    {"pthread_key_create", ledger_key_create},
    {"__pthread_key_create", ledger_key_create},
    {"pthread_key_delete", ledger_key_delete},
    {"pthread_getspecific", ledger_key_get},
    {"pthread_setspecific", ledger_key_set},
    {"__cxa_atexit", ledger_exit_handler},
    {"__register_atfork", ledger_fork_handler},
    {"getenv", hook_getenv},
    {"secure_getenv", hook_getenv},
    {NULL, NULL},
};

void *import_hook(const char *name)
{
    static const struct import_hook *const tables[] = {import_memory, import_descriptors, import_maps, import_loader, import_others};

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct import_hook *row = tables[i]; row->name; row++)
            if (!strcmp(row->name, name))
                return row->hook;
    return NULL;
}
