/* The kernels of a library as operators of ONNX Runtime on CPUs, through the library's generic door. The
 * build writes the table of operators and includes this behind it. What is read and written comes in and goes
 * out; scalars and given dims are attributes. Calls run on the session's threads. Whatever is wrong with
 * shapes the door says. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <unistd.h>
#endif

#include "onnxruntime_api.h"
#include "operators.h"

enum { MESSAGE_SIZE = 512, WORKSPACE_ALIGN = 64 };

/* One node of a model: what its calls begin with, the scalars and the dims that its attributes say. */
typedef struct ort_node {
  const OrtApi* api;
  uint32_t num_workers; /* asking the system again for each call would read files */
  op_call begin;
} ort_node;

typedef struct ort_call {
  const ort_node* node;
  OrtKernelContext* context;
  op_call call;
} ort_call;

#define TRY(expression)                  \
  do {                                   \
    OrtStatus* status_ = (expression);   \
    if (status_ != NULL) return status_; \
  } while (0)

static OrtStatus* ort_failure(const OrtApi* api, const op_table* op, const char* what, const char* why) {
  char message[MESSAGE_SIZE];
  snprintf(message, sizeof(message), "%s: %s%s%s", op->name, what, *why ? ": " : "", why);
  return api->CreateStatus(ORT_INVALID_ARGUMENT, message);
}

/* ---- what ONNX Runtime asks of an operator ---- */

/* An operator as ONNX Runtime has it, which hands back pointers to its first member. */
typedef struct ort_registered {
  OrtCustomOp base;
  const ort_op* op;
} ort_registered;

static const ort_op* ort_of(const OrtCustomOp* base) {
  return ((const ort_registered*)(const void*)base)->op;
}
static const char* ort_name(const OrtCustomOp* base) { return ort_of(base)->table.name; }
static const char* ort_provider(const OrtCustomOp* base) { return (void)base, NULL; }
static size_t ort_num_inputs(const OrtCustomOp* base) { return ort_of(base)->num_inputs; }
static size_t ort_num_outputs(const OrtCustomOp* base) { return ort_of(base)->num_outputs; }
static int ort_input_type(const OrtCustomOp* base, size_t index) { return ort_of(base)->input_types[index]; }
static int ort_output_type(const OrtCustomOp* base, size_t index) {
  return ort_of(base)->output_types[index];
}
static int ort_zero(const OrtCustomOp* base, size_t index) { return (void)base, (void)index, 0; }
static int ort_one(const OrtCustomOp* base) { return (void)base, 1; }
static int ort_any_version(const OrtCustomOp* base) { return (void)base, INT32_MAX; }

/* ---- nodes ---- */

/* An attribute; where there is none, the default if there is one. */
static OrtStatus* ort_int(const ort_node* node, const OrtKernelInfo* info, const char* name,
                          const int64_t* otherwise, int64_t* out) {
  OrtStatus* missing = node->api->KernelInfoGetAttribute_int64(info, name, out);
  if (missing == NULL) return NULL;
  node->api->ReleaseStatus(missing);
  if (otherwise == NULL) return ort_failure(node->api, node->begin.op, "it needs an integer attribute", name);
  *out = *otherwise;
  return NULL;
}

static OrtStatus* ort_float(const ort_node* node, const OrtKernelInfo* info, const char* name,
                            const double* otherwise, double* out) {
  float value = 0;
  OrtStatus* missing = node->api->KernelInfoGetAttribute_float(info, name, &value);
  if (missing == NULL) return *out = value, NULL;
  node->api->ReleaseStatus(missing);
  if (otherwise == NULL) return ort_failure(node->api, node->begin.op, "it needs a float attribute", name);
  *out = *otherwise;
  return NULL;
}

static OrtStatus* ort_attributes(ort_node* node, const OrtKernelInfo* info) {
  op_call* begin = &node->begin;
  for (uint32_t i = 0; i < begin->kernel->num_params; i++) {
    const tilec_param* param = begin->kernel->params[i];
    const op_param* known = &begin->op->params[i];
    tilec_arg* arg = &begin->args[i];
    arg->tag = param->tag;
    if (param->tag == TILEC_ARG_TENSOR) continue;
    if (param->tag == TILEC_ARG_FLOAT)
      TRY(ort_float(node, info, param->name, known->has_default ? &known->float_default : NULL, &arg->v.f));
    else
      TRY(ort_int(node, info, param->name, known->has_default ? &known->int_default : NULL, &arg->v.i));
  }
  for (uint32_t i = 0; i < begin->kernel->num_dims; i++)
    if (begin->op->dims[i].source == DIM_GIVEN)
      TRY(ort_int(node, info, begin->kernel->dim_names[i], NULL, &begin->dims[i]));
  return NULL;
}

