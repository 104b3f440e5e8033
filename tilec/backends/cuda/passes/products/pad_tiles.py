"""Zeros stand behind the ends of shared tiles that tensor cores do not take as they are.

    K_s (64, 72); K_s = K[k * 64 :+ 64, 0 :+ 72]; S += Q_s K_s^T
 -> K_s (64, 80); K_s = K[k * 64 :+ 64, 0 :+ 80]; S += Q_s K_s^T

What is outside of a tensor reads as 0, also where TMA brings it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import masked
from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.backends.cuda.analysis.products.odd_tiles import (
    Longer,
    covers,
    depth_axes,
    fills,
    longer_axes,
    makes,
    multiplied,
    passes,
    source_axis,
)
from tilec.ir.analysis.renaming import Renaming
from tilec.ir.exprs import int_value, same
from tilec.ir.nodes import Block, Copy, Fill, Gemm, Kernel, Launch, Parallel, Region, Stmt, Store, walk
from tilec.ir.traits import written
from tilec.lowering.analysis.regions import stretched
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_NOTE = "{} has zeros behind its end: {} elements become {}, which tensor cores take"


class PadTiles(Pass):
    """In: shared operands of products whose K is no whole steps of an instruction, or of whose rows, where
    wgmma reads across them, descriptors say nothing, filled with all that tensors have along that axis, or by
    threads. Out: longer tiles, whose ends are zeros that come along, or that threads write; other statements
    have the same part of them."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tiles."""
        return rewrite_launches(kernel, lambda launch: _padded(launch, longer_axes(launch, target)))


def _padded(launch: Launch, axes: Longer) -> Launch:
    if not axes:
        return launch
    notes = [_NOTE.format(tile.name, static_extents(tile)[axis], size) for tile, (axis, size) in axes.items()]
    return with_notes(replace(launch, body=_Padding(launch, axes).block(launch.body)), notes)


class _Padding(Renaming):
    """Statements over longer tiles."""

    def __init__(self, launch: Launch, axes: Longer) -> None:
        self._made = {tile: _tile(tile, axis, size) for tile, (axis, size) in axes.items()}
        super().__init__(self._made)
        self._axes = axes
        self._ahead = {tile: {*walk(multiplied(launch.body, tile))} for tile in axes}

    def stmts(self, stmt: Stmt) -> Block:
        """A statement, behind zeros where threads write a tile."""
        return (*self._zeros(stmt), self.stmt(stmt))

    def _zeros(self, stmt: Stmt) -> Block:
        """The zeros behind a tile that a statement writes for products."""
        if not isinstance(stmt, (Copy, Parallel)) or not makes(stmt) or self._passes(stmt):
            return ()
        (tile,) = written(stmt if isinstance(stmt, Copy) else stmt.body[-1])
        if stmt not in self._ahead.get(tile, ()):
            return ()
        (axis, size), region = self._axes[tile], whole_tile(self._made[tile])
        first, left = static_extents(tile)[axis], size - static_extents(tile)[axis]
        start = (*region.start[:axis], tirx.const(first, "int32"), *region.start[axis + 1 :])
        zero = tirx.const(0, str(tile.dtype))
        return (Fill(stretched(replace(region, start=start), axis, left), zero, loc=stmt.loc),)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement, longer where that is what fills a tile or multiplies it."""
        if isinstance(stmt, Gemm):
            stmt = self._product(stmt)
        elif isinstance(stmt, Copy) and stmt.dst.buffer in self._axes:
            stmt = self._copy(stmt)
        elif isinstance(stmt, Fill) and stmt.dst.buffer in self._axes:
            stmt = replace(stmt, dst=self._longer(stmt.dst))
        elif isinstance(stmt, Parallel):
            stmt = self._loop(stmt)
        return super().stmt(stmt)

    def _product(self, gemm: Gemm) -> Gemm:
        """A product with the zeros of both operands, where both have them along K."""
        (a, first), (b, second) = depth_axes(gemm)
        if not (self._grows(a, first) and self._grows(b, second)):
            return gemm
        return replace(gemm, a=self._longer(a), b=self._longer(b))

    def _grows(self, region: Region, axis: int) -> bool:
        return self._axes.get(region.buffer, (None, 0))[0] == axis and covers(region, axis)

    def _longer(self, region: Region) -> Region:
        axis, size = self._axes[region.buffer]
        return stretched(region, axis, size)

    def _copy(self, copy: Copy) -> Copy:
        """A copy with the zeros behind a tensor; one of what threads have as it is."""
        axis, size = self._axes[copy.dst.buffer]
        if self._passes(copy):
            return replace(copy, src=self._longer(copy.src), dst=self._longer(copy.dst))
        source = source_axis(copy, axis)
        if source is None:
            return copy
        return replace(copy, src=stretched(copy.src, source, size), dst=self._longer(copy.dst))

    def _passes(self, stmt: Stmt) -> bool:
        """Whether the zeros of a fragment come along with those of the tile that a copy brings."""
        return isinstance(stmt, Copy) and stmt.src.buffer in self._axes and passes(stmt)

    def _loop(self, loop: Parallel) -> Parallel:
        """A loop that fills a tile, over zeros behind its end, too."""
        store = loop.body[-1] if fills(loop) else None
        if not isinstance(store, Store) or store.buffer not in self._axes:
            return loop
        axis, size = self._axes[store.buffer]
        if not _ends(store.value, loop.vars[axis], loop.extents[axis]):
            zero = tirx.const(0, str(store.buffer.dtype))
            inside = loop.vars[axis] < loop.extents[axis]
            store = replace(store, value=tirx.if_then_else(inside, store.value, zero))
        sizes = (*loop.extents[:axis], size, *loop.extents[axis + 1 :])
        return replace(loop, extents=sizes, body=(*loop.body[:-1], store))


def _ends(value: Expr, var: Var, size: int | Expr) -> bool:
    """Whether a value is an element, or one under a condition, that is outside of its tensor from ``size``
    on."""
    load = masked(value)[1]
    if not isinstance(load, TensorLoad):
        return False
    places = zip(load.indices, load.source.shape, strict=True)
    return any(same(index, var) and int_value(extent) == int_value(size) for index, extent in places)


def _tile(tile: Var, axis: int, size: int) -> Var:
    shape = list(static_extents(tile))
    shape[axis] = size
    return tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope=tile.scope())
