"""Loops that take their variable apart by numbers known when code runs: a version for where these are
multiples of the lanes, whose elements lie side by side (`emit/vectors/aligned.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.lane_axis import lane_count
from tilec.backends.cpu.emit.loops.splits.range_splits import is_invariant, written_buffers
from tilec.backends.cpu.emit.loops.splits.rows import emit_rows
from tilec.backends.cpu.emit.loops.splits.versions import emit_versions
from tilec.backends.cpu.emit.vectors.aligned import aligned_digit, counts_lanes
from tilec.ir.exprs import all_of, dtype_of, each_once, int_value, loads, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Store, walk
from tilec.ir.traits import expressions
from tilec.lowering.emission.statements import branch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.emit.loops.nest import Nest
    from tilec.ir.nodes import Block


def emit_aligned(nest: Nest, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of a nest, twice where its innermost variable is taken apart by run-time numbers."""
    width = lane_count(nest.body, ctx)
    if ctx.recorder is not None or width == 1:
        return emit_versions(nest, ctx)
    numbers, odd = _numbers(nest, width, ctx), _odd_numbers(nest, width, ctx)
    if not numbers:
        return emit_rows(nest, odd, width, ctx)
    test = ctx.value(all_of([test for number in numbers for test in _tests(number, width)]))
    with ctx.multiples_scope(numbers, width):
        then = emit_versions(nest, ctx)
    return branch(test, then, emit_rows(nest, [*odd, *numbers], width, ctx))


def _tests(number: Expr, width: int) -> tuple[Expr, Expr]:
    """Whether a number is positive, and a multiple of so many lanes."""
    zero = tirx.const(0, dtype_of(number))
    return number > zero, tirx.EQ(tirx.FloorMod(number, tirx.const(width, dtype_of(number))), zero)


def _numbers(nest: Nest, width: int, ctx: LaneContext) -> list[Expr]:
    """The numbers, each once, that would have to be multiples of the lanes; none where one changes."""
    written = written_buffers(nest.body)
    found = [number for number in _divisors(nest, ctx) if int_value(number) is None]
    found = [number for number in each_once(found) if not counts_lanes(number, width, ctx)]
    known = all(is_invariant(number, nest.vars, written, ctx) for number in found)
    return found if known else []


def _odd_numbers(nest: Nest, width: int, ctx: LaneContext) -> list[Expr]:
    """The numbers that are known and no multiples of the lanes, each once."""
    return each_once(number for number in _divisors(nest, ctx) if (int_value(number) or 0) % width)


def _divisors(nest: Nest, ctx: LaneContext) -> Iterator[Expr]:
    """What indices divide by that depend on the innermost variable."""
    for index in _indices(nest.body):
        for node in walk_expr(ctx.facts.inline(index)):
            digit = aligned_digit(node)
            if digit is not None and uses(digit[0], (nest.vars[-1],)):
                yield digit[1]


def _indices(body: Block) -> Iterator[Expr]:
    """Where ``body`` reads and writes elements."""
    for stmt in walk(body):
        if isinstance(stmt, Store):
            yield from stmt.indices
        for expr in expressions(stmt):
            for load in loads(expr):
                yield from load.indices
