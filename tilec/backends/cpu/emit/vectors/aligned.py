"""Digits of a loop's variable by numbers that are known when code runs: ``i // n``, ``i % n``, ``i ^ n``.

Where ``n`` is a multiple of the lanes, and the first lane's number is, too, all lanes have the same quotient,
and remainders one above the other: elements lie side by side. Whether ``n`` is one is asked in front of the
loop (`loops/splits/alignments.py`), and known here within the version for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.digits import in_first_lane
from tilec.ir.exprs import dtype_of, int_value, same, substitute, uses
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.emit.vectors.lanes import Lanes

_FLOORS = (tirx.FloorDiv, tirx.FloorMod)
#: Whether the lower bits, which alone differ between lanes, stay beside a number that has none of them.
_BITS = {tirx.BitwiseAnd: 0, tirx.BitwiseXor: 1, tirx.BitwiseOr: 1}

#: What is a multiple of a power of two where both sides are, or one of them is.
_BY_BOTH = (tirx.Add, tirx.Sub, tirx.FloorMod, tirx.BitwiseXor, tirx.BitwiseOr)
_BY_EITHER = (tirx.Mul, tirx.BitwiseAnd)


def lane_step(expr: Expr, lanes: Lanes, ctx: LaneContext) -> int | None:
    """How far ``expr``, of which no name stands for a value, moves from one lane to the next; None where that
    is not known."""
    if expr.same_as(lanes.var):
        return 1
    if not uses(expr, (lanes.var,)):
        return None if lanes_of(ctx.value(expr)) > 1 else 0
    if isinstance(expr, tirx.Cast) and _keeps(expr, ctx):
        return lane_step(expr.value, lanes, ctx)
    if isinstance(expr, (tirx.Add, tirx.Sub)):
        return _of_sum(expr, lanes, ctx)
    if isinstance(expr, tirx.Mul):
        return _of_product(expr, lanes, ctx)
    return _of_digit(expr, lanes, ctx)


def aligned_value(expr: Expr, ctx: LaneContext) -> Expr | None:
    """The value of a quotient or remainder by that of the first lane; None where it moves otherwise."""
    lanes = ctx.lanes
    step = None if lanes is None else _of_digit(ctx.facts.inline(expr), lanes, ctx)
    if lanes is None or step is None:
        return None
    first = in_first_lane(expr, ctx)
    return tirx.Ramp(first, tirx.const(step, dtype_of(first)), lanes.width) if step else first


def _keeps(cast: Expr, ctx: LaneContext) -> bool:
    """Whether a cast of an integer keeps its value."""
    dtype, bound = dtype_of(cast), ctx.facts.analyzer.const_int_bound(cast.value)
    if dtype == "int64":
        return True
    return bool(dtype == "int32" and bound.min_value >= -(2**31) and bound.max_value < 2**31)


def _of_sum(expr: Expr, lanes: Lanes, ctx: LaneContext) -> int | None:
    left, right = lane_step(expr.a, lanes, ctx), lane_step(expr.b, lanes, ctx)
    if left is None or right is None:
        return None
    return left + right if isinstance(expr, tirx.Add) else left - right


def _of_product(expr: Expr, lanes: Lanes, ctx: LaneContext) -> int | None:
    moving, other = (expr.a, expr.b) if uses(expr.a, (lanes.var,)) else (expr.b, expr.a)
    step, factor = lane_step(moving, lanes, ctx), int_value(other)
    if step == 0 and lane_step(other, lanes, ctx) == 0:
        return 0
    return None if step is None or factor is None else step * factor


def _of_digit(expr: Expr, lanes: Lanes, ctx: LaneContext) -> int | None:
    digit = aligned_digit(expr)
    if digit is None or not uses(digit[0], (lanes.var,)):
        return None
    whole, number, step = digit
    moves = (lane_step(whole, lanes, ctx), lane_step(number, lanes, ctx))
    if moves != (1, 0):
        return 0 if moves == (0, 0) else None
    first = substitute(whole, {lanes.var: lanes.base})
    known = counts_lanes(number, lanes.width, ctx) and is_multiple(first, lanes.width, ctx)
    return step if known else None


def aligned_digit(expr: Expr) -> tuple[Expr, Expr, int] | None:
    """What is divided, the number that has to be a multiple of the lanes, and how far the digit then moves
    from one lane to the next; None for another expression."""
    if isinstance(expr, _FLOORS):
        return expr.a, expr.b, int(isinstance(expr, tirx.FloorMod))
    if isinstance(expr, tirx.BitwiseAnd) and isinstance(expr.b, tirx.Sub) and int_value(expr.b.b) == 1:
        return expr.a, expr.b.a, 1
    step = _BITS.get(type(expr))
    return None if step is None else (expr.a, expr.b, step)


def counts_lanes(number: Expr, width: int, ctx: LaneContext) -> bool:
    """Whether a number is known to be positive and a multiple of so many lanes."""
    if any(same(number, known) and of % width == 0 for known, of in ctx.multiples):
        return True
    positive = ctx.facts.prove(number > tirx.const(0, dtype_of(number))) is True
    return positive and is_multiple(number, width, ctx)


def is_multiple(expr: Expr, width: int, ctx: LaneContext) -> bool:
    """Whether an expression is one; of lanes there are a power of two."""
    if isinstance(expr, tirx.Cast) and _keeps(expr, ctx):
        return is_multiple(expr.value, width, ctx)
    sides = all if isinstance(expr, _BY_BOTH) else any if isinstance(expr, _BY_EITHER) else None
    if sides is not None and sides(is_multiple(side, width, ctx) for side in (expr.a, expr.b)):
        return True
    if any(same(expr, known) and of % width == 0 for known, of in ctx.multiples):
        return True
    found = ctx.facts.analyzer.modular_set(ctx.facts.analyzer.simplify(expr))
    return bool(found.coeff % width == 0 and found.base % width == 0)
