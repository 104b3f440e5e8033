"""Loops of which a trip does the work of two, or of more.

    for t in range(n): f(t)    ->    for p in range(n // 2): f(2 * p); f(2 * p + 1)
                                     if n is odd: f(n - 1)

The two may then differ: one of two tiles each, or products of both that are waited for together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.analysis.known_trips import leaves_early
from tilec.ir.analysis.renaming import in_trip
from tilec.ir.exprs import dtype_of, int_value, reads
from tilec.ir.nodes import Block, For, If, Stmt
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr


def runs_in_groups(loop: For) -> bool:
    """Whether a loop may be one over groups of trips: each trip comes to its end, and how many there are is
    the same behind the loop, where the number of those left is asked for."""
    made = written_in(loop.body)
    counted = not any(reads(bound, made) for bound in (loop.start, loop.stop))
    return int_value(loop.step) == 1 and counted and not leaves_early(loop)


def in_pairs(loop: For, first: Block, second: Block) -> list[Stmt]:
    """A loop that `runs_in_groups` over pairs of trips, the bodies of which are ``first`` and ``second``;
    behind it the last trip of an odd number, as it is."""
    pairs, count = in_groups(loop, (first, second))
    return [pairs, *_rest(loop, left_of(count, 2))]


def in_groups(loop: For, bodies: Sequence[Block]) -> tuple[For, Expr]:
    """A loop that `runs_in_groups` over whole groups of trips, which have these bodies one after the other,
    and how many trips there are, those that fill no group included."""
    var = tirx.Var(str(loop.var.name), dtype_of(loop.var))
    zero, size = (tirx.const(value, dtype_of(var)) for value in (0, len(bodies)))
    count = sym.Analyzer().simplify(tirx.max(loop.stop - loop.start, zero))
    first = loop.start + var * size
    places = (first + tirx.const(number, dtype_of(var)) for number in range(len(bodies)))
    trips = (in_trip(replace(loop, body=body), at) for body, at in zip(bodies, places, strict=True))
    body = tuple(stmt for trip in trips for stmt in trip)
    return replace(loop, var=var, start=zero, stop=tirx.floordiv(count, size), body=body), count


def left_of(count: Expr, size: int) -> Expr:
    """How many of ``count`` trips are behind the last whole group of ``size``."""
    return sym.Analyzer().simplify(count % tirx.const(size, dtype_of(count)))


def _rest(loop: For, left: Expr) -> Block:
    """The last trip, where ``left`` is 1."""
    last = in_trip(loop, loop.stop - tirx.const(1, dtype_of(loop.var)))
    if int_value(left) is None:
        return (If(tirx.NE(left, tirx.const(0, dtype_of(left))), last, loc=loop.loc),)
    return last if int_value(left) else ()
