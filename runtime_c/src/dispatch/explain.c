/* Why a variant was taken or rejected, in words. */
#include "dispatch/explain.h"

#include <stdio.h>

#include "devices/family.h"
#include "dispatch/choice.h"
#include "dispatch/dispatch.h"
#include "status.h"

LOCAL void describe_rejection(const kernel_record* kernel, const tilec_guard* guard,
                              const dispatch_query* query, char* out, size_t size) {
  long long value = guard->value;
  if (guard->kind == TILEC_GUARD_ALIGN) {
    snprintf(out, size, "rejected: %s is not known to be aligned to %lld bytes",
             kernel->params[guard->index].info->name, value);
    return;
  }
  static const char* const relations[] = {"is not", "is not a multiple of", "is below", "is above"};
  snprintf(out, size, "rejected: %s = %lld %s %lld", kernel->info.dim_names[guard->index],
           (long long)query->dims[guard->index], relations[guard->kind], value);
}

/* The first variant that admits a call, and the one that it takes. */
typedef struct served {
  const variant_record* first;
  const variant_record* taken;
} served;

/* What is said of one that admits. */
static void describe_admitted(const kernel_record* kernel, const variant_record* variant, const served* by,
                              const dispatch_query* query, char* out, size_t size) {
  const variant_record* taken = by->taken;
  if (variant == taken && !variant->costs) {
    snprintf(out, size, "taken");
  } else if (variant == taken) {
    snprintf(out, size, "taken, %.1f us", cost_of(variant, query));
  } else if (is_compared(kernel, by->first, variant)) {
    snprintf(out, size, "admits too, %.1f us, but variant %u costs less", cost_of(variant, query),
             taken->info.id);
  } else {
    snprintf(out, size, "admits too, but variant %u comes first", taken->info.id);
  }
}

/* `by` follows from the first that admits; explaining the variants in order finds it. */
static void explain_variant(const kernel_record* kernel, const variant_record* variant,
                            const dispatch_query* query, served* by, char* out, size_t size) {
  const variant_record* forced = forced_variant(kernel, query->archs);
  const tilec_guard* guard = failing_guard(kernel, variant, query);
  uint32_t device_type = this_library.archs[variant->arch].device_type;
  if (device_type != query->archs->device_type) {
    snprintf(out, size, "rejected: it is for a %s", device_word(device_type));
  } else if (!arch_usable(query->archs, variant->arch)) {
    snprintf(out, size, "rejected: this %s may not run it", device_word(query->archs->device_type));
  } else if (forced && forced != variant) {
    snprintf(out, size, "rejected: TILEC_FORCE_VARIANT names %u", forced->info.id);
  } else if (guard) {
    describe_rejection(kernel, guard, query, out, size);
  } else {
    if (!by->first) *by = (served){variant, forced ? variant : cheapest(kernel, variant, query)};
    describe_admitted(kernel, variant, by, query, out, size);
  }
}

LOCAL size_t dispatch_explain(const kernel_record* kernel, const dispatch_query* query, char* out,
                              size_t size) {
  size_t used = 0;
  served by = {NULL, NULL};
  for (uint32_t i = 0; i < kernel->info.num_variants; i++) {
    const variant_record* variant = &kernel->variants[i];
    char reason[160];
    explain_variant(kernel, variant, query, &by, reason, sizeof(reason));
    text_append(out, size, &used, "variant %u (%s): %s\n", variant->info.id, variant->info.arch, reason);
  }
  return used;
}
