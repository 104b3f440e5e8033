"""C's functions of float32, and CUDA's of integers, for AMD GPUs, which have no library without ROCm: what
stands behind the header where code calls one of them.

Sines of up to 1e5 take quarter turns off in three parts (Cody and Waite, Software manual for the elementary
functions, 1980), larger ones by the bits of 2 / pi that count (Payne and Hanek, Radian reduction for
trigonometric functions, 1983). Other ranges are reduced by identities to where a few terms of a series have
the digits of a float, or a continued fraction has (tanh). Powers are computed in float64."""

from __future__ import annotations

import re

from tilec.backends.hip.codegen.header import powers

#: Each function and those before it that it calls, by name.
FUNCTIONS: dict[str, str] = {}


def _function(text: str) -> None:
    """Adds one, whose name stands in front of the first parenthesis."""
    found = re.search(r"(\w+)\(", text)
    assert found is not None
    FUNCTIONS[found[1]] = text.strip() + "\n"


def needed(body: str) -> str:
    """The functions that ``body`` calls, or calls by those of 16-bit types, and those that they call."""
    left, names = body, set()
    for name in reversed(FUNCTIONS):
        if re.search(rf"\b(?:{name}|h{name[:-1]})\(", left):
            names.add(name)
            left += FUNCTIONS[name]
    return "".join(text for name, text in FUNCTIONS.items() if name in names)


for _name, _builtin in (("round", "round"), ("nearbyint", "rint")):
    _function(f"__forceinline__ float {_name}f(float x) {{ return __builtin_{_builtin}f(x); }}")

_function("__forceinline__ float copysignf(float x, float sign) { return __builtin_copysignf(x, sign); }")

for _type, _suffix in (("unsigned", ""), ("unsigned long", "ll")):
    _count = "l" * len(_suffix[:1])
    _function(
        f"__forceinline__ int __popc{_suffix}({_type} value) {{ return __builtin_popcount{_count}(value); }}"
    )
    _function(
        f"__forceinline__ int __clz{_suffix}({_type} value) "
        f"{{ return value ? __builtin_clz{_count}(value) : int(8 * sizeof(value)); }}"
    )

# By the instructions alone, as CUDA's of these names are. Sines are of turns.
_TURNS, _LOG2_E, _LOG2_10, _LN_2, _LG_2 = 0.15915494, 1.4426950, 3.3219281, 0.69314718, 0.30103000
for _name, _text in {
    "__expf": f"__builtin_amdgcn_exp2f(x * {_LOG2_E}f)",
    "__exp10f": f"__builtin_amdgcn_exp2f(x * {_LOG2_10}f)",
    "__logf": f"__builtin_amdgcn_logf(x) * {_LN_2}f",
    "__log2f": "__builtin_amdgcn_logf(x)",
    "__log10f": f"__builtin_amdgcn_logf(x) * {_LG_2}f",
    "__sinf": f"__builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * {_TURNS}f))",
    "__cosf": f"__builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * {_TURNS}f))",
    "__tanf": "__sinf(x) * __builtin_amdgcn_rcpf(__cosf(x))",
    "__fsqrt_rn": "__builtin_sqrtf(x)",
    "__frcp_rn": "1.0f / x",
    "__frsqrt_rn": "(float)(1.0 / __builtin_sqrt((double)x))",
}.items():
    _function(f"__forceinline__ float {_name}(float x) {{ return {_text}; }}")
for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/")):
    _function(
        f"__forceinline__ float __f{_name}_rn(float a, float b) {{\n"
        f"#pragma clang fp contract(off)\n  return a {_sign} b;\n}}"
    )
_function("__forceinline__ float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }")

_function(r"""
__forceinline__ float nextafterf(float x, float to) {
  if (x != x || to != to) return x + to;
  if (x == to) return to;
  unsigned word = __builtin_bit_cast(unsigned, x);
  if (x == 0.0f) return __builtin_copysignf(0x1p-149f, to);
  return __builtin_bit_cast(float, (x < to) == (x > 0.0f) ? word + 1 : word - 1);
}
""")
_function(r"""
__forceinline__ float __fmul_ru(float a, float b) {
  float near = a * b, rest = __builtin_fmaf(a, b, -near);
  return rest > 0.0f ? nextafterf(near, __builtin_inff()) : near;
}
""")

# Long division: what is left after each power of two times y is exact.
_function(r"""
__noinline__ float fmodf(float x, float y) {
  float left = __builtin_fabsf(x), by = __builtin_fabsf(y);
  if (!(by > 0.0f) || !(left < __builtin_inff())) return __builtin_nanf("");
  if (left < by) return x;
  unsigned high = __builtin_bit_cast(unsigned, left), low = __builtin_bit_cast(unsigned, by);
  int power = int(high >> 23) - int(low >> 23);
  if (low < 0x800000) power += __builtin_clz(low) - 8;
  for (; power >= 0; --power) {
    float part = __builtin_amdgcn_ldexpf(by, power);
    if (left >= part) left -= part;
  }
  return __builtin_copysignf(left, x);
}
""")

