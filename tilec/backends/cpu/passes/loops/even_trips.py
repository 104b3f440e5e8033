"""Loops that begin at another place in each iteration of a T.Parallel have as many trips in all of them.

for i in parallel(128): for j in serial(i, n, 128): s[i] = s[i] + X[j]
->
for i in parallel(128):
    for trip in serial(0, (n - 1) // 128 + 1):
        j = i + trip * 128
        if trip * 128 < n - i: s[i] = s[i] + X[j]

So threads share out what there is, whose number is known at run time. Lanes can run a loop together whose
trips are the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import cast_to, dtype_of, inlined, int_value, linear_in, loads, transform, uses
from tilec.ir.exprs import walk as parts_of
from tilec.ir.nodes import Bind, Block, Break, For, If, Parallel, Stmt, children, walk, with_children
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.serial import serial_loop
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var


class EvenTrips(BlockPass):
    """In: Parallel loops. Out: those whose serial loops begin at places of their own have loops of as many
    trips as there are at most, with a test inside where others may have fewer."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with such loops rewritten."""
        return [_evened(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _evened(outer: Parallel) -> Parallel:
    if not any(isinstance(stmt, For) for stmt in walk(outer.body)):
        return outer
    lanes = _Iterations.of(outer)
    return replace(outer, body=tuple(new for stmt in outer.body for new in _stmts(stmt, lanes)))


def _stmts(stmt: Stmt, lanes: _Iterations) -> Block:
    blocks = [tuple(new for inner in block for new in _stmts(inner, lanes)) for block in children(stmt)]
    made = with_children(stmt, blocks) if blocks else stmt
    if not isinstance(made, For) or any(isinstance(inner, Break) for inner in walk(made.body)):
        return (made,)
    found = lanes.first(made)
    return (made,) if found is None else _even(made, *found)


def _even(loop: For, least: Expr, tested: bool) -> Block:
    """The loop with the trips of the iteration that begins first, at ``least``, ``tested`` where another one
    may have fewer. What its bounds read is read once, as it was; the test holds no number beyond the end,
    which 32 bits might not hold."""
    dtype, known = dtype_of(loop.var), int_value(loop.stop) is not None
    first, end = (tirx.Var(f"{loop.var.name}_{name}", dtype) for name in ("first", "stop"))
    stop = loop.stop if known else end
    trip, step, one = tirx.Var(f"{loop.var.name}_trip", dtype), loop.step, tirx.const(1, dtype)
    trips = tirx.floordiv(stop - least - one, step) + one
    test = If(trip * step < stop - first, loop.body, loc=loop.loc)
    body = (Bind(loop.var, first + trip * step, loc=loop.loc), *((test,) if tested else loop.body))
    return (
        Bind(first, loop.start, loc=loop.loc),
        *(() if known else (Bind(end, loop.stop, loc=loop.loc),)),
        serial_loop(trip, trips, body, loop.loc),
    )


@dataclass(frozen=True, eq=False)
class _Iterations:
    """The variables of a Parallel with their extents, what the names inside stand for that can be computed
    anywhere, and what these names and the loops' variables come from."""

    vars: tuple[Var, ...]
    extents: tuple[int | Expr, ...]
    names: Mapping[Var, Expr]
    origins: Mapping[Var, Expr]

    @classmethod
    def of(cls, outer: Parallel) -> _Iterations:
        """Those of a loop."""
        names = values_of(walk(outer.body))
        fixed: dict[Var, Expr] = {}
        for var, value in names.items():
            known = all(part in fixed for part in parts_of(value) if part in names)
            if known and next(loads(value), None) is None:
                fixed[var] = value
        starts = {stmt.var: stmt.start for stmt in walk(outer.body) if isinstance(stmt, For)}
        return cls(outer.vars, outer.extents, fixed, names | starts)

    def first(self, loop: For) -> tuple[Expr, bool] | None:
        """Where the iteration begins a loop that begins it first, and whether others may have fewer trips;
        None where all begin at one place, or may differ by more than a trip, so that tests would be in
        vain."""
        start, stop = (inlined(bound, self.names) for bound in (loop.start, loop.stop))
        step = int_value(loop.step)
        alike = dtype_of(start) == dtype_of(stop) == dtype_of(loop.var)
        if step is None or step < 1 or not alike or not uses(start, self.vars) or self._may_differ(stop):
            return None
        rest, parts = self._parted(start)
        if rest is None or self._may_differ(rest) or any(factor < 0 for factor, _ in parts):
            return None
        apart = sum(factor * (size - 1) for factor, size in parts)
        return None if apart > step else (rest, not _are_even(rest, stop, apart, step))

    def _may_differ(self, bound: Expr) -> bool:
        """Whether a bound may be another one in each iteration."""
        bound = inlined(bound, self.origins)
        read = [load.source for load in loads(bound)]
        return uses(bound, self.vars) or any(buffer.scope() in PER_THREAD for buffer in read)

    def _parted(self, start: Expr) -> tuple[Expr | None, list[tuple[int, int]]]:
        """A place as what all iterations share and, of each thing that they have of their own, a factor and
        how many numbers from 0 on it may be. Sums that 32 bits might not hold are cast back to these."""
        sizes: dict[Var, int] = {
            var: int_value(size) or 0 for var, size in zip(self.vars, self.extents, strict=True)
        }

        def digit(node: Expr) -> Expr | None:
            size = _numbers(node, sizes)
            if size is None:
                return None
            name = tirx.Var("digit", dtype_of(node))
            sizes[name] = size
            return name

        whole = start.value if isinstance(start, tirx.Cast) else start
        linear = linear_in(transform(whole, digit), list(sizes))
        factors = [int_value(factor) for factor in linear[:-1]]
        if not linear or None in factors or 0 in sizes.values():
            return None, []
        return cast_to(linear[-1], dtype_of(start)), list(zip(factors, sizes.values(), strict=True))  # type: ignore[arg-type]


def _are_even(least: Expr, stop: Expr, apart: int, step: int) -> bool:
    """Whether loops that begin up to ``apart`` behind the first one are known to have as many trips."""
    first, end = int_value(least), int_value(stop)
    if first is None or end is None:
        return False
    return -((first - end) // step) == -((first + apart - end) // step)


def _numbers(node: Expr, sizes: Mapping[Var, int]) -> int | None:
    """How many numbers from 0 on a remainder or quotient of variables of such ``sizes`` may be; None of any
    other expression."""
    divisor = int_value(node.b) if isinstance(node, (tirx.FloorMod, tirx.FloorDiv)) else None
    if divisor is None or divisor < 1 or not uses(node, tuple(sizes)):
        return None
    if isinstance(node, tirx.FloorMod):
        return divisor
    size = next((size for var, size in sizes.items() if node.a.same_as(var)), 0)
    return -(-size // divisor) or None
