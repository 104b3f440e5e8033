/* Validation of one DLTensor: what it is, then, once the dims are known, its shape and strides. */
#include "arguments/tensors.h"

#include <stdio.h>

#include "devices/family.h"
#include "status.h"

LOCAL bool has_elements(const param_record* param, const int64_t* extents) {
  for (int32_t axis = 0; axis < param->info->ndim; axis++) {
    if (extents[param->first_extent + (uint32_t)axis] == 0) return false;
  }
  return true;
}

LOCAL tilec_status fail_tag(const kernel_record* kernel, const tilec_param* param, int32_t tag) {
  static const char* const names[] = {"none", "int", "bool", "float", "pointer", "?", "?", "tensor"};
  return fail(TILEC_ERR_ARGUMENT, "%s: %s must be a %s, got a %s", kernel->info.name, param->name,
              names[param->tag], tag >= 0 && tag <= TILEC_ARG_TENSOR ? names[tag] : "value of unknown tag");
}

static bool is_byte(DLDataType dtype) {
  return dtype.bits == 8 && (dtype.code == kDLInt || dtype.code == kDLUInt || dtype.code == kDLBool);
}

/* The same bits are other numbers in other types (the formats of float8 differ in bias, zeros and
 * infinities), so that code, width and lanes have to be those of the parameter. 0 and 1 alone are the same in
 * bool and in integers of 8 bits, between which programs do not tell. */
static bool dtype_matches(DLDataType given, DLDataType wanted) {
  if (given.bits != wanted.bits || given.lanes != wanted.lanes) return false;
  if (given.code == wanted.code) return true;
  return (given.code == kDLBool && is_byte(wanted)) || (wanted.code == kDLBool && is_byte(given));
}

static bool on_cpu(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost;
}

static bool same_device(DLDevice given, DLDevice wanted) {
  if (family_of(wanted)->host) return on_cpu(given);
  return given.device_type == wanted.device_type && given.device_id == wanted.device_id;
}

enum { DTYPE_TEXT = 64 };

/* The codes of DLPack 1.1 that have one width alone, in their order from kDLBool on. */
static const struct {
  const char* name;
  uint8_t bits;
} sized_types[] = {
    {"bool", 8},           {"float8_e3m4", 8},     {"float8_e4m3", 8},   {"float8_e4m3b11fnuz", 8},
    {"float8_e4m3fn", 8},  {"float8_e4m3fnuz", 8}, {"float8_e5m2", 8},   {"float8_e5m2fnuz", 8},
    {"float8_e8m0fnu", 8}, {"float6_e2m3fn", 6},   {"float6_e3m2fn", 6}, {"float4_e2m1fn", 4}};

static void append_sized_type(char* out, size_t* used, DLDataType dtype, uint32_t at) {
  text_append(out, DTYPE_TEXT, used, "%s", sized_types[at].name);
  if (dtype.bits != sized_types[at].bits) text_append(out, DTYPE_TEXT, used, " of %u bits", dtype.bits);
}

/* As people write it, "float32"; by its code where it has no name. */
static const char* dtype_text(char* out, DLDataType dtype) {
  static const char* const names[] = {"int", "uint", "float", NULL, "bfloat", "complex"};
  const char* name = dtype.code < sizeof(names) / sizeof(*names) ? names[dtype.code] : NULL;
  uint32_t at = (uint32_t)dtype.code - kDLBool;
  size_t used = 0;
  if (name)
    text_append(out, DTYPE_TEXT, &used, "%s%u", name, dtype.bits);
  else if (at < sizeof(sized_types) / sizeof(*sized_types))
    append_sized_type(out, &used, dtype, at);
  else
    text_append(out, DTYPE_TEXT, &used, "type code %u of %u bits", dtype.code, dtype.bits);
  if (dtype.lanes != 1) text_append(out, DTYPE_TEXT, &used, "x%u", dtype.lanes);
  return out;
}

enum { DEVICE_TEXT = 48 };

/* As people write it, "cuda:0"; the words are those of DLPack, in the order of its types. */
static const char* device_text(char* out, DLDevice device) {
  static const char* const names[] = {
      NULL,   "cpu",       "cuda",    "cuda_host",    "opencl", NULL,     NULL,      "vulkan", "metal", "vpi",
      "rocm", "rocm_host", "ext_dev", "cuda_managed", "oneapi", "webgpu", "hexagon", "maia",   "trn"};
  uint32_t type = (uint32_t)device.device_type;
  const char* name = type < sizeof(names) / sizeof(*names) ? names[type] : NULL;
  if (on_cpu(device)) return "cpu";
  if (name)
    snprintf(out, DEVICE_TEXT, "%s:%d", name, device.device_id);
  else
    snprintf(out, DEVICE_TEXT, "device %d of DLPack's type %u", device.device_id, type);
  return out;
}