static uint32_t ort_num_workers(void) {
#ifdef _WIN32
  const long found = (long)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
#else
  const long found = sysconf(_SC_NPROCESSORS_ONLN);
#endif
  return found < 1 ? 1 : found > MAX_WORKERS ? MAX_WORKERS : (uint32_t)found;
}

static OrtStatus* ort_create(const OrtCustomOp* base, const OrtApi* api, const OrtKernelInfo* info,
                             void** out) {
  const op_table* op = &ort_of(base)->table;
  if (!op_is_of_this_build()) return ort_failure(api, op, "it cannot be called", op_library()->last_error());
  ort_node* node = calloc(1, sizeof(ort_node));
  if (node == NULL) return ort_failure(api, op, "no memory", "");
  *node = (ort_node){.api = api,
                     .num_workers = ort_num_workers(),
                     .begin = {.op = op, .kernel = op_library()->find(op->name)}};
  OrtStatus* status = ort_attributes(node, info);
  if (status != NULL) return free(node), status;
  *out = node;
  return NULL;
}

static void ort_destroy(void* node) { free(node); }

/* ---- calls: inputs and outputs ---- */

static OrtStatus* ort_read_input(ort_call* call, uint32_t param, size_t index) {
  const OrtApi* api = call->node->api;
  const OrtValue* value = NULL;
  OrtTensorTypeAndShapeInfo* info = NULL;
  size_t rank = 0;
  DLTensor* tensor = &call->call.tensors[param];
  TRY(api->KernelContext_GetInput(call->context, index, &value));
  TRY(api->GetTensorMutableData((OrtValue*)value, &tensor->data)); /* read alone: copied where written */
  TRY(api->GetTensorTypeAndShape(value, &info));
  OrtStatus* status = api->GetDimensionsCount(info, &rank);
  const bool is_of_rank = rank == (size_t)tensor->ndim;
  if (status == NULL && is_of_rank) status = api->GetDimensions(info, tensor->shape, rank);
  api->ReleaseTensorTypeAndShapeInfo(info);
  if (status != NULL || is_of_rank) return status;
  char why[MESSAGE_SIZE];
  const char* name = call->call.kernel->params[param]->name;
  const char* axes = rank == 1 ? "axis" : "axes";
  snprintf(why, sizeof(why), "%s has %zu %s, expected %d", name, rank, axes, (int)tensor->ndim);
  return ort_failure(api, call->call.op, why, "");
}

static OrtStatus* ort_read_inputs(ort_call* call) {
  size_t index = 0;
  for (uint32_t i = 0; i < call->call.kernel->num_params; i++)
    if (call->call.op->params[i].is_input) TRY(ort_read_input(call, i, index++));
  return NULL;
}

static OrtStatus* ort_make_outputs(ort_call* call) {
  const OrtApi* api = call->node->api;
  size_t index = 0;
  for (uint32_t i = 0; i < call->call.kernel->num_params; i++) {
    if (call->call.kernel->params[i]->access == TILEC_IN) continue;
    DLTensor* tensor = &call->call.tensors[i];
    const void* before = tensor->data;
    OrtValue* value = NULL;
    TRY(api->KernelContext_GetOutput(call->context, index++, tensor->shape, (size_t)tensor->ndim, &value));
    TRY(api->GetTensorMutableData(value, &tensor->data));
    if (before != NULL) memcpy(tensor->data, before, op_bytes(tensor));
  }
  return NULL;
}

/* ---- calls: the session's threads ---- */

typedef struct ort_work {
  tilec_task task;
  void* closure;
  int64_t n, grain;
  atomic_int_fast64_t next;
} ort_work;

static void ort_part(void* closure, size_t worker) {
  ort_work* work = closure;
  for (;;) {
    const int64_t begin = atomic_fetch_add(&work->next, work->grain);
    if (begin >= work->n) return;
    const int64_t left = work->n - begin;
    work->task(work->closure, (uint32_t)worker, begin, begin + (left < work->grain ? left : work->grain));
  }
}

