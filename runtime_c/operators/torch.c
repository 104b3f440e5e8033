/* The kernels of a library as operators of torch, through the library's generic door, for processes without
 * Python: an AOTInductor package, or a C++ program. The build writes the table of operators and includes this
 * behind it. Loading the library registers them; the schemas are those of the Python package. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "operators.h"
#include "torch_api.h"

enum { TORCH_MESSAGE_SIZE = 512 };

static torch_api torch;
static int32_t torch_dtypes[NUM_DTYPES];

/* ---- finding torch in this process ---- */

#ifdef _WIN32
static void* torch_module(const char* name) {
  char file[64];
  snprintf(file, sizeof(file), "%s.dll", name);
  return (void*)GetModuleHandleA(file);
}
static void* torch_symbol(void* module, const char* name) {
  return (void*)GetProcAddress((HMODULE)module, name);
}
#else
static void* torch_module(const char* name) {
  char file[64];
#ifdef __APPLE__
  snprintf(file, sizeof(file), "@rpath/lib%s.dylib", name);
#else
  snprintf(file, sizeof(file), "lib%s.so", name);
#endif
  void* module = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  return module != NULL ? module : RTLD_DEFAULT;
}
static void* torch_symbol(void* module, const char* name) { return dlsym(module, name); }
#endif

