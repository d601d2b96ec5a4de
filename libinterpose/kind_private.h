#ifndef CUDACKPT_KIND_PRIVATE_H
#define CUDACKPT_KIND_PRIVATE_H
/* Entries of private tables that make something: hooks and the driver's own functions (private_tables.c). */

#include "cuda_abi.h"

struct private_functions {
    CUresult (*context_of_device)(CUcontext *context, CUdevice device);
    CUresult (*storage_put)(CUcontext context, void *key, void *value,
                            void (*destructor)(CUcontext context, void *key, void *value));
    CUresult (*storage_delete)(CUcontext context, void *key);
    CUresult (*register_callbacks)(void *a, void *b, void *c, void *d);
};
extern struct private_functions private_real;

CUresult private_context_of_device(CUcontext *context, CUdevice device);
CUresult private_storage_put(CUcontext context, void *key, void *value,
                             void (*destructor)(CUcontext context, void *key, void *value));
CUresult private_storage_delete(CUcontext context, void *key);
CUresult private_register_callbacks(void *a, void *b, void *c, void *d);

#endif
