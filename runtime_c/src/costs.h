/* Arithmetic of the generated costs: doubles, to the same values as in tilec/costs.py. */
#ifndef TILEC_COSTS_H_
#define TILEC_COSTS_H_
#include <stdint.h>

static inline double cost_min(double a, double b) { return b < a ? b : a; }
static inline double cost_max(double a, double b) { return b > a ? b : a; }

/* For less than 2^51, without libm or a detour through integers: adding 1.5 * 2^52 leaves no bit for a
 * fraction. */
static inline double cost_ceil(double value) {
  double near = value + 0x1.8p52 - 0x1.8p52;
  return near + (near < value ? 1.0 : 0.0);
}

/* A dim over 2^shift, rounded up: the same as the product with 2^-shift, which is exact, in half the time. */
static inline double cost_parts(int64_t dim, int shift) {
  return (double)((dim + ((INT64_C(1) << shift) - 1)) >> shift);
}

#endif
