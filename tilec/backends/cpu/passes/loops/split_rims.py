"""Indices that are kept inside a row are what they are between its rims, where lanes read neighbours.

for x in parallel(640): Y[x] = X[min(max(x - 2, 0), 639)]
->
for x in parallel(2): Y[x] = X[min(max(x - 2, 0), 639)]
for x in parallel(638): Y[x + 2] = X[x]

So are those that go round at the ends of a row (``X[(x + 639) % 640]``): between the rims they are ``x - 1``.
Where a block's place decides (``bx * 128 + x - 2``), a test says whether all of the block lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.passes.loops.whole_turns import taken_off
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.numbers.long_names import LongNames
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import (
    all_of,
    dtype_of,
    each_once,
    inlined,
    int_value,
    linear_in,
    loads,
    same,
    transform,
    uses,
)
from tilec.ir.exprs import walk as parts_of
from tilec.ir.nodes import Block, For, If, Parallel, Stmt, walk
from tilec.ir.traits import Rewriter, defined, loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch

#: Iterations between the rims that are worth a loop of their own.
_FEW = 32


class SplitRims(LaunchPass):
    """In: Parallel loops. Out: those that read a row at an index with bounds or one that goes round, which
    its last axis tells, are loops before, between and behind the rims."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops split."""
        alone = [
            var for var, size in zip(launch.block_vars, launch.grid, strict=True) if int_value(size) == 1
        ]
        split = partial(_in_block, names={var: tirx.const(0, dtype_of(var)) for var in alone})
        return replace(launch, body=rewrite_blocks(launch.body, split))


def _in_block(block: Block, names: Mapping[Var, Expr]) -> list[Stmt]:
    return [
        made for stmt in block for made in (_split(stmt, names) if isinstance(stmt, Parallel) else [stmt])
    ]


