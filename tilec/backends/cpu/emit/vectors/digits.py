"""Integers that lie known distances apart in the lanes of a loop: digits of its variable, such as which byte
holds a weight of four bits, and where in the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.ir.exprs import dtype_of, int_value, loads, substitute, uses, walk
from tilec.lowering.math.vectors import lanes_of, spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


def distances(expr: Expr, ctx: LaneContext) -> tuple[int, ...] | None:
    """How far an integer expression in each lane is from that in the first one; None where that is not known
    at build time. What a tensor has at one place is the same for all lanes."""
    lanes, whole = ctx.lanes, ctx.facts.inline(expr)
    found = list(loads(whole))
    if lanes is None or _varies_otherwise(whole, ctx):
        return None
    if not uses(whole, (lanes.var,)) and all(load.source.scope() == "global" for load in found):
        return (0,) * lanes.width
    if found:
        return None
    first, steps = substitute(whole, {lanes.var: lanes.base}), [0]
    for number in range(1, lanes.width):
        there = substitute(whole, {lanes.var: lanes.base + tirx.const(number, dtype_of(lanes.var))})
        distance = int_value(ctx.facts.analyzer.simplify(there - first))
        if distance is None:
            return None
        steps.append(distance)
    return tuple(steps)


def has_digits(expr: Expr, ctx: LaneContext) -> bool:
    """Whether an index is more than linear in the variable of the lanes: it divides what has it."""
    lanes, whole = ctx.lanes, ctx.facts.inline(expr)
    divisions = (node for node in walk(whole) if isinstance(node, (tirx.FloorDiv, tirx.FloorMod)))
    return lanes is not None and any(uses(node, (lanes.var,)) for node in divisions)


def digits(expr: Expr, ctx: LaneContext) -> Expr | None:
    """The values of a quotient or remainder as that of the first lane and numbers; None where it moves in
    another way."""
    known = int_value(expr.b) is not None and has_digits(expr, ctx)
    steps = distances(expr, ctx) if known else None
    if steps is None:
        return None
    first = in_first_lane(expr, ctx)
    if not any(steps):
        return first
    numbers = [tirx.const(step, dtype_of(expr)) for step in steps]
    return spread(first, len(steps)) + tirx.Shuffle(numbers, list(range(len(steps))))


def in_first_lane(expr: Expr, ctx: LaneContext) -> Expr:
    """The value of ``expr`` in the first lane of a loop."""
    assert ctx.lanes is not None
    base, var = ctx.lanes.base, ctx.lanes.var
    with ctx.scope(), ctx.lane_scope(None):
        ctx.env[var] = base
        return ctx.value(ctx.facts.inline(expr))


def _varies_otherwise(expr: Expr, ctx: LaneContext) -> bool:
    """Whether a variable other than that of the lanes has a value for each of them."""
    names = {node for node in walk(expr) if isinstance(node, Var)}
    return any(
        lanes_of(ctx.variable(name)) > 1 and not name.same_as(ctx.lanes.var)
        for name in names
        if ctx.lanes is not None
    )
