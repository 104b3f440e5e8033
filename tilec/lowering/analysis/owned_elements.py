"""Whether blocks or columns of a launch write elements of their own, so that they may run apart.

``atomic_add(E[I[b], j], G[b, j])``: two blocks ``b`` may update one row, but columns ``j`` never share an
element. A task that takes some columns of all blocks (`OwnUpdates` of CPUs) owns what it updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import inlined, int_value, linear_in, reads
from tilec.ir.nodes import (
    Alloc,
    Atomic,
    Bind,
    Block,
    For,
    If,
    Launch,
    Parallel,
    Stmt,
    Store,
    children,
    is_global,
    walk,
)
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.counted import counted
from tilec.lowering.analysis.updates import UPDATES

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: What launches consist of that do little beside their updates.
_PLAIN = (Alloc, Atomic, Bind, For, If, Parallel, Store)
#: Columns of a part, whole vectors of the widest, and how many parts there are, at most.
_COLUMNS, _VECTOR, _PARTS = 64, 16, 16


@dataclass(frozen=True, eq=False)
class Columns:
    """Loop variables that tell the column of what their iterations write, each of ``count`` values."""

    vars: tuple[Var, ...]
    count: int

    @property
    def width(self) -> int:
        """How many of them a part has, but for the last one."""
        parts = max(2, min(_PARTS, -(-self.count // _COLUMNS)))
        return -(-self.count // (parts * _VECTOR)) * _VECTOR

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return -(-self.count // self.width)


class Writes:
    """What a launch writes to tensors, and whose variables tell the elements."""

    def __init__(self, launch: Launch) -> None:
        self._launch, self._all = launch, list(walk(launch.body))
        names = values_of(self._all)
        stores = (stmt for stmt in self._all if isinstance(stmt, (Store, Atomic)))
        self._stores = [stmt for stmt in stores if is_global(stmt.buffer)]
        self._places = [tuple(inlined(index, names) for index in stmt.indices) for stmt in self._stores]
        known = {var: count for var, count in _most(launch, self._all).items() if count is not None}
        self._analyzer = counted([*known], [*known.values()])

    def may_be_shared_out(self) -> bool:
        """Whether there are updates, and nothing that sees when they happen."""
        updates = [stmt for stmt in self._stores if isinstance(stmt, Atomic)]
        updated = {stmt.buffer for stmt in updates}
        plain = all(stmt.kind in UPDATES and stmt.prev is None for stmt in updates)
        seen = self._reads(updated)
        return bool(updates) and plain and not seen and all(isinstance(stmt, _PLAIN) for stmt in self._all)

    def _reads(self, buffers: Set[Var]) -> bool:
        """Whether the launch reads one of these."""
        return any(reads(expr, buffers) for stmt in self._all for expr in expressions(stmt))

    def tell(self, var: Var) -> bool:
        """Whether blocks that differ in a block index write no element in common."""
        return self._agree([self._told(place, var) for place in self._places])

    def _told(self, place: Sequence[Expr], var: Var) -> tuple[int, int] | None:
        """The axis whose index tells ``var``, and the factor by which it does."""
        for axis, index in enumerate(place):
            linear = linear_in(index, [var])
            factor = int_value(linear[0]) if linear else None
            if factor is None or factor <= 0:
                continue
            rest = self._analyzer.const_int_bound(linear[1])
            if rest.min_value >= 0 and rest.max_value < factor:
                return axis, factor
        return None

    def _agree(self, found: Sequence[object]) -> bool:
        """Whether all that is written of a tensor tells in one way."""
        ways: dict[Var, object] = {}
        return all(
            way is not None and ways.setdefault(stmt.buffer, way) == way
            for stmt, way in zip(self._stores, found, strict=True)
        )

    def columns(self) -> Columns | None:
        """Variables of the loops around all that is written which tell its column; None where some do not, or
        the block does anything else, reading what it has stored to columns of another part too."""
        if self._reads({stmt.buffer for stmt in self._stores}):
            return None
        found: list[tuple[Var, int]] = []
        ways: dict[Stmt, object] = {}
        for loop in _outermost(self._launch.body):
            inside: set[Stmt] = {stmt for stmt in walk((loop,)) if stmt in self._stores}
            taken = next((each for each in self._by(loop, inside)), None)
            if taken is None:
                return None
            found.append(taken[:2])
            ways |= taken[2]
        counts = {count for _, count in found}
        if len(counts) != 1 or not self._agree([ways.get(stmt) for stmt in self._stores]):
            return None
        columns = Columns(tuple(var for var, _ in found), counts.pop())
        return columns if columns.parts > 1 else None

    def _by(self, loop: Parallel, inside: set[Stmt]) -> Iterator[tuple[Var, int, dict[Stmt, object]]]:
        """The variables of a loop that tell the columns of what is stored ``inside``, and how."""
        for var, extent in zip(loop.vars, loop.extents, strict=True):
            count = int_value(extent)
            places = [(s, p) for s, p in zip(self._stores, self._places, strict=True) if s in inside]
            ways: dict[Stmt, object] = {}
            if count:
                ways = {stmt: self._column(place, var, count) for stmt, place in places}
            if ways and count and None not in ways.values():
                yield var, count, ways

    def _column(self, place: Sequence[Expr], var: Var, count: int) -> tuple[int, int] | None:
        """The axis whose index is ``var``, beside a multiple of its ``count`` and a number."""
        for axis, index in enumerate(place):
            linear = linear_in(index, [var])
            if not linear or int_value(linear[0]) != 1:
                continue
            rest = self._analyzer.modular_set(self._analyzer.simplify(linear[1]))
            if rest.coeff % count == 0:
                return axis, rest.base % count
        return None


def _most(launch: Launch, stmts: Sequence[Stmt]) -> dict[Var, int | None]:
    """How many values block indices and variables of loops take at most, of which several loops may have one;
    None where that is not known, or they do not count from 0."""
    found: dict[Var, int | None] = {}
    for var, count in (*zip(launch.block_vars, launch.grid, strict=True), *ends_of(stmts)):
        most, known = found.get(var, 0), int_value(count)
        found[var] = None if most is None or known is None else max(most, known)
    return found | {stmt.var: None for stmt in stmts if isinstance(stmt, For) and not counts_from_zero(stmt)}


def ends_of(stmts: Iterable[Stmt]) -> Iterator[tuple[Var, int | Expr]]:
    """The variables of loops that count from 0, with their ends."""
    for stmt in stmts:
        if isinstance(stmt, Parallel):
            yield from zip(stmt.vars, stmt.extents, strict=True)
        if isinstance(stmt, For) and counts_from_zero(stmt):
            yield stmt.var, stmt.stop


def _outermost(block: Block) -> list[Parallel]:
    """The Parallel loops of a block that no other one is around; none where something else writes."""
    found: list[Parallel] = []
    for stmt in block:
        if isinstance(stmt, Parallel):
            found.append(stmt)
        elif isinstance(stmt, (Alloc, Store, Atomic)):
            return []
        else:
            parts = [_outermost(inner) for inner in children(stmt)]
            if any(inner and not part for inner, part in zip(children(stmt), parts, strict=True)):
                return []
            found += [loop for part in parts for loop in part]
    return found
