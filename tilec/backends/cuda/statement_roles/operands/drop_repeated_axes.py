"""Shared tiles that hold the same value all along an axis do without it.

    s[i, j] = G[row + i]; f = s; x[i, j] *= f[i, j]    ->    s[i] = G[row + i]; f[i, j] = s[i]; ...

What is left is so small that a producer brings it, ahead of the trip that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.statement_roles.split.loads import filled
from tilec.ir.exprs import same, transform, uses
from tilec.ir.nodes import Alloc, Copy, Launch, Parallel, Stmt, Store, children, walk, with_children
from tilec.ir.traits import expressions, regions, written
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NOTE = "{} repeats its values along an axis, and does without it"


class DropRepeatedAxes(LaunchPass):
    """In: shared tiles that one loop fills from tensors, of whose variables its values do not use all, and
    that copies of the whole tile and loops over elements read. Out: tiles without the axes of the others."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its tiles; one whose threads its author numbers as it is."""
        if launch.thread_vars:
            return launch
        stmts = list(walk(launch.body))
        named = addressed_in(launch.body)
        tile = next(filter(None, (_narrowed(stmt, stmts, named) for stmt in stmts)), None)
        if tile is None:
            return launch
        body = tuple(map(tile.stmt, launch.body))
        return self.launch(with_notes(replace(launch, body=body), [_NOTE.format(tile.old.name)]))


@dataclass(frozen=True)
class _Narrowed:
    """A tile that ``writer`` fills, and its stand-in ``new`` with the axes ``kept`` alone."""

    old: Var
    new: Var
    kept: Sequence[int]
    writer: Parallel

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement over the new tile."""
        if stmt is self.writer:
            return self._written()
        if isinstance(stmt, Alloc) and stmt.buffer.same_as(self.old):
            return replace(stmt, buffer=self.new)
        if isinstance(stmt, Copy) and stmt.src.buffer.same_as(self.old):
            stmt = expand_copy(stmt)
        if isinstance(stmt, Parallel) or not children(stmt):
            return map_stmt(stmt, self._read)
        return with_children(stmt, [tuple(map(self.stmt, inner)) for inner in children(stmt)])

    def _written(self) -> Stmt:
        *names, store = self.writer.body
        assert isinstance(store, Store)
        own = Store(self.new, tuple(store.indices[axis] for axis in self.kept), store.value, loc=store.loc)
        places = [
            place for place, var in enumerate(self.writer.vars) if any(uses(i, (var,)) for i in own.indices)
        ]
        return replace(
            self.writer,
            vars=tuple(self.writer.vars[place] for place in places),
            extents=tuple(self.writer.extents[place] for place in places),
            body=(*names, own),
        )

    def _read(self, expr: Expr) -> Expr:
        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, TensorLoad) or not node.source.same_as(self.old):
                return None
            return tirx.BufferLoad(self.new, [self._read(node.indices[axis]) for axis in self.kept])

        return transform(expr, visit)


def _narrowed(stmt: Stmt, stmts: Sequence[Stmt], named: set[Var]) -> _Narrowed | None:
    """The tile that a loop fills, if it repeats along an axis and everybody can read it without."""
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    if not isinstance(stmt, Parallel) or store is None or filled(stmt) is None:
        return None
    tile = store.buffer
    values = [expr for part in stmt.body for expr in expressions(part) if part is not store]
    values.append(store.value)
    kept = [
        axis
        for axis, index in enumerate(store.indices)
        if not any(same(index, var) and not _decides(var, values) for var in stmt.vars)
    ]
    if not kept or len(kept) == len(tile.shape) or tile in named:
        return None
    if not all(each is store or _reads(each, tile) for each in stmts):
        return None
    shape = [tile.shape[axis] for axis in kept]
    new = tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope=tile.scope())
    return _Narrowed(tile, new, kept, stmt)


def _reads(stmt: Stmt, tile: Var) -> bool:
    """Whether a statement does nothing to a tile but read its elements, or copy all of it elsewhere."""
    if isinstance(stmt, Alloc):
        return not stmt.buffer.same_as(tile) or (stmt.layout, stmt.asked) == (None, None)
    if isinstance(stmt, Copy) and stmt.src.buffer.same_as(tile):
        return is_whole(stmt.src) and not stmt.dst.buffer.same_as(tile)
    mine = (region.buffer for region in regions(stmt))
    return tile not in written(stmt) and not any(buffer.same_as(tile) for buffer in mine)


def _decides(var: Var, values: Sequence[Expr]) -> bool:
    return any(uses(value, (var,)) for value in values)
