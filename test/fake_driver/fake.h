#ifndef FAKE_H
#define FAKE_H
/*
 * A driver without a GPU: libcuda.so.1 for tests. Device memory is a file, streams are threads, kernels are C functions
 * (kernels.c). It takes from the system what the real driver takes, so that it can be restarted in place like it: all
 * of its state lies in its .data and .bss, in malloc'd blocks, and in what it got through imported libc functions.
 *
 * One lock (fake.lock) guards everything. An entry point holds it from CALL to its return; whoever waits or runs
 * something long (a kernel, a copy, a callback) lets it go meanwhile. Functions here are called with the lock held
 * unless they say otherwise.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "list.h"

struct arena;
struct block;
struct capture;
struct context;
struct device;
struct event;
struct function;
struct graph;
struct graph_body;
struct graph_node;
struct image_function;
struct kernel;
struct library;
struct module;
struct physical;
struct pool;
struct stream;
struct texture;
struct timeline;

/* ---- entry points */

enum fake_row {
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) ROW_##symbol,
#include "driver_api.inc"
#undef ENTRY
    ROW_COUNT
};

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    __attribute__((visibility("default"))) CUresult symbol parameters;
#include "driver_api.inc"
#undef ENTRY

enum { PAGE_SIZE_2M = 2 << 20, MAX_DEVICES = 16, STACK_DEPTH = 64 };

struct thread {
    CUcontext stack[STACK_DEPTH]; /* the last one is current */
    int depth;
    CUstreamCaptureMode capture_mode;
    struct list streams; /* this thread's per-thread default streams, one per context */
    struct list node;
    bool in_callback; /* of a stream: most calls are refused */
    bool move;        /* the call under way must give another handle than it would (fake_faults.c) */
};

struct call {
    struct thread *self;
    struct context *context;
    bool locked;
};

enum call_needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };

/* Takes the lock unless nothing is needed. */
CUresult call_begin(struct call *call, enum fake_row row, enum call_needs needs);
void call_end(struct call *call);

