"""What stands above device source for AMD GPUs: CUDA's names, and what they are there, without any include.

A wave of 64 is two warps of 32 lanes to the code below: shuffles stay within 32 lanes, and barriers of a warp
order memory alone, since the lanes of a wave run in lockstep."""

from __future__ import annotations

from collections.abc import Iterable

from tilec.backends.cuda.codegen.any_words import DECLARATIONS
from tilec.backends.cuda.codegen.header import CONSTANTS, NAMES, bfloat, half, joined

#: The language: functions are inlined, so that pointers into shared memory are known to be such. In C++ all
#: functions are the device's; in HIP, which hipRTC takes (`hiprtc.py`), those that say so, and other meanings
#: of these names stand above. Older ones lack some of the builtins.
_LANGUAGE = r"""
#ifdef __HIP__
#undef __global__
#undef __device__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define tilec_lds shared
#if !__has_builtin(__builtin_amdgcn_exp2f)
#define __builtin_amdgcn_exp2f __builtin_exp2f
#define __builtin_amdgcn_logf __builtin_log2f
#endif
#if !__has_builtin(__builtin_amdgcn_wavefrontsize)
#define __builtin_amdgcn_wavefrontsize() __AMDGCN_WAVEFRONT_SIZE
#endif
#else
#define __global__ __attribute__((amdgpu_kernel))
#define __device__
#define tilec_lds address_space(3)
#endif
#define __forceinline__ __device__ inline __attribute__((always_inline))
#define __noinline__ __device__ static __attribute__((noinline))
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(threads, threads)))
struct tilec_index { unsigned x, y, z; };
__forceinline__ tilec_index tilec_thread() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
          __builtin_amdgcn_workitem_id_z()};
}
__forceinline__ tilec_index tilec_block() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
          __builtin_amdgcn_workgroup_id_z()};
}
/* The packet of the dispatch counts threads: 16 bits for each axis of a block, 32 for those of the grid. */
__forceinline__ unsigned tilec_blocks(int axis) {
  const char __attribute__((address_space(4)))* packet =
      (const char __attribute__((address_space(4)))*)__builtin_amdgcn_dispatch_ptr();
  unsigned threads = *(const unsigned short __attribute__((address_space(4)))*)(packet + 4 + 2 * axis);
  return *(const unsigned __attribute__((address_space(4)))*)(packet + 12 + 4 * axis) / threads;
}
__forceinline__ tilec_index tilec_grid() { return {tilec_blocks(0), tilec_blocks(1), tilec_blocks(2)}; }
#define threadIdx (tilec_thread())
#define blockIdx (tilec_block())
#define gridDim (tilec_grid())
typedef unsigned uint2 __attribute__((ext_vector_type(2)));
typedef unsigned uint4 __attribute__((ext_vector_type(4)));
typedef int int2 __attribute__((ext_vector_type(2)));
typedef int int4 __attribute__((ext_vector_type(4)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
__forceinline__ float2 make_float2(float x, float y) { return {x, y}; }
__forceinline__ float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
__forceinline__ int2 make_int2(int x, int y) { return {x, y}; }
__forceinline__ int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
__forceinline__ uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
__forceinline__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
__forceinline__ float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
__forceinline__ float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
__forceinline__ int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
__forceinline__ unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
__forceinline__ double __longlong_as_double(long bits) { return __builtin_bit_cast(double, bits); }
"""

