/* tilec.h: hand-written, the same for every library tilec builds. Compiles as C11 and C++17.
 *
 * Ownership: everything reached through tilec_library is static const data that lives as long as the process.
 * Arguments, tensors and workspaces belong to the caller and are only borrowed for the call.
 *
 * Threads: every function may be called from any thread at any time. Two calls must not share a workspace.
 *
 * Environment, read once at the first call and ignored under setuid:
 *   TILEC_CPU            act as this architecture of the library ("x86-64-v3"): no better code is used
 *   TILEC_FORCE_VARIANT  variant ids with commas: a kernel that has one of them uses no other
 *   TILEC_NUM_THREADS    size of the default pool, 1 to 1024
 *   TILEC_LOG            error, warn, info or debug: messages to stderr
 *
 * Growing: structs with struct_size grow at their end only, and never inside tail padding: all padding is
 * spelled out, and a static assertion holds sizeof(T) equal to the end of its last field. */
#ifndef TILEC_TILEC_H_
#define TILEC_TILEC_H_
#include <dlpack/dlpack.h>          /* a build installs it as include/dlpack/dlpack.h, from the apache-tvm-ffi package */
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TILEC_ABI_VERSION 1u        /* bumped only for a breaking change; also the number in the SONAME */
#define TILEC_FIELD_PRESENT(p, T, f) ((p)->struct_size >= offsetof(T, f) + sizeof((p)->f))
#if defined(__cplusplus)
#define TILEC_ASSERT_NO_TAIL_PADDING(T, f) \
  static_assert(sizeof(T) == offsetof(T, f) + sizeof(((T *)0)->f), #T " has tail padding")
#else
#define TILEC_ASSERT_NO_TAIL_PADDING(T, f) \
  _Static_assert(sizeof(T) == offsetof(T, f) + sizeof(((T *)0)->f), #T " has tail padding")
#endif
#if defined(__GNUC__)
#define TILEC_EXPORT __attribute__((visibility("default")))
#else
#define TILEC_EXPORT
#endif

/* Values are never renumbered or reused. 0 = success. 1 to 59: nothing was launched. 60 and up: work began,
 * outputs are undefined. */
typedef int32_t tilec_status;
enum {
  TILEC_OK = 0,
  TILEC_ERR_ARGUMENT = 1,        /* NULL, wrong count, wrong kind */
  TILEC_ERR_DTYPE = 2,
  TILEC_ERR_SHAPE = 3,           /* dims disagree between arguments, or an extent is negative or too large */
  TILEC_ERR_LAYOUT = 4,          /* stride, alignment (on CUDA tensors start at multiples of 16 bytes), byte_offset */
  TILEC_ERR_DEVICE = 5,          /* arguments, stream or context not on exec->device; CUDA used in a forked child */
  TILEC_ERR_ABI = 6,             /* struct_size, ABI version or build id not understood */
  TILEC_ERR_WORKSPACE = 7,       /* missing, too small, misaligned, or its size overflows */
  TILEC_ERR_NO_ARCH = 20,        /* library has no code for this device */
  TILEC_ERR_NO_VARIANT = 21,     /* no variant of any usable architecture admits these dims */
  TILEC_ERR_NO_DRIVER = 40,      /* libcuda.so.1 not found */
  TILEC_ERR_DRIVER_TOO_OLD = 41, /* a needed driver entry point or PTX version is missing */
  TILEC_ERR_DRIVER = 42,         /* CUresult text is in last_error() */
  TILEC_ERR_NOT_PRELOADED = 43,  /* would load a module while the stream is capturing */
  TILEC_ERR_PARTIAL = 60,        /* a later launch or the caller's parallel_for failed */
  TILEC_ERR_ASSERT = 61,         /* a device_assert of the kernel failed (CPU) */
  TILEC_ERR_INTERNAL = 99
};

/* ---- arguments: layout-identical to TVMFFIAny for these tags ---- */
enum { TILEC_ARG_NONE = 0, TILEC_ARG_INT = 1, TILEC_ARG_BOOL = 2, TILEC_ARG_FLOAT = 3, TILEC_ARG_PTR = 4, TILEC_ARG_TENSOR = 7 };
typedef struct tilec_arg {
  int32_t tag;
  uint32_t reserved0; /* 0 */
  union { int64_t i; double f; void* ptr; DLTensor* tensor; } v;
} tilec_arg;
TILEC_ASSERT_NO_TAIL_PADDING(tilec_arg, v);

/* ---- how one call runs ---- */

/* Runs iterations [begin, end). worker < exec->num_workers, and no worker number is used by two threads at
 * once within one call: it addresses scratch. */
typedef void (*tilec_task)(void* closure, uint32_t worker, int64_t begin, int64_t end);

/* Runs task over [0, n), each iteration once, in pieces of about `grain`, and returns after the last one.
 * Anything but TILEC_OK means that some iterations did not run: the call then fails with TILEC_ERR_PARTIAL. */
typedef tilec_status (*tilec_parallel_for)(void* pool, int64_t n, int64_t grain, tilec_task task, void* closure);
typedef struct tilec_kernel tilec_kernel;
typedef struct tilec_variant tilec_variant;
enum { TILEC_EXEC_SERIAL = 1u };   /* CPU: run on the calling thread alone */

/* NULL instead of a tilec_exec means: CPU, the default pool, all its threads, no workspace. Set struct_size to
 * sizeof(tilec_exec) and the fields that are not used to 0. */
typedef struct tilec_exec {
  uint32_t struct_size;
  uint32_t flags;                  /* TILEC_EXEC_* */
  DLDevice device;
  void* stream;                    /* CUstream; NULL = legacy default stream */
  void* workspace;                 /* caller's; aligned to 64 bytes on CPU, 256 on CUDA; contents never matter */
  size_t workspace_size;
  tilec_parallel_for parallel_for; /* CPU only; NULL = the library's default pool */
  void* pool;                      /* first argument of parallel_for */
  const tilec_variant* variant;    /* from select(); NULL = dispatch on this call; its guards are checked again either way */
  uint32_t num_workers;            /* threads this call may use; 0 = the pool's size, which is the most; required with parallel_for */
  uint32_t reserved0;
} tilec_exec;
TILEC_ASSERT_NO_TAIL_PADDING(tilec_exec, reserved0);

/* ---- introspection: static const data, process lifetime ---- */
typedef enum { TILEC_GUARD_EQ, TILEC_GUARD_DIV, TILEC_GUARD_MIN, TILEC_GUARD_MAX, TILEC_GUARD_ALIGN } tilec_guard_kind;
typedef struct tilec_guard { uint32_t kind; uint32_t index; int64_t value; } tilec_guard; /* frozen; index = dim, or param for ALIGN */
/* One device launch. A kernel with several T.Kernel blocks has several, run in order on one stream. */
typedef struct tilec_launch_info {
  uint32_t struct_size;
  uint32_t block[3], cluster[3];
  uint32_t smem_static, smem_dynamic, registers, num_tensor_maps;
  uint32_t reserved0;
  const char* image_sha256;
  uint64_t scratch_bytes;          /* CPU: per worker */
} tilec_launch_info;
TILEC_ASSERT_NO_TAIL_PADDING(tilec_launch_info, scratch_bytes);
struct tilec_variant {
  uint32_t struct_size;
  uint32_t id;                     /* unique in the library and stable inside one build; used by TILEC_FORCE_VARIANT */
  const char* arch;                /* "sm_90a", "sm_80", "compute_80", "x86-64-v4+avx512bf16" */
  uint32_t num_guards;             /* 0 = admits every value of the open dims */
  uint32_t num_launches;
  const tilec_guard* guards;
  const tilec_launch_info* const* launches;
  const char* config_json;         /* tile sizes, stages, warps, how it was chosen */
};
TILEC_ASSERT_NO_TAIL_PADDING(tilec_variant, config_json);
typedef enum { TILEC_IN, TILEC_OUT, TILEC_INOUT } tilec_access;
enum { TILEC_EXTENT_CONSTANT = -1, TILEC_EXTENT_TEXT = -2 };
/* frozen; dim >= 0: that dim; TILEC_EXTENT_CONSTANT: value; TILEC_EXTENT_TEXT: an expression, see shape_text */
typedef struct tilec_extent { int32_t dim; uint32_t reserved0; int64_t value; } tilec_extent;
typedef struct tilec_param {
  uint32_t struct_size;
  int32_t tag;                     /* TILEC_ARG_* */
  const char* name;
  uint32_t access;
  DLDataType dtype;
  int32_t ndim;
  uint32_t align_bytes;            /* of the base address: required by every variant, assumed by select() */
  const tilec_extent* shape;
  const tilec_extent* strides;     /* in elements; NULL = row-major contiguous */
  const char* const* shape_text;   /* the extents over dim names: "M", "K // 2" */
  const char* const* stride_text;  /* NULL where strides is */
} tilec_param;
TILEC_ASSERT_NO_TAIL_PADDING(tilec_param, stride_text);
struct tilec_kernel {
  uint32_t struct_size;
  uint32_t num_params, num_dims, num_variants;
  const char* name;
  const char* doc;
  const tilec_param* const* params;      /* arrays of pointers: element structs may grow */
  const char* const* dim_names;
  const tilec_variant* const* variants;  /* in dispatch order */
};
TILEC_ASSERT_NO_TAIL_PADDING(tilec_kernel, variants);

/* ---- the whole library behind one symbol ---- */
enum { TILEC_LOG_ERROR = 0, TILEC_LOG_WARN = 1, TILEC_LOG_INFO = 2, TILEC_LOG_DEBUG = 3 };
typedef void (*tilec_log_fn)(void* user, int level, const char* message);
typedef struct tilec_library {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* name;
  const char* version;
  const char* build_id;            /* hash of manifest + sources + compiler versions */
  const char* metadata_json;       /* the JSON inside ELF section .tilec.meta; not NUL-terminated */
  size_t metadata_json_size;
  size_t num_kernels;
  const tilec_kernel* const* kernels;    /* sorted by name */

  /* NULL if there is no kernel of that name (without the library's prefix). */
  const tilec_kernel* (*find)(const char* name);

  /* Makes the first call on this device and thread as cheap as the later ones: reads the environment, finds the
   * thread pool, reserves scratch, loads images. NULL = every kernel. */
  tilec_status (*preload)(const tilec_kernel* kernel_or_null, DLDevice device);

  /* The variant that would serve these dims. min_align: bytes per parameter, or NULL to assume each
   * parameter's align_bytes. */
  tilec_status (*select)(const tilec_kernel*, DLDevice, const int64_t* dims, const uint32_t* min_align, const tilec_variant** out);

  /* One line per candidate in dispatch order: taken, or why not. snprintf-like: returns the size wanted. */
  size_t (*explain)(const tilec_kernel*, DLDevice, const int64_t* dims, const uint32_t* min_align, char* out, size_t size);

  /* Bytes that exec->workspace must have; variant NULL = the one that select() gives. The answer depends on
   * exec: under a parallel_for it includes num_workers times the scratch of one worker. */
  tilec_status (*workspace_size)(const tilec_kernel*, const tilec_variant*, const tilec_exec*, const int64_t* dims, size_t* out);

  /* args: one per parameter in kernel order (tensors as DLTensor, scalars by value). The dims are read from the
   * tensors' shapes. A caller may append every dim as TILEC_ARG_INT (num_params + num_dims arguments), and must
   * when a dim cannot be read from any shape. Everything is validated before anything runs. */
  tilec_status (*launch)(const tilec_kernel*, const tilec_exec*, const tilec_arg* args, size_t num_args);
  const char* (*last_error)(void); /* this thread's last failure; "" if none; valid until its next failing call */
  const char* (*status_name)(tilec_status);
  void (*set_log)(tilec_log_fn, void* user); /* NULL = silent, the default; not while other threads call */
} tilec_library;
TILEC_ASSERT_NO_TAIL_PADDING(tilec_library, set_log);

/* NULL if this library needs a newer ABI than the caller knows. For dlsym() on one library's handle; programs
 * that link libraries call <name>_library() and <name>_last_error(), which never collide. */
typedef const tilec_library* (*tilec_library_query_fn)(uint32_t max_abi_version);
#define TILEC_LIBRARY_QUERY_SYMBOL "tilec_library_query"

#ifdef __cplusplus
}
#endif
#endif
