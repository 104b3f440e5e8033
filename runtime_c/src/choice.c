/* Which of several variants that serve the same calls is expected to take the least time. Engines call with
 * few shapes, again and again: each thread keeps what it chose last. */
#include "choice.h"

#include <stdatomic.h>

#include "arith.h"
#include "costs.h"
#include "cpu.h"
#include "family.h"
#include "hash.h"
#include "keep.h"
#include "settings.h"

static int64_t units_of(const tilec_exec* exec) { return int_max(1, family_of(exec->device)->units(exec)); }

/* A little less than one over the number of units: tilec/costs.py. */
static double share_of(int64_t units) { return (1 - 0x1p-40) / (double)units; }

enum { COSTS_OUT = 8 * MAX_CHOICES };
_Static_assert(MAX_CHOICES == COST_NUMBERS + 1, "costs have room for the number of a variant");

/* What this processor has vectors for, one more than the place of its functions among those of costs; 0: not
 * yet known. Any thread comes to the same. */
static atomic_uint known_level;

static COLD uint32_t find_level(void) {
  const char* asked = settings_get()->cpu;
  uint64_t found = cpu_detect(0), limit = asked ? cpu_named(asked) : 0;
  uint32_t level = 1;
  if (limit) found &= limit;
  static const char* const wider[] = {"x86-64-v3", "x86-64-v4"};
  for (uint32_t i = 0; i < 2; i++) {
    uint64_t needs = cpu_named(wider[i]);
    if (needs && !(needs & ~found)) level = 2 + i;
  }
  atomic_store_explicit(&known_level, level, memory_order_relaxed);
  return level;
}

static double least_of(const costs_fn* costs, const int64_t* dims, int64_t units, double* out) {
  uint32_t level = atomic_load_explicit(&known_level, memory_order_relaxed);
  if (UNLIKELY(level == 0)) level = find_level();
  return costs[level - 1](dims, share_of(units), out);
}

static uint32_t number_in(double cost) { return (uint32_t)cost_bits(cost) & COST_NUMBERS; }

static const variant_record* choose(const variant_record* variant, const int64_t* dims, int64_t units) {
  double costs[COSTS_OUT];
  return variant - variant->choice + number_in(least_of(variant->costs, dims, units, costs));
}

/* Where a choice for such dims is kept, whichever it is. */
static kept_choice* place_of(const int64_t* dims, uint32_t num_dims) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < num_dims; i++) sum = 33 * sum + (uint64_t)dims[i];
  return &mine.choices[hash_top_bits(hash_mix(0, sum), KEPT_BITS)];
}

static bool chose_before(const kept_choice* kept, const costs_fn* costs, const int64_t* dims,
                         uint32_t num_dims, int64_t units) {
  uint64_t differs = (uint64_t)(kept->units ^ units);
  for (uint32_t i = 0; i < num_dims; i++) differs |= (uint64_t)(kept->dims[i] ^ dims[i]);
  return kept->costs == costs && !differs;
}

static APART const variant_record* choose_and_keep(kept_choice* kept, const variant_record* variant,
                                                   const int64_t* dims, uint32_t num_dims, int64_t units) {
  kept->chosen = choose(variant, dims, units);
  kept->costs = variant->costs;
  kept->units = units;
  for (uint32_t i = 0; i < num_dims; i++) kept->dims[i] = dims[i];
  return kept->chosen;
}

LOCAL const variant_record* cheapest(const kernel_record* kernel, const variant_record* variant,
                                     const dispatch_query* query) {
  if (LIKELY(!variant->costs)) return variant;
  const int64_t* dims = query->dims;
  uint32_t num_dims = kernel->info.num_dims;
  int64_t units = units_of(query->exec);
  if (UNLIKELY(num_dims > KEPT_DIMS)) return choose(variant, dims, units);
  kept_choice* kept = place_of(dims, num_dims);
  if (chose_before(kept, variant->costs, dims, num_dims, units)) return kept->chosen;
  return choose_and_keep(kept, variant, dims, num_dims, units);
}

LOCAL double cost_of(const variant_record* variant, const dispatch_query* query) {
  double costs[COSTS_OUT];
  const double* each = costs;
  least_of(variant->costs, query->dims, units_of(query->exec), costs);
  while (number_in(*each) != variant->choice) each++;
  return cost_marked(*each, 0);
}
