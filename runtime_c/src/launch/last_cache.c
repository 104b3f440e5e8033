/* What kernels call to learn how much the last cache holds: results beyond that are written past it. */
#include <stdatomic.h>
#include <stdint.h>

#include "compiler.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* CPUID's leaves that describe caches, of Intel (SDM volume 2A) and AMD (APM volume 3), a subleaf each. */
enum { INTEL_CACHES = 4, MOST_CACHES = 16 };
#define AMD_CACHES 0x8000001Du

static int64_t largest_cache(unsigned leaf) {
  int64_t largest = 0;
  unsigned a, b, c, d;
  for (unsigned i = 0; i < MOST_CACHES; i++) {
    if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || !(a & 31)) break;
    int64_t ways = (b >> 22) + 1, parts = (b >> 12 & 1023) + 1, line = (b & 4095) + 1;
    int64_t size = ways * parts * line * ((int64_t)c + 1);
    if (size > largest) largest = size;
  }
  return largest;
}

/* Bytes; more than any tensor has where the processor does not say. Asked once, as a hypervisor answers. */
KERNELS_CALL int64_t tilec_last_cache_bytes(void);
KERNELS_CALL int64_t tilec_last_cache_bytes(void) {
  static _Atomic int64_t known;
  int64_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
  if (LIKELY(bytes)) return bytes;
  int64_t intel = largest_cache(INTEL_CACHES), amd = largest_cache(AMD_CACHES);
  bytes = intel > amd ? intel : amd;
  if (!bytes) bytes = INT64_MAX;
  atomic_store_explicit(&known, bytes, memory_order_relaxed);
  return bytes;
}
#endif
