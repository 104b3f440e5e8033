"""Where threads meet in shared memory without a barrier: what one of them writes and another one touches.

The language synchronises statements of a block there, so the loop over threads has to end between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, compress
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from tvm import sym, tirx
from tvm.ir import Range

from tilec.errors import UnsupportedError
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, same, substitute, uses
from tilec.ir.nodes import (
    LOOPS,
    Alloc,
    Atomic,
    Bind,
    Block,
    Break,
    Continue,
    For,
    If,
    Pipelined,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.ir.places import place_of
from tilec.ir.traits import expressions
from tilec.lowering.tile_axes import divides_by_zero
from tilec.lowering.tile_axes import place_of as row_by_row

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.analysis.threads.uniform import Uniformity
    from tilec.lowering.analysis.thread_grid import ThreadGrid

#: Memory in which the threads of a block meet.
_MEETING = ("shared", "local.fragment", "global")
#: Elements whose owners are counted, at most.
_MOST = 1 << 18
#: Trips of a loop, at most.
_FAR = 1 << 30
#: What threads do each for itself.
_PLAIN = (*LOOPS, Alloc, Bind, Break, Continue, If, Store)
#: Conditions around a place -> whether the threads that come there need no others to wait for them.
Free: TypeAlias = "Callable[[tuple[Expr, ...]], bool]"


@dataclass(frozen=True, eq=False)
class Access:
    """One element that every thread touches: ``how`` is "read", "write" or the kind of an atomic update.
    ``ranges`` are the loops inside of the statement (None: of open extent), ``threads`` those that may come
    here; ``is_alike``: the same value to the same element by all of them; ``is_slot``: a place that the
    update of a counter handed out, which is one thread's."""

    buffer: Var
    indices: tuple[Expr, ...]
    how: str
    ranges: Mapping[Var, range | None]
    threads: np.ndarray
    is_alike: bool = False
    is_slot: bool = False


