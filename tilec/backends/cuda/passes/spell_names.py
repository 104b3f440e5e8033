"""Names of an author that mean something in the C++ that a launch becomes get an underscore behind them.

new = X[i]; for this in ...    ->    new_ = X[i]; for this_ in ...

TVM writes a variable under its own name; it tells it apart from other variables and from a few words of C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Launch, walk
from tilec.ir.traits import defined
from tilec.lowering.passes.base import LaunchPass
from tilec.reserved import C_WORDS

if TYPE_CHECKING:
    from tvm.ir import Var

#: Functions of C's mathematics (ISO/IEC 9899:2024, 7.12) as TVM calls them: of float64 by these names, of
#: float32 with an f behind, of float16 with an h in front.
_FUNCTIONS = """acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf exp exp10 exp2 fabs floor
    fma fmod hypot ldexp log log10 log1p log2 nearbyint nextafter pow rint round rsqrt sin sinh sqrt tan tanh
    trunc"""
#: Types, functions, constants and indices that the text has beside those.
_OTHERS = """NULL abs blockDim blockIdx dim3 gridDim half int16_t int32_t int64_t int8_t isfinite isinf isnan
    main max min nv_bfloat16 printf size_t threadIdx uchar uint uint16_t uint32_t uint64_t uint8_t ulong
    ushort warpSize"""
_RESERVED = C_WORDS | {
    *_OTHERS.split(),
    *(spelled for name in _FUNCTIONS.split() for spelled in (name, f"{name}f", f"h{name}")),
}


class SpellNames(LaunchPass):
    """In: variables with any names. Out: none that a launch or its statements define has a name that C++, or
    a device function that TVM writes, has another use for. Buffers keep theirs, to which TVM adds; so do dims
    and scalars of the kernel."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such variables renamed."""
        found = {var for stmt in walk((launch,)) for var in defined(stmt) if _is_taken(var)}
        (made,) = renamed((launch,), {var: _spelled(var) for var in found})
        assert isinstance(made, Launch)
        return made


def _is_taken(var: Var) -> bool:
    return not tirx.is_buffer_var(var) and var.name in _RESERVED


def _spelled(var: Var) -> Var:
    return tirx.Var(f"{var.name}_", dtype_of(var))
