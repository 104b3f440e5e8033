/* Which schedule of a list is expected to take the least time. Engines call with few shapes, again and again:
 * each thread keeps what it chose last. */
#include "dispatch/choice.h"

#include <stdatomic.h>

#include "arith.h"
#include "devices/family.h"
#include "dispatch/costs.h"
#include "dispatch/cpu.h"
#include "dispatch/hash.h"
#include "keep.h"
#include "settings.h"

static int64_t units_of(const tilec_exec* exec) { return int_max(1, family_of(exec->device)->units(exec)); }

/* A little less than one over the number of units: tilec/costs.py. */
static float share_of(int64_t units) { return (1 - 0x1p-22f) / (float)units; }

enum { COSTS_OUT = 8 * MAX_CHOICES };
_Static_assert(MAX_CHOICES == COST_NUMBERS + 1, "costs have room for the number of a variant");

/* The bits of what this processor has, and above them what it has vectors for: one more than the place of its
 * functions among those of costs. 0: not yet known; any thread comes to the same. */
static atomic_uint_least64_t known;
#define LEVEL_SHIFT 62

static COLD uint64_t find_processor(void) {
  const char* asked = settings_get()->cpu;
  uint64_t found = cpu_detect(0), limit = asked ? cpu_named(asked) : 0;
  uint64_t level = 1;
  if (limit) found &= limit;
  static const char* const wider[] = {"x86-64-v3", "x86-64-v4"};
  for (uint32_t i = 0; i < 2; i++) {
    uint64_t needs = cpu_named(wider[i]);
    if (needs && !(needs & ~found)) level = 2 + i;
  }
  found |= level << LEVEL_SHIFT;
  atomic_store_explicit(&known, found, memory_order_relaxed);
  return found;
}

static float least_of(const costs_fn* costs, const int64_t* dims, int64_t units, float* out) {
  uint64_t found = atomic_load_explicit(&known, memory_order_relaxed);
  if (UNLIKELY(found == 0)) found = find_processor();
  return costs[(found >> LEVEL_SHIFT) - 1](dims, share_of(units), found, out);
}

static uint32_t number_in(float cost) { return (uint32_t)cost_bits(cost) & COST_NUMBERS; }

/* The one behind a rival in a list; NULL behind the last. */
static const candidate* next_rival(const candidate* rival) { return rival->last ? NULL : rival + 1; }

/* The cheapest of other schedules of a list that admit a call; `chosen` where none costs less than that. */
static APART const variant_record* rival_below(const kernel_record* kernel, const candidate* rival,
                                               const dispatch_query* query, int64_t units, float least,
                                               const variant_record* chosen) {
  float costs[COSTS_OUT];
  for (; rival; rival = next_rival(rival)) {
    if (!candidate_admits(kernel, rival, query)) continue;
    const variant_record* head = &kernel->variants[rival->variant];
    float cost = least_of(head->costs, query->dims, units, costs);
    if (cost_marked(cost, 0) >= cost_marked(least, 0)) continue;
    least = cost;
    chosen = head + number_in(cost);
  }
  return chosen;
}

static const variant_record* choose(const kernel_record* kernel, const variant_record* first,
                                    const dispatch_query* query, int64_t units) {
  float costs[COSTS_OUT], least = least_of(first->costs, query->dims, units, costs);
  const variant_record* chosen = first + number_in(least);
  if (LIKELY(!first->rivals)) return chosen;
  return rival_below(kernel, first->rivals, query, units, least, chosen);
}

/* Where a choice for such dims is kept, whichever it is. */
static kept_choice* place_of(const int64_t* dims, uint32_t num_dims) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < num_dims; i++) sum = 33 * sum + (uint64_t)dims[i];
  return &mine.choices[hash_top_bits(hash_mix(0, sum), KEPT_BITS)];
}

/* Where tensors begin, as far as that decides which rivals of the first schedule admit a call: bit i, whether
 * parameter i is at no multiple of PARAM_ALIGN, more than which none demands. */
static uint64_t starts_of(const kernel_record* kernel, const variant_record* first,
                          const dispatch_query* query) {
  uint64_t found = 0;
  for (uint64_t left = first->starts; left; left &= left - 1) {
    uint32_t param = (uint32_t)__builtin_ctzll(left);
    found |= (uint64_t)(known_alignment(kernel, query, param) < PARAM_ALIGN) << param;
  }
  return found;
}

static bool chose_before(const kept_choice* kept, const costs_fn* costs, const int64_t* dims,
                         uint32_t num_dims, int64_t units, uint64_t starts) {
  uint64_t differs = (uint64_t)(kept->units ^ units) | (kept->starts ^ starts);
  for (uint32_t i = 0; i < num_dims; i++) differs |= (uint64_t)(kept->dims[i] ^ dims[i]);
  return kept->costs == costs && !differs;
}

static APART const variant_record* choose_and_keep(kept_choice* kept, const kernel_record* kernel,
                                                   const variant_record* first, const dispatch_query* query,
                                                   int64_t units, uint64_t starts) {
  kept->chosen = choose(kernel, first, query, units);
  kept->costs = first->costs;
  kept->units = units;
  kept->starts = starts;
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) kept->dims[i] = query->dims[i];
  return kept->chosen;
}

/* Which schedules admit a call follows from its dims, the first of them, and where tensors begin that this
 * one leaves open. */
LOCAL const variant_record* cheapest(const kernel_record* kernel, const variant_record* first,
                                     const dispatch_query* query) {
  if (LIKELY(!first->costs)) return first;
  const int64_t* dims = query->dims;
  uint32_t num_dims = kernel->info.num_dims;
  int64_t units = units_of(query->exec);
  if (UNLIKELY(num_dims > KEPT_DIMS)) return choose(kernel, first, query, units);
  kept_choice* kept = place_of(dims, num_dims);
  uint64_t starts = starts_of(kernel, first, query);
  if (chose_before(kept, first->costs, dims, num_dims, units, starts)) return kept->chosen;
  return choose_and_keep(kept, kernel, first, query, units, starts);
}

LOCAL bool is_compared(const kernel_record* kernel, const variant_record* first,
                       const variant_record* variant) {
  const variant_record* head = variant - variant->choice;
  if (head == first) return true;
  for (const candidate* rival = first->rivals; rival; rival = next_rival(rival))
    if (&kernel->variants[rival->variant] == head) return true;
  return false;
}

LOCAL double cost_of(const variant_record* variant, const dispatch_query* query) {
  float costs[COSTS_OUT];
  const float* each = costs;
  least_of(variant->costs, query->dims, units_of(query->exec), costs);
  while (number_in(*each) != variant->choice) each++;
  return cost_marked(*each, 0);
}