#: Barriers and shuffles. Swizzles of LDS know lanes as fives of bits, so that an exchange takes no address.
LANES = r"""
__forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__forceinline__ void __syncwarp(unsigned = 0xffffffffu) {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
__forceinline__ unsigned tilec_lane_of_wave() {
  return __builtin_amdgcn_wavefrontsize() == 64
             ? __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0))
             : __builtin_amdgcn_mbcnt_lo(~0u, 0);
}
__forceinline__ int tilec_word_from(int value, unsigned lane) {
  return __builtin_amdgcn_ds_bpermute(int(lane) * 4, value);
}
__forceinline__ int tilec_word_across(int value, int mask) {
  switch (mask) {
    case 1: return __builtin_amdgcn_ds_swizzle(value, 0x041f);
    case 2: return __builtin_amdgcn_ds_swizzle(value, 0x081f);
    case 4: return __builtin_amdgcn_ds_swizzle(value, 0x101f);
    case 8: return __builtin_amdgcn_ds_swizzle(value, 0x201f);
    case 16: return __builtin_amdgcn_ds_swizzle(value, 0x401f);
  }
  return tilec_word_from(value, tilec_lane_of_wave() ^ unsigned(mask));
}
template <typename T, typename F> __forceinline__ T tilec_by_words(T value, F word) {
  static_assert(sizeof(T) % 4 == 0, "lanes exchange words");
  struct { int words[sizeof(T) / 4]; } held = __builtin_bit_cast(decltype(held), value);
  for (unsigned i = 0; i < sizeof(T) / 4; i++) held.words[i] = word(held.words[i]);
  return __builtin_bit_cast(T, held);
}
template <typename T> __forceinline__ T tilec_from(T value, unsigned lane) {
  return tilec_by_words(value, [=](int word) { return tilec_word_from(word, lane); });
}
template <typename T> __forceinline__ T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
  return tilec_by_words(value, [=](int word) { return tilec_word_across(word, mask); });
}
template <typename T> __forceinline__ T __shfl_up_sync(unsigned, T value, int by, int width = 32) {
  unsigned own = tilec_lane_of_wave(), place = own & unsigned(width - 1);
  return tilec_from(value, place < unsigned(by) ? own : own - unsigned(by));
}
template <typename T> __forceinline__ T __shfl_down_sync(unsigned, T value, int by, int width = 32) {
  unsigned own = tilec_lane_of_wave(), place = own & unsigned(width - 1);
  return tilec_from(value, place + unsigned(by) >= unsigned(width) ? own : own + unsigned(by));
}
template <typename T> __forceinline__ T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  unsigned first = tilec_lane_of_wave() & ~unsigned(width - 1);
  return tilec_from(value, first + (unsigned(lane) & unsigned(width - 1)));
}
__forceinline__ unsigned __ballot_sync(unsigned mask, bool vote) {
  return unsigned(__builtin_amdgcn_ballot_w64(vote) >> (tilec_lane_of_wave() & 32)) & mask;
}
__forceinline__ unsigned __activemask() { return __ballot_sync(~0u, true); }
__forceinline__ int __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
__forceinline__ int __all_sync(unsigned mask, bool vote) { return __ballot_sync(mask, !vote) == 0; }
template <typename T> __forceinline__ unsigned __match_any_sync(unsigned mask, T value) {
  unsigned found = 0;
  for (int lane = 0; lane < 32; lane++) found |= unsigned(__shfl_sync(mask, value, lane) == value) << lane;
  return found & mask & __activemask();
}
"""


def powers(name: str, high: str, low: str, least: float, most: float) -> str:
    """The function of powers of a number: ``high`` and ``low`` add up to its logarithm to base 2; powers are
    0 below ``least`` and infinite above ``most``."""
    return f"""__forceinline__ float {name}(float x) {{
  float product = x * {high}, whole = __builtin_rintf(product);
  float rest = __builtin_fmaf(x, {high}, -whole);
  rest = __builtin_fmaf(x, {low}, rest);
  float power = __builtin_amdgcn_ldexpf(__builtin_amdgcn_exp2f(rest), int(whole));
  return x < {least}f ? 0.0f : x > {most}f ? __builtin_inff() : power;
}}
"""


