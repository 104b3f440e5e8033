"""What stands above generated Metal source: CUDA's names in the texts of device helpers, and what they are in
Metal's language (Metal Shading Language Specification 3)."""

from __future__ import annotations

import re

from tilec.backends.cuda.codegen.any_words import DECLARATIONS

_LANGUAGE = (
    r"""#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
"""
    + DECLARATIONS
    + r"""
/* Where a thread is: what helpers get that ask for it. */
struct tilec_place { uint3 blocks, block, item; uint lane; };
"""
)

_BITS = r"""
inline float __int_as_float(int bits) { return as_type<float>(bits); }
inline float __uint_as_float(uint bits) { return as_type<float>(bits); }
inline int __float_as_int(float value) { return as_type<int>(value); }
inline uint __float_as_uint(float value) { return as_type<uint>(value); }
inline uint __byte_perm(uint low, uint high, uint selector) {
  ulong both = ulong(high) << 32 | low;
  uint made = 0;
  for (uint i = 0; i < 4; i++) made |= uint(both >> ((selector >> 4 * i & 7) * 8) & 0xff) << 8 * i;
  return made;
}
inline int __dp4a(int a, int b, int sum) {
  char4 left = as_type<char4>(a), right = as_type<char4>(b);
  return sum + int(left.x) * right.x + int(left.y) * right.y + int(left.z) * right.z + int(left.w) * right.w;
}
inline uint __dp4a(uint a, uint b, uint sum) {
  uchar4 left = as_type<uchar4>(a), right = as_type<uchar4>(b);
  return sum + uint(left.x) * right.x + uint(left.y) * right.y + uint(left.z) * right.z +
         uint(left.w) * right.w;
}
inline int __clz(int value) { return int(clz(uint(value))); }
inline float __expf(float x) { return fast::exp(x); }
inline float __exp10f(float x) { return fast::exp10(x); }
inline float __logf(float x) { return fast::log(x); }
inline float __log2f(float x) { return fast::log2(x); }
inline float __log10f(float x) { return fast::log10(x); }
inline float __sinf(float x) { return fast::sin(x); }
inline float __cosf(float x) { return fast::cos(x); }
inline float __tanf(float x) { return fast::tan(x); }
inline int __clzll(long value) { return int(clz(ulong(value))); }
inline int __popc(uint value) { return int(popcount(value)); }
inline int __popcll(ulong value) { return int(popcount(value)); }
"""

#: Barriers, shuffles, votes; lanes exchange words, and wider values are two of them.
_LANES = r"""
inline void tilec_sync() { threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); }
inline void __syncwarp(uint = 0xffffffffu) {
  simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
}
template <typename T> inline T tilec_from(T value, uint lane) { return simd_shuffle(value, ushort(lane)); }
inline long tilec_from(long value, uint lane) {
  uint2 words = as_type<uint2>(value);
  uint2 found = {simd_shuffle(words.x, ushort(lane)), simd_shuffle(words.y, ushort(lane))};
  return as_type<long>(found);
}
inline ulong tilec_from(ulong value, uint lane) { return ulong(tilec_from(long(value), lane)); }
template <typename T> inline T __shfl_sync(tilec_place here, uint, T value, int lane, int width = 32) {
  return tilec_from(value, (here.lane & ~uint(width - 1)) + (uint(lane) & uint(width - 1)));
}
template <typename T> inline T __shfl_xor_sync(tilec_place here, uint, T value, int mask, int = 32) {
  return tilec_from(value, here.lane ^ uint(mask));
}
template <typename T> inline T __shfl_up_sync(tilec_place here, uint, T value, int by, int width = 32) {
  uint place = here.lane & uint(width - 1);
  return tilec_from(value, place < uint(by) ? here.lane : here.lane - uint(by));
}
template <typename T> inline T __shfl_down_sync(tilec_place here, uint, T value, int by, int width = 32) {
  uint place = here.lane & uint(width - 1);
  return tilec_from(value, place + uint(by) >= uint(width) ? here.lane : here.lane + uint(by));
}
template <typename T> inline int __any_sync(uint, T value) { return simd_any(value != 0); }
template <typename T> inline int __all_sync(uint, T value) { return simd_all(value != 0); }
template <typename T> inline uint __ballot_sync(uint mask, T value) {
  return uint(ulong(simd_vote::vote_t(simd_ballot(value != 0)))) & mask;
}
"""