class Hazards:
    """Conflicts between the statements of a launch, whose ``body`` is here. ``values`` are names of index
    arithmetic. ``trusts``: threads whose elements are not known are taken to have their own."""

    def __init__(self, grid: ThreadGrid, body: Block, uniform: Uniformity, trusts: bool = False) -> None:
        self._grid, self._trusts = grid, trusts
        self.values = pure_names(body)
        self._upward = _upward(body)
        self._handed_out = [
            stmt.prev for stmt in walk(body) if isinstance(stmt, Atomic) and stmt.prev is not None
        ]
        self._uniform = uniform
        self._analyzer = sym.Analyzer()
        self._known: dict[Stmt, list[Access]] = {}

    def accesses(self, stmt: Stmt) -> list[Access]:
        """What a statement touches of memory that threads share, with those inside it."""
        if stmt not in self._known:
            self._known[stmt] = list(self._accesses(stmt, {}, ()))
        return self._known[stmt]

    def admitted(self, conds: Iterable[Expr]) -> np.ndarray:
        """The threads that conditions may admit."""
        return self._grid.admitted(inlined(cond, self.values) for cond in conds)

    def exactly(self, conds: Iterable[Expr]) -> np.ndarray | None:
        """The threads that conditions admit; None where that is not known while compiling."""
        return self._grid.exactly(inlined(cond, self.values) for cond in conds)

    def _accesses(
        self, stmt: Stmt, ranges: dict[Var, range | None], conds: tuple[Expr, ...]
    ) -> Iterator[Access]:
        taken = self.admitted(conds)
        for expr in expressions(stmt):
            for load in loads(expr):
                if _meets(load.source):
                    yield Access(load.source, tuple(load.indices), "read", ranges, taken)
        if isinstance(stmt, (Store, Atomic)) and _meets(stmt.buffer):
            how = "write" if isinstance(stmt, Store) else stmt.kind
            alike = isinstance(stmt, Store) and not self._uniform.varies(stmt.value, *stmt.indices, *conds)
            slot = any(uses(inlined(index, self.values), self._handed_out) for index in stmt.indices)
            yield Access(stmt.buffer, stmt.indices, how, ranges, taken, alike, slot)
        inside = {**ranges, **_moving(stmt)}
        for block, cond in sides(stmt):
            for inner in block:
                yield from self._accesses(inner, inside, (*conds, *cond))

    def inside(self, stmt: Stmt, conds: tuple[Expr, ...], free: Free) -> bool:
        """Whether threads meet inside of a statement under ``conds``, apart from what stands deeper: within a
        block, from trip to trip; in a branch its condition, one side, the other side."""
        if isinstance(stmt, If):
            return self._in_branch(stmt, conds, free)
        if free(conds):
            return False
        return any(self._within(block) for block in children(stmt)) or (
            isinstance(stmt, LOOPS) and self._carried(stmt)
        )

    def anywhere(self, stmt: Stmt, conds: tuple[Expr, ...] = ()) -> bool:
        """Whether threads meet inside of a statement at any depth."""
        deeper = (self.anywhere(inner, (*conds, *own)) for block, own in sides(stmt) for inner in block)
        return self.inside(stmt, conds, self.is_alone) or any(deeper)

    def _in_branch(self, stmt: If, conds: tuple[Expr, ...], free: Free) -> bool:
        if self.is_alone(conds):
            return False
        cond = replace(stmt, then=(), orelse=())
        blocks = [block for block, own in sides(stmt) if not free((*conds, *own))]
        return (
            any(self._within(block) for block in blocks)
            or any(self.between((cond,), inner) for inner in (*stmt.then, *stmt.orelse))
            or any(self.between(stmt.then, inner) for inner in stmt.orelse)
        )

    def is_alone(self, conds: tuple[Expr, ...]) -> bool:
        """Whether one thread at most comes to a place."""
        return bool(self.admitted(conds).sum() <= 1)

    def between(self, before: Sequence[Stmt], stmt: Stmt) -> bool:
        """Whether ``stmt`` touches what another thread touches in the statements before it."""
        later = self.accesses(stmt)
        return bool(later) and any(
            self._conflict(one, other) for item in before for one in self.accesses(item) for other in later
        )

    def _within(self, block: Block) -> bool:
        """Whether some statement of a block conflicts with one before it."""
        return any(self.between(block[:position], stmt) for position, stmt in enumerate(block))

    def _carried(self, loop: Stmt) -> bool:
        """Whether a trip of a loop conflicts with an earlier one."""
        (body,) = children(loop)
        named = {stmt.var: None for stmt in walk(body) if isinstance(stmt, Bind)}
        ranges = {**{var: None for var in named if var not in self.values}, **_moving(loop)}
        found = [access for stmt in body for access in self._accesses(stmt, ranges, ())]
        pairs = combinations_with_replacement(found, 2)
        return any(self._conflict(one, other) for one, other in pairs if one is not other or not one.is_alike)

    def check_loop(self, stmt: Stmt) -> None:
        """Nothing for a loop that all threads run alike, or in which their author has them wait.

        Raises:
            UnsupportedError: for a loop that threads do not run equally often, in which they surely meet.
        """
        if not isinstance(stmt, LOOPS) or not self._uniform.parts(stmt):
            return
        if not all(isinstance(inner, _PLAIN) for inner in walk((stmt,))):
            return
        pairs = combinations_with_replacement(self.accesses(stmt), 2)
        if any(self._collide(one, other) for one, other in pairs):
            raise loop_of_some(stmt)

    def _collide(self, one: Access, other: Access) -> bool:
        """Whether one thread surely names an element that another one names, and one of them writes it."""
        hows = {one.how, other.how}
        if one is other or "write" not in hows or not hows <= {"read", "write"}:
            return False
        if one.is_alike or other.is_alike:
            return False
        if any(place is None for access in (one, other) for place in self._places(access)):
            return False
        return self._conflict(one, other)

    def _conflict(self, one: Access, other: Access) -> bool:
        if not one.buffer.same_as(other.buffer) or (one.how == other.how != "write"):
            return False
        if (one.threads | other.threads).sum() <= 1 or (one.is_slot and other.is_slot):
            return False
        return not (self._own(one, other) or self._is_apart(one, other))

    def _is_apart(self, one: Access, other: Access) -> bool:
        """Whether an axis tells the elements of both apart, whichever threads touch them: column k, and those
        of a loop from k + 1 on."""
        return any(
            self._is_below(one, first, other, second) or self._is_below(other, second, one, first)
            for first, second in zip(one.indices, other.indices, strict=True)
        )

    def _is_below(self, one: Access, low: Expr, other: Access, high: Expr) -> bool:
        """Whether index ``low`` of one access is known to be less than ``high`` of another one, whose loops
        may be in another trip."""
        most, least = self._bound(one, low, is_last=True), self._bound(other, high, is_last=False)
        if most is None or least is None:
            return False
        return bool(self._analyzer.const_int_bound(self._analyzer.simplify(least - most)).min_value > 0)

    def _bound(self, access: Access, index: Expr, *, is_last: bool) -> Expr | None:
        """An index by how far the loops of an access are behind their first trips, or in front of their last
        ones; None for one that threads or elements decide."""
        index = inlined(index, self.values)
        for var in reversed([var for var in access.ranges if var in self._upward]):
            first, end = self._upward[var]
            away = tirx.Var("away", dtype_of(var))
            self._analyzer.bind(away, Range(*(tirx.const(number, dtype_of(var)) for number in (0, _FAR))))
            trip = end - 1 - away if is_last else first + away
            index = inlined(substitute(index, {var: trip}), self.values)
        if uses(index, {*self._grid.vars, *access.ranges}) or self._uniform.varies(index):
            return None
        return None if next(loads(index), None) is not None else index

    def _own(self, one: Access, other: Access) -> bool:
        """Whether every element that both touch is touched by one thread alone: the axes that are known tell
        whose it is, or its place, row by row, where indices take places apart (`p // n, p % n`)."""
        axes = list(zip(self._places(one), self._places(other), strict=True))
        known = [(a[0], b[0]) for a, b in axes if a is not None and b is not None and same(a[1], b[1])]
        if self._tell_owners(one, other, known):
            return True
        whole = len(known) == len(axes)
        return not whole and (self._trusts or self._tell_owners(one, other, self._flat_places(one, other)))

    def _flat_places(self, one: Access, other: Access) -> list[tuple[np.ndarray, np.ndarray]]:
        """What threads decide of the places of both, row by row; nothing where these do not come apart."""
        flat = (self._places(replace(each, indices=(self._flat(each),))) for each in (one, other))
        (a,), (b,) = flat
        return [(a[0], b[0])] if a is not None and b is not None and same(a[1], b[1]) else []

    def _flat(self, access: Access) -> Expr:
        indices = [inlined(index, self.values) for index in access.indices]
        if any(map(divides_by_zero, indices)):
            return indices[0]
        return row_by_row(indices, access.buffer.shape)

    def _tell_owners(self, one: Access, other: Access, axes: Sequence[tuple[np.ndarray, np.ndarray]]) -> bool:
        """Whether indices along some axes, by thread and trip, tell the thread."""
        if not axes:
            return False
        parts, owners = [], []
        for access, places in zip((one, other), zip(*axes, strict=True), strict=True):
            chosen = np.stack(places, axis=-1)[access.threads]
            threads = np.flatnonzero(access.threads)[:, None]
            parts.append(chosen.reshape(-1, len(places)))
            owners.append(np.broadcast_to(threads, chosen.shape[:2]).reshape(-1))
        _, element = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
        owner = np.concatenate(owners)
        lowest = np.full(element.max(initial=0) + 1, self._grid.count)
        np.minimum.at(lowest, element.reshape(-1), owner)
        return bool((lowest[element.reshape(-1)] == owner).all())

    def _places(self, access: Access) -> list[tuple[np.ndarray, Expr] | None]:
        """By axis, the part of the index that threads and inner loops decide, by thread; and the rest. None
        where they do not come apart, or where loops decide that have too many trips."""
        ranges = {var: span for var, span in access.ranges.items() if span is not None}
        if self._grid.count * prod(len(span) for span in ranges.values()) > _MOST:
            ranges = {}
        return [self._place(index, access, ranges) for index in access.indices]

    def _place(
        self, index: Expr, access: Access, ranges: Mapping[Var, range]
    ) -> tuple[np.ndarray, Expr] | None:
        moving = {*self._grid.vars, *access.ranges}
        parts = list(_terms(self._analyzer.simplify(inlined(index, self.values))))
        moves = [uses(part, moving) or isinstance(part, tirx.IntImm) for part in parts]
        still = [part for part, moved in zip(parts, moves, strict=True) if not moved]
        if self._uniform.varies(*still) or any(next(loads(part), None) is not None for part in still):
            return None
        found = self._grid.values(_sum(list(compress(parts, moves))), ranges)
        return None if found is None else (found, _sum(still))