#: Functions of float32. exp splits x log2(e) into a whole and a rest, whose power the device has; log2 of
#: what is below the normal numbers is that of 2^24 times as much.
MATH = (
    r"""
__forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
__forceinline__ float floorf(float x) { return __builtin_floorf(x); }
__forceinline__ float ceilf(float x) { return __builtin_ceilf(x); }
__forceinline__ float truncf(float x) { return __builtin_truncf(x); }
__forceinline__ float rintf(float x) { return __builtin_rintf(x); }
__forceinline__ float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__forceinline__ float fminf(float a, float b) { return __builtin_fminf(a, b); }
__forceinline__ float max(float a, float b) { return __builtin_fmaxf(a, b); }
__forceinline__ float min(float a, float b) { return __builtin_fminf(a, b); }
__forceinline__ double max(double a, double b) { return __builtin_fmax(a, b); }
__forceinline__ double min(double a, double b) { return __builtin_fmin(a, b); }
"""
    + "".join(
        f"__forceinline__ {kind} {name}({kind} a, {kind} b) {{ return a {sign} b ? a : b; }}\n"
        for kind in ("int", "unsigned", "long", "unsigned long")
        for name, sign in (("max", ">"), ("min", "<"))
    )
    + r"""__forceinline__ float sqrtf(float x) { return __builtin_sqrtf(x); }
__forceinline__ float rsqrtf(float x) { return __builtin_amdgcn_rsqf(x); }
__forceinline__ float __fdividef(float a, float b) { return a * __builtin_amdgcn_rcpf(b); }
__forceinline__ float exp2f(float x) { return __builtin_amdgcn_exp2f(x); }
"""
    + powers("expf", "0x1.715476p+0f", "0x1.4ae0c0p-26f", -104.0, 89.0)
    + r"""__forceinline__ float log2f(float x) {
  bool small = x < 0x1p-126f;
  float found = __builtin_amdgcn_logf(small ? x * 0x1p24f : x);
  return small ? found - 24.0f : found;
}
__forceinline__ float logf(float x) {
  float found = log2f(x), high = found * 0x1.62e42ep-1f;
  float low = __builtin_fmaf(found, 0x1.62e42ep-1f, -high);
  low = __builtin_fmaf(found, 0x1.efa39ep-25f, low);
  return __builtin_isfinite(found) ? high + low : found;
}
"""
)

#: Instructions of PTX that compute, by their names with "_" for "."; floats of 16 bits are rounded to
#: nearest, ties to even, and a NaN stays one.
INSTRUCTIONS = r"""
__forceinline__ unsigned short tilec_cvt_rn_f16_f32(float value) {
  return __builtin_bit_cast(unsigned short, (_Float16)value);
}
__forceinline__ unsigned short tilec_cvt_rn_bf16_f32(float value) {
  unsigned word = __builtin_bit_cast(unsigned, value);
  return value != value ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
__forceinline__ float tilec_cvt_f32_f16(unsigned short bits) {
  return float(__builtin_bit_cast(_Float16, bits));
}
__forceinline__ unsigned tilec_cvt_rn_f16x2_f32(float high, float low) {
  return unsigned(tilec_cvt_rn_f16_f32(high)) << 16 | tilec_cvt_rn_f16_f32(low);
}
__forceinline__ unsigned tilec_cvt_rn_bf16x2_f32(float high, float low) {
  return unsigned(tilec_cvt_rn_bf16_f32(high)) << 16 | tilec_cvt_rn_bf16_f32(low);
}
__forceinline__ unsigned tilec_lop3_b32(unsigned a, unsigned b, unsigned c, unsigned table) {
  return table == 0xEA ? (a & b) | c : (a & b) ^ c;
}
__forceinline__ float tilec_ex2_approx_ftz_f32(float x) { return __builtin_amdgcn_exp2f(x); }
__forceinline__ float tilec_rcp_approx_ftz_f32(float x) { return __builtin_amdgcn_rcpf(x); }
__forceinline__ float tilec_min_NaN_f32(float a, float b) {
  return __builtin_isunordered(a, b) ? a + b : __builtin_fminf(a, b);
}
__forceinline__ float tilec_max_NaN_f32(float a, float b) {
  return __builtin_isunordered(a, b) ? a + b : __builtin_fmaxf(a, b);
}
__forceinline__ unsigned long tilec_mul_wide_u32(unsigned a, unsigned b) { return (unsigned long)a * b; }
"""

