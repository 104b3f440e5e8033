"""Whether two neighbouring blocks of a grid may be one, whose tiles are twice as long: element ``i`` of the
second one's is element ``i + extent`` of the first one's in every statement, and what stands between tiles
that go on and those that do not is the same for both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.blocks.long_tiles import (
    elements,
    on_chip,
    operand_axes,
    outside_of_elements,
    sides,
)
from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.ir.exprs import dtype_of, inlined, int_value, same, substitute, transform, uses
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Bind,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    Store,
    walk,
)
from tilec.ir.traits import buffers, expressions
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.backends.cuda.analysis.blocks.long_tiles import LongTiles
    from tilec.lowering.analysis.facts import Facts

#: Statements around others, which both blocks go through alike.
_AROUND = (Assume, For, If, Pipelined)


def may_join(tiles: LongTiles, facts: Facts) -> bool:
    """Whether two blocks may be one. Behind the last block they write nothing."""
    body = tiles.launch.body
    check = _Check(tiles, facts, values_of(walk(body)))
    return bool(tiles.axes) and all(map(check.is_fit, outside_of_elements(body)))


@dataclass(frozen=True)
class _Check:
    """Judges statements; ``values``: what names stand for."""

    tiles: LongTiles
    facts: Facts
    values: Mapping[Var, Expr]

    def is_fit(self, stmt: Stmt) -> bool:
        """Whether a statement over longer tiles is that of both blocks."""
        long = any(buffer in self.tiles.axes for buffer in buffers(stmt))
        if isinstance(stmt, Bind):
            return True
        if isinstance(stmt, Alloc):
            return all(map(self._stays, expressions(stmt))) and (not long or stmt.asked is None)
        if isinstance(stmt, Copy):
            return self._copies(stmt)
        if isinstance(stmt, Gemm):
            return self._multiplies(stmt)
        if isinstance(stmt, Parallel):
            return self._computes(stmt)
        if isinstance(stmt, Fill):
            return self._stays(stmt.value) and (not long or is_whole(stmt.dst))
        return (isinstance(stmt, _AROUND) or not long) and all(map(self._stays, expressions(stmt)))

    # ---- copies and products ----

    def _copies(self, copy: Copy) -> bool:
        """Whether a copy moves long tiles whole, and with the block the box of a tensor alone."""
        regions = (copy.src, copy.dst)
        long = [region for region in regions if region.buffer in self.tiles.axes]
        pairs = [pair for pair in sides(copy) if any(map(self._is_along, regions, pair))]
        if len(pairs) != bool(long) or not all(map(is_whole, long)):
            return False
        along: tuple[int | None, int | None] = pairs[0] if pairs else (None, None)
        start = None if along[1] is None or on_chip(copy.dst.buffer) else copy.dst.start[along[1]]
        inside = start is None or self._ends(copy.dst.buffer, along[1] or 0, start)
        return inside and all(map(self._moves_along, regions, along))

    def _is_along(self, region: Region, axis: int) -> bool:
        return self.tiles.axes.get(region.buffer) == axis

    def _moves_along(self, region: Region, axis: int | None) -> bool:
        """Whether the box of a tensor moves with the block along one axis, a tile's goes on along it."""
        if on_chip(region.buffer):
            return self.tiles.axes.get(region.buffer) == axis and all(map(self._stays, region.start))
        steps = [region.extent[place] if place == axis else 0 for place in range(len(region.start))]
        return all(map(self._moves_by, region.start, steps))

    def _multiplies(self, gemm: Gemm) -> bool:
        """Whether long tiles of a product are whole, and go on along axes of its sums."""
        regions, axes = (gemm.a, gemm.b, gemm.c), self.tiles.axes
        whole = all(is_whole(region) for region in regions if region.buffer in axes)
        still = all(map(self._stays, (gemm.clear, *(start for region in regions for start in region.start))))
        operands = [each for each in operand_axes(gemm) if each[0] in axes]
        found = [of_sums for tile, axis, of_sums in operands if axes[tile] == axis]
        sums = [axes[gemm.c.buffer]] if gemm.c.buffer in axes else []
        return whole and still and len(found) == len(operands) and found == sums

    # ---- loops over elements ----

    def _computes(self, loop: Parallel) -> bool:
        """Whether an iteration of the next block is one of this block, further along its row."""
        inside = list(walk(loop.body))
        row = self.tiles.rows.get(loop)
        if row is None:
            return all(self._stays(expr) for stmt in inside for expr in expressions(stmt))
        extent = int_value(loop.extents[loop.vars.index(row)]) or 0
        return (
            all(isinstance(stmt, (Bind, If, Store)) for stmt in inside)
            and all(self._is_own(tile, at, row, extent) for tile, at in elements(loop, self.values))
            and all(self._goes_on(expr, row, extent) for stmt in inside for expr in self._computed(stmt))
            and all(self._is_kept(stmt, row) for stmt in inside if isinstance(stmt, Store))
        )

    def _is_own(self, tile: Var, at: Sequence[Expr], row: Var, extent: int) -> bool:
        """Whether an element of a long tile lies in the loop's row, and one of another tile in none."""
        if not on_chip(tile):
            return True
        axis = self.tiles.axes.get(tile)
        long = axis is None or (at[axis].same_as(row) and self.tiles.extent(tile) == extent)
        others = (index for place, index in enumerate(at) if place != axis)
        return long and all(self._stays(index) and not uses(index, (row,)) for index in others)

    def _computed(self, stmt: Stmt) -> Iterator[Expr]:
        """What a statement computes, and where it stores in tensors."""
        if isinstance(stmt, Store):
            yield from () if on_chip(stmt.buffer) else stmt.indices
            yield stmt.value
        elif not isinstance(stmt, Bind):
            yield from expressions(stmt)

    def _goes_on(self, expr: Expr, row: Var, extent: int) -> bool:
        """Whether the next block computes what this one would further along its row."""
        here = transform(inlined(expr, self.values), self._without_row)
        further = substitute(here, {row: row + tirx.const(extent, dtype_of(row))})
        analyzer = sym.Analyzer()
        return same(analyzer.simplify(self._next(here)), analyzer.simplify(further))

    def _without_row(self, node: Expr) -> Expr | None:
        """An element of a long tile, in any row."""
        axis = self.tiles.axes.get(node.source) if isinstance(node, TensorLoad) else None
        if axis is None:
            return None
        at = list(node.indices)
        at[axis] = tirx.const(0, dtype_of(at[axis]))
        return tirx.BufferLoad(node.source, at)

    def _is_kept(self, store: Store, row: Var) -> bool:
        """Whether a loop stores to long tiles, or in tensors nothing behind the last block."""
        if on_chip(store.buffer):
            return store.buffer in self.tiles.axes
        zero = {row: tirx.const(0, dtype_of(row))}
        indices = [inlined(index, self.values) for index in store.indices]
        return any(
            uses(index, (row,)) and self._ends(store.buffer, axis, substitute(index, zero))
            for axis, index in enumerate(indices)
        )

    # ---- how values change with the block ----

    def _ends(self, tensor: Var, axis: int, start: Expr) -> bool:
        """Whether the box of a block behind the last one lies outside of a tensor."""
        launch = self.tiles.launch
        end = launch.grid[launch.block_vars.index(self.tiles.block)]
        block = self.tiles.block
        behind = substitute(inlined(start, self.values), {block: tirx.const(0, dtype_of(block)) + end})
        return self.facts.prove(behind >= tensor.shape[axis]) is True

    def _stays(self, expr: Expr | int) -> bool:
        """Whether a value does not depend on the block."""
        return isinstance(expr, int) or not uses(inlined(expr, self.values), (self.tiles.block,))

    def _moves_by(self, expr: Expr, step: int | Expr) -> bool:
        """Whether the next block has ``step`` more."""
        here = inlined(expr, self.values)
        return int_value(sym.Analyzer().simplify(self._next(here) - here)) == int_value(step)

    def _next(self, expr: Expr) -> Expr:
        block = self.tiles.block
        return substitute(expr, {block: block + tirx.const(1, dtype_of(block))})
