/* What the parts of the runtime and the generated tables share.
 *
 * A library is one translation unit: the generated tables include runtime.c, so every name here is static and
 * two libraries in one program, static or shared, never collide. */
#ifndef TILEC_INTERNAL_H_
#define TILEC_INTERNAL_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "arith.h"

#define LOCAL                           static __attribute__((unused))
#define INLINE                          static inline __attribute__((always_inline)) /* a step of every call */
#define APART                           __attribute__((noinline)) /* with a frame of its own, which few calls need */
#define COLD                            __attribute__((cold, noinline)) /* kept away from what warm calls run */
#define PRINTF_LIKE(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define LIKELY(x)                       __builtin_expect(!!(x), 1)
#define UNLIKELY(x)                     __builtin_expect(!!(x), 0)

enum {
  MAX_PARAMS = 64,      /* per kernel */
  MAX_DIMS = 32,        /* per kernel */
  MAX_EXTENTS = 512,    /* all shape and stride entries of one kernel */
  MAX_LAUNCHES = 16,    /* per variant */
  MAX_SLICES = 16,      /* per variant: T.alloc_global */
  CPU_ALIGN = 64,       /* workspace, slices, scratch */
  PARAM_ALIGN = 16,     /* at least tensor_align of every family, and tilec_param.align_bytes of every parameter */
  MAX_WORKERS = 1024
};

/* One parameter of a call: a tensor's first element, or a scalar widened to 64 bits. */
typedef union tilec_value {
  void* ptr;
  int64_t i;
  double f;
} tilec_value;

/* What a launch reads; the same for all of its blocks. */
typedef struct call_frame {
  const tilec_value* params; /* kernel order */
  const int64_t* dims;
  void* const* slices;
} call_frame;

typedef void (*entry_fn)(void); /* the real signature is known to invoke_fn alone */
typedef void (*invoke_fn)(entry_fn, const call_frame*, void* scratch, int64_t begin, int64_t end);

/* Evaluates generated integer texts into out; false if one overflows or divides by zero. */
typedef bool (*texts_fn)(const tilec_value* params, const int64_t* dims, int64_t* out);

typedef struct variant_record {
  tilec_variant info;
  const entry_fn* entries; /* one per launch, where its family has entries */
  invoke_fn invoke;        /* of the entries */
  void* code;              /* what its family launches it by, where it has none */
  texts_fn grids;          /* three extents per launch */
  texts_fn slice_bytes;    /* of dims alone; NULL without slices */
  uint64_t scratch_bytes;  /* per worker, the largest of its launches */
  uint32_t arch;           /* index into library_record.archs */
  uint32_t num_slices;
  texts_fn fits;     /* whether the code's indices hold what these dims make; NULL: always */
  const char* needs; /* the condition that `fits` evaluates */
  bool takes_num_sms; /* its code and texts take one value behind the dims: launch_dims */
} variant_record;

/* A variant as dispatch tries it, without a look at its record. Its guards are all of the variant's, none where
 * it demands no more than the pinned values that led to it. */
typedef struct candidate {
  uint32_t variant;     /* index into kernel_record.variants */
  uint32_t first_guard; /* index into kernel_record.guards */
  uint16_t num_guards;
  uint16_t last; /* of its bucket */
} candidate;

/* Variants of one architecture that pin the same dims. A perfect hash (hash and displace) of the pinned
 * values gives the bucket of variants that share them; without pins there is one bucket. */
typedef struct pin_set {
  const uint8_t* pins;           /* dim indices */
  const uint16_t* displacements; /* 1 << displacement_bits entries */
  const uint16_t* slots;         /* 1 << slot_bits buckets: their first candidates */
  const int64_t* keys;           /* the pinned values, per candidate; those of an empty slot match no dims */
  const candidate* candidates;   /* bucket by bucket, in dispatch order */
  uint32_t num_pins;
  uint8_t displacement_bits, slot_bits;
} pin_set;

typedef struct arch_table {
  const pin_set* sets;
  uint32_t num_sets;
} arch_table; /* most pins first */

typedef struct param_record {
  const tilec_param* info;
  uint32_t first_extent; /* into what kernel_record.extents writes */
  uint32_t first_stride; /* meaningful where info->strides is set */
} param_record;

