/* Which variant serves a call: architectures from the best usable one down, and within one the build's. */
#include "dispatch/dispatch.h"

#include <string.h>

#include "dispatch/choice.h"
#include "dispatch/hash.h"
#include "settings.h"
#include "status.h"

/* The first variant whose pinned dims equal the query's; NULL if there is none. `words` are those of all
 * dims. Nothing branches on random values but the comparison of one hash. */
static const candidate* find_bucket(const pin_set* set, const int64_t* dims, const uint64_t* words) {
  uint64_t hash = 0, differs = 0;
  if (set->num_pins == 0) return set->candidates;
  for (uint32_t i = 0; i < set->num_pins; i++) hash += words[set->pins[i]];
  uint16_t displacement = set->displacements[hash_top_bits(hash, set->displacement_bits)];
  uint32_t first = set->slots[hash_top_bits(hash_mix(hash, displacement), set->slot_bits)];
  if (set->hashes[first] != hash) return NULL;
  const int64_t* keys = set->keys + first * set->num_pins;
  for (uint32_t i = 0; i < set->num_pins; i++) differs |= (uint64_t)(keys[i] ^ dims[set->pins[i]]);
  return differs ? NULL : set->candidates + first;
}

static uint32_t first_in_set(const kernel_record* kernel, const pin_set* set, const dispatch_query* query,
                             const uint64_t* words) {
  const candidate* one = find_bucket(set, query->dims, words);
  if (!one) return UINT32_MAX;
  for (;; one++) {
    if (candidate_admits(kernel, one, query)) return one->variant;
    if (one->last) return UINT32_MAX;
  }
}

/* Sets with equally many pins compete: the build's order decides between what each of them offers. */
static const variant_record* first_in_arch(const kernel_record* kernel, const arch_table* table,
                                           const dispatch_query* query) {
  uint32_t best = UINT32_MAX;
  uint64_t words[MAX_DIMS];
  if (table->num_sets > 0 && table->sets->num_pins > 0) hash_each(query->dims, kernel->info.num_dims, words);
  for (uint32_t i = 0; i < table->num_sets; i++) {
    if (best != UINT32_MAX && table->sets[i].num_pins < table->sets[i - 1].num_pins) break;
    uint32_t index = first_in_set(kernel, &table->sets[i], query, words);
    if (index < best) best = index;
  }
  return best == UINT32_MAX ? NULL : &kernel->variants[best];
}

static bool is_forced(const variant_record* variant) {
  const settings* now = settings_get();
  for (uint32_t i = 0; i < now->num_forced; i++) {
    if (variant->info.id == now->forced[i]) return true;
  }
  return false;
}

/* The variant for this kind of device that TILEC_FORCE_VARIANT names. */
LOCAL const variant_record* forced_variant(const kernel_record* kernel, const arch_list* archs) {
  for (uint32_t v = 0; v < kernel->info.num_variants; v++) {
    const variant_record* variant = &kernel->variants[v];
    if (this_library.archs[variant->arch].device_type == archs->device_type && is_forced(variant))
      return variant;
  }
  return NULL;
}

static COLD tilec_status dispatch_forced(const kernel_record* kernel, const variant_record* forced,
                                         const dispatch_query* query, const variant_record** out) {
  tilec_status status = check_archs(kernel->info.name, query->archs);
  if (status != TILEC_OK) return status;
  if (!arch_usable(query->archs, forced->arch)) {
    return fail(TILEC_ERR_NO_ARCH, "%s: TILEC_FORCE_VARIANT names variant %u, but this %s cannot run %s",
                kernel->info.name, forced->info.id, device_word(query->archs->device_type),
                forced->info.arch);
  }
  if (failing_guard(kernel, forced, query))
    return fail_no_variant(kernel, query->dims, "the variant in TILEC_FORCE_VARIANT is none that");
  *out = forced;
  return TILEC_OK;
}

static tilec_status dispatch_missed(const kernel_record* kernel, const dispatch_query* query) {
  const arch_list* archs = query->archs;
  tilec_status status = check_archs(kernel->info.name, archs);
  if (UNLIKELY(status != TILEC_OK)) return status;
  for (uint32_t i = 0; i < archs->count; i++) {
    if (kernel->tables[archs->archs[i]].num_sets > 0)
      return fail_no_variant(kernel, query->dims, "no variant");
  }
  return fail(TILEC_ERR_NO_ARCH, "%s: every variant is for an architecture that this %s may not run",
              kernel->info.name, device_word(archs->device_type));
}

LOCAL tilec_status dispatch(const kernel_record* kernel, const dispatch_query* query,
                            const variant_record** out) {
  const arch_list* archs = query->archs;
  const variant_record* forced = UNLIKELY(archs->forced) ? forced_variant(kernel, archs) : NULL;
  if (UNLIKELY(forced != NULL)) return dispatch_forced(kernel, forced, query, out);
  for (uint32_t i = 0; i < archs->count; i++) {
    const variant_record* found = first_in_arch(kernel, &kernel->tables[archs->archs[i]], query);
    if (!found) continue;
    *out = cheapest(kernel, found, query);
    return TILEC_OK;
  }
  return dispatch_missed(kernel, query);
}
