/* Validation of arguments: the dims of every door, and the tagged arguments of the generic one. */
#include "arguments/args.h"

#include "arguments/overlap.h"
#include "arguments/tensors.h"
#include "devices/family.h"
#include "status.h"

static COLD tilec_status check_each_dim(const kernel_record* kernel, const int64_t* dims) {
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) {
    if (dims[i] >= 0 && dims[i] <= kernel->dims[i].limit) continue;
    return fail(TILEC_ERR_SHAPE, "%s: dim %s = %lld is out of range, it must be 0 to %lld", kernel->info.name,
                kernel->info.dim_names[i], (long long)dims[i], (long long)kernel->dims[i].limit);
  }
  return TILEC_OK;
}

INLINE tilec_status check_dims(const kernel_record* kernel, const int64_t* dims) {
  bool all_low = true;
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) all_low &= (uint64_t)dims[i] <= kernel->dim_limit;
  return LIKELY(all_low) ? TILEC_OK : check_each_dim(kernel, dims);
}

LOCAL tilec_status all_extents(const kernel_record* kernel, const tilec_value* params, const int64_t* dims,
                               int64_t* extents) {
  if (kernel->extents(params, dims, extents)) return TILEC_OK;
  return fail(TILEC_ERR_SHAPE, "%s: an extent overflows 64 bits or divides by zero for these dims",
              kernel->info.name);
}

static tilec_status check_null(const kernel_record* kernel, const param_record* param,
                               const tilec_value* params, const int64_t* dims) {
  int64_t extents[MAX_EXTENTS];
  tilec_status status = all_extents(kernel, params, dims, extents);
  if (status != TILEC_OK) return status;
  if (!has_elements(param, extents)) return TILEC_OK;
  return fail(TILEC_ERR_ARGUMENT, "%s: %s is NULL but has elements", kernel->info.name, param->info->name);
}

/* Whether no tensor is NULL and all are at multiples of PARAM_ALIGN. */
static bool tensors_aligned(const kernel_record* kernel, const tilec_value* params) {
  uintptr_t bits = 0;
  bool any_null = false;
  for (uint64_t left = kernel->tensors; left; left &= left - 1) {
    uintptr_t address = (uintptr_t)params[__builtin_ctzll(left)].ptr;
    bits |= address;
    any_null |= address == 0;
  }
  return !any_null && (bits & (PARAM_ALIGN - 1)) == 0;
}

static tilec_status check_address(const kernel_record* kernel, DLDevice device, const param_record* param,
                                  const void* address) {
  const tilec_param* info = param->info;
  const device_family* family = family_of(device);
  bool as_family = family->tensor_align && !param->begins_anywhere;
  uint32_t align = as_family ? family->tensor_align : info->align_bytes;
  uintptr_t begin = tensor_begin(device, address);
  if ((begin & (align - 1)) == 0) return TILEC_OK;
  if (as_family) {
    return fail(TILEC_ERR_LAYOUT, "%s: %s is at %p; on %s tensors start at multiples of %u bytes",
                kernel->info.name, info->name, (void*)begin, family->title, align);
  }
  return fail(TILEC_ERR_LAYOUT, "%s: %s is at %p, which is not aligned to %u bytes", kernel->info.name,
              info->name, (void*)begin, align);
}

static COLD tilec_status check_each_pointer(const kernel_record* kernel, DLDevice device,
                                            const tilec_value* params, const int64_t* dims) {
  for (uint32_t i = 0; i < kernel->info.num_params; i++) {
    const param_record* param = &kernel->params[i];
    if (param->info->tag != TILEC_ARG_TENSOR) continue;
    tilec_status status = params[i].ptr ? check_address(kernel, device, param, params[i].ptr)
                                        : check_null(kernel, param, params, dims);
    if (status != TILEC_OK) return status;
  }
  return TILEC_OK;
}

INLINE tilec_status check_pointers(const kernel_record* kernel, DLDevice device, const tilec_value* params,
                                   const int64_t* dims) {
  if (LIKELY(!family_of(device)->handles && tensors_aligned(kernel, params))) return TILEC_OK;
  return check_each_pointer(kernel, device, params, dims);
}

