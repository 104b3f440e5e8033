"""Integers that are some bits of a stored element: packed numbers, by the arithmetic that takes them out.

What is known of ``(B[i] >> s & 15) - 8`` is where its bits lie and what is taken away; any spelling of it by
shifts, masks, quotients and remainders by powers of two, sums with literals and casts is known alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad

from tilec.ir.analysis.numbers.ranges import SHORT, limits
from tilec.ir.exprs import dtype_of, int_value, operands, uncast

if TYPE_CHECKING:
    from tvm.ir import Expr
    from tvm.sym import Analyzer


#: The types of 8 bits that are made four at a time.
BYTES = ("int8", "uint8")
#: How many bits of a whole number a float always has.
_EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24}


@dataclass(frozen=True)
class BitField:
    """The ``width`` bits of an element from bit ``shift`` on, with a sign or without, plus ``offset``.
    ``sure``: from that bit on so many bits are the element's."""

    load: TensorLoad
    shift: Expr
    width: int
    sure: int
    signed: bool
    offset: int = 0

    @property
    def low(self) -> int:
        """The least number."""
        return self.offset - (1 << self.width - 1 if self.signed else 0)

    @property
    def high(self) -> int:
        """The greatest number."""
        return self.low + (1 << self.width) - 1


def bit_field(expr: Expr, analyzer: Analyzer) -> BitField | None:
    """The bits that an integer is; None for any other number."""
    if dtype_of(expr) not in SHORT:
        return None
    if isinstance(expr, TensorLoad):
        bits = int(dtype_of(expr).lstrip("uint"))
        return BitField(expr, tirx.const(0, "int32"), bits, bits, not dtype_of(expr).startswith("u"))
    if isinstance(expr, tirx.Cast):
        return _inside(bit_field(expr.value, analyzer), dtype_of(expr))
    extended = _extended(expr, analyzer)
    if extended is not None:
        return extended
    taken = _TAKEN.get(type(expr))
    inner = None if taken is None else bit_field(expr.a, analyzer)
    return None if taken is None or inner is None else _inside(taken(inner, expr.b, analyzer), dtype_of(expr))


def _extended(expr: Expr, analyzer: Analyzer) -> BitField | None:
    """Bits moved to the top of a signed type and back, of which the highest is the sign; None elsewhere."""
    by = int_value(expr.b) if isinstance(expr, tirx.RShift) and dtype_of(expr).startswith("int") else None
    if by is None:
        return None
    moved, bits = expr.a, expr.ty.dtype.bits
    while moved.ty.dtype.bits >= bits and (isinstance(moved, tirx.Cast) or _is_reinterpreted(moved)):
        (moved,) = operands(moved)
    if not isinstance(moved, tirx.LShift) or int_value(moved.b) != by or moved.ty.dtype.bits < bits:
        return None
    field = bit_field(moved.a, analyzer)
    plain = field is not None and not field.offset and not field.signed and field.width == bits - by
    return replace(field, signed=True) if field is not None and plain else None


def _is_reinterpreted(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "").endswith("reinterpret")


def whole_float(expr: Expr, analyzer: Analyzer) -> BitField | None:
    """The bits that a float is, if each step there is exact: casts, and sums with whole literals."""
    if dtype_of(expr) not in _EXACT_BITS:
        return None
    field = _float_step(expr, analyzer)
    is_exact = field is not None and max(-field.low, field.high) <= 1 << _EXACT_BITS[dtype_of(expr)]
    return field if is_exact else None


def _float_step(expr: Expr, analyzer: Analyzer) -> BitField | None:
    if isinstance(expr, tirx.Cast):
        return bit_field(expr.value, analyzer) or whole_float(expr.value, analyzer)
    if not isinstance(expr, (tirx.Add, tirx.Sub)):
        return None
    swapped = isinstance(expr, tirx.Add) and _literal(expr.a) is not None
    number, other = (expr.b, expr.a) if swapped else (expr.a, expr.b)
    field = whole_float(number, analyzer)
    return None if field is None else _TAKEN[type(expr)](field, other, analyzer)


def _literal(expr: Expr) -> int | None:
    """A literal that is a whole number."""
    if isinstance(expr, tirx.FloatImm):
        return int(expr.value) if expr.value.is_integer() else None
    return int_value(expr)


def _inside(field: BitField | None, dtype: str) -> BitField | None:
    """Numbers that a type has all."""
    if field is None or dtype not in SHORT:
        return None
    low, high = limits(dtype)
    return field if low <= field.low and field.high <= high else None


def _masked(field: BitField, mask: Expr, analyzer: Analyzer) -> BitField | None:
    return _low(field, (int_value(mask) or 0) + 1)


def _remainder(field: BitField, divisor: Expr, analyzer: Analyzer) -> BitField | None:
    return _low(field, int_value(divisor) or 0)


def _low(field: BitField, count: int) -> BitField | None:
    """A number modulo ``count``."""
    width = count.bit_length() - 1
    if count < 2 or count & (count - 1) or field.offset or width > (field.sure if field.signed else 32):
        return None
    return replace(field, width=min(width, field.width), signed=False)


def _shifted(field: BitField, by: Expr, analyzer: Analyzer) -> BitField | None:
    by = uncast(by)
    bound, known = analyzer.const_int_bound(by), int_value(by)
    if field.offset or bound.min_value < 0 or bound.max_value >= field.sure:
        return None
    shift = field.shift + tirx.Cast("int32", by) if dtype_of(by) != "int32" else field.shift + by
    width = field.width - (known or 0)
    return replace(field, shift=shift, width=width, sure=field.sure - bound.max_value)


def _quotient(field: BitField, divisor: Expr, analyzer: Analyzer) -> BitField | None:
    count = int_value(divisor) or 0
    if count < 2 or count & (count - 1):
        return None
    return _shifted(field, tirx.const(count.bit_length() - 1, "int32"), analyzer)


def _plus(field: BitField, other: Expr, analyzer: Analyzer) -> BitField | None:
    known = _literal(other)
    return None if known is None else replace(field, offset=field.offset + known)


def _minus(field: BitField, other: Expr, analyzer: Analyzer) -> BitField | None:
    known = _literal(other)
    return None if known is None else replace(field, offset=field.offset - known)


_TAKEN = {
    tirx.BitwiseAnd: _masked,
    tirx.FloorMod: _remainder,
    tirx.RShift: _shifted,
    tirx.FloorDiv: _quotient,
    tirx.Add: _plus,
    tirx.Sub: _minus,
}
