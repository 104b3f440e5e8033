"""Loops of which a trip does the work of two.

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
    from tvm.ir import Expr


def runs_in_pairs(loop: For) -> bool:
    """Whether a loop may be one over pairs of trips: each trip comes to its end, and how many there are is
    the same behind the loop, where an odd number is asked for."""
    made = written_in(loop.body)
    counted = not any(reads(bound, made) for bound in (loop.start, loop.stop))
    return int_value(loop.step) == 1 and counted and not leaves_early(loop)


def in_pairs(loop: For, first: Block, second: Block) -> list[Stmt]:
    """A loop that `runs_in_pairs` over such pairs, the bodies of which are ``first`` and ``second``; behind
    it the last trip of an odd number, as it is."""
    var = tirx.Var(str(loop.var.name), dtype_of(loop.var))
    one, two = (tirx.const(value, dtype_of(var)) for value in (1, 2))
    zero = tirx.const(0, dtype_of(var))
    count = sym.Analyzer().simplify(tirx.max(loop.stop - loop.start, zero))
    place = loop.start + var * two
    body = (*in_trip(replace(loop, body=first), place), *in_trip(replace(loop, body=second), place + one))
    pairs = replace(loop, var=var, start=zero, stop=tirx.floordiv(count, two), body=body)
    return [pairs, *_rest(loop, sym.Analyzer().simplify(count % two))]


def _rest(loop: For, left: Expr) -> Block:
    """The last trip, where ``left`` is 1."""
    last = in_trip(loop, loop.stop - tirx.const(1, dtype_of(loop.var)))
    if int_value(left) is None:
        return (If(tirx.NE(left, tirx.const(0, dtype_of(left))), last, loc=loop.loc),)
    return last if int_value(left) else ()