LOCAL tilec_status check_tensor(const kernel_record* kernel, const tilec_param* param, DLDevice device,
                                const tilec_arg* arg) {
  const char* name = kernel->info.name;
  if (arg->tag != TILEC_ARG_TENSOR) return fail_tag(kernel, param, arg->tag);
  const DLTensor* tensor = arg->v.tensor;
  if (!tensor) return fail(TILEC_ERR_ARGUMENT, "%s: %s is a NULL tensor", name, param->name);
  if (!dtype_matches(tensor->dtype, param->dtype)) {
    char given[DTYPE_TEXT], wanted[DTYPE_TEXT];
    return fail(TILEC_ERR_DTYPE, "%s: %s is %s, expected %s", name, param->name,
                dtype_text(given, tensor->dtype), dtype_text(wanted, param->dtype));
  }
  if (tensor->ndim != param->ndim) {
    const char* axes = tensor->ndim == 1 ? "axis" : "axes";
    return fail(TILEC_ERR_SHAPE, "%s: %s has %d %s, expected %d", name, param->name, tensor->ndim, axes,
                param->ndim);
  }
  if (param->ndim > 0 && !tensor->shape)
    return fail(TILEC_ERR_ARGUMENT, "%s: %s has no shape", name, param->name);
  if (!same_device(tensor->device, device)) {
    char given[DEVICE_TEXT], wanted[DEVICE_TEXT];
    return fail(TILEC_ERR_DEVICE, "%s: %s is on %s, the call runs on %s", name, param->name,
                device_text(given, tensor->device), device_text(wanted, device));
  }
  for (int32_t axis = 0; axis < param->ndim; axis++) {
    if (tensor->shape[axis] >= 0) continue;
    return fail(TILEC_ERR_SHAPE, "%s: %s axis %d has extent %lld", name, param->name, axis,
                (long long)tensor->shape[axis]);
  }
  return TILEC_OK;
}

/* Saturates where the product overflows: no tensor has such a stride, so that the comparison then fails. */
static int64_t contiguous_stride(const DLTensor* tensor, int32_t axis) {
  int64_t stride = 1;
  for (int32_t inner = axis + 1; inner < tensor->ndim; inner++) {
    if (__builtin_mul_overflow(stride, tensor->shape[inner], &stride)) return INT64_MAX;
  }
  return stride;
}

LOCAL int64_t given_stride(const DLTensor* tensor, int32_t axis) {
  return tensor->strides ? tensor->strides[axis] : contiguous_stride(tensor, axis);
}

static tilec_status check_shape(const kernel_record* kernel, const param_record* param,
                                const DLTensor* tensor, const int64_t* extents) {
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    int64_t wanted = extents[param->first_extent + (uint32_t)axis];
    if (tensor->shape[axis] == wanted) continue;
    bool is_number = param->info->shape[axis].dim == TILEC_EXTENT_CONSTANT;
    return fail(TILEC_ERR_SHAPE, "%s: %s axis %d has extent %lld, expected %s%s%lld", kernel->info.name,
                param->info->name, axis, (long long)tensor->shape[axis],
                is_number ? "" : param->info->shape_text[axis], is_number ? "" : " = ", (long long)wanted);
  }
  return TILEC_OK;
}

static tilec_status check_strides(const kernel_record* kernel, const param_record* param,
                                  const DLTensor* tensor, const int64_t* extents) {
  if (!has_elements(param, extents)) return TILEC_OK;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const tilec_param* info = param->info;
    int64_t given = given_stride(tensor, axis);
    int64_t wanted =
        info->strides ? extents[param->first_stride + (uint32_t)axis] : contiguous_stride(tensor, axis);
    if (tensor->shape[axis] == 1 || given == wanted)
      continue; /* the stride of a single element is never used */
    const char* why = !info->strides                                     ? "row-major contiguous"
                      : info->strides[axis].dim == TILEC_EXTENT_CONSTANT ? ""
                                                                         : info->stride_text[axis];
    return fail(TILEC_ERR_LAYOUT, "%s: %s axis %d has stride %lld, expected %lld%s%s%s", kernel->info.name,
                info->name, axis, (long long)given, (long long)wanted, *why ? " (" : "", why,
                *why ? ")" : "");
  }
  return TILEC_OK;
}

LOCAL tilec_status unpack_tensor(const kernel_record* kernel, const param_record* param, DLDevice device,
                                 const tilec_arg* arg, const int64_t* extents, tilec_value* out) {
  const DLTensor* tensor = arg->v.tensor;
  tilec_status status = check_shape(kernel, param, tensor, extents);
  if (status != TILEC_OK) return status;
  status = check_strides(kernel, param, tensor, extents);
  if (status != TILEC_OK) return status;
  if (family_of(device)->handles) {
    out->ptr = tensor->data ? (void*)tensor : NULL;
    return TILEC_OK;
  }
  uintptr_t address = (uintptr_t)tensor->data;
  if (tensor->data && __builtin_add_overflow(address, tensor->byte_offset, &address)) {
    return fail(TILEC_ERR_LAYOUT, "%s: %s has a byte_offset of %llu, which leads past the end of memory",
                kernel->info.name, param->info->name, (unsigned long long)tensor->byte_offset);
  }
  out->ptr = (void*)address;
  return TILEC_OK;
}
