/* Arguments of kernels on devices, in the order of tilec/codegen/image.py. */
#include "arguments/device_args.h"

#include "launch/slices.h"

/* Integers are little endian, so that the low bytes of a wide one are the narrow one. */
static void* scalar_argument(const tilec_param* info, const tilec_value* value, float* narrow) {
  if (info->tag != TILEC_ARG_FLOAT) return (void*)&value->i;
  if (info->dtype.bits == 64) return (void*)&value->f;
  *narrow = (float)value->f;
  return narrow;
}

LOCAL uint32_t collect_arguments(const kernel_record* kernel, const variant_record* variant,
                                 const tilec_value* params, const int64_t* dims, void** slices, float* floats,
                                 void** pointers) {
  void** next = pointers;
  uint64_t all = kernel->info.num_params == 64 ? UINT64_MAX : (UINT64_C(1) << kernel->info.num_params) - 1;
  for (uint64_t left = kernel->tensors; left; left &= left - 1)
    *next++ = (void*)&params[__builtin_ctzll(left)].ptr;
  for (uint32_t i = 0; i < variant->num_slices; i++) *next++ = &slices[i];
  for (uint64_t left = all & ~kernel->tensors; left; left &= left - 1) {
    int i = __builtin_ctzll(left);
    *next++ = scalar_argument(kernel->params[i].info, &params[i], &floats[i]);
  }
  uint32_t num_dims = kernel->info.num_dims + variant->takes_num_sms;
  for (uint32_t i = 0; i < num_dims; i++) *next++ = (void*)&dims[i];
  return (uint32_t)(next - pointers);
}

LOCAL tilec_status place_workspace(const kernel_record* kernel, const variant_record* variant,
                                   const tilec_exec* exec, const int64_t* dims, void** slices) {
  workspace_layout layout;
  if (LIKELY(variant->num_slices == 0)) return TILEC_OK;
  tilec_status status = measure(kernel, variant, exec, dims, &layout);
  return status == TILEC_OK ? place_slices(kernel, variant, exec, &layout, slices) : status;
}