/* ---- scalars ---- */

/* Of 64 bits the caller gives all, whatever they stand for. */
static bool int_fits(int64_t value, DLDataType dtype) {
  if (dtype.bits >= 64) return true;
  if (dtype.code == kDLUInt) return value >= 0 && value >> dtype.bits == 0;
  int64_t half = INT64_C(1) << (dtype.bits - 1);
  return value >= -half && value < half;
}

static tilec_status unpack_int(const kernel_record* kernel, const tilec_param* param, const tilec_arg* arg,
                               tilec_value* out) {
  if (arg->tag != TILEC_ARG_INT && arg->tag != TILEC_ARG_BOOL) return fail_tag(kernel, param, arg->tag);
  if (!int_fits(arg->v.i, param->dtype)) {
    return fail(TILEC_ERR_DTYPE, "%s: %s = %lld does not fit its %u bits", kernel->info.name, param->name,
                (long long)arg->v.i, param->dtype.bits);
  }
  out->i = arg->v.i;
  return TILEC_OK;
}

static tilec_status unpack_bool(const kernel_record* kernel, const tilec_param* param, const tilec_arg* arg,
                                tilec_value* out) {
  if (arg->tag != TILEC_ARG_BOOL && arg->tag != TILEC_ARG_INT) return fail_tag(kernel, param, arg->tag);
  if (arg->v.i != 0 && arg->v.i != 1) {
    return fail(TILEC_ERR_DTYPE, "%s: %s must be 0 or 1, got %lld", kernel->info.name, param->name,
                (long long)arg->v.i);
  }
  out->i = arg->v.i;
  return TILEC_OK;
}

/* The least number that is rounded to infinity; all but doubles travel as floats of 32 bits. */
static double first_beyond(DLDataType dtype) {
  if (dtype.bits != 16) return 0x1.ffffffp127;
  return dtype.code == kDLBfloat ? 0x1.ffp127 : 65520.0;
}

/* Infinities and NaN are what was asked for; a finite number that would become one is not. */
static bool float_fits(double value, DLDataType dtype) {
  if (dtype.bits >= 64 || value - value != 0) return true;
  double carried = (float)value, beyond = first_beyond(dtype);
  return carried < beyond && carried > -beyond;
}

static tilec_status unpack_float(const kernel_record* kernel, const tilec_param* param, const tilec_arg* arg,
                                 tilec_value* out) {
  if (arg->tag != TILEC_ARG_FLOAT && arg->tag != TILEC_ARG_INT) return fail_tag(kernel, param, arg->tag);
  double value = arg->tag == TILEC_ARG_FLOAT ? arg->v.f : (double)arg->v.i;
  if (!float_fits(value, param->dtype)) {
    return fail(TILEC_ERR_DTYPE, "%s: %s = %g does not fit its %u bits", kernel->info.name, param->name,
                value, param->dtype.bits);
  }
  out->f = value;
  return TILEC_OK;
}

/* ---- dims ---- */

static tilec_status bind_value(const kernel_record* kernel, const dim_record* dim, const tilec_arg* args,
                               const tilec_value* params, int64_t* value) {
  switch (dim->bind) {
    case BIND_SHAPE: *value = args[dim->param].v.tensor->shape[dim->axis]; return TILEC_OK;
    case BIND_STRIDE: *value = given_stride(args[dim->param].v.tensor, (int32_t)dim->axis); return TILEC_OK;
    case BIND_SCALAR: *value = params[dim->param].i; return TILEC_OK;
    case BIND_CONSTANT: *value = dim->add; return TILEC_OK;
    default:
      return fail(TILEC_ERR_ARGUMENT,
                  "%s: dim %s cannot be read from a shape; append all dims to the arguments",
                  kernel->info.name, kernel->info.dim_names[dim - kernel->dims]);
  }
}