static bool torch_find(void) {
  void* module = torch_module("torch_cpu");
  bool ok = true;
#define TORCH_FIND(result, name, parameters)                               \
  *(void**)(void*)&torch.name = torch_symbol(module, "aoti_torch_" #name); \
  if (torch.name == NULL) ok = false;
  TORCH_FUNCTIONS(TORCH_FIND)
  for (int i = 0; ok && i < NUM_DTYPES; i++) {
    char name[64];
    int32_t (*dtype)(void) = NULL;
    snprintf(name, sizeof(name), "aoti_torch_dtype_%s", torch_dtype_names[i]);
    *(void**)(void*)&dtype = torch_symbol(module, name);
    ok = dtype != NULL;
    if (ok) torch_dtypes[i] = dtype();
  }
  void* cuda = torch_module("torch_cuda");
  *(void**)(void*)&torch.get_current_cuda_stream = torch_symbol(cuda, "aoti_torch_get_current_cuda_stream");
  return ok;
}

/* ---- one call ---- */

typedef struct torch_run {
  const torch_op* op;
  op_call call;
  tilec_exec exec;
  torch_tensor* inputs[MOST_PARAMS];
  torch_tensor* outputs[MOST_PARAMS];
  torch_tensor* workspace;
  char message[TORCH_MESSAGE_SIZE];
} torch_run;

static bool torch_fail(torch_run* run, const char* what, const char* why) {
  snprintf(run->message, sizeof(run->message), "%s: %s%s", run->op->table.name, what, why);
  return false;
}

/* Arguments as the schema has them: parameters that are no outputs, then dims that no input shows. */
static void torch_take(torch_run* run, const uint64_t* stack) {
  op_call* call = &run->call;
  for (uint32_t i = 0; i < call->kernel->num_params; i++) {
    const tilec_param* param = call->kernel->params[i];
    if (param->tag == TILEC_ARG_TENSOR) {
      if (run->op->table.params[i].is_input) run->inputs[i] = (torch_tensor*)(uintptr_t)*stack++;
      continue;
    }
    call->args[i].tag = param->tag;
    if (param->tag == TILEC_ARG_FLOAT)
      memcpy(&call->args[i].v.f, stack++, sizeof(double));
    else
      call->args[i].v.i = param->tag == TILEC_ARG_BOOL ? (int64_t)(*stack++ & 1) : (int64_t)*stack++;
  }
  for (uint32_t i = 0; i < call->kernel->num_dims; i++)
    if (run->op->table.dims[i].source == DIM_GIVEN) call->dims[i] = (int64_t)*stack++;
}

static DLDevice torch_device(torch_tensor* tensor) {
  int32_t type = 0, index = 0;
  torch.get_device_type(tensor, &type);
  torch.get_device_index(tensor, &index);
  if (type != torch.device_type_cuda()) return (DLDevice){kDLCPU, 0};
  return (DLDevice){kDLCUDA, index};
}

static bool torch_read(torch_run* run, uint32_t param) {
  const char* name = run->call.kernel->params[param]->name;
  torch_tensor* given = run->inputs[param];
  DLTensor* tensor = &run->call.tensors[param];
  int64_t axes = 0, *sizes = NULL;
  int32_t dtype = -1;
  torch.get_dim(given, &axes);
  torch.get_dtype(given, &dtype);
  if (axes != tensor->ndim) return torch_fail(run, name, " has another number of axes than the kernel's");
  if (dtype != torch_dtypes[run->op->dtypes[param]])
    return torch_fail(run, name, " has another element type than the kernel's");
  torch.get_sizes(given, &sizes);
  memcpy(tensor->shape, sizes, (size_t)axes * sizeof(int64_t));
  torch.get_strides(given, &tensor->strides);
  torch.get_data_ptr(given, &tensor->data);
  tensor->device = torch_device(given);
  return true;
}

static bool torch_read_all(torch_run* run) {
  for (uint32_t i = 0; i < run->call.kernel->num_params; i++)
    if (run->inputs[i] != NULL && !torch_read(run, i)) return false;
  return true;
}

/* Where the call runs: with its first tensor. */
static bool torch_place(torch_run* run) {
  run->exec = (tilec_exec){.struct_size = sizeof(tilec_exec), .device = {kDLCPU, 0}};
  for (uint32_t i = 0; i < run->call.kernel->num_params; i++)
    if (run->inputs[i] != NULL) {
      run->exec.device = torch_device(run->inputs[i]);
      break;
    }
  if (run->exec.device.device_type != kDLCUDA) return true;
  if (torch.get_current_cuda_stream == NULL) return torch_fail(run, "this torch has no CUDA", "");
  return torch.get_current_cuda_stream(run->exec.device.device_id, &run->exec.stream) == 0 ||
         torch_fail(run, "torch gave no CUDA stream", "");
}

static bool torch_make(torch_run* run, int64_t axes, const int64_t* extents, int32_t dtype,
                       torch_tensor** out) {
  int64_t strides[MOST_AXES];
  int64_t product = 1;
  for (int64_t axis = axes - 1; axis >= 0; axis--) {
    strides[axis] = product;
    product *= extents[axis] > 0 ? extents[axis] : 1;
  }
  const bool is_cpu = run->exec.device.device_type == kDLCPU;
  const int32_t type = is_cpu ? 0 : torch.device_type_cuda(), index = run->exec.device.device_id;
  return torch.empty_strided(axes, extents, strides, dtype, type, index, out) == 0 ||
         torch_fail(run, "torch could not make a tensor", "");
}

static bool torch_make_outputs(torch_run* run) {
  for (uint32_t i = 0; i < run->call.kernel->num_params; i++) {
    DLTensor* tensor = &run->call.tensors[i];
    if (run->call.kernel->params[i]->tag != TILEC_ARG_TENSOR || run->inputs[i] != NULL) continue;
    const int32_t dtype = torch_dtypes[run->op->dtypes[i]];
    if (!torch_make(run, tensor->ndim, tensor->shape, dtype, &run->outputs[i])) return false;
    torch.get_data_ptr(run->outputs[i], &tensor->data);
    tensor->device = run->exec.device;
  }
  return true;
}

/* At a multiple of how many bytes a parameter begins, of those that a guard asks for; of a scalar any. */
static uint32_t torch_alignment(const op_call* call, uint32_t param) {
  const uint64_t bits = (uint64_t)(uintptr_t)call->tensors[param].data | UINT64_C(1) << 31;
  return (uint32_t)(bits & -bits);
}

/* The variant that serves the call from where its tensors begin: of that one a workspace is asked. */
static tilec_status torch_select(const tilec_library* library, torch_run* run) {
  const op_call* call = &run->call;
  uint32_t aligned[MOST_PARAMS];
  for (uint32_t i = 0; i < call->kernel->num_params; i++) aligned[i] = torch_alignment(call, i);
  return library->select(call->kernel, run->exec.device, call->dims, aligned, &run->exec.variant);
}

static bool torch_launch(torch_run* run) {
  const tilec_library* library = op_library();
  const op_call* call = &run->call;
  size_t bytes = 0;
  if (torch_select(library, run) != TILEC_OK)
    return torch_fail(run, "no variant serves it: ", library->last_error());
  if (library->workspace_size(call->kernel, NULL, &run->exec, call->dims, &bytes) != TILEC_OK)
    return torch_fail(run, "its workspace has no size: ", library->last_error());
  const int64_t extent = (int64_t)bytes;
  if (bytes != 0) {
    if (!torch_make(run, 1, &extent, torch_dtypes[DTYPE_UINT8], &run->workspace)) return false;
    torch.get_data_ptr(run->workspace, &run->exec.workspace);
    run->exec.workspace_size = bytes;
  }
  if (op_launch(library, call, &run->exec) == TILEC_OK) return true;
  snprintf(run->message, sizeof(run->message), "%s", library->last_error()); /* begins with the kernel */
  return false;
}

static bool torch_try(torch_run* run) {
  op_begin(&run->call, (DLDevice){kDLCPU, 0});
  if (!torch_read_all(run) || !torch_place(run)) return false;
  if (!op_dims(&run->call)) return torch_fail(run, "the extents of its outputs have no value", "");
  return torch_make_outputs(run) && torch_launch(run);
}

static void torch_release(torch_tensor* tensor) {
  if (tensor != NULL) torch.delete_tensor_object(tensor);
}

/* Frames of this file are unwound: torch throws what `check` is told. */
static void torch_call(const torch_op* op, uint64_t* stack) {
  torch_run run = {.op = op, .call = {.op = &op->table, .kernel = op_library()->find(op->table.name)}};
  torch_take(&run, stack);
  const bool ok = torch_try(&run);
  for (uint32_t i = 0; i < run.call.kernel->num_params; i++) {
    torch_release(run.inputs[i]);
    if (!ok) torch_release(run.outputs[i]);
    if (ok && run.outputs[i] != NULL) *stack++ = (uint64_t)(uintptr_t)run.outputs[i];
  }
  torch_release(run.workspace);
  if (!ok) torch.check(false, op->table.name, op_domain, 0, run.message);
}
