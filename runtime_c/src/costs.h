/* Arithmetic of the generated costs: doubles, to the same values as in tilec/costs.py. */
#ifndef TILEC_COSTS_H_
#define TILEC_COSTS_H_

static inline double cost_min(double a, double b) { return b < a ? b : a; }
static inline double cost_max(double a, double b) { return b > a ? b : a; }

/* For less than 2^51, without libm or a detour through integers: adding 1.5 * 2^52 leaves no bit for a
 * fraction. */
static inline double cost_ceil(double value) {
  double near = value + 0x1.8p52 - 0x1.8p52;
  return near + (near < value ? 1.0 : 0.0);
}

#endif
