"""sinf and cosf with one slow path for all calls.

CUDA's write the path for large numbers out at each call: loops over a thread's elements, which are written
out, get longer than the instruction cache.
"""

from __future__ import annotations

import re

from tilec.lowering.math.sine import COSINE, SINE

#: Calls, of those of float16 too, which the header makes of these.
_CALLED = re.compile(r"\b((sin|cos)f|h(sin|cos))\(")
_NAMED = re.compile(r"\b(sin|cos)f\b")
_FAR = """
__device__ __noinline__ float tilec_far_{name}(float x) {{ return {name}f(x); }}
__device__ __forceinline__ float tilec_{name}(float x) {{
  float wave = tilec_wave(x, {quarter});
  if (!(fabsf(x) < 1e5f)) wave = tilec_far_{name}(x);
  return wave;
}}
"""


def _digits(numbers: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"{number:.9g}f" for number in numbers)


_S0, _S1, _S2 = _digits(SINE)
_C0, _C1, _C2 = _digits(COSINE)
#: The sine of x and further quarter turns, for |x| < 1e5: quarters, which are the low bits of a sum with
#: 1.5 2^23, are taken off in three parts, the first of which leaves an exact rest (Cody and Waite, Software
#: manual for the elementary functions, 1980). The parts are positive, and so is no quarter: -0 stays -0, also
#: times a factor near 1. A rest plus a product, off by less (1.6 ulp for 2), would need its sign copied: of
#: 2^26 numbers, a sine and a cosine each, an H200 makes so 151 us, 139.5 as here, as CUDA's functions do.
_WAVE = f"""
__device__ __forceinline__ float tilec_wave(float x, int further) {{
  float shifted = fmaf(x, 0x1.45f306p-1f, 0x1.8p+23f), quarters = shifted - 0x1.8p+23f;
  float rest = fmaf(quarters, -0x1.921fb4p+0f, x);
  rest = fmaf(quarters, -0x1.4442dp-24f, rest);
  rest = fmaf(quarters, -0x1.84698ap-48f, rest);
  int quadrant = __float_as_int(shifted) + further;
  float square = rest * rest;
  float sine = rest * fmaf(fmaf(fmaf({_S2}, square, {_S1}), square, {_S0}), square, 1.0f);
  float cosine = fmaf(fmaf(fmaf(fmaf({_C2}, square, {_C1}), square, {_C0}), square, -0.5f), square, 1.0f);
  float wave = (quadrant & 1) == 0 ? sine : cosine;
  return quadrant & 2 ? -wave : wave;
}}
"""
#: Functions of float32, off by at most 2 ulp.
SINES = _WAVE + _FAR.format(name="sin", quarter=0) + _FAR.format(name="cos", quarter=1)


def with_sines(text: str) -> str:
    """Source whose calls of sinf and cosf are of ours; itself where it has none."""
    if _CALLED.search(text) is None:
        return text
    return SINES + _NAMED.sub(r"tilec_\1", text)
