/* Arithmetic of the generated costs: doubles, to the same values as in tilec/costs.py. */
#ifndef TILEC_COSTS_H_
#define TILEC_COSTS_H_
#include <stdint.h>

static inline double cost_min(double a, double b) { return b < a ? b : a; }
static inline double cost_max(double a, double b) { return b > a ? b : a; }

/* Rounded up, but for a millionth: tilec/costs.py. Without libm, comparisons or a detour through integers: of
 * less than 2^51, adding 1.5 * 2^52 leaves no bit for a fraction. */
#define COST_UP    (0.5 - 0x1p-20)
#define COST_WHOLE 0x1.8p52
static inline double cost_ceil(double value) { return value + COST_UP + COST_WHOLE - COST_WHOLE; }

/* A dim over 2^shift, rounded up: the same as the product with 2^-shift, which is exact, in half the time. */
static inline double cost_parts(int64_t dim, int shift) {
  return (double)((dim + ((INT64_C(1) << shift) - 1)) >> shift);
}

/* Two costs at a time, each to the value that it has alone. */
typedef double cost_pair __attribute__((vector_size(16)));

static inline cost_pair cost_two(double a, double b) { return (cost_pair){a, b}; }
static inline cost_pair cost_both(double a) { return (cost_pair){a, a}; }

static inline cost_pair cost_ceil_two(cost_pair value) {
  return value + cost_both(COST_UP) + cost_both(COST_WHOLE) - cost_both(COST_WHOLE);
}

#define COST_PAIR(first, second, value) \
  do {                                  \
    cost_pair both = value;             \
    first = both[0];                    \
    second = both[1];                   \
  } while (0)

#endif
