"""Where threads meet in shared memory without a barrier: what one of them writes and another one touches.

The language synchronises statements of a block there, so the loop over threads has to end between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from tvm import sym, tirx

from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import inlined, int_value, linear_in, loads, same, uses
from tilec.ir.nodes import Atomic, Block, For, If, Pipelined, Stmt, Store, While, children, walk
from tilec.ir.traits import defined, expressions

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.threads.grid import ThreadGrid

#: Memory that the threads of a block share.
SHARED = ("shared.dyn", "local.fragment")
#: Elements whose owners are counted, at most.
_MOST = 1 << 16


@dataclass(frozen=True, eq=False)
class Access:
    """One element that every thread touches: ``how`` is "read", "write" or "atomic". ``ranges`` are the loops
    inside of the statement (None: of open extent), ``threads`` those that may come here."""

    buffer: Var
    indices: tuple[Expr, ...]
    how: str
    ranges: Mapping[Var, range | None]
    threads: np.ndarray


class Hazards:
    """Conflicts between the statements of one launch. ``values`` are names of index arithmetic."""

    def __init__(self, grid: ThreadGrid, values: Mapping[Var, Expr]) -> None:
        self._grid = grid
        self._values = values
        self._analyzer = sym.Analyzer()
        self._known: dict[Stmt, list[Access]] = {}

    def accesses(self, stmt: Stmt) -> list[Access]:
        """What a statement touches of shared memory, with those inside it."""
        if stmt not in self._known:
            self._known[stmt] = list(self._accesses(stmt, {}, ()))
        return self._known[stmt]

    def _accesses(
        self, stmt: Stmt, ranges: dict[Var, range | None], conds: tuple[Expr, ...]
    ) -> Iterator[Access]:
        taken = self._grid.admitted(inlined(cond, self._values) for cond in conds)
        for expr in expressions(stmt):
            for load in loads(expr):
                if load.source.scope() in SHARED:
                    yield Access(load.source, tuple(load.indices), "read", ranges, taken)
        if isinstance(stmt, (Store, Atomic)) and stmt.buffer.scope() in SHARED:
            how = "write" if isinstance(stmt, Store) else "atomic"
            yield Access(stmt.buffer, stmt.indices, how, ranges, taken)
        inside = {**ranges, stmt.var: known_trips(stmt)} if isinstance(stmt, For) else ranges
        if isinstance(stmt, If):
            for block, cond in ((stmt.then, stmt.cond), (stmt.orelse, tirx.Not(stmt.cond))):
                for inner in block:
                    yield from self._accesses(inner, inside, (*conds, cond))
            return
        for block in children(stmt):
            for inner in block:
                yield from self._accesses(inner, inside, conds)

    def between(self, before: Sequence[Stmt], stmt: Stmt) -> bool:
        """Whether ``stmt`` touches what another thread touches in the statements before it."""
        later = self.accesses(stmt)
        return bool(later) and any(
            self._conflict(one, other) for item in before for one in self.accesses(item) for other in later
        )

    def within(self, block: Block) -> bool:
        """Whether some statement of a block conflicts with one before it."""
        return any(self.between(block[:position], stmt) for position, stmt in enumerate(block))

    def carried(self, loop: For | Pipelined | While) -> bool:
        """Whether a trip of a loop conflicts with an earlier one."""
        found = [access for stmt in loop.body for access in self.accesses(stmt)]
        trips = _Trips.of(loop)
        return any(self._conflict(one, other, trips) for one in found for other in found)

    def _conflict(self, one: Access, other: Access, trips: _Trips | None = None) -> bool:
        if not one.buffer.same_as(other.buffer) or one.how == other.how != "write":
            return False
        if (one.threads | other.threads).sum() <= 1:
            return False
        return not self._own(one, other, trips)

    def _own(self, one: Access, other: Access, trips: _Trips | None) -> bool:
        """Whether every element that both touch is touched by one thread alone, in any of ``trips``."""
        first, second = self._places(one, trips), self._places(other, trips)
        if first is None or second is None:
            return False
        if not all(same(a, b) for a, b in zip(first[1], second[1], strict=True)):
            return False
        parts, owners = [], []
        for access, (places, _) in ((one, first), (other, second)):
            chosen = np.stack(places, axis=-1)[access.threads]
            threads = np.flatnonzero(access.threads)[:, None]
            parts.append(chosen.reshape(-1, len(places)))
            owners.append(np.broadcast_to(threads, chosen.shape[:2]).reshape(-1))
        _, element = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
        owner = np.concatenate(owners)
        lowest = np.full(element.max(initial=0) + 1, self._grid.count)
        np.minimum.at(lowest, element.reshape(-1), owner)
        return bool((lowest[element.reshape(-1)] == owner).all())

    def _places(self, access: Access, trips: _Trips | None) -> tuple[list[np.ndarray], list[Expr]] | None:
        """By axis, the part of the index that threads and inner loops decide, by thread, as far as it tells
        the element in any of ``trips``; and the rest. None where they do not come apart."""
        ranges = {var: span for var, span in access.ranges.items() if span is not None}
        counts = self._grid.count * prod(len(span) for span in ranges.values())
        if counts > _MOST:
            return None
        if trips is not None and trips.var is not None and 0 < counts * len(trips.span) <= _MOST:
            ranges[trips.var] = trips.span
        moving = {*self._grid.vars, *access.ranges, *ranges}
        places, rest = [], []
        for index in access.indices:
            parts = list(_terms(self._analyzer.simplify(inlined(index, self._values))))
            inner = _sum([part for part in parts if uses(part, moving)])
            outer = _sum([part for part in parts if not uses(part, moving)])
            found = self._grid.values(inner, ranges)
            if found is None:
                return None
            places.append(found if trips is None else trips.in_any(found, outer))
            rest.append(outer)
        return places, rest


@dataclass(frozen=True)
class _Trips:
    """The trips of a loop, which counts ``var``, through ``span`` where that is known, and changes
    ``names``."""

    var: Var | None
    span: range
    names: frozenset[Var]

    @staticmethod
    def of(loop: For | Pipelined | While) -> _Trips:
        """Those of a loop."""
        names = frozenset(var for stmt in walk(loop.body) for var in defined(stmt))
        if isinstance(loop, While):
            return _Trips(None, range(0), names)
        return _Trips(loop.var, (isinstance(loop, For) and known_trips(loop)) or range(0), names)

    def in_any(self, places: np.ndarray, rest: Expr) -> np.ndarray:
        """What ``places`` tell of the element along an axis where each trip moves them by ``rest``: all where
        it moves none, the remainders where it does by multiples of a number, else nothing."""
        nothing = np.zeros_like(places)
        if uses(rest, tuple(self.names)) or any(True for _ in loads(rest)):
            return nothing
        if self.var is None or not uses(rest, (self.var,)):
            return places
        linear = linear_in(rest, [self.var])
        step = int_value(linear[0]) if linear else None
        return places % abs(step) if step else nothing


def _terms(expr: Expr) -> Iterator[Expr]:
    """What a sum is the sum of."""
    if isinstance(expr, tirx.Add):
        yield from _terms(expr.a)
        yield from _terms(expr.b)
    elif isinstance(expr, tirx.Sub):
        yield from _terms(expr.a)
        yield from (term * -1 for term in _terms(expr.b))
    else:
        yield expr


def _sum(terms: Sequence[Expr]) -> Expr:
    total = tirx.const(0, "int32")
    for term in terms:
        total = total + term
    return total
