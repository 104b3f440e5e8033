/* Arithmetic of the generated costs: doubles, to the same values as in tilec/costs.py. */
#ifndef TILEC_COSTS_H_
#define TILEC_COSTS_H_
#include <stdint.h>

static inline double cost_min(double a, double b) { return b < a ? b : a; }
static inline double cost_max(double a, double b) { return b > a ? b : a; }

/* For what 64 bits hold, without libm. */
static inline double cost_ceil(double value) {
  double whole = (double)(int64_t)value;
  return whole + (double)(whole < value);
}

#endif