_function(r"""
__forceinline__ float hypotf(float x, float y) {
  float inf = __builtin_inff();
  if (__builtin_fabsf(x) == inf || __builtin_fabsf(y) == inf) return inf;
  return float(__builtin_sqrt(double(x) * x + double(y) * y));
}
""")

_function(powers("exp10f", "0x1.a934f0p+1f", "0x1.2f346ep-24f", -46.0, 39.0))

_function("__forceinline__ float log10f(float x) { return logf(x) * 0x1.bcb7b2p-2f; }")

# What 1 + x has lost is a factor of the result (Hewlett-Packard's way).
_function(r"""
__forceinline__ float log1pf(float x) {
  float sum = 1.0f + x, apart = sum - 1.0f;
  if (!(__builtin_fabsf(x) < 0x1p24f)) return logf(sum);
  return apart == 0.0f ? x : logf(sum) * (x / apart);
}
""")

_function(r"""
__forceinline__ double tilec_exp2(double x) {
  double whole = __builtin_rint(x), rest = (x - whole) * 0.69314718055994530942, sum = 1.0;
  for (int term = 11; term > 0; --term) sum = 1.0 + sum * rest / term;
  long bits = long(whole) + 1023;
  return sum * __builtin_bit_cast(double, bits << 52);
}
""")

_function(r"""
__forceinline__ double tilec_log2(float x) {
  int power = 0;
  if (x < 0x1p-126f) x *= 0x1p24f, power = -24;
  unsigned word = __builtin_bit_cast(unsigned, x) - 0x3f3504f3;
  power += int(word) >> 23;
  double part = __builtin_bit_cast(float, (word & 0x7fffff) + 0x3f3504f3);
  double s = (part - 1.0) / (part + 1.0), square = s * s, sum = 0.0;
  for (int term = 17; term > 0; term -= 2) sum = sum * square + 1.0 / term;
  return power + s * sum * 2.8853900817779268147;
}
""")

_function(r"""
__noinline__ float powf(float x, float y) {
  if (y == 0.0f || x == 1.0f) return 1.0f;
  if (x != x || y != y) return x + y;
  float size = __builtin_fabsf(x), inf = __builtin_inff(), half = 0.5f * y;
  bool whole = __builtin_rintf(y) == y, odd = whole && __builtin_rintf(half) != half;
  if (x < 0.0f && !whole && size < inf && __builtin_fabsf(y) < inf) return __builtin_nanf("");
  float sign = odd && __builtin_bit_cast(int, x) < 0 ? -1.0f : 1.0f;
  if (size == 0.0f) return y < 0.0f ? sign * inf : sign * 0.0f;
  if (size == inf) return y < 0.0f ? sign * 0.0f : sign * inf;
  if (__builtin_fabsf(y) == inf) return size == 1.0f ? 1.0f : (size > 1.0f) == (y > 0.0f) ? inf : 0.0f;
  double power = tilec_log2(size) * y;
  power = power > 200.0 ? 200.0 : power < -200.0 ? -200.0 : power;
  return sign * float(tilec_exp2(power));
}
""")

# x less whole quarter turns, and how many of them there are, but for multiples of four.
_function(r"""
__noinline__ float tilec_far_turns(float x, int& turns) {
  const unsigned bits[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                            0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  unsigned word = __builtin_bit_cast(unsigned, x), many = (word & 0x7fffff) | 0x800000;
  int skipped = int(word >> 23 & 255) - 120, at = skipped >> 5, shift = skipped & 31;
  unsigned long high = (unsigned long)bits[at] << 32 | bits[at + 1];
  unsigned long low = (unsigned long)bits[at + 2] << 32 | bits[at + 3];
  if (shift) high = high << shift | low >> (64 - shift), low = low << shift;
  unsigned long product = high * many + ((low >> 32) * many >> 32);
  turns = int(product >> 62);
  long rest = long(product << 2);
  turns += rest < 0;
  float angle = float(double(rest) * 0x1.921fb54442d18p-64);
  if (__builtin_bit_cast(int, x) < 0) turns = -turns, angle = -angle;
  return angle;
}
""")

_function(r"""
__forceinline__ float tilec_turns(float x, int& turns) {
  if (!(__builtin_fabsf(x) < 1e5f)) {
    if (!(__builtin_fabsf(x) < __builtin_inff())) return turns = 0, x - x;
    return tilec_far_turns(x, turns);
  }
  float whole = __builtin_rintf(x * 0x1.45f306p-1f);
  turns = int(whole);
  float rest = __builtin_fmaf(whole, -0x1.921fb6p+0f, x);
  rest = __builtin_fmaf(whole, 0x1.777a5cp-25f, rest);
  return __builtin_fmaf(whole, 0x1.ee59dap-50f, rest);
}
""")

_function(r"""
__forceinline__ float tilec_sine(float x) {
  float square = x * x;
  float sum = __builtin_fmaf(square, 1.0f / 362880.0f, -1.0f / 5040.0f);
  sum = __builtin_fmaf(square, sum, 1.0f / 120.0f);
  sum = __builtin_fmaf(square, sum, -1.0f / 6.0f);
  return __builtin_fmaf(x * square, sum, x);
}
""")