/* Solves extent = dim * mul / div + add; what does not divide is found by the comparison of shapes. */
static tilec_status bind_dim(const kernel_record* kernel, const dim_record* dim, const tilec_arg* args,
                             const tilec_value* params, int64_t* out) {
  int64_t value = 0;
  tilec_status status = bind_value(kernel, dim, args, params, &value);
  if (status != TILEC_OK || dim->bind == BIND_CONSTANT) {
    *out = value;
    return status;
  }
  bool overflow =
      __builtin_sub_overflow(value, dim->add, &value) || __builtin_mul_overflow(value, dim->div, &value);
  *out = overflow ? -1 : value / dim->mul;
  return TILEC_OK;
}

LOCAL tilec_status given_dims(const kernel_record* kernel, const tilec_arg* dim_args, int64_t* dims) {
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) {
    if (dim_args[i].tag != TILEC_ARG_INT) {
      return fail(TILEC_ERR_ARGUMENT, "%s: dim %s must be an int", kernel->info.name,
                  kernel->info.dim_names[i]);
    }
    dims[i] = dim_args[i].v.i;
  }
  return TILEC_OK;
}

LOCAL tilec_status bound_dims(const kernel_record* kernel, const tilec_arg* args, const tilec_value* params,
                              int64_t* dims) {
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) {
    tilec_status status = bind_dim(kernel, &kernel->dims[i], args, params, &dims[i]);
    if (status != TILEC_OK) return status;
  }
  return TILEC_OK;
}

/* ---- all arguments ---- */

LOCAL tilec_status unpack_alone(const kernel_record* kernel, uint32_t index, DLDevice device,
                                const tilec_arg* arg, tilec_value* out) {
  const tilec_param* param = kernel->params[index].info;
  switch (param->tag) {
    case TILEC_ARG_TENSOR: return check_tensor(kernel, param, device, arg);
    case TILEC_ARG_INT: return unpack_int(kernel, param, arg, out);
    case TILEC_ARG_BOOL: return unpack_bool(kernel, param, arg, out);
    default: return unpack_float(kernel, param, arg, out);
  }
}

static tilec_status unpack_scalars(const kernel_record* kernel, DLDevice device, const tilec_arg* args,
                                   tilec_value* params) {
  for (uint32_t i = 0; i < kernel->info.num_params; i++) {
    tilec_status status = unpack_alone(kernel, i, device, &args[i], &params[i]);
    if (status != TILEC_OK) return status;
  }
  return TILEC_OK;
}

static tilec_status unpack_tensors(const kernel_record* kernel, DLDevice device, const tilec_arg* args,
                                   const int64_t* dims, tilec_value* params) {
  int64_t extents[MAX_EXTENTS];
  tilec_status status = all_extents(kernel, params, dims, extents);
  for (uint32_t i = 0; status == TILEC_OK && i < kernel->info.num_params; i++) {
    const param_record* param = &kernel->params[i];
    if (param->info->tag == TILEC_ARG_TENSOR)
      status = unpack_tensor(kernel, param, device, &args[i], extents, &params[i]);
  }
  return status == TILEC_OK ? check_overlap(kernel, device, params, extents) : status;
}

LOCAL tilec_status unpack_args(const kernel_record* kernel, DLDevice device, const tilec_arg* args,
                               size_t num_args, tilec_value* params, int64_t* dims) {
  uint32_t wanted = kernel->info.num_params;
  bool dims_given = num_args == (size_t)wanted + kernel->info.num_dims && kernel->info.num_dims > 0;
  if (num_args != wanted && !dims_given) {
    return fail(TILEC_ERR_ARGUMENT, "%s: got %zu arguments, expected %u (or %u with every dim)",
                kernel->info.name, num_args, wanted, wanted + kernel->info.num_dims);
  }
  if (!args && num_args > 0) return fail(TILEC_ERR_ARGUMENT, "%s: args is NULL", kernel->info.name);
  tilec_status status = unpack_scalars(kernel, device, args, params);
  if (status != TILEC_OK) return status;
  status = dims_given ? given_dims(kernel, args + wanted, dims) : bound_dims(kernel, args, params, dims);
  if (status != TILEC_OK) return status;
  status = check_dims(kernel, dims);
  if (status != TILEC_OK) return status;
  return unpack_tensors(kernel, device, args, dims, params);
}