_ATOMICS = (
    "".join(
        f"inline {kind} atomic{name}({space} {kind}* at, {kind} value) {{\n"
        f"  return atomic_fetch_{name.lower()}_explicit(({space} atomic_{kind}*)at, value, "
        "memory_order_relaxed);\n}\n"
        for name in ("Add", "Max", "Min", "Or")
        for kind in ("int", "uint")
        for space in ("device", "threadgroup")
    )
    + r"""inline float atomicAdd(device float* at, float value) {
  return atomic_fetch_add_explicit((device atomic_float*)at, value, memory_order_relaxed);
}
"""
    + "".join(
        f"""inline uint atomicCAS({space} uint* at, uint expected, uint made) {{
  uint held = expected;
  while (!atomic_compare_exchange_weak_explicit(({space} atomic_uint*)at, &held, made, memory_order_relaxed,
                                                memory_order_relaxed))
    if (held != expected) break;
  return held;
}}
inline uint tilec_ld_relaxed_gpu_b32({space} const uint* at) {{
  return atomic_load_explicit((const {space} atomic_uint*)at, memory_order_relaxed);
}}
"""
        for space in ("device", "threadgroup")
    )
    + r"""inline float atomicAdd(threadgroup float* at, float value) {
  threadgroup uint* cell = (threadgroup uint*)at;
  uint held = tilec_ld_relaxed_gpu_b32(cell), before;
  do {
    before = held;
    held = atomicCAS(cell, before, as_type<uint>(as_type<float>(before) + value));
  } while (held != before);
  return as_type<float>(before);
}
"""
)

_MATH = "".join(
    f"inline float {name}f(float x) {{ return precise::{name}(x); }}\n"
    for name in ("exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "sinh", "cosh",
                 "asin", "acos", "atan", "asinh", "acosh", "atanh", "sqrt", "rsqrt")
) + "".join(
    f"inline float {name}f(float x) {{ return {name}(x); }}\n" for name in ("fabs", "floor", "ceil", "trunc",
                                                                           "rint", "round")
) + "".join(
    f"inline float {name}f(float a, float b) {{ return {name}(a, b); }}\n"
    for name in ("fmax", "fmin", "fmod", "copysign")
) + r"""inline float powf(float a, float b) { return precise::pow(a, b); }
inline float atan2f(float a, float b) { return precise::atan2(a, b); }
inline float fmaf(float a, float b, float c) { return fma(a, b, c); }
inline float nearbyintf(float x) { return rint(x); }
inline float log1pf(float x) {
  float sum = 1.0f + x, apart = sum - 1.0f;
  if (!(fabs(x) < 16777216.0f)) return precise::log(sum);
  return apart == 0.0f ? x : precise::log(sum) * (x / apart);
}
inline float hypotf(float x, float y) {
  float a = fmax(fabs(x), fabs(y)), b = fmin(fabs(x), fabs(y)), part = b / a;
  if (a == 0.0f || a == as_type<float>(0x7f800000u)) return a;
  return x != x || y != y ? x + y : a * precise::sqrt(fma(part, part, 1.0f));
}
inline float nextafterf(float x, float to) {
  if (x != x || to != to) return x + to;
  if (x == to) return to;
  uint word = as_type<uint>(x);
  if (x == 0.0f) return as_type<float>((as_type<uint>(to) & 0x80000000u) | 1u);
  return as_type<float>((x < to) == (x > 0.0f) ? word + 1u : word - 1u);
}
inline float __fmul_ru(float a, float b) {
  float near = a * b, rest = fma(a, b, -near);
  return rest > 0.0f ? nextafterf(near, as_type<float>(0x7f800000u)) : near;
}
inline float __fdividef(float a, float b) { return a / b; }
"""  # fmt: skip