def loop_of_some(stmt: Stmt) -> UnsupportedError:
    """The error for a loop in which threads meet and that they do not run equally often."""
    return UnsupportedError(
        "threads meet in a loop that they do not all run equally often",
        place=place_of(stmt),
        why="its bounds, or what ends it, differ between threads, and they touch each other's elements in it",
        remedy="give the loop bounds that are the same for all threads, and an if inside",
    )


def sides(stmt: Stmt) -> list[tuple[Block, tuple[Expr, ...]]]:
    """The blocks of a statement with the conditions that it puts around them."""
    if isinstance(stmt, If):
        return [(stmt.then, (stmt.cond,)), (stmt.orelse, (tirx.Not(stmt.cond),))]
    return [(block, ()) for block in children(stmt)]


def pure_names(body: Block) -> dict[Var, Expr]:
    """Names of index arithmetic, which can be computed anywhere again."""
    found: dict[Var, Expr] = {}
    for stmt in walk(body):
        if isinstance(stmt, Bind) and dtype_of(stmt.var).startswith(("int", "uint", "bool")):
            value = substitute(stmt.value, found)
            if not any(True for _ in loads(value)):
                found[stmt.var] = value
    return found


def _upward(body: Block) -> dict[Var, tuple[Expr, Expr]]:
    """From where the loops of a block count upwards, and what they stay below."""
    loops = (stmt for stmt in walk(body) if isinstance(stmt, For))
    return {loop.var: (loop.start, loop.stop) for loop in loops if (int_value(loop.step) or 0) > 0}


def _moving(stmt: Stmt) -> dict[Var, range | None]:
    """The variable of a loop with its values, where these are known."""
    if isinstance(stmt, For):
        return {stmt.var: known_trips(stmt)}
    return {stmt.var: None} if isinstance(stmt, Pipelined) else {}


def _meets(buffer: Var) -> bool:
    return bool(buffer.scope().startswith(_MEETING))


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
