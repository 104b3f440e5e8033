"""Places in swizzled tiles as sums, of which compilers keep what lanes do not change.

A place is start + (column ^ pattern), where a pattern moves whole chunks. To what is less than a chunk, and
to what is beyond all chunks, the exclusive or does nothing: they are summands of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.numbers.ranges import BEYOND_TYPE
from tilec.ir.exprs import cast_to, dtype_of, int_value, summands, walk

if TYPE_CHECKING:
    from tvm.ir import Expr
    from tvm.sym import Analyzer

#: A power of two that divides 0.
_LARGEST = 1 << 31


def bytes_to(place: Expr, count: int, size: int, analyzer: Analyzer) -> Expr | None:
    """Bytes to an element at ``place`` where vectors of ``count`` elements, a power of two, and ``size``
    bytes begin; None where that is not known of it."""
    found = quotient(place, count, analyzer)
    return None if found is None else _sum([_times(part, size) for part in summands(found)])


def _times(part: Expr, size: int) -> Expr:
    factor = int_value(part.b) if isinstance(part, tirx.Mul) else None
    if factor is not None:
        return part.a * tirx.const(factor * size, "int32")
    return part * tirx.const(size, "int32")


def quotient(place: Expr, count: int, analyzer: Analyzer) -> Expr | None:
    """``place / count`` as int32, a power of two that is known to divide all parts of it; None where it is
    not. No part is negative."""
    if isinstance(place, tirx.Cast):
        return quotient(place.value, count, analyzer)
    if isinstance(place, tirx.BitwiseXor):
        return _moved(place, count, analyzer)
    if isinstance(place, (tirx.FloorMod, tirx.Mod)):
        return _low(place, count, analyzer)
    if isinstance(place, tirx.Div):
        whole = _whole_units(place, analyzer)
        return _divided(place, count, analyzer) if whole is None else quotient(whole, count, analyzer)
    if isinstance(place, tirx.Add):
        left, right = (quotient(part, count, analyzer) for part in (place.a, place.b))
        return None if left is None or right is None else left + right
    factor = int_value(place.b) if isinstance(place, tirx.Mul) else None
    if factor is not None and factor % count == 0:
        units = _whole_units(place.a, analyzer) if isinstance(place.a, (tirx.Div, tirx.FloorDiv)) else None
        return _signed(place.a if units is None else units) * tirx.const(factor // count, "int32")
    return _divided(place, count, analyzer)


def _whole_units(place: tirx.Div | tirx.FloorDiv, analyzer: Analyzer) -> Expr | None:
    """A quotient of a sum as one of those summands that the divisor divides, where others are no less than 0
    and stay below it; None elsewhere."""
    unit, parts = int_value(place.b), summands(place.a)
    low = [part for part in parts if unit and not _is_multiple(part, unit, analyzer)]
    bounds = [analyzer.const_int_bound(part) for part in low]
    if not unit or not low or any(bound.min_value < 0 for bound in bounds):
        return None
    if sum(bound.max_value for bound in bounds) >= unit:
        return None
    high = [part for part in parts if not any(part is other for other in low)]
    return _sum([_over(part, unit) for part in high])


def _over(part: Expr, unit: int) -> Expr:
    """A multiple of a number divided by it."""
    number = int_value(part)
    if number is not None:
        return tirx.const(number // unit, "int32")
    factor = int_value(part.b) if isinstance(part, tirx.Mul) else None
    if factor is None or factor % unit:
        return tirx.truncdiv(part, tirx.const(unit, dtype_of(part)))
    return _signed(part.a) * tirx.const(factor // unit, "int32")


def _signed(expr: Expr) -> Expr:
    """A sum of products in int32, where compilers take it that nothing wraps around."""
    if isinstance(expr, (tirx.Add, tirx.Mul)):
        return type(expr)(_signed(expr.a), _signed(expr.b))
    if isinstance(expr, tirx.Cast) and dtype_of(expr) in ("int32", "uint32"):
        return _signed(expr.value)
    known = int_value(expr)
    if known is not None:
        return tirx.const(known, "int32")
    return cast_to(expr, "int32")


def _divided(place: Expr, count: int, analyzer: Analyzer) -> Expr | None:
    try:
        simple = analyzer.simplify(tirx.floordiv(place, tirx.const(count, dtype_of(place))))
    except BEYOND_TYPE:  # of a place in front of a tile, which is tested
        return None
    return None if any(isinstance(node, tirx.FloorDiv) for node in walk(simple)) else _signed(simple)


def _low(place: tirx.FloorMod | tirx.Mod, count: int, analyzer: Analyzer) -> Expr | None:
    """Of the low bits of a place."""
    size, inner = int_value(place.b), quotient(place.a, count, analyzer)
    if size is None or inner is None or size % count or size & (size - 1):
        return None
    return tirx.bitwise_and(inner, tirx.const(size // count - 1, "int32"))


def _moved(place: tirx.BitwiseXor, count: int, analyzer: Analyzer) -> Expr | None:
    """Of a place that a pattern moves."""
    span = _span(place.b)
    inner, pattern = quotient(place.a, count, analyzer), quotient(place.b, count, analyzer)
    if pattern is None or span is None or inner is None or span[0] % count:
        return None
    unit, top = (number // count for number in span)
    parts = summands(inner)
    beyond = [part for part in parts if _is_multiple(part, top, analyzer)]
    own = [part for part in parts if not any(part is other for other in beyond)]
    near = _sum(own)
    if beyond and analyzer.const_int_bound(near).max_value >= top:
        return None
    if unit == 1:
        return _sum([*beyond, tirx.bitwise_xor(near, pattern)])
    whole = own if _several_below(own, unit, analyzer) and _are_apart(own, analyzer) else [near]
    low = [tirx.bitwise_and(part, tirx.const(unit - 1, "int32")) for part in whole]
    high = _sum([part - less for part, less in zip(whole, low, strict=True)])
    return _sum([*beyond, tirx.bitwise_xor(high, pattern), *low])


def _several_below(parts: list[Expr], unit: int, analyzer: Analyzer) -> bool:
    """Whether several summands have bits in a chunk: those that registers add are then constants."""
    return sum(_unit_of(part, analyzer) < unit for part in parts) > 1


def _are_apart(parts: list[Expr], analyzer: Analyzer) -> bool:
    """Whether no two summands have a bit in common."""
    total = 0
    for part in sorted(parts, key=lambda part: _unit_of(part, analyzer)):
        if total >= _unit_of(part, analyzer):
            return False
        total += analyzer.const_int_bound(part).max_value
    return True


def _unit_of(part: Expr, analyzer: Analyzer) -> int:
    """A power of two that divides a number."""
    found = analyzer.modular_set(part)
    number = found.base if found.coeff == 0 else math.gcd(found.coeff, found.base)
    return number & -number or _LARGEST


def _span(pattern: Expr) -> tuple[int, int] | None:
    """The chunk that a pattern moves, and what is beyond all of them."""
    if not isinstance(pattern, tirx.Mul):
        return None
    unit, phase = int_value(pattern.b), pattern.a
    width = int_value(phase.b) if isinstance(phase, (tirx.FloorMod, tirx.Mod)) else None
    return None if unit is None or width is None else (unit, unit * width)


def _sum(parts: list[Expr]) -> Expr:
    total: Expr = tirx.const(0, "int32")
    for part in parts:
        total = total + part
    return total


def _is_multiple(part: Expr, count: int, analyzer: Analyzer) -> bool:
    factor = int_value(part.b) if isinstance(part, tirx.Mul) else int_value(part)
    if factor is not None:
        return factor % count == 0
    found = analyzer.modular_set(part)
    return bool(found.coeff % count == 0 and found.base % count == 0)
