"""Elements that each trip of a loop reads anew, as elements that an iteration holds.

for k in serial(0, n):
    for d in serial(0, 16): s[0] = s[0] + (X[i, d] - C[k, d]) * (X[i, d] - C[k, d])
->
x = alloc(float32, (16,), "local")
for d in serial(0, 16): x[d] = X[i, d]
for k in serial(0, n):
    for d in serial(0, 16): s[0] = s[0] + (x[d] - C[k, d]) * (x[d] - C[k, d])

Lanes of the iterations then gather them once, and have neighbours from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, same_all, substitute, transform, uses
from tilec.ir.nodes import Alloc, For, Parallel, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.serial import serial_loop
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import Access, values_of
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Trips of a loop from which on its reads are worth holding, and elements of one that are held at most.
_MANY, _MOST = 8, 64


def with_held_reads(outer: Parallel, is_apart: Callable[[Access], bool]) -> Parallel:
    """A T.Parallel whose loops read what their trips share from arrays of the iteration, where ``is_apart``
    says that lanes have the elements of an access, whose indices have no names, apart in memory."""
    names, written = values_of(walk(outer.body)), written_in(outer.body)
    body: list[Stmt] = []
    for stmt in outer.body:
        if not isinstance(stmt, For) or not _is_long(stmt):
            body.append(stmt)
            continue
        held = _Held(names, written, {var for part in walk((stmt,)) for var in defined(part)}, is_apart)
        loop = replace(stmt, body=tuple(held.inside(inner) for inner in stmt.body))
        body += [*held.made, loop] if held.made else [stmt]
    return replace(outer, body=tuple(body)) if len(body) > len(outer.body) else outer


def _is_long(loop: For) -> bool:
    start, stop = int_value(loop.start), int_value(loop.stop)
    return start is None or stop is None or stop - start >= _MANY


@dataclass(frozen=True, eq=False)
class _Array:
    """``tile`` holds the ``count`` elements of ``source`` at ``indices``, which ``place`` numbers."""

    tile: Var
    source: Var
    place: Var
    count: int
    indices: tuple[Expr, ...]


@dataclass(eq=False)
class _Held:
    """What the trips of a loop share: nothing of what is ``written`` or defined in them (``own``). ``made``
    are the statements in front of the loop, which fill ``arrays``."""

    names: Mapping[Var, Expr]
    written: Set[Var]
    own: Set[Var]
    is_apart: Callable[[Access], bool]
    made: list[Stmt] = field(default_factory=list)
    arrays: list[_Array] = field(default_factory=list)

    def inside(self, loop: Stmt) -> Stmt:
        """A statement of the loop: one over elements reads those that are held."""
        if not isinstance(loop, For) or not counts_from_zero(loop):
            return loop
        count = int_value(loop.stop)
        if count is None or not 1 < count <= _MOST:
            return loop

        def visit(node: Expr) -> Expr | None:
            tile = self._tile(node, loop.var, count) if isinstance(node, TensorLoad) else None
            return None if tile is None else tirx.BufferLoad(tile, [loop.var])

        return replace(loop, body=map_block(loop.body, lambda value: transform(value, visit)))

    def _tile(self, node: TensorLoad, var: Var, count: int) -> Var | None:
        """The array with what trips of ``var`` read; None where those of the loop around do not share it, or
        lanes have it side by side."""
        indices = tuple(inlined(index, self.names) for index in node.indices)
        read = [node.source, *(load.source for index in indices for load in loads(index))]
        if node.source.scope() in PER_THREAD or not self.written.isdisjoint(read):
            return None
        others = tuple(self.own - {var})
        if not any(uses(index, (var,)) for index in indices) or any(uses(index, others) for index in indices):
            return None
        if not self.is_apart(Access(node.source, indices, False)):
            return None
        for array in self.arrays:
            same = same_all(tuple(substitute(index, {var: array.place}) for index in indices), array.indices)
            if same and array.count == count and array.source.same_as(node.source):
                return array.tile
        return self._made(node.source, indices, var, count)

    def _made(self, source: Var, indices: tuple[Expr, ...], var: Var, count: int) -> Var:
        """A new array, which is filled in front of the loop."""
        tile = tirx.decl_buffer((count,), str(source.dtype), str(source.name), scope="local")
        place = tirx.Var(str(var.name), dtype_of(var))
        indices = tuple(substitute(index, {var: place}) for index in indices)
        self.arrays.append(_Array(tile, source, place, count, indices))
        fill = Store(tile, (place,), tirx.BufferLoad(source, list(indices)))
        self.made += [Alloc(tile), serial_loop(place, count, (fill,))]
        return tile
