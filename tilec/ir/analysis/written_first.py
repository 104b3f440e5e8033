"""Whether statements write the elements of a tensor before they read them, so that what a caller has there
never counts: powers, say, that wait in a result until their sum is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import as_expr, dtype_of, inlined, int_value, loads, operands, same, substitute
from tilec.ir.nodes import Bind, Break, Continue, Copy, Fill, For, Parallel, Pipelined, Store
from tilec.ir.nodes.threads import Return
from tilec.ir.stmt import Region, children, walk
from tilec.ir.traits import expressions, read

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Block, Buffer, Stmt

_JUMPS = (Break, Continue, Return)


def written_first(body: Block, buffer: Buffer) -> bool:
    """Whether each element of ``buffer`` that ``body`` reads is one that a store, fill or copy in front has
    written: in the same iteration of the loops around both, in loops of the same trips as those around the
    read, and in the same launch, where no branch leaves it out. Says no where it cannot tell."""
    if any(isinstance(stmt, _JUMPS) for stmt in walk(body)):
        return False
    names = {stmt.var: stmt.value for stmt in walk(body) if isinstance(stmt, Bind)}
    return _Walk(buffer, names).block(body, ())


@dataclass(frozen=True, eq=False)
class _Loop:
    """A variable and its trips: where they start, stop and how far they lie apart."""

    var: Var
    trips: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class _Elements:
    """The elements at ``indices`` in all trips of ``loops``, outermost first."""

    loops: tuple[_Loop, ...]
    indices: tuple[Expr, ...]


class _Walk:
    """Goes through statements in program order; ``_known`` are elements that have been written."""

    def __init__(self, buffer: Buffer, names: Mapping[Var, Expr]) -> None:
        self._buffer = buffer
        self._names = names
        self._known: list[_Elements] = []

    def block(self, block: Block, loops: tuple[_Loop, ...]) -> bool:
        """Whether all that ``block`` reads of the buffer is known by then."""
        return all(self._stmt(stmt, loops) for stmt in block)

    def _stmt(self, stmt: Stmt, loops: tuple[_Loop, ...]) -> bool:
        if not self._reads_known(stmt, loops):
            return False
        inside = (*loops, *_loops_of(stmt))
        for inner in children(stmt):
            known = list(self._known)
            if not self.block(inner, inside):
                return False
            if not isinstance(stmt, (For, Pipelined, Parallel)):
                self._known = known
        self._known += self._written(stmt, loops)
        return True

    def _reads_known(self, stmt: Stmt, loops: tuple[_Loop, ...]) -> bool:
        places = list(self._read(stmt, loops))
        reads = sum(each.same_as(self._buffer) for each in read(stmt))
        return reads == len(places) and all(map(self._is_known, places))

    def _read(self, stmt: Stmt, loops: tuple[_Loop, ...]) -> Iterator[_Elements]:
        for expr in expressions(stmt):
            for load in loads(expr):
                if load.source.same_as(self._buffer):
                    yield _Elements(loops, operands(load))
        if isinstance(stmt, Copy):
            yield from self._box(stmt.src, loops)

    def _written(self, stmt: Stmt, loops: tuple[_Loop, ...]) -> Iterator[_Elements]:
        if isinstance(stmt, Store) and stmt.buffer.same_as(self._buffer):
            yield _Elements(loops, stmt.indices)
        if isinstance(stmt, (Copy, Fill)):
            yield from self._box(stmt.dst, loops)

    def _box(self, region: Region, loops: tuple[_Loop, ...]) -> Iterator[_Elements]:
        """The elements of a region of the buffer, a loop for each axis that has several."""
        if not region.buffer.same_as(self._buffer):
            return
        indices = []
        for start, extent in zip(region.start, region.extent, strict=True):
            if int_value(as_expr(extent, dtype_of(start))) == 1:
                indices.append(start)
                continue
            axis = tirx.Var("axis", dtype_of(start))
            loops = (*loops, _Loop(axis, _trips(axis, 0, extent)))
            indices.append(axis if int_value(start) == 0 else start + axis)
        yield _Elements(loops, tuple(indices))

    def _is_known(self, wanted: _Elements) -> bool:
        return any(self._covers(known, wanted) for known in reversed(self._known))

    def _covers(self, known: _Elements, wanted: _Elements) -> bool:
        """Whether two names of elements are the same, once loops of one stand for those of the other."""
        if len(known.loops) != len(wanted.loops):
            return False
        names = {one.var: other.var for one, other in zip(known.loops, wanted.loops, strict=True)}
        pairs = zip(self._values(known), self._values(wanted), strict=True)
        return all(_lasts(one) and same(substitute(one, names), other) for one, other in pairs)

    def _values(self, elements: _Elements) -> Iterator[Expr]:
        """The trips of all loops, then the indices, names of values written out."""
        for loop in elements.loops:
            yield from (inlined(each, self._names) for each in loop.trips)
        yield from (inlined(each, self._names) for each in elements.indices)


def _lasts(value: Expr) -> bool:
    """Whether a value is the same later on: what memory holds may change."""
    return next(loads(value), None) is None


def _loops_of(stmt: Stmt) -> Iterator[_Loop]:
    """The loops that a statement is."""
    if isinstance(stmt, For):
        yield _Loop(stmt.var, (stmt.start, stmt.stop, stmt.step))
    elif isinstance(stmt, Pipelined):
        yield _Loop(stmt.var, _trips(stmt.var, stmt.start, stmt.stop))
    elif isinstance(stmt, Parallel):
        for var, extent in zip(stmt.vars, stmt.extents, strict=True):
            yield _Loop(var, _trips(var, 0, extent))


def _trips(var: Var, start: int | Expr, stop: int | Expr) -> tuple[Expr, ...]:
    return tuple(as_expr(each, dtype_of(var)) for each in (start, stop, 1))
