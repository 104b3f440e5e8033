/* Whether the guards of a variant hold for a call. */
#include "dispatch/guards.h"

/* The largest power of two that divides the address; 1 << 62 for NULL, which is aligned to anything. */
static int64_t alignment_of(uintptr_t begin) {
  uint64_t address = (uint64_t)begin | UINT64_C(1) << 62;
  return (int64_t)(address & -address);
}

LOCAL int64_t known_alignment(const kernel_record* kernel, const dispatch_query* query, uint32_t param) {
  if (query->params) return alignment_of(tensor_begin(query->exec->device, query->params[param].ptr));
  if (query->min_align) return query->min_align[param];
  uint32_t usual = family_of(query->exec->device)->tensor_align;
  return usual ? usual : kernel->params[param].info->align_bytes;
}

/* Most divisors are powers of two, and a division costs more than the rest of a guard. */
static bool is_multiple(int64_t value, int64_t divisor) {
  if (LIKELY((divisor & (divisor - 1)) == 0)) return (value & (divisor - 1)) == 0;
  return value % divisor == 0;
}

/* Which kind comes next is hard to predict: all comparisons together cost less than one wrong guess. */
static bool guard_holds(const kernel_record* kernel, const tilec_guard* guard, const dispatch_query* query) {
  if (UNLIKELY(guard->kind == TILEC_GUARD_ALIGN)) {
    return known_alignment(kernel, query, guard->index) >= guard->value;
  }
  int64_t dim = query->dims[guard->index], value = guard->value;
  uint32_t kind = guard->kind;
  if (kind == TILEC_GUARD_DIV) return is_multiple(dim, value);
  bool low = (dim >= value) & (kind != TILEC_GUARD_MAX), high = (dim <= value) & (kind != TILEC_GUARD_MIN);
  return kind == TILEC_GUARD_EQ ? low & high : low | high;
}

static const tilec_guard* first_failing(const kernel_record* kernel, const tilec_guard* guards,
                                        uint32_t first, uint32_t count, const dispatch_query* query) {
  for (uint32_t i = first; i < first + count; i++) {
    if (!guard_holds(kernel, &guards[i], query)) return &guards[i];
  }
  return NULL;
}

LOCAL const tilec_guard* failing_guard(const kernel_record* kernel, const variant_record* variant,
                                       const dispatch_query* query) {
  return first_failing(kernel, variant->info.guards, 0, variant->info.num_guards, query);
}

LOCAL bool candidate_admits(const kernel_record* kernel, const candidate* one, const dispatch_query* query) {
  return !first_failing(kernel, kernel->guards, one->first_guard, one->num_guards, query);
}