/* Opens every entry point: checks what it needs, holds the lock until it returns. */
#define CALL(symbol, needs)                                                                                  \
    __attribute__((cleanup(call_end))) struct call call_ = {0};                                              \
    const CUresult begun_ = call_begin(&call_, ROW_##symbol, needs);                                         \
    if (begun_ != CUDA_SUCCESS)                                                                              \
        return begun_;                                                                                       \
    struct thread *const self __attribute__((unused)) = call_.self;                                          \
    struct context *const context __attribute__((unused)) = call_.context

/* What the null stream means to an entry point that ends in _ptds or _ptsz. */
static inline CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* ---- objects: everything that a handle stands for */

enum object_kind {
    OBJECT_NONE,
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_FUNCTION,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_GRAPH_EXEC,
    OBJECT_ARRAY,
    OBJECT_MIPMAP,
    OBJECT_POOL,
    OBJECT_PHYSICAL,
};

struct object_table {
    struct object_slot {
        const void *handle;
        enum object_kind kind;
    } *slots;
    size_t used, size;
};

/* handle itself if it is a live object of that kind, else NULL: handles of the program may be anything. */
void *object_find(const void *handle, enum object_kind kind);
int object_add(const void *handle, enum object_kind kind); /* -1 without memory */
void object_remove(const void *handle);

/* Zeroed memory for an object that becomes a handle. NULL without memory. */
void *handle_alloc(struct thread *self, size_t size);

/* ---- ranges of addresses (fake_ranges.c) */

struct range {
    uint64_t address, size;
};

/* Sorted by address, without overlaps. */
struct range_map {
    struct range **items;
    size_t count, capacity;
};

struct range *range_find(const struct range_map *map, uint64_t address); /* the one that holds it, or NULL */
bool range_overlaps(const struct range_map *map, uint64_t address, uint64_t size);
int range_insert(struct range_map *map, struct range *range); /* -1 without memory */
void range_remove(struct range_map *map, struct range *range);

/* Holes of an address range or of a file, first fit. */
struct holes {
    struct hole {
        uint64_t start, size;
    } *items;
    size_t count, capacity;
};

int holes_give(struct holes *holes, uint64_t start, uint64_t size);
/* Lowest place with that alignment; -1 if there is none. */
int holes_take(struct holes *holes, uint64_t size, uint64_t alignment, uint64_t *start);
/* Cuts the hole that ends at end down to a multiple of unit from base: gives back what was cut off (0: nothing). */
uint64_t holes_trim_end(struct holes *holes, uint64_t end, uint64_t unit);

/* ---- device memory: the file of a device, and the share of this process in the device (fake_vidmem.c) */

CUresult vidmem_open(struct device *device);
CUresult vidmem_alloc(struct device *device, uint64_t size, uint64_t *offset); /* OUT_OF_MEMORY */
void vidmem_free(struct device *device, uint64_t offset, uint64_t size);
/* Bytes that all processes hold. */
uint64_t vidmem_used(struct device *device);

/* Physical memory mapped at an address: what a kernel may touch. */
struct page_range {
    struct range range;
    struct device *device;
    uint64_t offset; /* in the device's file */
    uint32_t access; /* a bit per device: what cuMemSetAccess said; host memory: all */
    bool plain;      /* also for devices that have peer access to its own */
    struct physical *physical; /* cuMemCreate's, or NULL */
};

/* Address space without memory; wanted 0: anywhere. 0 if there is none. */
uint64_t address_reserve(uint64_t wanted, uint64_t size, uint64_t alignment);
void address_release(uint64_t address, uint64_t size);
/* Maps a piece of a device's file into reserved space, and the other way. */
CUresult pages_map(struct device *device, uint64_t address, uint64_t offset, uint64_t size, uint32_t access,
                   bool plain, struct physical *physical);
void pages_unmap(struct page_range *pages);
CUresult pages_add_host(uint64_t address, uint64_t size);
void pages_remove_host(uint64_t address);
/* Whether all of the range can be touched from the device (device NULL: from any). */
bool pages_accessible(const struct context *context, uint64_t address, uint64_t size);

/* An allocator over reserved address space that grows by 2 MiB of memory (fake_arena.c). */
struct arena {
    struct device *device;
    uint64_t base, reserved, backed;
    struct holes holes;
};

CUresult arena_alloc(struct arena *arena, uint64_t size, uint64_t alignment, uint64_t *address);
void arena_free(struct arena *arena, uint64_t address, uint64_t size);
void arena_release(struct arena *arena);

/* ---- what the program got: allocations of every kind (fake_memory.c) */

enum block_kind { BLOCK_DEVICE, BLOCK_HOST, BLOCK_REGISTERED, BLOCK_MANAGED, BLOCK_VARIABLE, BLOCK_POOL };

struct block {
    struct range range; /* size as asked for */
    enum block_kind kind;
    struct context *context;
    struct device *device;
    uint64_t id;
    uint64_t own_size;   /* of its own reservation, 0: it lies in the arena */
    uint64_t own_offset; /* in the device's file */
    unsigned int flags;
    uint32_t sync_memops;
    struct pool *pool;
};

struct block *block_find(uint64_t address);
/* pool: for BLOCK_POOL. */
CUresult block_new(struct context *context, struct pool *pool, enum block_kind kind, uint64_t size,
                   struct block **block);
void block_delete(struct block *block);
void host_block_delete(struct block *block);
/* Removes all blocks of a context that is being destroyed, or of a pool. */
void blocks_delete_all(const struct context *context, const struct pool *pool);
/* Whether the program may name the range in a copy: it lies in one block, or in mapped memory. */
CUresult range_check(const struct context *context, uint64_t address, uint64_t size);
/* Pinned or device memory, i.e. an asynchronous copy of it need not be waited for. */
bool memory_is_pinned(uint64_t address);

/* cuMemCreate's handle. */
struct physical {
    struct device *device;
    uint64_t offset, size;
    uint32_t refs; /* the program's, and one for each mapping */
    uint32_t program_refs;
    CUmemAllocationProp prop;
};
void physical_put(struct physical *physical);

struct reservation {
    struct range range;
};

/* ---- work (fake_queue.c) */

/* Work in the order of submission; outlives its stream until the work is done. */
struct timeline {
    uint32_t refs;
    uint64_t submitted, completed;
    bool blocking; /* waits for the null stream and it for this one */
    bool running;
    uint64_t running_sequence;
    struct context *context;
    struct list ops;     /* not yet begun */
    struct list active;  /* in fake.active while there is something to do */
    struct list node;    /* in context->timelines */
};

/* A point of a timeline. */
struct stamp {
    uint32_t refs;
    struct timeline *timeline;
    uint64_t count;
    uint64_t time; /* when it was reached, ns */
};

enum { PARAMETERS_INLINE = 160, DEPENDENCIES_INLINE = 3 };

/* What an operation does, also as a node of a graph. */
struct work {
    enum work_kind {
        WORK_EMPTY,
        WORK_KERNEL,
        WORK_COPY,
        WORK_SET,
        WORK_HOST,
        WORK_CALLBACK,
        WORK_EVENT,
        WORK_WAIT_VALUE,
        WORK_WRITE_VALUE,
        WORK_GRAPH,
        WORK_FREE,
    } kind;
    union {
        struct kernel_work {
            struct function *function;
            CUfunction handle; /* as the program gave it: a function or a kernel */
            uint32_t grid[3], block[3], shared;
            bool cooperative;
            size_t parameters_size;
            uint8_t *parameters; /* malloc'd */
        } kernel;
        struct copy_work {
            uint64_t source, target;
            bool source_device, target_device; /* checked before it is touched */
            uint64_t source_pitch, source_slice, target_pitch, target_slice;
            uint64_t width, height, depth;
            void *staged; /* malloc'd copy of the source, NULL: none */
        } copy;
        struct set_work {
            uint64_t target, pitch, width, height; /* width in elements */
            uint32_t element, value;
        } set;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            void *argument;
            CUstream stream;
        } host;
        struct {
            struct stamp *stamp;
        } event;
        struct {
            uint64_t address, value;
            uint32_t size, flags;
        } value;
        struct {
            struct graph_body *body;
        } graph;
        struct {
            uint64_t address;
        } free;
    };
};

