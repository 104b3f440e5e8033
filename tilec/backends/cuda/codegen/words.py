"""Names that mean something in the C++ that a launch becomes.

TVM writes a variable under its own name; it tells it apart from other variables and from a few words of C.
"""

from __future__ import annotations

import re

from tilec.reserved import C_WORDS

#: Functions of C's mathematics (ISO/IEC 9899:2024, 7.12) as TVM calls them: of float64 by these names, of
#: float32 with an f behind, of float16 with an h in front.
_FUNCTIONS = """acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf exp exp10 exp2 fabs floor
    fma fmod hypot ldexp log log10 log1p log2 nearbyint nextafter pow rint round rsqrt sin sinh sqrt tan tanh
    trunc"""
#: Types, functions, constants and indices that the text has beside those.
_OTHERS = """NULL abs blockDim blockIdx dim3 gridDim half int16_t int32_t int64_t int8_t isfinite isinf isnan
    main max min nv_bfloat16 printf size_t threadIdx uchar uint uint16_t uint32_t uint64_t uint8_t ulong
    ushort warpSize"""
#: Python's letters beyond ASCII.
_OTHER_LETTERS = re.compile(r"[^\x00-\x7f]")
_RESERVED = C_WORDS | {
    *_OTHERS.split(),
    *(spelled for name in _FUNCTIONS.split() for spelled in (name, f"{name}f", f"h{name}")),
}


def spelled(name: str) -> str:
    """``name`` in letters that NVRTC reads, with an underscore where C++, to which all that begin with two
    belong, or a device function that TVM writes, uses it."""
    name = _OTHER_LETTERS.sub(lambda found: f"u{ord(found[0]):x}", name)
    return f"{name}_" if name in _RESERVED or name.startswith("__") else name
