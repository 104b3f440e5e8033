/* The hash behind exact-shape dispatch; tilec/package/tables/perfect_hash.py computes the same numbers at
 * build time. */
#ifndef TILEC_HASH_H_
#define TILEC_HASH_H_
#include <stdint.h>

/* Multiplicative hashing with the golden ratio (Knuth, TAOCP volume 3, section 6.4), folded so that the high
 * bits reach the low ones before the next value. */
#define HASH_GOLDEN UINT64_C(0x9E3779B97F4A7C15)
static inline uint64_t hash_folded(uint64_t hash) { return hash ^ (hash >> 32); }
static inline uint64_t hash_mix(uint64_t hash, uint64_t value) {
  return hash_folded((hash ^ value) * HASH_GOLDEN);
}

/* One word for each dim, by a factor of its own: the sum of any of them is the hash of these dims. */
static inline void hash_each(const int64_t* dims, uint32_t num_dims, uint64_t* words) {
  uint64_t factor = HASH_GOLDEN;
  for (uint32_t i = 0; i < num_dims; i++, factor *= HASH_GOLDEN)
    words[i] = hash_folded((uint64_t)dims[i] * factor);
}

static inline uint32_t hash_top_bits(uint64_t hash, uint32_t bits) { return (uint32_t)(hash >> (64 - bits)); }

#endif
