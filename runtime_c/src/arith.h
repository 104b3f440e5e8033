/* Integer arithmetic of generated texts: 64 bits, floor division as in Python, every overflow noticed. */
#ifndef TILEC_ARITH_H_
#define TILEC_ARITH_H_
#include <stdbool.h>
#include <stdint.h>

static inline int64_t int_add(bool* ok, int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) *ok = false;
  return sum;
}

static inline int64_t int_sub(bool* ok, int64_t a, int64_t b) {
  int64_t difference;
  if (__builtin_sub_overflow(a, b, &difference)) *ok = false;
  return difference;
}

static inline int64_t int_mul(bool* ok, int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) *ok = false;
  return product;
}

static inline bool int_divisible(bool* ok, int64_t a, int64_t b) {
  if (b != 0 && !(a == INT64_MIN && b == -1)) return true;
  *ok = false;
  return false;
}

static inline int64_t int_floordiv(bool* ok, int64_t a, int64_t b) {
  if (!int_divisible(ok, a, b)) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t int_floormod(bool* ok, int64_t a, int64_t b) {
  if (!int_divisible(ok, a, b)) return 0;
  int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline int64_t int_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t int_max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
