/* The door of the tvm-ffi convention, behind the symbols __tvm_ffi_<library>_<kernel>.
 *
 * Nothing here links to libtvm_ffi. Its functions are looked up when a call needs them, so that it does not
 * matter which of the two libraries came into the process first. An argument that is an object keeps its
 * tensor behind the object's header. */
#include <stdatomic.h>
#include <stdlib.h>

#include "arguments/args.h"
#include "compiler.h"
#include "devices/family.h"
#include "dispatch/dispatch.h"
#include "dispatch/guards.h"
#include "doors.h"
#include "launch/call.h"
#include "launch/exec.h"
#include "launch/slices.h"
#include "records.h"
#include "status.h"
#include "system/system.h"

/* ---- what tvm-ffi's C ABI says of values; a value is laid out as a tilec_arg ---- */

typedef tilec_arg ffi_any;
enum { FFI_NONE = TILEC_ARG_NONE, FFI_TENSOR_POINTER = TILEC_ARG_TENSOR, FFI_TENSOR = 70 };

typedef struct ffi_tensor {
  uint64_t references;
  int32_t type_index;
  uint32_t reserved0;
  void (*deleter)(void* self, int flags);
  DLTensor tensor;
} ffi_tensor;
_Static_assert(offsetof(ffi_tensor, tensor) == 24, "the header of a tvm-ffi object has 24 bytes");

typedef struct ffi_text {
  const char* data;
  size_t size;
} ffi_text;

/* ---- its functions ---- */

enum {
  SET_ERROR,
  GET_STREAM,
  GET_ALLOCATOR,
  ALLOCATE,
  FROM_DLPACK,
  RELEASE,
  FIND_GLOBAL,
  CALL,
  NUM_FFI_FUNCTIONS
};
static const char* const ffi_names[NUM_FFI_FUNCTIONS] = {
    [SET_ERROR] = "TVMFFIErrorSetRaisedFromCStr",
    [GET_STREAM] = "TVMFFIEnvGetStream",
    [GET_ALLOCATOR] = "TVMFFIEnvGetDLPackManagedTensorAllocator",
    [ALLOCATE] = "TVMFFIEnvTensorAlloc",
    [FROM_DLPACK] = "TVMFFITensorFromDLPack",
    [RELEASE] = "TVMFFIObjectDecRef",
    [FIND_GLOBAL] = "TVMFFIFunctionGetGlobal",
    [CALL] = "TVMFFIFunctionCall",
};
typedef void (*set_error_fn)(const char* kind, const char* message);
typedef void* (*get_stream_fn)(int32_t device_type, int32_t device_id);
typedef void* (*get_allocator_fn)(void);
typedef int (*allocate_fn)(DLTensor* prototype, void** out);
typedef int (*from_dlpack_fn)(DLManagedTensor* from, int32_t align, int32_t contiguous, void** out);
typedef int (*release_fn)(void* object);
typedef int (*find_global_fn)(const ffi_text* name, void** out);
typedef int (*ffi_call_fn)(void* function, ffi_any* args, int32_t num_args, ffi_any* result);

static _Atomic(void*) ffi_functions[NUM_FFI_FUNCTIONS];

/* A program may also have linked its functions in. */
static void* ffi_find(int which) {
  const char* path;
  void* found = system_symbol(system_loaded(SYSTEM_TVM_FFI, &path), ffi_names[which]);
  atomic_store_explicit(&ffi_functions[which], found, memory_order_release);
  return found;
}

/* NULL where no tvm-ffi is in the process, or one without this function. */
static void* ffi_function(int which) {
  void* found = atomic_load_explicit(&ffi_functions[which], memory_order_acquire);
  return LIKELY(found != NULL) ? found : ffi_find(which);
}

static void ffi_release(void* object) {
  release_fn release = (release_fn)ffi_function(RELEASE);
  if (object && release) release(object);
}

/* ---- one call ---- */

enum { FFI_RAISED = -1 }; /* beside statuses: tvm-ffi has the error already */

typedef struct ffi_call {
  const kernel_record* kernel;
  uint64_t missing; /* bit i: parameter i is an output that this call allocates */
  size_t num_args;
  tilec_exec exec;
  tilec_value params[MAX_PARAMS];
  int64_t dims[MAX_DIMS];
  ffi_tensor* made[MAX_PARAMS];
  ffi_tensor* workspace;
  tilec_arg args[MAX_PARAMS + MAX_DIMS];
} ffi_call;

/* ---- arguments ---- */