/* How a dim is read from the arguments: (value - add) * div / mul of an extent, a stride or a scalar. */
enum { BIND_SHAPE, BIND_STRIDE, BIND_SCALAR, BIND_CONSTANT, BIND_NONE };
typedef struct dim_record {
  int64_t limit;         /* largest value that the kernel's index arithmetic holds */
  int64_t add, mul, div; /* BIND_CONSTANT: add is the value */
  uint32_t bind, param, axis;
  uint32_t reserved0;
} dim_record;

typedef struct kernel_record {
  tilec_kernel info;
  const variant_record* variants; /* dispatch order */
  const param_record* params;
  const dim_record* dims;
  const arch_table* tables; /* one per architecture of the library */
  const tilec_guard* guards; /* of all variants */
  texts_fn extents;
  uint64_t tensors; /* bit i: parameter i is a tensor; a warm call need not look at the parameters themselves */
  uint64_t dim_limit; /* the smallest of all dims' limits: a warm call need not look at the dims either */
  uint64_t overlapping; /* bit i: parameter i may share memory with the others that have a bit here */
} kernel_record;

typedef struct arch_record {
  const char* name;
  uint64_t needs;       /* feature bits of a CPU */
  uint32_t device_type; /* of its family */
  uint32_t facts[4];    /* what its family asks of a device, in its own terms */
} arch_record;

/* The architectures of the library that one device may run, best first; why none may, if so. */
typedef struct arch_list {
  uint32_t device_type;
  uint32_t count;
  tilec_status status;
  bool forced; /* TILEC_FORCE_VARIANT names variants */
  uint8_t archs[256];
  char reason[160];
} arch_list;

typedef struct library_record {
  tilec_library info;
  const kernel_record* kernels; /* sorted by name */
  const arch_record* archs;     /* best first */
  uint32_t num_archs;
} library_record;

/* Defined by the generated tables at the end of the translation unit. */
static const library_record this_library;

/* What the runtime does differently on the devices of one family. host.c has the one of CPUs; the generated tables
 * list the others that the library has code for in DEVICE_FAMILIES, as X(cuda), and bring what defines <name>_family. */
typedef struct device_family {
  const char *title, *word; /* "CUDA"; what messages call a device: "GPU" */
  uint32_t device_type;     /* of DLPack */
  bool host;                /* blocks run on threads of this process: the pool's or the caller's */
  uint32_t memory_align;    /* of workspaces and slices */
  uint32_t tensor_align;    /* of tensors' first elements; 0: that of their type */
  tilec_status (*archs)(int32_t device, const arch_list** out);
  int64_t (*units)(const tilec_exec* exec); /* multiprocessors of a device that `archs` has answered for; workers */
  tilec_status (*preload)(const kernel_record* only, int32_t device); /* NULL = every kernel */
  tilec_status (*run)(const kernel_record* kernel, const variant_record* variant, const arch_list* archs,
                      const tilec_exec* exec, const tilec_value* params, const int64_t* dims);
  void (*after_fork)(void); /* in the child; NULL where nothing is to do */
} device_family;
static const device_family cpu_family;
#define DECLARE_FAMILY(name) static const device_family name##_family;
#define X DECLARE_FAMILY
DEVICE_FAMILIES
#undef X
#undef DECLARE_FAMILY

/* ---- keep.c ---- */
typedef _Atomic(const char*) check_place; /* what a check of a call that failed says, NULL for none */

/* What this thread keeps; the pointers own memory of malloc, but for `check`. It is one object, so that a function
 * asks once where it lies, and of the dynamic kind: a process has few bytes for the static one, and any number of
 * libraries is to load. */
typedef struct thread_state {
  struct error_state* error; /* status.c */
  struct scratch_block* scratch; /* workspace.c */
#define X(name) void* name##_kept; /* of the family's files */
  DEVICE_FAMILIES
#undef X
  struct line_state* line; /* lines.c */
  check_place* check; /* lines.c: of the blocks that run on this thread */
  uint32_t task_depth; /* threads.c */
  bool failed; /* status.c */
  bool kept;
} thread_state;

static _Thread_local thread_state mine;

/* Has what `mine` owns freed at the end of this thread. Where the process has no key left for that it stays: a
 * leak of a thread that ends, and no failure of its call. */