/* Copies what work points to, so that both can be dropped. */
CUresult work_copy(struct work *target, const struct work *source);
void work_drop(struct work *work);
/* Without the lock, on a thread of the driver's. */
CUresult work_run(struct context *context, struct work *work, struct thread *thread);

struct dependency {
    struct timeline *timeline;
    uint64_t count;
};

struct op {
    struct list node;
    struct timeline *timeline;
    uint64_t ticket;   /* place in the timeline */
    uint64_t sequence; /* place among all operations */
    struct dependency *dependencies;
    size_t dependency_count;
    struct dependency inline_dependencies[DEPENDENCIES_INLINE];
    struct work work;
};

struct timeline *timeline_new(struct context *context, bool blocking);
void timeline_put(struct timeline *timeline);
void timeline_wait(struct timeline *timeline, uint64_t count);
static inline bool timeline_idle(const struct timeline *timeline)
{
    return timeline->submitted == timeline->completed;
}

/*
 * Takes work over (drops it on failure). after: more to wait for; may be NULL. In a stream that captures it becomes a
 * node of the graph.
 */
CUresult stream_submit(struct stream *stream, struct work *work);
CUresult stream_wait_for(struct stream *stream, struct timeline *timeline, uint64_t count);
/* submits, then waits; returns the context's error. */
CUresult stream_submit_wait(struct stream *stream, struct work *work);

