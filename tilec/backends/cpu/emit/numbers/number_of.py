"""The maximum or minimum of vectors of which either may have NaN: the other operand's element there.

x86's instruction gives its second operand where either is NaN, so one test of that and a choice are enough.
LLVM makes two comparisons of a test, a comparison and two choices, so it is given the instruction itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import is_nan
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

_WORDS = {tirx.Max: "max", tirx.Min: "min"}
_INSTRUCTIONS = {
    "float32x4": "llvm.x86.sse.{}.ps",
    "float32x8": "llvm.x86.avx.{}.ps.256",
    "float32x16": "llvm.x86.avx512.{}.ps.512",
    "float64x2": "llvm.x86.sse2.{}.pd",
    "float64x4": "llvm.x86.avx.{}.pd.256",
    "float64x8": "llvm.x86.avx512.{}.pd.512",
}
_BITS = {"float32": 32, "float64": 64}
#: The rounding of the thread's mode, which the widest form is told (Intel SDM, embedded rounding).
_WIDEST, _ROUNDING = 512, 4


def number_of(kind: type, left: Expr, right: Expr, target: Target) -> Expr | None:
    """The value, ``kind`` of max or min of equally long vectors; None where the target has no register of
    such."""
    dtype, _, lanes = dtype_of(left).partition("x")
    bits = _BITS.get(dtype, 0) * int(lanes or 1)
    name = _INSTRUCTIONS.get(dtype_of(left))
    if name is None or target.arch != "x86_64" or bits > target.vector_bits:
        return None
    v = Vectors(right)
    left, right = v.name(left), v.name(right)
    mode = [tirx.const(_ROUNDING, "int32")] if bits == _WIDEST else []
    made = tirx.call_llvm_pure_intrin(dtype_of(left), name.format(_WORDS[kind]), left, right, *mode)
    return v.close(tirx.Select(is_nan(right), left, made))