static tilec_arg ffi_argument(const ffi_any* given) {
  tilec_arg arg = *given;
  if (given->tag == FFI_TENSOR) {
    arg.tag = TILEC_ARG_TENSOR;
    arg.v.tensor = &((ffi_tensor*)given->v.ptr)->tensor;
  }
  return arg;
}

/* All parameters, all of them and every dim, or all but the outputs. */
static tilec_status ffi_read(ffi_call* call, uint64_t outputs, const ffi_any* given, int32_t count) {
  const tilec_kernel* info = &call->kernel->info;
  uint32_t inputs = info->num_params - (uint32_t)__builtin_popcountll(outputs);
  bool all = count == (int64_t)info->num_params || count == (int64_t)info->num_params + info->num_dims;
  if (!all && count != (int64_t)inputs) {
    return fail(TILEC_ERR_ARGUMENT,
                "%s: got %d arguments, expected %u, %u with every dim, or %u with outputs left out",
                info->name, (int)count, info->num_params, info->num_params + info->num_dims, inputs);
  }
  call->num_args = all ? (size_t)count : info->num_params;
  for (uint32_t i = 0; i < call->num_args; i++) {
    bool output = i < info->num_params && (outputs >> i & 1);
    if (output && (!all || given->tag == FFI_NONE)) call->missing |= UINT64_C(1) << i;
    if (!output || all) call->args[i] = ffi_argument(given++);
  }
  return TILEC_OK;
}

static bool is_missing(const ffi_call* call, uint32_t param) { return call->missing >> param & 1; }

/* The device of the first tensor; the CPU for host memory and where there is none. */
static DLDevice ffi_device(const ffi_call* call) {
  for (uint64_t left = call->kernel->tensors & ~call->missing; left; left &= left - 1) {
    const tilec_arg* arg = &call->args[__builtin_ctzll(left)];
    if (arg->tag != TILEC_ARG_TENSOR || !arg->v.tensor) continue;
    if (arg->v.tensor->device.device_type == kDLCUDAHost) break;
    return arg->v.tensor->device;
  }
  return (DLDevice){kDLCPU, 0};
}

static tilec_status ffi_make_exec(ffi_call* call) {
  const tilec_exec* exec = &call->exec;
  call->exec.struct_size = sizeof(tilec_exec);
  call->exec.device = ffi_device(call);
  if (!family_of(call->exec.device)->host) {
    get_stream_fn get_stream = (get_stream_fn)ffi_function(GET_STREAM);
    DLDevice device = call->exec.device;
    if (get_stream) call->exec.stream = get_stream((int32_t)device.device_type, device.device_id);
  }
  return check_exec(&exec);
}

/* ---- memory ---- */

static void free_managed(DLManagedTensor* self) {
  system_free(self->manager_ctx);
  free(self);
}

/* Host memory of our own as a tensor object, where the environment has no allocator. */
static tilec_status ffi_make_on_host(const ffi_call* call, const DLTensor* prototype, uint64_t bytes,
                                     ffi_tensor** out) {
  const char* name = call->kernel->info.name;
  from_dlpack_fn from_dlpack = (from_dlpack_fn)ffi_function(FROM_DLPACK);
  size_t axes = (size_t)prototype->ndim;
  DLManagedTensor* managed = calloc(1, sizeof(*managed) + 2 * axes * sizeof(int64_t));
  void* memory = system_allocate(CPU_ALIGN, bytes ? (size_t)bytes : 1);
  if (!from_dlpack || !managed || !memory) {
    system_free(memory);
    free(managed);
    return fail(TILEC_ERR_ARGUMENT, "%s: there is no memory for an output of %llu bytes", name,
                (unsigned long long)bytes);
  }
  int64_t* shape = (int64_t*)(managed + 1);
  int64_t stride = 1;
  for (size_t axis = axes; axis-- > 0;) {
    shape[axis] = prototype->shape[axis];
    shape[axes + axis] = stride;
    stride *= shape[axis];
  }
  managed->dl_tensor = *prototype;
  managed->dl_tensor.data = memory;
  managed->dl_tensor.shape = shape;
  managed->dl_tensor.strides = shape + axes;
  managed->manager_ctx = memory;
  managed->deleter = free_managed;
  if (from_dlpack(managed, 0, 0, (void**)out) == 0) return TILEC_OK;
  free_managed(managed);
  return FFI_RAISED;
}