struct stamp *stamp_new(struct timeline *timeline);
void stamp_put(struct stamp *stamp);
bool stamp_reached(const struct stamp *stamp);

/* Waits for everything submitted so far to the context, the device. */
void context_wait(struct context *context);
void device_wait(struct device *device);

uint64_t now_ns(void);

/* ---- streams and events */

struct stream {
    enum object_kind kind;
    unsigned int flags;
    int priority;
    uint64_t id;
    struct context *context;
    struct timeline *timeline;
    struct capture *capture;
    struct graph_node **capture_nodes; /* what the next captured work depends on */
    size_t capture_count;
    struct list node;        /* in context->streams */
    struct list thread_node; /* in thread->streams */
    CUlaunchAttributeValue attributes[18];
};

struct event {
    enum object_kind kind;
    unsigned int flags;
    struct context *context;
    struct stamp *stamp; /* NULL: never recorded */
    struct capture *capture;
    struct graph_node **capture_nodes;
    size_t capture_count;
    struct list node;
};

/* The stream that a handle means to this thread in this context; NULL: no such stream. */
struct stream *stream_find(struct thread *self, struct context *context, CUstream handle);
CUresult stream_init(struct stream *stream, struct context *context, unsigned int flags, int priority);
void stream_fini(struct stream *stream);
void event_forget_capture(struct event *event);
/* Allocates what the first stream or event of a context needs. */
CUresult context_first_use(struct context *context, bool *done, size_t handle_size);

/* ---- captures (fake_capture.c) */

struct capture {
    uint32_t refs; /* streams and events that are part of it */
    uint64_t id;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status;
    struct thread *thread; /* that began it */
    struct stream *origin;
    struct graph *graph;
    struct list node; /* in fake.captures */
};

/* Work that is captured: a node after the stream's last ones. */
CUresult capture_add(struct stream *stream, struct work *work);
/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a capture forbids this thread calls that may do anything. */
CUresult capture_check(struct thread *self);
/* The same for a wait for one stream: only its own capture counts. */
CUresult capture_check_stream(struct stream *stream);
/* Work in the null stream while a blocking stream captures. */
CUresult capture_check_null(struct context *context);
CUresult capture_nodes_copy(struct graph_node ***target, size_t *target_count, struct graph_node **source,
                            size_t count);
void capture_leave(struct stream *stream);
void capture_put(struct capture *capture);
CUresult capture_join(struct stream *stream, const struct event *event);

/* ---- contexts and devices */

struct local_value {
    struct list node;
    const void *key;
    void *value;
    void (*destructor)(CUcontext, void *, void *);
};

struct context {
    enum object_kind kind;
    bool active, primary;
    struct device *device;
    unsigned int flags;
    uint64_t id;
    CUresult error; /* sticky: every later call returns it */
    struct stream null_stream;
    struct list streams, events, timelines, modules, local_values, arrays;
    struct arena internal; /* module variables and code */
    struct arena small;    /* allocations up to 1 MiB */
    bool had_stream, had_event;
    struct list extras; /* one-time allocations */
    uint64_t limits[10];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    uint32_t peers; /* devices with peer access enabled */
    struct list node; /* in fake.contexts */
};

struct device {
    int ordinal;
    uint64_t size;
    int file;   /* nvidia<N>; also the table of all processes' shares */
    int slot;   /* ours in that table */
    int vidmem; /* memory of the device that this process holds, -1 until it is needed */
    uint64_t vidmem_end, used;
    struct holes vidmem_holes;
    int primary_refs;
    unsigned int primary_flags;
    struct context primary; /* a handle inside of a block of cuInit */
    struct pool *default_pool, *pool; /* made at first use; what cuMemAllocAsync takes from */
};

