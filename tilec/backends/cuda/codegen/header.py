"""What stands above generated CUDA source: the types that TVM's code generator names, without any include, so
that NVRTC needs no folder of headers. TVM says by tags which parts a module uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilec.errors import UnsupportedError

#: Names of C and of TVM that stand in all generated device source.
NAMES = r"""
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define uchar unsigned char
#define ushort unsigned short
#define uint unsigned int
"""
_BASE = f"""{NAMES}#define TVM_ENABLE_L2_PREFETCH 1
struct alignas(64) CUtensorMap {{ unsigned long long opaque[16]; }};
"""

#: A 16-bit float: its arithmetic runs in float32 and rounds once, which is the correctly rounded result of
#: one operation, since a float32 significand has more than twice the digits and two to spare.
_SMALL_FLOAT = r"""
struct NAME {
  unsigned short bits;
  NAME() = default;
  __device__ __forceinline__ NAME(float value) { NARROW }
  __device__ __forceinline__ explicit NAME(double value) : NAME(float(value)) {}
  __device__ __forceinline__ explicit NAME(int value) : NAME(float(value)) {}
  __device__ __forceinline__ explicit NAME(unsigned value) : NAME(float(value)) {}
  __device__ __forceinline__ explicit NAME(long value) : NAME(float(value)) {}
  __device__ __forceinline__ operator float() const { WIDEN }
};
struct alignas(4) PAIR { NAME x, y; };
struct alignas(8) QUAD { NAME x, y, z, w; };
__device__ __forceinline__ NAME operator+(NAME a, NAME b) { return NAME(float(a) + float(b)); }
__device__ __forceinline__ NAME operator-(NAME a, NAME b) { return NAME(float(a) - float(b)); }
__device__ __forceinline__ NAME operator*(NAME a, NAME b) { return NAME(float(a) * float(b)); }
__device__ __forceinline__ NAME operator/(NAME a, NAME b) { return NAME(float(a) / float(b)); }
__device__ __forceinline__ NAME operator-(NAME a) { NAME r; r.bits = a.bits ^ 0x8000; return r; }
__device__ __forceinline__ bool operator<(NAME a, NAME b) { return float(a) < float(b); }
__device__ __forceinline__ bool operator<=(NAME a, NAME b) { return float(a) <= float(b); }
__device__ __forceinline__ bool operator>(NAME a, NAME b) { return float(a) > float(b); }
__device__ __forceinline__ bool operator>=(NAME a, NAME b) { return float(a) >= float(b); }
__device__ __forceinline__ bool operator==(NAME a, NAME b) { return float(a) == float(b); }
__device__ __forceinline__ bool operator!=(NAME a, NAME b) { return float(a) != float(b); }
__device__ __forceinline__ NAME max(NAME a, NAME b) { return a > b ? a : b; }
__device__ __forceinline__ NAME min(NAME a, NAME b) { return a < b ? a : b; }
__device__ __forceinline__ unsigned __pack_PAIR(NAME x, NAME y) { return unsigned(y.bits) << 16 | x.bits; }
__device__ __forceinline__ PAIR make_PAIR(NAME x, NAME y) { return {x, y}; }
__device__ __forceinline__ QUAD make_QUAD(NAME x, NAME y, NAME z, NAME w) { return {x, y, z, w}; }
#define TILEC_MATH(name, wide) __device__ __forceinline__ NAME name(NAME a) { return NAME(wide(float(a))); }
TILEC_MATH(__habs, fabsf) TILEC_MATH(hceil, ceilf) TILEC_MATH(hcos, cosf) TILEC_MATH(herf, erff)
TILEC_MATH(hexp, expf) TILEC_MATH(hexp10, exp10f) TILEC_MATH(hexp2, exp2f) TILEC_MATH(hfloor, floorf)
TILEC_MATH(hlog, logf) TILEC_MATH(hlog10, log10f) TILEC_MATH(hlog2, log2f) TILEC_MATH(hrint, rintf)
TILEC_MATH(hrsqrt, rsqrtf) TILEC_MATH(hsin, sinf) TILEC_MATH(hsqrt, sqrtf) TILEC_MATH(htan, tanf)
TILEC_MATH(htanh, tanhf) TILEC_MATH(htrunc, truncf)
#undef TILEC_MATH
"""


def half(narrow: str, widen: str) -> str:
    """The type of float16. ``narrow`` is C that sets ``bits`` to the rounded ``value``, ``widen`` returns the
    float32 that ``bits`` stand for."""
    return (
        _small_float("half", "half2", "half4", narrow, widen)
        + "__device__ __forceinline__ half __float2half_rn(float value) { return half(value); }\n"
    )


def bfloat(narrow: str) -> str:
    """The type of bfloat16; ``narrow`` as for `half`."""
    return (
        _small_float("nv_bfloat16", "nv_bfloat162", "nv_bfloat164", narrow, _BFLOAT_TO_FLOAT)
        + "__device__ __forceinline__ nv_bfloat16 __float2bfloat16_rn(float v) { return nv_bfloat16(v); }\n"
    )


def _small_float(name: str, pair: str, quad: str, narrow: str, widen: str) -> str:
    text = _SMALL_FLOAT.replace("WIDEN", widen).replace("NARROW", narrow)
    return text.replace("PAIR", pair).replace("QUAD", quad).replace("NAME", name)


def _rounded(kind: str) -> str:
    """One instruction of PTX."""
    return f'asm("cvt.rn.{kind}.f32 %0, %1;" : "=h"(bits) : "f"(value));'


_HALF_TO_FLOAT = 'float value; asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)); return value;'
_BFLOAT_TO_FLOAT = "return __uint_as_float(unsigned(bits) << 16);"

#: Those of CUDA that TVM names.
CONSTANTS = r"""
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ULL)
#define CUDART_NAN __longlong_as_double(0xfff8000000000000ULL)
"""

_PARTS = {
    "cuda": "",
    "warp_shuffle": "",
    "fp16": half(_rounded("f16"), _HALF_TO_FLOAT),
    "bf16": bfloat(_rounded("bf16")),
    "int8": "",  # __dp4a is built in
    "math_constants": CONSTANTS,
    "cast_smem_ptr_to_int": r"""
__device__ __forceinline__ unsigned cast_smem_ptr_to_int(const void* pointer) {
  return unsigned(__cvta_generic_to_shared(pointer));
}
""",
    "elect_one_sync": r"""
__device__ __forceinline__ unsigned tvm_builtin_elect_one_sync() {
  unsigned elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(elected));
  return elected;
}
""",
}


def header(tags: Iterable[str]) -> str:
    """The header for TVM's ``tags``. UnsupportedError for a tag whose types tilec does not write."""
    return joined(_BASE, _PARTS, tags)


def joined(base: str, parts: Mapping[str, str], tags: Iterable[str]) -> str:
    """``base`` and those of ``parts`` whose tag is asked for. UnsupportedError for a tag that has none."""
    asked = set(tags)
    unknown = sorted(asked - set(parts))
    if unknown:
        raise UnsupportedError(
            f"device source that needs {', '.join(unknown)}",
            why="generated source includes no header, and tilec has no types of its own for it",
            remedy="lower these values to bits, or to float32, before code generation",
        )
    return base + "".join(text for name, text in parts.items() if name in asked)
