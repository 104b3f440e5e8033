/* Which of several variants that serve the same calls is expected to take the least time. Engines call with
 * few shapes, again and again: each thread keeps what it chose last. */
#include "choice.h"

#include "arith.h"
#include "family.h"
#include "hash.h"
#include "keep.h"

static int64_t units_of(const tilec_exec* exec) { return int_max(1, family_of(exec->device)->units(exec)); }

/* A little less than one over the number of units: tilec/costs.py. */
static double share_of(int64_t units) { return (1 - 0x1p-40) / (double)units; }

/* The first of the least ones. */
static const variant_record* choose(const variant_record* variant, const int64_t* dims, int64_t units) {
  double costs[MAX_CHOICES];
  variant->costs(dims, share_of(units), costs);
  double least = costs[0];
  uint32_t best = 0;
  for (uint32_t i = 1; i < variant->num_choices; i++) { /* no branch could be foretold here */
    bool less = costs[i] < least;
    best = less ? i : best;
    least = less ? costs[i] : least;
  }
  return variant - variant->choice + best;
}

/* Where a choice for such dims is kept, whichever it is. */
static kept_choice* place_of(const int64_t* dims, uint32_t num_dims) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < num_dims; i++) sum = 33 * sum + (uint64_t)dims[i];
  return &mine.choices[hash_top_bits(hash_mix(0, sum), KEPT_BITS)];
}

static bool chose_before(const kept_choice* kept, costs_fn costs, const int64_t* dims, uint32_t num_dims,
                         int64_t units) {
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
  double costs[MAX_CHOICES];
  variant->costs(query->dims, share_of(units_of(query->exec)), costs);
  return costs[variant->choice];
}
