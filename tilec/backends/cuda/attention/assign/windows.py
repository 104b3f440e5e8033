"""How many trips a loop has at most along a window that moves with an axis of the grid.

    for k in range(max(0, (x * 128 - 127) // 64), min(K, (x + 1) * 2))    ->    5: both ends go by 2 x

Ends lie between lines, x times a slope and a constant: trips are as many, but for a constant, where a line
above the last one and one below the first one have the same slope.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import inlined, int_value, uses
from tilec.ir.nodes import Pipelined
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.attention.assign.parts import Parts
    from tilec.ir.nodes import Launch

#: A slope along an axis and a constant.
_Line = tuple[Fraction, Fraction]
#: Trips of a short window: tiles take so little that the number of the next one, which a counter has in a
#: trip or two, counts (H200, heads of 128, 64 keys a trip, us handed out and in order: windows of 128 keys
#: 100 and 94, 512 191 and 190, 1024 310 and 314).
_FEW_TRIPS = 8


def window_trips(launch: Launch, parts: Parts) -> int | None:
    """How many trips a block has at most, of a window that moves along the first axis of the grid; None where
    it has no such loop."""
    loop = next(stmt for stmt in parts.producer if isinstance(stmt, Pipelined))
    values = values_of(parts.producer)
    start, stop = inlined(loop.start, values), inlined(loop.stop, values)
    return most_trips(start, stop, launch.block_vars[0])


def is_short_window(launch: Launch, parts: Parts) -> bool:
    """Whether each block has a few trips of a window."""
    most = window_trips(launch, parts)
    return most is not None and most <= _FEW_TRIPS


def most_trips(start: Expr, stop: Expr, var: Var) -> int | None:
    """How many trips a loop has at most for any value of ``var``, along which both of its ends move; None
    where they do not move by as much, or by numbers that are not known."""
    above, below = _lines(stop, var, True), _lines(start, var, False)
    found = [top[1] - base[1] for top in above for base in below if top[0] == base[0] != 0]
    return int(min(found)) if found else None


def _lines(expr: Expr, var: Var, above: bool) -> set[_Line]:
    """Lines above an expression, or below it."""
    value = int_value(expr)
    if value is not None:
        return {(Fraction(0), Fraction(value))}
    if expr.same_as(var):
        return {(Fraction(1), Fraction(0))}
    if not uses(expr, (var,)) or not isinstance(expr, _KNOWN):
        return set()
    if isinstance(expr, (tirx.Mul, tirx.FloorDiv)):
        return _scaled(expr, var, above)
    left = _lines(expr.a, var, above)
    right = _lines(expr.b, var, above != isinstance(expr, tirx.Sub))
    if isinstance(expr, (tirx.Min, tirx.Max)):
        return left | right if above == isinstance(expr, tirx.Min) else set()
    sign = -1 if isinstance(expr, tirx.Sub) else 1
    return {(a + sign * b, c + sign * d) for a, c in left for b, d in right}


#: Expressions with lines.
_KNOWN = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.Min, tirx.Max)


def _scaled(expr: tirx.Mul | tirx.FloorDiv, var: Var, above: bool) -> set[_Line]:
    """Lines of a multiple or a quotient, by a number."""
    factor = int_value(expr.b) or 0
    if factor <= 0:
        return set()
    lines = _lines(expr.a, var, above)
    if isinstance(expr, tirx.Mul):
        return {(slope * factor, constant * factor) for slope, constant in lines}
    less = 0 if above else factor - 1
    return {(slope / factor, (constant - less) / factor) for slope, constant in lines}