static tilec_status ort_parallel_for(void* pool, int64_t n, int64_t grain, tilec_task task, void* closure) {
  const ort_call* call = pool;
  const OrtApi* api = call->node->api;
  ort_work work = {.task = task, .closure = closure, .n = n, .grain = grain < 1 ? 1 : grain};
  OrtStatus* status =
      api->KernelContext_ParallelFor(call->context, ort_part, call->node->num_workers, 0, &work);
  if (status == NULL) return TILEC_OK;
  api->ReleaseStatus(status);
  return TILEC_ERR_INTERNAL;
}

static OrtStatus* ort_launch(ort_call* call) {
  const OrtApi* api = call->node->api;
  const op_call* made = &call->call;
  const tilec_library* library = op_library();
  tilec_exec exec = {.struct_size = sizeof(tilec_exec), .device = {kDLCPU, 0}};
  exec.parallel_for = ort_parallel_for;
  exec.pool = call;
  exec.num_workers = call->node->num_workers;
  size_t bytes = 0;
  if (library->workspace_size(made->kernel, NULL, &exec, made->dims, &bytes) != TILEC_OK)
    return ort_failure(api, made->op, "no variant serves it", library->last_error());
  void* room = bytes != 0 ? malloc(bytes + WORKSPACE_ALIGN) : NULL;
  if (bytes != 0 && room == NULL) return ort_failure(api, made->op, "no memory for its workspace", "");
  exec.workspace = (void*)(((uintptr_t)room + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN);
  exec.workspace_size = bytes;
  const tilec_status status = op_launch(library, made, &exec);
  free(room);
  return status == TILEC_OK ? NULL : ort_failure(api, made->op, "it failed", library->last_error());
}

static OrtStatus* ort_compute(void* kernel, OrtKernelContext* context) {
  const ort_node* node = kernel;
  ort_call call = {.node = node, .context = context, .call = node->begin};
  op_begin(&call.call, (DLDevice){kDLCPU, 0});
  TRY(ort_read_inputs(&call));
  if (!op_dims(&call.call))
    return ort_failure(node->api, node->begin.op, "the extents of its outputs have no value", "");
  TRY(ort_make_outputs(&call));
  return ort_launch(&call);
}

/* ---- registration ---- */

static const OrtCustomOp ort_functions = {
    .version = ORT_API_VERSION,
    .GetName = ort_name,
    .GetExecutionProviderType = ort_provider,
    .GetInputType = ort_input_type,
    .GetInputTypeCount = ort_num_inputs,
    .GetOutputType = ort_output_type,
    .GetOutputTypeCount = ort_num_outputs,
    .KernelDestroy = ort_destroy,
    .GetInputCharacteristic = ort_zero,
    .GetOutputCharacteristic = ort_zero,
    .GetInputMemoryType = ort_zero,
    .GetVariadicInputMinArity = ort_one,
    .GetVariadicInputHomogeneity = ort_one,
    .GetVariadicOutputMinArity = ort_one,
    .GetVariadicOutputHomogeneity = ort_one,
    .CreateKernelV2 = ort_create,
    .KernelComputeV2 = ort_compute,
    .GetStartVersion = ort_one,
    .GetEndVersion = ort_any_version,
};

/* What ONNX Runtime calls once it has opened the library. The domain and its operators are read as long as
 * sessions with these options live, and nothing tells when the last one ends: they stay. */
__attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                    const OrtApiBase* base) {
  const size_t count = sizeof(ort_ops) / sizeof(*ort_ops);
  const OrtApi* api = base->GetApi(ORT_API_VERSION);
  if (api == NULL)
    return base->GetApi(1)->CreateStatus(ORT_FAIL, "these operators need ONNX Runtime 1.17 or newer");
  ort_registered* registered = calloc(count, sizeof(ort_registered));
  if (registered == NULL) return api->CreateStatus(ORT_FAIL, "no memory for operators");
  OrtCustomOpDomain* domain = NULL;
  TRY(api->CreateCustomOpDomain(op_domain, &domain));
  for (size_t i = 0; i < count; i++) {
    registered[i] = (ort_registered){.base = ort_functions, .op = &ort_ops[i]};
    TRY(api->CustomOpDomain_Add(domain, &registered[i].base));
  }
  return api->AddCustomOpDomain(options, domain);
}
