/* Arithmetic of the generated costs: doubles, to the same values as in tilec/costs.py, one or several at a
 * time. */
#ifndef TILEC_COSTS_H_
#define TILEC_COSTS_H_
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"
#include "records.h"

INLINE double cost_min(double a, double b) { return b < a ? b : a; }
INLINE double cost_max(double a, double b) { return b > a ? b : a; }

/* Rounded up, but for a millionth: tilec/costs.py. Where `rounds` says that the processor has an instruction
 * for it, by that one. Else without libm, comparisons or a detour through integers: of less than 2^51, adding
 * 1.5 * 2^52 leaves no bit for a fraction. The two differ in the sign of zeros, which COST_UNSIGNED drops. */
#define COST_UP             (0.5 - 0x1p-20)
#define COST_WHOLE          0x1.8p52
#define COST_TO_WHOLE(cost) ((cost) + COST_WHOLE - COST_WHOLE)
#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_roundeven)
#define COST_ROUNDED(cost) __builtin_elementwise_roundeven(cost)
#endif
#endif
#ifndef COST_ROUNDED
#define COST_ROUNDED COST_TO_WHOLE
#endif
#define COST_CEIL(cost)     (rounds ? COST_ROUNDED((cost) + COST_UP) : COST_TO_WHOLE((cost) + COST_UP))
#define COST_UNSIGNED(cost) ((cost) + 0.0)

/* Several costs, each to the value that it has alone. Macros, as functions would have to say in which
 * registers a processor without such vectors hands them over. */
#define COST_VECTOR(count)                                               \
  typedef double cost_##count __attribute__((vector_size(8 * (count)))); \
  typedef int64_t cost_bits_##count __attribute__((vector_size(8 * (count))))
COST_VECTOR(2);
COST_VECTOR(4);
COST_VECTOR(8);
#define COST_CHOSEN(count, first, a, b) \
  ((cost_##count)(((cost_bits_##count)(a) & (first)) | ((cost_bits_##count)(b) & ~(first))))
#define COST_MIN(count, a, b) COST_CHOSEN(count, (a) < (b), a, b)
#define COST_MAX(count, a, b) COST_CHOSEN(count, (a) > (b), a, b)

/* The last bits of a cost give way to the number of its variant, so that the least says whose it is. */
#define COST_NUMBERS 63
#define COST_MARKED(count, cost, numbers) \
  ((cost_##count)(((cost_bits_##count)COST_UNSIGNED(cost) & ~(int64_t)COST_NUMBERS) | (numbers)))

INLINE int64_t cost_bits(double cost) {
  int64_t bits;
  memcpy(&bits, &cost, sizeof(bits));
  return bits;
}

INLINE double cost_marked(double cost, int64_t number) {
  int64_t bits = (cost_bits(COST_UNSIGNED(cost)) & ~(int64_t)COST_NUMBERS) | number;
  memcpy(&cost, &bits, sizeof(bits));
  return cost;
}

INLINE double cost_least_2(const double* of) { return cost_min(of[0], of[1]); }
INLINE double cost_least_4(const double* of) { return cost_min(cost_least_2(of), cost_least_2(of + 2)); }
INLINE double cost_least_8(const double* of) { return cost_min(cost_least_4(of), cost_least_4(of + 4)); }
#define COST_LEAST(count, costs)          \
  ({                                      \
    double each[count];                   \
    memcpy(each, &(costs), sizeof(each)); \
    cost_least_##count(each);             \
  })

/* The function of a list for each level of choice.c, by vectors that it has: `width`, and so on, are how many
 * numbers the function computes at once, `target` is what the compiler may use for it. */
#define COST_LEVEL(target, name, level, width, rounds)                               \
  target static double name##level(const int64_t* dims, double share, double* out) { \
    return name##_##width(dims, share, out, rounds);                                 \
  }
#if defined(__x86_64__)
#define COST_LEVELS(name, narrow, wide, widest)                               \
  COST_LEVEL(, name, _narrow, narrow, false)                                  \
  COST_LEVEL(__attribute__((target("avx2"))), name, _wide, wide, true)        \
  COST_LEVEL(__attribute__((target("avx512f"))), name, _widest, widest, true) \
  static const costs_fn name##_levels[] = {name##_narrow, name##_wide, name##_widest};
#else
#define COST_LEVELS(name, narrow, wide, widest) \
  COST_LEVEL(, name, _narrow, narrow, true)     \
  static const costs_fn name##_levels[] = {name##_narrow};
#endif

#endif
