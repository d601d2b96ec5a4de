#ifndef FAKE_COPY_H
#define FAKE_COPY_H

#include "fake.h"

/* Submits a copy. synchronous: waits for it, refused while the stream captures. */
CUresult copy_submit(struct stream *stream, const struct copy_work *copy, bool synchronous);

/* What cuMemcpy3D's parameters mean. */
CUresult copy_from_3d(struct context *context, const CUDA_MEMCPY3D *from, struct copy_work *copy);

#endif