#: Instructions of PTX that compute, by their names with "_" for "."; floats of 16 bits are rounded to
#: nearest, ties to even, and a NaN stays one.
_INSTRUCTIONS = r"""
inline ushort tilec_cvt_rn_f16_f32(float value) { return as_type<ushort>(half(value)); }
inline ushort tilec_cvt_rn_bf16_f32(float value) {
  uint word = as_type<uint>(value);
  return value != value ? 0x7fff : ushort((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
inline float tilec_cvt_f32_f16(ushort bits) { return float(as_type<half>(bits)); }
inline float tilec_cvt_f32_bf16(ushort bits) { return as_type<float>(uint(bits) << 16); }
inline uint tilec_cvt_rn_f16x2_f32(float high, float low) {
  return uint(tilec_cvt_rn_f16_f32(high)) << 16 | tilec_cvt_rn_f16_f32(low);
}
inline uint tilec_cvt_rn_bf16x2_f32(float high, float low) {
  return uint(tilec_cvt_rn_bf16_f32(high)) << 16 | tilec_cvt_rn_bf16_f32(low);
}
inline half tilec_low_half(uint pair) { return as_type<half>(ushort(pair)); }
inline half tilec_high_half(uint pair) { return as_type<half>(ushort(pair >> 16)); }
inline uint tilec_halves(half low, half high) {
  return uint(as_type<ushort>(high)) << 16 | as_type<ushort>(low);
}
inline uint tilec_sub_rn_f16x2(uint a, uint b) {
  return tilec_halves(tilec_low_half(a) - tilec_low_half(b), tilec_high_half(a) - tilec_high_half(b));
}
inline uint tilec_mul_rn_f16x2(uint a, uint b) {
  return tilec_halves(tilec_low_half(a) * tilec_low_half(b), tilec_high_half(a) * tilec_high_half(b));
}
inline uint tilec_fma_rn_f16x2(uint a, uint b, uint c) {
  return tilec_halves(fma(tilec_low_half(a), tilec_low_half(b), tilec_low_half(c)),
                      fma(tilec_high_half(a), tilec_high_half(b), tilec_high_half(c)));
}
inline float tilec_low_bfloat(uint pair) { return as_type<float>(pair << 16); }
inline float tilec_high_bfloat(uint pair) { return as_type<float>(pair & 0xffff0000u); }
inline uint tilec_sub_rn_bf16x2(uint a, uint b) {
  return tilec_cvt_rn_bf16x2_f32(tilec_high_bfloat(a) - tilec_high_bfloat(b),
                                 tilec_low_bfloat(a) - tilec_low_bfloat(b));
}
inline uint tilec_mul_rn_bf16x2(uint a, uint b) {
  return tilec_cvt_rn_bf16x2_f32(tilec_high_bfloat(a) * tilec_high_bfloat(b),
                                 tilec_low_bfloat(a) * tilec_low_bfloat(b));
}
inline uint tilec_fma_rn_bf16x2(uint a, uint b, uint c) {
  return tilec_cvt_rn_bf16x2_f32(fma(tilec_high_bfloat(a), tilec_high_bfloat(b), tilec_high_bfloat(c)),
                                 fma(tilec_low_bfloat(a), tilec_low_bfloat(b), tilec_low_bfloat(c)));
}
inline uint tilec_lop3_b32(uint a, uint b, uint c, uint table) {
  return table == 0xEA ? (a & b) | c : (a & b) ^ c;
}
inline half tilec_half_of_e4m3(uint bits) {
  half found = as_type<half>(ushort((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * half(256.0f);
  return (bits & 0x7f) == 0x7f ? as_type<half>(ushort(0x7fff)) : found;
}
inline uint tilec_cvt_rn_f16x2_e4m3x2(ushort pair) {
  return tilec_halves(tilec_half_of_e4m3(pair & 0xff), tilec_half_of_e4m3(uint(pair) >> 8));
}
inline uint tilec_cvt_rn_f16x2_e5m2x2(ushort pair) {
  return uint(pair & 0xff) << 8 | uint(pair & 0xff00) << 16;
}
inline float tilec_ex2_approx_ftz_f32(float x) { return precise::exp2(x); }
inline float tilec_rcp_approx_ftz_f32(float x) { return 1.0f / x; }
inline float tilec_min_NaN_f32(float a, float b) { return a != a || b != b ? a + b : fmin(a, b); }
inline float tilec_max_NaN_f32(float a, float b) { return a != a || b != b ? a + b : fmax(a, b); }
inline ulong tilec_mul_wide_u32(uint a, uint b) { return ulong(a) * b; }
"""

#: Functions with their names, each behind those that it calls.
_DEFINED = tuple(
    (found[1], part)
    for part in re.split(
        r"^(?=inline |template )", _BITS + _LANES + _ATOMICS + _MATH + _INSTRUCTIONS, flags=re.M
    )
    if (found := re.match(r"(?:template <[^>]*> )?inline \w+ (\w+)\(", part))
)
FUNCTIONS = frozenset(name for name, _ in _DEFINED)
_WORD = re.compile(r"\w+")


def header(text: str) -> str:
    """The language, and the functions that ``text`` calls or that these call."""
    called, kept = set(_WORD.findall(text)), []
    for name, part in reversed(_DEFINED):
        if name in called:
            kept.append(part.strip())
            called.update(_WORD.findall(part))
    return "\n".join([_LANGUAGE, *reversed(kept), ""])
