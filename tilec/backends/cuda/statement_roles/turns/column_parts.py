"""Statements of one of several warpgroups that share the columns of results.

O += P V    of two groups, 256 columns    ->    O0 += P V[:, 0:128], O1 += P V[:, 128:256]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import dtype_of, int_value, transform
from tilec.ir.nodes import Alloc, Block, Copy, Fill, Gemm, Parallel, Region, Stmt, Store, children, walk
from tilec.ir.traits import Rewriter, loads_of
from tilec.lowering.analysis.uses import used_in, written_in


@dataclass(frozen=True)
class ColumnParts:
    """Part ``number`` of ``count`` of the columns of fragments: ``wide`` names the tile that takes the place
    of each."""

    wide: Mapping[Var, Var]
    number: int
    count: int

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement of these columns alone. Unfit where it does not go column by column."""
        if isinstance(stmt, Alloc):
            return replace(stmt, buffer=self.wide.get(stmt.buffer, stmt.buffer))
        if isinstance(stmt, Fill):
            return replace(stmt, dst=self._region(stmt.dst, stmt))
        if isinstance(stmt, Copy):
            return replace(stmt, src=self._region(stmt.src, stmt), dst=self._region(stmt.dst, stmt))
        if isinstance(stmt, Gemm):
            return self._product(stmt)
        if isinstance(stmt, Parallel):
            return self._loop(stmt)
        raise Unfit("its columns are not apart", stmt)

    def _region(self, region: Region, stmt: Stmt) -> Region:
        if region.buffer in self.wide:
            need(is_whole(region), "it takes a part of a result", stmt)
            return whole_tile(self.wide[region.buffer])
        return self._cut(region, len(region.start) - 1, stmt)

    def _cut(self, region: Region, axis: int, stmt: Stmt) -> Region:
        """The part of a region along an axis."""
        whole = int_value(region.extent[axis]) or 0
        need(whole % self.count == 0 and whole == self._width, "it has other columns", stmt)
        size = whole // self.count
        start, extent = list(region.start), list(region.extent)
        start[axis] = start[axis] + tirx.const(self.number * size, dtype_of(start[axis]))
        extent[axis] = size
        return replace(region, start=tuple(start), extent=tuple(extent))

    @property
    def _width(self) -> int:
        """Columns of all parts."""
        return static_extents(next(iter(self.wide)))[-1]

    def _product(self, gemm: Gemm) -> Gemm:
        axis = len(gemm.b.start) - (2 if gemm.trans_b else 1)
        return replace(gemm, b=self._cut(gemm.b, axis, gemm), c=self._region(gemm.c, gemm))

    def _loop(self, loop: Parallel) -> Parallel:
        column = loop.vars[-1]
        places = list(self._columns(loop))
        need(all(place.same_as(column) for place in places), "a column needs others", loop)
        need(int_value(loop.extents[-1]) == self._width, "it has other columns", loop)
        size = self._width // self.count
        made = tirx.Var(str(column.name), dtype_of(column))
        rewriter = _Columns(self.wide, column, made, self.number * size)
        body = rewriter.block(loop.body)
        return replace(loop, vars=(*loop.vars[:-1], made), extents=(*loop.extents[:-1], size), body=body)

    def _columns(self, loop: Parallel) -> Iterator[Expr]:
        """The columns at which a loop meets the fragments."""
        for stmt in walk(loop.body):
            if isinstance(stmt, Store) and stmt.buffer in self.wide:
                yield stmt.indices[-1]
            found = loads_of(stmt)
            yield from (load.indices[-1] for load in found if load.source in self.wide)


class _Columns(Rewriter):
    """Statements of a loop over columns ``made`` of a part, which begins at ``first`` of the whole."""

    def __init__(self, wide: Mapping[Var, Var], column: Var, made: Var, first: int) -> None:
        super().__init__()
        self._wide, self._column, self._made = wide, column, made
        self._whole = made + tirx.const(first, dtype_of(made))

    def expr(self, expr: Expr) -> Expr:
        """A value at a column of the part."""
        return transform(expr, self._node)

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """An element at a column of the part."""
        if buffer not in self._wide:
            return buffer, indices
        return self._wide[buffer], (*indices[:-1], self._made)

    def _node(self, node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return self._whole if node.same_as(self._column) else None
        if isinstance(node, TensorLoad) and node.source in self._wide:
            rows = [self.expr(index) for index in node.indices[:-1]]
            return tirx.BufferLoad(self._wide[node.source], [*rows, self._made])
        return None


def with_staged(block: Block, wide: Set[Var]) -> frozenset[Var]:
    """``wide``, and the shared tiles that statements make of these."""
    known = set(wide)
    for stmt in walk(block):
        if children(stmt) and not isinstance(stmt, Parallel):
            continue
        if known & used_in((stmt,)):
            known |= {tile for tile in written_in((stmt,)) if tile.scope() == "shared.dyn"}
    return frozenset(known)