LOCAL void thread_keep(void);

/* ---- status.c ---- */
LOCAL tilec_status fail(tilec_status status, const char* format, ...) PRINTF_LIKE(2, 3) __attribute__((cold));
LOCAL tilec_status fail_no_variant(const kernel_record* kernel, const int64_t* dims, const char* what);
LOCAL void text_append(char* out, size_t size, size_t* used, const char* format, ...) PRINTF_LIKE(4, 5);
LOCAL const char* last_error(void);
LOCAL const char* status_name(tilec_status status);
LOCAL void log_line(int level, const char* format, ...) PRINTF_LIKE(2, 3);
LOCAL bool log_enabled(void);
LOCAL void set_log(tilec_log_fn log, void* user);

/* ---- settings.c ---- */
enum { MAX_FORCED = 64 };
typedef struct settings {
  const char* cpu;      /* TILEC_CPU: the architecture to act as, NULL = the machine's own */
  uint32_t num_threads; /* TILEC_NUM_THREADS; 0 = every CPU this process may use */
  uint32_t num_forced;
  uint32_t forced[MAX_FORCED]; /* TILEC_FORCE_VARIANT: variant ids */
  arch_list cpu_archs; /* host.c */
} settings;
LOCAL const settings* settings_get(void); /* reads the environment once */

/* ---- cpu.c ---- */
LOCAL uint64_t cpu_detect(void);

/* ---- dispatch.c ---- */
typedef struct dispatch_query {
  const arch_list* archs; /* of the device */
  const int64_t* dims;
  const uint32_t* min_align; /* bytes per parameter; NULL = from params */
  const tilec_value* params; /* NULL = each parameter's align_bytes */
} dispatch_query;
LOCAL tilec_status dispatch(const kernel_record* kernel, const dispatch_query* query,
                            const variant_record** out);
LOCAL tilec_status check_archs(const char* name, const arch_list* archs); /* fails if the device runs none */
LOCAL bool arch_usable(const arch_list* archs, uint32_t arch);
LOCAL const char* device_word(uint32_t device_type);
LOCAL const variant_record* forced_variant(const kernel_record* kernel, const arch_list* archs);
LOCAL const tilec_guard* failing_guard(const kernel_record* kernel, const variant_record* variant,
                                       const dispatch_query* query);

/* ---- explain.c ---- */
LOCAL void describe_rejection(const kernel_record* kernel, const tilec_guard* guard,
                              const dispatch_query* query, char* out, size_t size);
LOCAL size_t dispatch_explain(const kernel_record* kernel, const dispatch_query* query, char* out,
                              size_t size);

/* ---- args.c ---- */
INLINE tilec_status check_dims(const kernel_record* kernel, const int64_t* dims);
/* That tensors are not NULL, unless empty, and aligned as the device wants them. */
INLINE tilec_status check_pointers(const kernel_record* kernel, DLDevice device, const tilec_value* params,
                                  const int64_t* dims);
LOCAL tilec_status all_extents(const kernel_record* kernel, const tilec_value* params, const int64_t* dims,
                               int64_t* extents);
/* What one argument says by itself: a scalar goes to out, a tensor is checked but for its extents. */
LOCAL tilec_status unpack_alone(const kernel_record* kernel, uint32_t index, DLDevice device,
                                const tilec_arg* arg, tilec_value* out);
LOCAL tilec_status bound_dims(const kernel_record* kernel, const tilec_arg* args, const tilec_value* params,
                              int64_t* dims); /* reads the arguments that dims are bound to alone */
LOCAL tilec_status given_dims(const kernel_record* kernel, const tilec_arg* dim_args, int64_t* dims);
LOCAL tilec_status unpack_args(const kernel_record* kernel, DLDevice device, const tilec_arg* args,
                               size_t num_args, tilec_value* params, int64_t* dims);

/* ---- overlap.c ---- */
LOCAL tilec_status check_overlap(const kernel_record* kernel, const tilec_value* params,
                                 const int64_t* extents);

/* ---- tensors.c ---- */
LOCAL bool has_elements(const param_record* param, const int64_t* extents);
LOCAL tilec_status fail_tag(const kernel_record* kernel, const tilec_param* param, int32_t tag);
LOCAL tilec_status check_tensor(const kernel_record* kernel, const tilec_param* param, DLDevice device,
                                const tilec_arg* arg);
