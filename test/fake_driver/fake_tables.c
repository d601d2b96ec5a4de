/* Private tables. They lie where the linker puts constant pointers: read-only once the library is relocated.
 */

#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* ---- context-local storage */

static struct local_value *value_find(struct context *context, const void *key)
{
    list_each(node, &context->local_values)
    {
        struct local_value *value = container_of(node, struct local_value, node);

        if (value->key == key)
            return value;
    }
    return NULL;
}

/* NULL means the current context. */
static struct context *asked(const struct thread *self, CUcontext handle)
{
    return handle ? context_find(handle) : thread_context(self);
}

static CUresult begin(struct thread **self)
{
    if (fake.exiting)
        return CUDA_ERROR_DEINITIALIZED;
    if (fake.forked || !fake.initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&fake.lock);
    *self = thread_self();
    if (*self)
        return CUDA_SUCCESS;
    pthread_mutex_unlock(&fake.lock);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult end(CUresult result)
{
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static CUresult local_put(CUcontext handle, const void *key, void *content,
                          void (*destructor)(CUcontext, void *, void *))
{
    struct local_value *value;
    struct context *context;
    struct thread *self;
    CUresult result = begin(&self);

    if (result != CUDA_SUCCESS)
        return result;
    context = asked(self, handle);
    if (!context)
        return end(CUDA_ERROR_INVALID_CONTEXT);
    value = value_find(context, key);
    if (!value) {
        value = malloc(sizeof(*value));
        if (!value)
            return end(CUDA_ERROR_OUT_OF_MEMORY);
        list_insert(&context->local_values, &value->node);
    }
    value->key = key;
    value->value = content;
    value->destructor = destructor;
    return end(CUDA_SUCCESS);
}

static CUresult local_delete(CUcontext handle, const void *key)
{
    struct local_value *value;
    struct context *context;
    struct thread *self;
    CUresult result = begin(&self);

    if (result != CUDA_SUCCESS)
        return result;
    context = asked(self, handle);
    if (!context)
        return end(CUDA_ERROR_INVALID_CONTEXT);
    value = value_find(context, key);
    if (!value)
        return end(CUDA_ERROR_INVALID_HANDLE);
    list_remove(&value->node);
    free(value);
    return end(CUDA_SUCCESS);
}

static CUresult local_get(void **content, CUcontext handle, const void *key)
{
    const struct local_value *value;
    struct context *context;
    struct thread *self;
    CUresult result = begin(&self);

    if (result != CUDA_SUCCESS)
        return result;
    context = asked(self, handle);
    if (!context)
        return end(CUDA_ERROR_INVALID_CONTEXT);
    value = value_find(context, key);
    if (!value)
        return end(CUDA_ERROR_INVALID_HANDLE);
    *content = value->value;
    return end(CUDA_SUCCESS);
}

/* ---- the runtime's */

/* The primary context of a device, made on demand and not counted. */
static CUresult primary_get(CUcontext *handle, CUdevice ordinal)
{
    struct device *device;
    struct context *context;
    struct thread *self;
    CUresult result = begin(&self);

    if (result != CUDA_SUCCESS)
        return result;
    device = device_find(ordinal);
    if (!device || !handle)
        return end(device ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE);
    if (!device->primary.active) {
        result = primary_retain(device, &context);
        if (result == CUDA_SUCCESS)
            device->primary_refs--;
    }
    *handle = (CUcontext)&device->primary;
    return end(result);
}

static CUresult context_query(CUcontext handle, unsigned int *state, void **out)
{
    struct thread *self;
    CUresult result = begin(&self);

    if (result != CUDA_SUCCESS)
        return result;
    if (state)
        *state = 0;
    if (out)
        *out = NULL;
    return end(asked(self, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

static CUresult register_pointer(void *pointer)
{
    struct thread *self;
    CUresult result = begin(&self);

    if (result != CUDA_SUCCESS)
        return result;
    if (fake.registered_count == 64)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    fake.registered[fake.registered_count++] = pointer;
    return end(CUDA_SUCCESS);
}

static CUresult not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static int integrity_check(void);
static int integrity_is_original(const void *table);

#define SIZE(bytes)    ((const void *)(bytes))
#define CODE(function) ((const void *)(function))
#define NOT            CODE(not_supported)

static const void *const local_table[4] = {CODE(local_put), CODE(local_delete), CODE(local_get), NOT};
static const void *const runtime_table[13] = {
    SIZE(104), NOT, CODE(primary_get), NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT};
static const void *const query_table[15] = {
    SIZE(120), NOT, CODE(context_query), CODE(register_pointer), NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT,
    NOT,       NOT};
static const void *const integrity_table[3] = {SIZE(24), CODE(integrity_check), CODE(integrity_is_original)};

static const struct {
    const unsigned char uuid[16];
    const void *table;
} tables[] = {
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
     local_table},
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
     runtime_table},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     query_table},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
     integrity_table},
};

/* The compiler must read the table from memory: somebody may have changed it. */
static const void *read_entry(const void *const *table, int index)
{
    return *(const void *const volatile *)&table[index];
}

/* 0: this table is as it was made. */
static int integrity_check(void)
{
    return read_entry(integrity_table, 0) == SIZE(24) &&
                   read_entry(integrity_table, 1) == CODE(integrity_check) &&
                   read_entry(integrity_table, 2) == CODE(integrity_is_original)
               ? 0
               : 1;
}

/* 0: the table that a caller was given is ours and not a copy of it. */
static int integrity_is_original(const void *table)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        if (tables[i].table == table)
            return integrity_check();
    }
    return 1;
}

CUresult cuGetExportTable(const void **table, const CUuuid *uuid)
{
    CALL(cuGetExportTable, NEEDS_NOTHING);
    if (!table || !uuid)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        if (!memcmp(tables[i].uuid, uuid->bytes, 16)) {
            *table = tables[i].table;
            return CUDA_SUCCESS;
        }
    }
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
