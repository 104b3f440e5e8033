/* Tensors that are written must not share memory with others: kernels are compiled under that promise, but
 * for those of which the author says that they may overlap each other. The doors that know shapes hold
 * callers to it where both tensors are dense; views of one memory with strides may lie in each other's gaps,
 * and are taken on trust. */
#include "arguments/overlap.h"

#include "arguments/tensors.h"
#include "devices/family.h"
#include "status.h"

typedef struct byte_range {
  const void* object;   /* that the range is in; NULL: memory */
  uintptr_t begin, end; /* equal: nothing to compare */
} byte_range;

static bool is_dense(const param_record* param, const int64_t* extents) {
  const tilec_param* info = param->info;
  int64_t dense = 1;
  for (int32_t axis = info->ndim - 1; info->strides && axis >= 0; axis--) {
    int64_t extent = extents[param->first_extent + (uint32_t)axis];
    if (extent != 1 && extents[param->first_stride + (uint32_t)axis] != dense) return false;
    if (__builtin_mul_overflow(dense, extent, &dense)) return false;
  }
  return true;
}

/* To the end of memory where the size overflows. */
static byte_range range_of(const param_record* param, DLDevice device, const void* pointer,
                           const int64_t* extents) {
  bool in_object = family_of(device)->handles && pointer;
  uintptr_t begin = tensor_begin(device, pointer);
  byte_range range = {in_object ? ((const DLTensor*)pointer)->data : NULL, begin, begin};
  uintptr_t bits = param->info->dtype.bits;
  bool overflow = false;
  if (!pointer || !has_elements(param, extents) || !is_dense(param, extents)) return range;
  for (int32_t axis = 0; axis < param->info->ndim; axis++)
    overflow |= __builtin_mul_overflow(bits, (uintptr_t)extents[param->first_extent + (uint32_t)axis], &bits);
  overflow |= __builtin_add_overflow(range.begin, bits / 8 + (bits % 8 != 0), &range.end);
  if (overflow) range.end = UINTPTR_MAX;
  return range;
}

static bool meet(byte_range a, byte_range b) {
  bool empty = a.begin == a.end || b.begin == b.end;
  return !empty && a.object == b.object && a.begin < b.end && b.begin < a.end;
}

LOCAL tilec_status check_overlap(const kernel_record* kernel, DLDevice device, const tilec_value* params,
                                 const int64_t* extents) {
  byte_range ranges[MAX_PARAMS];
  uint64_t written = 0;
  for (uint64_t left = kernel->tensors; left; left &= left - 1) {
    int i = __builtin_ctzll(left);
    ranges[i] = range_of(&kernel->params[i], device, params[i].ptr, extents);
    if (kernel->params[i].info->access != TILEC_IN) written |= UINT64_C(1) << i;
  }
  for (; written; written &= written - 1) {
    int out = __builtin_ctzll(written);
    uint64_t allowed = kernel->overlapping >> out & 1 ? kernel->overlapping : UINT64_C(1) << out;
    for (uint64_t left = kernel->tensors & ~allowed; left; left &= left - 1) {
      int other = __builtin_ctzll(left);
      if (!meet(ranges[out], ranges[other])) continue;
      return fail(TILEC_ERR_LAYOUT, "%s: %s is written and shares memory with %s; give it memory of its own",
                  kernel->info.name, kernel->params[out].info->name, kernel->params[other].info->name);
    }
  }
  return TILEC_OK;
}
