"""Integers of 8 and 16 bits in CUDA C++, which computes them as int: what may leave its type is cut back to
it, so that quotients and comparisons see what the element type holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.numbers.ranges import stays_inside
from tilec.ir.exprs import scalar_dtype
from tilec.lowering.emission.storage import convert

if TYPE_CHECKING:
    from tvm.ir import Expr
    from tvm.sym import Analyzer

#: The types, and those in which C computes them without overflow.
NARROW = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
#: The operations whose result may leave its type.
LEAVING = (tirx.Add, tirx.Sub, tirx.Mul, tirx.LShift)


def combined(kind: type, left: Expr, right: Expr, analyzer: Analyzer) -> Expr:
    """``kind(left, right)`` as its type has it."""
    dtype, made = scalar_dtype(left), kind(left, right)
    if dtype not in NARROW or kind not in LEAVING or stays_inside(made, analyzer):
        return made
    wide = NARROW[dtype]
    return convert(kind(convert(left, wide), convert(right, wide)), dtype)


def inverted(value: Expr) -> Expr:
    """``~value`` as its type has it."""
    dtype = scalar_dtype(value)
    return convert(tirx.BitwiseNot(convert(value, NARROW.get(dtype, dtype))), dtype)