/* A contiguous tensor of the environment, which knows the framework that the arguments come from. */
static tilec_status ffi_make(const ffi_call* call, DLTensor* prototype, ffi_tensor** out) {
  uint64_t bytes = (prototype->dtype.bits + 7u) / 8u;
  for (int32_t axis = 0; axis < prototype->ndim; axis++) {
    int64_t extent = prototype->shape[axis];
    if (extent < 0 || __builtin_mul_overflow(bytes, (uint64_t)extent, &bytes) || bytes > SIZE_MAX / 2)
      return fail(TILEC_ERR_SHAPE, "%s: an output is too large for these dims", call->kernel->info.name);
  }
  get_allocator_fn get_allocator = (get_allocator_fn)ffi_function(GET_ALLOCATOR);
  if (get_allocator && get_allocator()) {
    allocate_fn allocate = (allocate_fn)ffi_function(ALLOCATE);
    return allocate(prototype, (void**)out) == 0 ? TILEC_OK : FFI_RAISED;
  }
  if (family_of(call->exec.device)->host) return ffi_make_on_host(call, prototype, bytes, out);
  return fail(
      TILEC_ERR_ARGUMENT,
      "%s needs memory on the device, and tvm-ffi has no allocator here: call it with torch tensors, or "
      "set one with TVMFFIEnvSetDLPackManagedTensorAllocator",
      call->kernel->info.name);
}

/* ---- outputs that were left out ---- */

static tilec_status check_bound(const ffi_call* call) {
  for (uint32_t i = 0; i < call->kernel->info.num_dims; i++) {
    const dim_record* dim = &call->kernel->dims[i];
    if ((dim->bind != BIND_SHAPE && dim->bind != BIND_STRIDE) || !is_missing(call, dim->param)) continue;
    return fail(TILEC_ERR_ARGUMENT,
                "%s: outputs alone show dim %s; pass them, or None in their places and every dim at the end",
                call->kernel->info.name, call->kernel->info.dim_names[i]);
  }
  return TILEC_OK;
}

static tilec_status read_dims(ffi_call* call) {
  const kernel_record* kernel = call->kernel;
  uint32_t num_params = kernel->info.num_params;
  tilec_status status = TILEC_OK;
  for (uint32_t i = 0; status == TILEC_OK && i < num_params; i++) {
    if (!is_missing(call, i))
      status = unpack_alone(kernel, i, call->exec.device, &call->args[i], &call->params[i]);
  }
  if (status != TILEC_OK) return status;
  if (call->num_args > num_params) {
    status = given_dims(kernel, call->args + num_params, call->dims);
  } else {
    status = check_bound(call);
    if (status == TILEC_OK) status = bound_dims(kernel, call->args, call->params, call->dims);
  }
  return status == TILEC_OK ? check_dims(kernel, call->dims) : status;
}

static tilec_status make_outputs(ffi_call* call) {
  int64_t extents[MAX_EXTENTS];
  tilec_status status = read_dims(call);
  if (status == TILEC_OK) status = all_extents(call->kernel, call->params, call->dims, extents);
  for (uint64_t left = call->missing; status == TILEC_OK && left; left &= left - 1) {
    int i = __builtin_ctzll(left);
    const param_record* param = &call->kernel->params[i];
    DLTensor prototype = {.device = call->exec.device,
                          .ndim = param->info->ndim,
                          .dtype = param->info->dtype,
                          .shape = extents + param->first_extent};
    status = ffi_make(call, &prototype, &call->made[i]);
    if (status != TILEC_OK) return status;
    call->args[i] = (tilec_arg){.tag = TILEC_ARG_TENSOR, .v.tensor = &call->made[i]->tensor};
  }
  return status;
}

/* ---- the workspace ---- */

static tilec_status ffi_place_workspace(ffi_call* call, uint64_t bytes) {
  uint64_t align = family_of(call->exec.device)->memory_align;
  int64_t extent = (int64_t)(bytes + align);
  DLTensor prototype = {.device = call->exec.device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &extent};
  tilec_status status = ffi_make(call, &prototype, &call->workspace);
  if (status != TILEC_OK) return status;
  const DLTensor* tensor = &call->workspace->tensor;
  uintptr_t address = (uintptr_t)tensor->data + tensor->byte_offset;
  call->exec.workspace = (void*)((address + align - 1) / align * align);
  call->exec.workspace_size = (size_t)bytes;
  return TILEC_OK;
}