def _split(loop: Parallel, names: Mapping[Var, Expr]) -> Sequence[Stmt]:
    """A loop as loops, where ``names`` are those of what is around it."""
    extent = loop.extents[-1]
    if not isinstance(extent, int) or extent < _FEW or loop.hints.given:
        return [loop]
    lane = _Lane(loop.vars[-1], extent, {**names, **short_names(loop.body)}, tuple(inner_trips(loop.body)))
    inside = {*loop.vars[:-1], *(var for stmt in walk(loop.body) for var in defined(stmt))}
    found = [need for need in lane.needs(loop.body) if not uses(need.rest, inside)]
    if not found:
        return [loop]
    known = [(need.factor, number) for need in found if (number := int_value(need.rest)) is not None]
    first = min(extent, max([0, *(-(number // factor) for factor, number in known if factor > 0)]))
    last = max(0, min([extent, *(number // -factor + 1 for factor, number in known if factor < 0)]))
    if last - first < _FEW:
        return [loop]
    between = _Between(lane, [need.distance for need in found]).block(loop.body)
    middle: Stmt = part_of(replace(loop, body=between), first, last)
    conds = each_once(need.holds(first, last) for need in found if int_value(need.rest) is None)
    if conds:
        middle = If(all_of(conds), (middle,), (part_of(loop, first, last),), loc=loop.loc)
    before, behind = (
        _split(part_of(loop, start, stop), names) if start < stop else []
        for start, stop in ((0, first), (last, extent))
    )
    return [*before, middle, *behind]


def short_names(body: Block) -> dict[Var, Expr]:
    """What the names of a body stand for, but for those whose values grow as names in them are replaced."""
    names = LongNames()
    return {var: value for var, value in values_of(walk(body)).items() if not names.has(var, value)}


def inner_trips(body: Block) -> Iterator[tuple[Var, range]]:
    """The loops of a body whose trips are known."""
    for stmt in walk(body):
        trips = known_trips(stmt) if isinstance(stmt, For) else None
        if isinstance(stmt, For) and trips:
            yield stmt.var, trips


def part_of(loop: Parallel, first: int, last: int, axis: int = -1) -> Parallel:
    """The iterations from ``first`` to ``last`` along an axis, with names of their own."""
    axis %= len(loop.vars)
    old = loop.vars[axis]
    var = tirx.Var(str(old.name), dtype_of(old))
    body = copied(renamed(loop.body, {old: var + first if first else var}))
    return replace(
        loop,
        vars=(*loop.vars[:axis], var, *loop.vars[axis + 1 :]),
        extents=(*loop.extents[:axis], last - first, *loop.extents[axis + 1 :]),
        body=body,
    )


@dataclass(frozen=True, eq=False)
class _Need:
    """What holds where a bound does not count: ``distance``, which is ``factor`` times the last axis plus at
    least ``rest``, is not negative."""

    distance: Expr
    factor: int
    rest: Expr

    def holds(self, first: int, last: int) -> Expr:
        """Whether it holds from ``first`` to ``last``."""
        return self.rest + self.factor * (first if self.factor > 0 else last - 1) >= 0


@dataclass(frozen=True, eq=False)
class _Lane:
    """The last axis of a loop, the names of its body and the loops in it with their trips."""

    var: Var
    extent: int
    names: Mapping[Var, Expr]
    trips: tuple[tuple[Var, range], ...]

    def needs(self, body: Block) -> list[_Need]:
        """What the last indices of all elements that a body reads need."""
        found = loads_of(*walk(body))
        last = (inlined(load.indices[-1], self.names) for load in found)
        distances = (part for index in last for node in parts_of(index) for part in self.distances(node))
        needs = (self._need(distance) for distance in each_once(distances))
        return [need for need in needs if need is not None]

    def between(self, node: Expr) -> Expr | None:
        """What a bounded index, or one that goes round, is between the rims; None for any other value."""
        side = self.side(node)
        return self._wrapped(node) if side is None else (node.a, node.b)[side]

    def distances(self, node: Expr) -> list[Expr]:
        """How far such an index lies from its bounds, those of what it bounds with them, or from the ends of
        its row; nothing for any other value."""
        wrapped = self._wrapped(node)
        if wrapped is not None:
            return [wrapped, node.b - 1 - wrapped]
        side = self.side(node)
        return [] if side is None else [self._distance(node, side), *self.distances((node.a, node.b)[side])]

    def _wrapped(self, node: Expr) -> Expr | None:
        """An index that goes round, less what its remainder takes off."""
        if not isinstance(node, tirx.FloorMod) or next(loads(node), None) is not None:
            return None
        index, divisor = (inlined(operand, self.names) for operand in (node.a, node.b))
        off = taken_off(index, divisor, (self.var, self.extent), self.trips, _FEW)
        return None if off is None else node.a - off

    def _distance(self, node: Expr, side: int) -> Expr:
        index, bound = (node.a, node.b) if side == 0 else (node.b, node.a)
        while (inner := self.side(index)) is not None:
            index = (index.a, index.b)[inner]
        return index - bound if isinstance(node, tirx.Max) else bound - index

    def side(self, node: Expr) -> int | None:
        """Which operand of a bounded index moves along the axis."""
        if not isinstance(node, (tirx.Max, tirx.Min)) or not dtype_of(node).startswith("int"):
            return None
        moves = [uses(inlined(operand, self.names), (self.var,)) for operand in (node.a, node.b)]
        fixed = [next(loads(operand), None) is None for operand in (node.a, node.b)]
        return moves.index(True) if sum(moves) == 1 and all(fixed) else None

    def _need(self, distance: Expr) -> _Need | None:
        factors = linear_in(distance, [self.var, *(var for var, _ in self.trips)])
        numbers = [number for factor in factors[:-1] if (number := int_value(factor)) is not None]
        if not numbers or len(numbers) < len(factors) - 1 or not numbers[0]:
            return None
        pairs = zip(numbers[1:], (trips for _, trips in self.trips), strict=True)
        least = sum(min(by * trips[0], by * trips[-1]) for by, trips in pairs)
        return _Need(distance, numbers[0], factors[-1] + least)


class _Between(Rewriter):
    """Statements without the bounds that hold."""

    def __init__(self, lane: _Lane, distances: Sequence[Expr]) -> None:
        super().__init__()
        self._lane, self._distances = lane, distances

    def expr(self, expr: Expr) -> Expr:
        """A value without them."""
        return transform(expr, self._index)

    def _index(self, node: Expr) -> Expr | None:
        between = self._lane.between(node)
        distances = self._lane.distances(inlined(node, self._lane.names)) if between is not None else []
        if not distances or not all(self._holds(distance) for distance in distances):
            return None
        return self.expr(between)

    def _holds(self, distance: Expr) -> bool:
        return any(same(distance, other) for other in self._distances)