_CELLS = {
    "u8": ("char", "short"),
    "b16": ("short", "short"),
    "b32": ("int", "int"),
    "b64": ("long long",) * 2,
}
#: Atomic updates, relaxed and seen by the whole device, as CUDA's are; each gives what a cell held.
ATOMICS = (
    r"""
#ifdef __HIP__
#define TILEC_ATOMIC(name, ...) __hip_atomic_##name(__VA_ARGS__, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define TILEC_LOAD(at) TILEC_ATOMIC(load, at)
#define TILEC_STORE(at, value) TILEC_ATOMIC(store, at, value)
#define TILEC_SWAP(at, held, made) \
  __hip_atomic_compare_exchange_strong(at, &held, made, __ATOMIC_RELAXED, __ATOMIC_RELAXED, \
                                       __HIP_MEMORY_SCOPE_AGENT)
#else
#define TILEC_ATOMIC(name, ...) __scoped_atomic_##name(__VA_ARGS__, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)
#define TILEC_LOAD(at) TILEC_ATOMIC(load_n, at)
#define TILEC_STORE(at, value) TILEC_ATOMIC(store_n, at, value)
#define TILEC_SWAP(at, held, made) \
  __scoped_atomic_compare_exchange_n(at, &held, made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED, \
                                     __MEMORY_SCOPE_DEVICE)
#endif
__forceinline__ long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
__forceinline__ void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
"""
    + "".join(
        f"__forceinline__ {kind} atomic{name}({kind}* at, {kind} value) {{\n"
        f"  return TILEC_ATOMIC(fetch_{name.lower()}, at, value);\n}}\n"
        for name, kinds in (
            ("Add", ("int", "unsigned", "unsigned long long", "float", "double")),
            *((name, ("int", "unsigned", "long long", "unsigned long long")) for name in ("Max", "Min")),
            ("Or", ("int", "unsigned", "unsigned long long")),
        )
        for kind in kinds
    )
    + "".join(
        f"__forceinline__ {kind} atomicCAS({kind}* at, {kind} held, {kind} made) {{\n"
        "  TILEC_SWAP(at, held, made);\n  return held;\n}\n"
        for kind in ("unsigned short", "unsigned", "unsigned long long")
    )
    + "".join(
        f"__forceinline__ unsigned {register} tilec_ld_relaxed_gpu_{name}(const void* at) {{\n"
        f"  return TILEC_LOAD((unsigned {cell}*)at);\n}}\n"
        f"__forceinline__ void tilec_st_relaxed_gpu_{name}(void* at, unsigned {register} value) {{\n"
        f"  TILEC_STORE((unsigned {cell}*)at, (unsigned {cell})value);\n}}\n"
        for name, (cell, register) in _CELLS.items()
    )
)

#: A function that the types below name and that nothing here computes, and those that stand behind the types
#: where code calls them (`functions.py`).
MISSING = ("erff",)
_LATER = ("cosf", "sinf", "tanf", "tanhf", "exp10f", "log10f")
#: What a header ends with.
END = "/* functions of C that are called */\n"
_BASE = (
    NAMES
    + DECLARATIONS
    + _LANGUAGE
    + LANES
    + MATH
    + INSTRUCTIONS
    + ATOMICS
    + "".join(f"__device__ float {name}(float);\n" for name in (*MISSING, *_LATER))
)
_PARTS = {
    "cuda": "",
    "warp_shuffle": "",
    "int8": "",
    "fp16": half("bits = tilec_cvt_rn_f16_f32(value);", "return tilec_cvt_f32_f16(bits);"),
    "bf16": bfloat("bits = tilec_cvt_rn_bf16_f32(value);"),
    "math_constants": CONSTANTS,
}


def header(tags: Iterable[str]) -> str:
    """The header for TVM's ``tags``. UnsupportedError for a tag whose types tilec does not write."""
    return joined(_BASE, _PARTS, tags) + END