/* Fixes the variant, since the size depends on it and alignments decide among variants. */
static tilec_status make_workspace(ffi_call* call) {
  const variant_record* variant;
  workspace_layout layout;
  int64_t room[MAX_DIMS];
  dispatch_query query = {.exec = &call->exec, .dims = call->dims, .params = call->params};
  DLDevice device = call->exec.device;
  tilec_status status = family_of(device)->archs(device.device_id, &query.archs);
  if (status != TILEC_OK) return status;
  status = dispatch(call->kernel, &query, &variant);
  if (status != TILEC_OK) return status;
  call->exec.variant = &variant->info;
  status = measure(call->kernel, variant, &call->exec,
                   launch_dims(call->kernel, variant, &call->exec, call->dims, room), &layout);
  return status == TILEC_OK && layout.total ? ffi_place_workspace(call, layout.total) : status;
}

/* ---- results and errors ---- */

/* Several outputs are an Array, whose constructor is a function of tvm-ffi's registry. */
static tilec_status pack_results(ffi_call* call, ffi_any* results, int32_t count, ffi_any* out) {
  static const ffi_text name = {"ffi.Array", 9};
  find_global_fn find_global = (find_global_fn)ffi_function(FIND_GLOBAL);
  ffi_call_fn call_function = (ffi_call_fn)ffi_function(CALL);
  void* make_array = NULL;
  if (!find_global || !call_function || find_global(&name, &make_array) != 0) return FFI_RAISED;
  if (!make_array)
    return fail(TILEC_ERR_INTERNAL, "%s: tvm-ffi has no function ffi.Array", call->kernel->info.name);
  int result = call_function(make_array, results, count, out);
  ffi_release(make_array);
  return result == 0 ? TILEC_OK : FFI_RAISED;
}

static tilec_status give_results(ffi_call* call, ffi_any* out) {
  ffi_any results[MAX_PARAMS];
  int32_t count = 0;
  for (uint64_t left = call->missing; left; left &= left - 1)
    results[count++] = (ffi_any){.tag = FFI_TENSOR, .v.ptr = call->made[__builtin_ctzll(left)]};
  if (count > 1) return pack_results(call, results, count, out);
  if (count == 0) return TILEC_OK;
  *out = results[0];
  call->made[__builtin_ctzll(call->missing)] = NULL; /* the caller's now */
  return TILEC_OK;
}

static const char* error_kind(tilec_status status) {
  switch (status) {
    case TILEC_ERR_ARGUMENT:
    case TILEC_ERR_DTYPE: return "TypeError";
    case TILEC_ERR_SHAPE:
    case TILEC_ERR_LAYOUT:
    case TILEC_ERR_DEVICE:
    case TILEC_ERR_NO_ARCH:
    case TILEC_ERR_NO_VARIANT: return "ValueError";
    default: return "RuntimeError";
  }
}

static void ffi_raise(tilec_status status) {
  char message[1200];
  size_t used = 0;
  set_error_fn set_error = (set_error_fn)ffi_function(SET_ERROR);
  if (status == FFI_RAISED || !set_error) return;
  text_append(message, sizeof(message), &used, "%s [%s]", tilec_last_error(), tilec_status_name(status));
  set_error(error_kind(status), message);
}

/* ---- the door ---- */

static tilec_status ffi_run(ffi_call* call, bool workspace) {
  const kernel_record* kernel = call->kernel;
  tilec_status status = ffi_make_exec(call);
  if (status == TILEC_OK && call->missing) status = make_outputs(call);
  if (status != TILEC_OK) return status;
  status = unpack_args(kernel, call->exec.device, call->args, call->num_args, call->params, call->dims);
  if (status != TILEC_OK) return status;
  status = check_pointers(kernel, call->exec.device, call->params, call->dims);
  if (status != TILEC_OK) return status;
  if (workspace) status = make_workspace(call);
  return status == TILEC_OK ? call_checked(kernel, &call->exec, call->params, call->dims) : status;
}

LINKED int tilec_call_tvm_ffi(const kernel_record* kernel, uint64_t outputs, bool workspace,
                              const ffi_any* args, int32_t num_args, ffi_any* result) {
  ffi_call call;
  call.kernel = kernel;
  call.missing = 0;
  call.workspace = NULL;
  call.exec = (tilec_exec){0};
  for (uint64_t left = outputs; left; left &= left - 1) call.made[__builtin_ctzll(left)] = NULL;
  *result = (ffi_any){.tag = FFI_NONE};
  tilec_status status = ffi_read(&call, outputs, args, num_args);
  if (status == TILEC_OK) status = ffi_run(&call, workspace);
  if (status == TILEC_OK) status = give_results(&call, result);
  ffi_release(call.workspace);
  for (uint64_t left = call.missing; left; left &= left - 1) ffi_release(call.made[__builtin_ctzll(left)]);
  if (LIKELY(status == TILEC_OK)) return 0;
  ffi_raise(status);
  return -1;
}