LOCAL int64_t given_stride(const DLTensor* tensor, int32_t axis);
LOCAL tilec_status unpack_tensor(const kernel_record* kernel, const param_record* param, const tilec_arg* arg,
                                 const int64_t* extents, tilec_value* out);

/* ---- workspace.c ---- */
LOCAL bool round_up(uint64_t value, uint64_t multiple, uint64_t* out);
LOCAL void* scratch_reserve(uint64_t bytes); /* this thread's, grown on demand; NULL if there is no memory */
LOCAL tilec_status scratch_for(uint64_t bytes_per_worker, uint32_t workers, void** out);

/* ---- threads.c, pool.c, gomp.c ---- */
LOCAL bool threads_busy(void);        /* the caller is inside a parallel region */
LOCAL uint32_t threads_default(void); /* workers a call gets when it asks for none */
LOCAL void threads_rescan(void);      /* looks again for a GOMP that was loaded since */
LOCAL void threads_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure);
LOCAL bool threads_asleep(void); /* another thread would have to be woken first */
/* Around every piece of a launch in a library with CALLS_RUNTIME: the log that a kernel prints to is the one place
 * from which a call may come while blocks run on this thread, and such a call is serial. task_enter gives what task_leave takes. */
LOCAL check_place* task_enter(check_place* place);
LOCAL void task_leave(check_place* outer);
LOCAL void threads_once(void);

/* ---- pace.c: threads_run where that is worth it; `launch` tells launches apart ---- */
LOCAL void paced_run(const void* launch, uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                     void* closure);

/* ---- exec.c ---- */
INLINE tilec_status check_exec(const tilec_exec** exec); /* replaces NULL by the default */
INLINE const device_family* family_of(DLDevice device); /* that of CPUs for devices that no family has */
LOCAL bool uses_callers_threads(const tilec_exec* exec);
LOCAL uint32_t most_workers(const tilec_exec* exec); /* on a thread that may have workers beside it */
LOCAL uint32_t workers_of(const tilec_exec* exec);

/* ---- slices.c ---- */
/* The dims as the code and the texts of a variant take them. With takes_num_sms a copy in `room`, of MAX_DIMS, whose
 * last is the number of the device's multiprocessors, on a CPU of the workers that `exec` lets a call have: inside of
 * a parallel region too, so that a workspace measured there serves outside. */
LOCAL const int64_t* launch_dims(const kernel_record* kernel, const variant_record* variant,
                                 const tilec_exec* exec, const int64_t* dims, int64_t* room);
/* Where the slices lie in the workspace, and how long both are. */
typedef struct workspace_layout {
  uint64_t offsets[MAX_SLICES];
  uint64_t slices, total;
} workspace_layout;
LOCAL tilec_status measure(const kernel_record* kernel, const variant_record* variant, const tilec_exec* exec,
                           const int64_t* dims, workspace_layout* layout);
LOCAL tilec_status place_slices(const kernel_record* kernel, const variant_record* variant,
                                const tilec_exec* exec, const workspace_layout* layout, void** slices);
LOCAL tilec_status eval_grids(const kernel_record* kernel, const variant_record* variant,
                              const tilec_value* params, const int64_t* dims, int64_t* grids);

/* ---- host.c ---- */
LOCAL void cpu_find_archs(settings* into); /* once the rest of the settings is read */

/* ---- call.c ---- */
LOCAL tilec_status call_kernel(const kernel_record* kernel, const tilec_exec* exec, const tilec_value* params,
                               const int64_t* dims);
INLINE tilec_status call_checked(const kernel_record* kernel, const tilec_exec* exec,
                                const tilec_value* params, const int64_t* dims);
LOCAL tilec_status call_workspace_size(const kernel_record* kernel, const tilec_variant* variant,
                                       const tilec_exec* exec, const int64_t* dims, size_t* out);

/* ---- library.c ---- */
LOCAL tilec_status own_kernel(const tilec_kernel* kernel, const kernel_record** out);
LOCAL tilec_status own_variant(const kernel_record* kernel, const tilec_variant* variant,
                               const variant_record** out);
LOCAL tilec_status check_build(const char* build_id);

#endif