_function(r"""
__forceinline__ float tilec_cosine(float x) {
  float square = x * x;
  float sum = __builtin_fmaf(square, -1.0f / 3628800.0f, 1.0f / 40320.0f);
  sum = __builtin_fmaf(square, sum, -1.0f / 720.0f);
  sum = __builtin_fmaf(square, sum, 1.0f / 24.0f);
  return __builtin_fmaf(square * square, sum, __builtin_fmaf(square, -0.5f, 1.0f));
}
""")

_function(r"""
__forceinline__ float sinf(float x) {
  int turns;
  float rest = tilec_turns(x, turns);
  float found = turns & 1 ? tilec_cosine(rest) : tilec_sine(rest);
  return turns & 2 ? -found : found;
}
""")

_function(r"""
__forceinline__ float cosf(float x) {
  int turns;
  float rest = tilec_turns(x, turns);
  float found = turns & 1 ? tilec_sine(rest) : tilec_cosine(rest);
  return turns + 1 & 2 ? -found : found;
}
""")

_function(r"""
__forceinline__ float tanf(float x) {
  int turns;
  float rest = tilec_turns(x, turns), sine = tilec_sine(rest), cosine = tilec_cosine(rest);
  return turns & 1 ? -cosine / sine : sine / cosine;
}
""")

_function(r"""
__forceinline__ float atanf(float x) {
  float size = __builtin_fabsf(x), base = 0.0f, more = 0.0f;
  bool far = size > 2.41421356f, near = size < 0.41421356f;
  if (far) base = 0x1.921fb6p+0f, more = -0x1.777a5cp-25f, size = -1.0f / size;
  else if (!near) base = 0x1.921fb6p-1f, more = -0x1.777a5cp-26f, size = (size - 1.0f) / (size + 1.0f);
  float square = size * size, sum = 1.0f / 17.0f;
  for (int term = 15; term > 1; term -= 2) sum = 1.0f / float(term) - square * sum;
  float found = base + (size - size * square * sum + more);
  return __builtin_copysignf(found, x);
}
""")

_function(r"""
__forceinline__ float atan2f(float y, float x) {
  if (x != x || y != y) return x + y;
  float a = __builtin_fabsf(x), b = __builtin_fabsf(y), found;
  if (a == b) found = a == 0.0f ? 0.0f : 0x1.921fb6p-1f;
  else if (a >= b) found = atanf(b / a);
  else found = 0x1.921fb6p+0f - (atanf(a / b) + 0x1.777a5cp-25f);
  if (__builtin_bit_cast(int, x) < 0) found = 0x1.921fb6p+1f - (found + 0x1.777a5cp-24f);
  return __builtin_copysignf(found, y);
}
""")

_function(r"""
__forceinline__ float asinf(float x) { return atan2f(x, __builtin_sqrtf((1.0f - x) * (1.0f + x))); }
""")

_function(r"""
__forceinline__ float acosf(float x) { return atan2f(__builtin_sqrtf((1.0f - x) * (1.0f + x)), x); }
""")

_function(r"""
__forceinline__ float tanhf(float x) {
  float size = __builtin_fabsf(x), square = x * x;
  float over = __builtin_fmaf(square, square + 105.0f, 945.0f);
  float under = __builtin_fmaf(square, __builtin_fmaf(square, 15.0f, 420.0f), 945.0f);
  float found = size < 0.625f ? size * over / under : 1.0f - 2.0f / (expf(2.0f * size) + 1.0f);
  return __builtin_copysignf(found, x);
}
""")

_function(r"""
__forceinline__ float sinhf(float x) {
  float size = __builtin_fabsf(x), square = x * x, root = expf(0.5f * size), sum = 1.0f;
  for (int term = 10; term > 0; term -= 2) sum = 1.0f + sum * square / float(term * (term + 1));
  float found = size < 1.0f ? size * sum : (0.5f * root) * root - 0.5f / (root * root);
  return __builtin_copysignf(found, x);
}
""")

_function(r"""
__forceinline__ float coshf(float x) {
  float root = expf(0.5f * __builtin_fabsf(x));
  return (0.5f * root) * root + 0.5f / (root * root);
}
""")

_function(r"""
__forceinline__ float asinhf(float x) {
  float size = __builtin_fabsf(x), square = size * size;
  float found = size < 0x1p30f ? log1pf(size + square / (1.0f + __builtin_sqrtf(1.0f + square)))
                               : logf(size) + 0x1.62e430p-1f;
  return __builtin_copysignf(found, x);
}
""")

_function(r"""
__forceinline__ float acoshf(float x) {
  float more = x - 1.0f;
  return x < 0x1p30f ? log1pf(more + __builtin_sqrtf(more * (x + 1.0f))) : logf(x) + 0x1.62e430p-1f;
}
""")

_function(r"""
__forceinline__ float atanhf(float x) {
  float size = __builtin_fabsf(x);
  return __builtin_copysignf(0.5f * log1pf((size + size) / (1.0f - size)), x);
}
""")
