/* The hash behind exact-shape dispatch; tilec/package/perfect_hash.py computes the same numbers at build
 * time. */
#ifndef TILEC_HASH_H_
#define TILEC_HASH_H_
#include <stdint.h>

/* Multiplicative hashing with the golden ratio (Knuth, TAOCP volume 3, section 6.4), folded so that the high
 * bits reach the low ones before the next value. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 32);
}

static inline uint32_t hash_top_bits(uint64_t hash, uint32_t bits) { return (uint32_t)(hash >> (64 - bits)); }

#endif
