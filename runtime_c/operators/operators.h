/* What the build knows of each kernel that is an operator of a framework. Inputs are the parameters that a
 * caller gives, outputs those that are made for it, both in their order; scalars, and dims that no input
 * shows, come beside. Calls go through the library's generic door. */
#ifndef TILEC_OPERATORS_H_
#define TILEC_OPERATORS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "arith.h"

/* Where a dim is read: (value - add) * div / mul of an extent or a stride; a constant is `add`; a given one
 * comes from the caller. */
enum { DIM_SHAPE, DIM_STRIDE, DIM_SCALAR, DIM_CONSTANT, DIM_GIVEN };
typedef struct op_dim {
  int32_t source, param, axis;
  int64_t mul, add, div;
} op_dim;

typedef struct op_param {
  bool is_input, has_default;
  int64_t int_default;
  double float_default;
} op_param;

typedef struct op_table {
  const char* name;
  const op_param* params;
  const op_dim* dims;
  /* Extents of what is no input, by parameter; false where one has no value. */
  bool (*output_extents)(const int64_t* dims, const tilec_arg* args, int64_t (*extents)[MOST_AXES]);
} op_table;

/* One call. Tensors have a place for each parameter; whoever fills an input sets its extents. Dims that are
 * given are set before op_dims. */
typedef struct op_call {
  const op_table* op;
  const tilec_kernel* kernel;
  DLTensor tensors[MOST_PARAMS];
  int64_t extents[MOST_PARAMS][MOST_AXES];
  int64_t dims[MOST_DIMS];
  tilec_arg args[MOST_PARAMS + MOST_DIMS];
} op_call;

/* The arguments that are tensors, without data; scalars are the caller's. */
static void op_begin(op_call* call, DLDevice device) {
  for (uint32_t i = 0; i < call->kernel->num_params; i++) {
    const tilec_param* param = call->kernel->params[i];
    if (param->tag != TILEC_ARG_TENSOR) continue;
    call->tensors[i] = (DLTensor){.device = device, .ndim = param->ndim, .dtype = param->dtype};
    call->tensors[i].shape = call->extents[i];
    call->args[i].tag = TILEC_ARG_TENSOR;
    call->args[i].v.tensor = &call->tensors[i];
  }
}

static int64_t op_stride(bool* ok, const DLTensor* tensor, int axis) {
  if (tensor->strides != NULL) return tensor->strides[axis];
  int64_t product = 1;
  for (int each = axis + 1; each < tensor->ndim; each++) product = int_mul(ok, product, tensor->shape[each]);
  return product;
}

static int64_t op_dim_value(bool* ok, const op_call* call, uint32_t index) {
  const op_dim* dim = &call->op->dims[index];
  if (dim->source == DIM_CONSTANT) return dim->add;
  if (dim->source == DIM_GIVEN) return call->dims[index];
  if (dim->source == DIM_SCALAR) return call->args[dim->param].v.i;
  const DLTensor* tensor = &call->tensors[dim->param];
  const bool is_extent = dim->source == DIM_SHAPE;
  const int64_t shown = is_extent ? tensor->shape[dim->axis] : op_stride(ok, tensor, dim->axis);
  return int_floordiv(ok, int_mul(ok, int_sub(ok, shown, dim->add), dim->div), dim->mul);
}

/* Every dim, and the extents of outputs; false where one has no value. */
static bool op_dims(op_call* call) {
  bool ok = true;
  for (uint32_t i = 0; i < call->kernel->num_dims; i++) {
    call->dims[i] = op_dim_value(&ok, call, i);
    call->args[call->kernel->num_params + i] = (tilec_arg){.tag = TILEC_ARG_INT, .v.i = call->dims[i]};
  }
  return ok && call->op->output_extents(call->dims, call->args, call->extents);
}

static size_t op_bytes(const DLTensor* tensor) {
  size_t bytes = tensor->dtype.bits / 8;
  for (int axis = 0; axis < tensor->ndim; axis++) bytes *= (size_t)tensor->shape[axis];
  return bytes;
}

static tilec_status op_launch(const tilec_library* library, const op_call* call, const tilec_exec* exec) {
  const uint32_t num_args = call->kernel->num_params + call->kernel->num_dims;
  return library->launch(call->kernel, exec, call->args, num_args);
}

#endif