struct device *device_find(CUdevice ordinal); /* NULL: no such device */
CUresult primary_retain(struct device *device, struct context **context);
CUresult context_open(struct context *context, struct device *device, unsigned int flags, bool primary);
void context_close(struct context *context);
struct context *context_find(CUcontext handle);
struct context *thread_context(const struct thread *thread); /* current one if it lives */
struct thread *thread_self(void);                            /* NULL without memory */

/* ---- modules (fake_image.c, fake_module.c, fake_library.c, fake_function.c) */

struct image_parameter {
    uint32_t offset, size;
};

struct image_function {
    char *name;
    bool entry; /* a kernel, not a device function */
    struct image_parameter *parameters;
    uint32_t parameter_count, parameters_size;
};

struct image_variable {
    char *name;
    uint64_t size;
    uint32_t alignment;
    uint8_t *initial; /* NULL: zeros */
};

struct image {
    struct image_function *functions; /* entries first */
    struct image_variable *variables;
    uint32_t function_count, entry_count, variable_count;
};

/* Parses PTX text or a fat binary that holds some. */
CUresult image_parse(const void *data, struct image **image);
void image_free(struct image *image);

enum { FUNCTION_ATTRIBUTES = 16 };

struct function {
    enum object_kind kind;
    struct module *module;
    const struct image_function *image;
    struct kernel *kernel; /* NULL: of a module of its own */
    uint64_t code;         /* device address, 0: not loaded */
    uint64_t code_size;
    int attributes[FUNCTION_ATTRIBUTES];
    bool attribute_set[FUNCTION_ATTRIBUTES];
    CUfunc_cache cache_config;
};

struct variable {
    const struct image_variable *image;
    uint64_t address; /* 0: not loaded */
};

struct module {
    enum object_kind kind;
    struct context *context;
    struct image *image;
    struct library *library; /* NULL: it owns its image */
    struct function *functions;
    struct variable *variables;
    uint64_t device_code, device_code_size; /* of the device functions, all of them */
    struct list node;         /* in context->modules */
    struct list library_node; /* in library->modules */
};

struct kernel {
    enum object_kind kind;
    struct library *library;
    const struct image_function *image;
    uint32_t index;
    int attributes[MAX_DEVICES][FUNCTION_ATTRIBUTES];
    bool attribute_set[MAX_DEVICES][FUNCTION_ATTRIBUTES];
    CUfunc_cache cache_config[MAX_DEVICES];
};

struct library {
    enum object_kind kind;
    struct image *image;
    struct kernel *kernels;
    struct list modules; /* one per context that uses it */
    struct list node;    /* in fake.libraries */
};

CUresult module_new(struct thread *self, struct context *context, struct image *image, struct library *library,
                    struct module **module);
void module_delete(struct module *module);
/* Gives all variables their place and first value. */
CUresult module_load_variables(struct module *module);
struct variable *module_find_variable(struct module *module, const char *name);
struct function *module_find_function(struct module *module, const char *name);
/* Address of a device function, 0: none of that name or not loaded. */
uint64_t module_device_function(const struct module *module, const char *name);
/* The library's module in a context, made at first use. */
CUresult library_module(struct thread *self, struct library *library, struct context *context,
                        struct module **module);
CUresult read_file(const char *path, char **data); /* malloc'd, with a 0 at the end */

/* The function that a handle (function or kernel) means in a context. */
CUresult function_find(struct thread *self, struct context *context, CUfunction handle, struct function **function);
CUresult function_load(struct function *function);
/* Value of an attribute, what was set for its kernel included. */
CUresult function_attribute(const struct function *function, CUfunction_attribute attribute, int *value);
/* Parameters from the two ways to give them. */
CUresult kernel_work_parameters(struct kernel_work *kernel, void **parameters, void **extra);
CUresult kernel_work_check(const struct kernel_work *kernel);

/* ---- kernels (kernels.c): C twins of what test/programs/kernels.ptx.h holds */

