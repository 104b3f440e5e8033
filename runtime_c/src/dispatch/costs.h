/* Arithmetic of the generated costs: single precision, to the same values as in tilec/costs.py, one or
 * several at a time. */
#ifndef TILEC_COSTS_H_
#define TILEC_COSTS_H_
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"
#include "records.h"

INLINE float cost_min(float a, float b) { return b < a ? b : a; }
INLINE float cost_max(float a, float b) { return b > a ? b : a; }

/* Several costs, each to the value that it has alone. Macros, as functions would have to say in which
 * registers a processor without such vectors hands them over. */
#define COST_VECTOR(count)                                              \
  typedef float cost_##count __attribute__((vector_size(4 * (count)))); \
  typedef int32_t cost_bits_##count __attribute__((vector_size(4 * (count))))
COST_VECTOR(4);
COST_VECTOR(8);
COST_VECTOR(16);
typedef float cost_1;
#define COST_CHOSEN(count, first, a, b) \
  ((cost_##count)(((cost_bits_##count)(a) & (first)) | ((cost_bits_##count)(b) & ~(first))))
#define COST_MIN(count, a, b) COST_CHOSEN(count, (a) < (b), a, b)
#define COST_MAX(count, a, b) COST_CHOSEN(count, (a) > (b), a, b)

/* Rounded up by the instruction that all levels but the first have for it, and other processors, too. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_ceil)
#define COST_CEIL(count, cost) __builtin_elementwise_ceil(cost)
#endif
#endif
#if !defined(COST_CEIL) && defined(__x86_64__)
#include <immintrin.h>
#define COST_CEIL(count, cost) COST_CEIL_##count(cost)
#define COST_CEIL_1(cost)      __builtin_ceilf(cost)
#define COST_CEIL_4(cost)      ((cost_4)_mm_ceil_ps((__m128)(cost)))
#define COST_CEIL_8(cost)      ((cost_8)_mm256_ceil_ps((__m256)(cost)))
#define COST_CEIL_16(cost)     ((cost_16)_mm512_roundscale_ps((__m512)(cost), 10))
#endif

/* The same of the first level. Without an instruction it goes through integers, which numbers above -2^31 are
 * rounded down to, and to the number itself from COST_FINE on, where all are whole. The two differ in the
 * sign of zeros, which COST_UNSIGNED drops. */
#define COST_FINE 0x1p30f
#if defined(COST_CEIL) && !defined(__x86_64__)
#define COST_RAISED COST_CEIL
#else
#define COST_RAISED(count, cost) COST_RAISED_##count(cost)
#endif
#define COST_RAISED_1(cost) cost_raised(cost)
#define COST_RAISED_4(cost) COST_ALL_RAISED(4, cost)
#define COST_ALL_RAISED(count, cost)                                                  \
  ({                                                                                  \
    cost_##count each = (cost), most = (cost_##count){0} + COST_FINE;                 \
    cost_##count low = COST_MIN(count, each, most);                                   \
    cost_bits_##count cut = __builtin_convertvector(low, cost_bits_##count);          \
    cost_##count whole = __builtin_convertvector(cut, cost_##count);                  \
    cost_##count raised = whole - __builtin_convertvector(whole < low, cost_##count); \
    COST_MAX(count, raised, each);                                                    \
  })
#define COST_UNSIGNED(cost) ((cost) + 0.0f)

INLINE float cost_raised(float cost) {
  float low = cost_min(cost, COST_FINE), whole = (float)(int32_t)low;
  return cost_max(whole + (whole < low ? 1.0f : 0.0f), cost);
}

/* The last bits of a cost give way to the number of its variant, so that the least says whose it is. */
#define COST_NUMBERS 63
#define COST_MARKED(count, cost, numbers) \
  ((cost_##count)(((cost_bits_##count)COST_UNSIGNED(cost) & ~COST_NUMBERS) | (numbers)))

INLINE int32_t cost_bits(float cost) {
  int32_t bits;
  memcpy(&bits, &cost, sizeof(bits));
  return bits;
}

INLINE float cost_marked(float cost, int32_t number) {
  int32_t bits = (cost_bits(COST_UNSIGNED(cost)) & ~COST_NUMBERS) | number;
  memcpy(&cost, &bits, sizeof(bits));
  return cost;
}

/* The least of a vector: of both halves, place by place, and so on. */
#define COST_LEAST(count, costs) COST_LEAST_##count(costs)
#define COST_LEAST_16(costs)     COST_LEAST_8(COST_LEAST_HALF(8, costs))
#define COST_LEAST_8(costs)      COST_LEAST_4(COST_LEAST_HALF(4, costs))
#define COST_LEAST_4(costs)                                   \
  ({                                                          \
    float of[4];                                              \
    cost_4 four = (costs);                                    \
    memcpy(of, &four, sizeof(of));                            \
    cost_min(cost_min(of[0], of[1]), cost_min(of[2], of[3])); \
  })
#define COST_LEAST_HALF(half, costs)  \
  ({                                  \
    cost_##half both[2];              \
    __typeof__(costs) all = (costs);  \
    memcpy(both, &all, sizeof(both)); \
    COST_MIN(half, both[0], both[1]); \
  })

/* What the functions of a list are compiled for, one for each level of choice.c by the vectors that it has,
 * and where they are. */
#if defined(__x86_64__)
#define COST_WIDE         __attribute__((target("avx2")))
#define COST_WIDEST       __attribute__((target("avx512f")))
#define COST_LEVELS(name) static const costs_fn name##_levels[] = {name##_narrow, name##_wide, name##_widest};
#else
#define COST_LEVELS(name) static const costs_fn name##_levels[] = {name##_narrow};
#endif

#endif