struct kernel_call {
    struct context *context;
    struct function *function;
    const uint32_t *grid, *block;
    uint32_t shared;
    bool cooperative;
    const uint8_t *parameters;
    const struct image_function *image;
    CUresult error;
};

typedef void (*kernel_twin)(struct kernel_call *call);
kernel_twin kernel_twin_find(const char *name); /* NULL: none */

/* All without the lock. Memory that can't be touched gives NULL and makes the launch fail with 700. */
void *kernel_memory(struct kernel_call *call, uint64_t address, uint64_t size);
uint64_t kernel_parameter(const struct kernel_call *call, uint32_t index);
void *kernel_variable(struct kernel_call *call, const char *name);
uint64_t kernel_device_function(const struct kernel_call *call, const char *name);

/* ---- graphs (fake_graph.c) */

struct graph_node {
    enum object_kind kind;
    bool used, disabled;
    CUgraphNodeType type;
    struct graph *graph;
    uint32_t index; /* order of creation */
    struct work work;
    struct graph_node **dependencies;
    size_t dependency_count;
    struct event *event;
    CUlaunchAttributeValue attributes[18];
    void **parameter_pointers; /* what cuGraphKernelNodeGetParams hands out */
};

struct graph {
    enum object_kind kind;
    struct list slabs; /* of nodes */
    uint32_t created;
    struct list node; /* in fake.graphs */
};

struct graph_node *graph_add(struct graph *graph, CUgraphNodeType type, struct work *work,
                             struct graph_node *const *dependencies, size_t count);
struct graph *graph_new(struct thread *self);
void graph_delete(struct graph *graph);
void graph_body_put(struct graph_body *body);
void graph_body_get(struct graph_body *body);
CUresult graph_body_run(struct context *context, struct graph_body *body, struct thread *thread); /* no lock */

/* ---- pools, arrays */

struct arena *pool_arena(struct pool *pool);
void pool_block_gone(struct pool *pool, uint64_t size);
uint64_t array_address(CUarray array, uint64_t *pitch, uint64_t *slice); /* 0: no array */
void arrays_delete_all(struct context *context);

/* ---- the system (fake_os.c), faults (fake_faults.c) */

int os_directory(void);    /* finds and makes fake.directory; -1 with errno */
CUresult os_acquire(void); /* everything that cuInit takes */
int driver_version(void);

struct fault {
    char name[64];
    int number, seen;
    CUresult result;
};

struct faults {
    bool active, known;
    struct fault fail[16];
    int fail_count;
    char move[8][64];
    int move_count;
    struct {
        char name[64];
        int ms;
    } slow[8];
    int slow_count;
};

void faults_start(void);
/* What the call of that entry point must return, CUDA_SUCCESS: go on. Sleeps if it is to be slow. */
CUresult faults_call(enum fake_row row, bool *move);
const char *row_symbol(enum fake_row row);
const char *row_base(enum fake_row row);


/* ---- all state */

struct fake {
    bool initialised, forked, exiting;
    pthread_mutex_t lock;
    pthread_cond_t work_cond, done_cond;
    pthread_key_t thread_key, spare_keys[2];
    int driver_version;
    char directory[200];
    int control, uvm, socket, events[4], pipe[2]; /* descriptors */
    pthread_t helpers[2];
    struct device *devices;
    int device_count;
    struct object_table objects;
    struct range_map blocks, pages, reservations;
    uint64_t next_context_id, next_stream_id, next_block_id, next_capture_id, next_sequence;
    struct list contexts, threads, libraries, graphs, captures, noise;
    struct list active; /* timelines with something to do */
    int workers, idle_workers;
    struct list free_ops, free_stamps;
    struct faults faults;
    struct texture *textures[256]; /* an object's number is its index here + 1 */
    void *registered[64];          /* through a private table */
    int registered_count;
};

extern struct fake fake;

#endif
