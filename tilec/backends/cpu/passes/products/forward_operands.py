"""Operands that a Copy only stages are read where they came from.

A tile that one Copy fills from a buffer the launch never writes, and that only products read, is dropped; the
products read the source. Rows of ``a`` and columns of ``b`` beyond the sources are not computed (they would
add zeros), K beyond them is not walked, whether or not the tiles are dropped: nor rows that a Copy converts.
``b`` is forwarded where its columns are as good to read in place as a packed panel is: narrow panels, or so
few rows that packing would cost more than it saves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm, RegisterBlock, is_panel
from tilec.backends.cpu.passes.products.select_microkernel import across_block, low_block
from tilec.backends.cpu.products.blocks.bands import MANY_BLOCKS, MANY_ROWS, has_bands
from tilec.backends.cpu.products.forms.tile_forms import TILE_FORMS
from tilec.backends.cpu.products.forms.word_forms import takes_any, word_form
from tilec.backends.cpu.products.staged_operands import (
    StagedOperands,
    dot_of,
    of_one_type,
    other_axes,
    rows_of_a_step,
    suits_vectors_along_k,
    without_unread,
)
from tilec.backends.cpu.products.tir import trips_of
from tilec.ir.exprs import dtype_of, int_value, same_number
from tilec.ir.nodes import Block, Fill, If, Kernel, Launch, Region, Stmt, is_global
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Rows of ``a`` up to which a row-major ``b`` is read in place; where the tile has many blocks of columns, so
#: that the next ones may be asked for in time, it is up to as many as have no bands.
_FEW_ROWS = 64

#: Vectors along K from which on a step of it is deep.
_DEEP = 16

#: Rows of ``a`` that are a multiple of this many bytes apart share a few sets of every cache.
_ALIASING = 2048

#: The same of large caches: on a Xeon of model 207, 1024^3 was faster in place, 4096^3 slower by a third.
_ALIASING_FAR = 4096


class ForwardOperands(Pass):
    """In: ``MicroGemm`` on tiles filled by ``Copy``. Out: the same on the sources of those copies where
    that is right and pays; copies and tiles without a reader are gone."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with forwarded operands."""
        return rewrite_launches(kernel, lambda launch: _Forward(kernel, launch, target).run())


class _Forward(StagedOperands):
    """Rewrites one launch. ``filled`` are the tiles that the block at hand fills, by a statement or by a
    product that clears them."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        self.target = target
        self.filled: set[Var] = set()

    def run(self) -> Launch:
        """The launch with products rewritten, then without what nobody reads."""
        launch = super().run()
        return replace(launch, body=without_unread(launch.body))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Rewrites products."""
        if not isinstance(stmt, MicroGemm):
            return super().stmt(stmt)
        return _with_rest_cleared(self._rows(self._columns(stmt)))

    def block(self, block: Block) -> Block:
        """What fills a tile counts for the block that it stands in."""
        before = self.filled
        self.filled = {tile for stmt in block for tile in _filled(stmt)}
        result = super().block(block)
        self.filled = before
        return result

    def _rows(self, gemm: MicroGemm) -> MicroGemm:
        """``gemm`` limited to the rows and the depth that ``a`` has, with ``a`` read in place where that
        pays; a copy that converts it stays."""
        moved = self.window_of(gemm.a)
        if moved is None:
            return gemm
        rows = self._limit(gemm.rows, moved, moved.row)
        if rows is None or (int_value(rows) is None and int_value(gemm.clear) is None):
            return gemm
        gemm = replace(gemm, rows=rows)
        depth = self._limit(gemm.depth, moved, moved.col)
        inside = all(self._inside(moved.region, axis) for axis in other_axes(moved))
        can_move = depth is not None and inside and of_one_type(moved.region.buffer, gemm.a.region.buffer)
        if depth is None or not can_move:
            return _less_deep(gemm, depth)
        if _is_worth_rows(gemm, moved, depth):
            return replace(gemm, a=moved, depth=depth)
        apart = _apart_at_run_time(gemm, moved, depth)
        placed = gemm if apart is None else replace(gemm, a_place=moved, in_place=apart)
        return _less_deep(placed, depth)

    def _columns(self, gemm: MicroGemm) -> MicroGemm:
        """``gemm`` limited to the columns and the depth that ``b`` has, with ``b`` read in place where that
        pays."""
        moved = self.source_of(gemm.b)
        if moved is None:
            return self._in_tile(gemm)
        depth = self._limit(gemm.depth, moved, moved.row)
        columns = self._limit(gemm.columns, moved, moved.col)
        inside = depth is not None and all(self._inside(moved.region, axis) for axis in other_axes(moved))
        dot = dot_of(gemm, moved, self.target)
        across = inside and self._is_across(gemm, moved)
        as_bytes = element_bytes(str(moved.region.buffer.dtype)) == 1 and _converts_once(gemm)
        if columns is None or not (same_number(columns, gemm.columns) or self._may_end(gemm, across)):
            return self._in_tile(gemm) if as_bytes else _less_deep(gemm, depth)
        if depth is None or not inside or not (across or _is_worth_columns(gemm, moved)):
            return self._in_tile(gemm) if as_bytes else _less_deep(_narrower(gemm, columns), depth)
        rows = static(gemm.a.region.extent[gemm.a.row])
        block = across_block(self.target, dot, rows) if across else self._low_block(gemm)
        return replace(gemm, b=moved, columns=columns, depth=depth, block=block)

    def _in_tile(self, gemm: MicroGemm) -> MicroGemm:
        """``gemm`` on a ``b`` that is made on chip, which so few rows read as it is there."""
        rows = static(gemm.a.region.extent[gemm.a.row])
        if rows <= rows_of_a_step(gemm) and suits_vectors_along_k(gemm, gemm.b, self.target):
            return replace(gemm, block=across_block(self.target, dot_of(gemm, gemm.b, self.target), rows))
        low = self._low_block(gemm)
        return replace(gemm, block=low) if gemm.block.form == "fma" and rows <= low.rows else gemm

    def _low_block(self, gemm: MicroGemm) -> RegisterBlock:
        """The block for a ``b`` whose rows are read in place."""
        rows, columns = static(gemm.a.region.extent[gemm.a.row]), static(gemm.c.extent[-1])
        return low_block(self.target, str(gemm.c.buffer.dtype), rows, columns, gemm.block.halves)

    def _is_across(self, gemm: MicroGemm, moved: Matrix) -> bool:
        """Whether ``gemm`` on ``moved`` as ``b`` has its vectors along K."""
        few = self.few_rows(gemm)
        return (
            few is not None
            and self.facts.prove(few) is True
            and suits_vectors_along_k(gemm, moved, self.target)
        )

    def _may_end(self, gemm: MicroGemm, across: bool) -> bool:
        """Whether ``gemm`` may end at any column: where it clears few sums, which then are cleared before it,
        where the block has filled sums of so few rows that all of K is one step, or where it adds to those
        of an earlier trip, so that nothing is fused with it alone."""
        if int_value(gemm.clear) != 0:
            return across and int_value(gemm.clear) == 1
        if gemm.c.buffer in self.filled:
            return across and static(gemm.a.region.extent[gemm.a.row]) <= rows_of_a_step(gemm)
        return across or takes_any(gemm.block.form)

    def _limit(self, count: int | Expr, matrix: Matrix, axis: int) -> int | Expr | None:
        """``count`` cut to what the source has on ``axis``; None where it may start below zero."""
        start, size = matrix.region.start[axis], matrix.region.buffer.shape[axis]
        if self.facts.prove(start >= 0) is not True:
            return None
        if self.facts.prove(start + count <= size) is True:
            return count
        return tirx.min(count, self.facts.simplify(size - start))

    def _inside(self, region: Region, axis: int) -> bool:
        start = region.start[axis]
        return self.facts.prove(tirx.And(start >= 0, start < region.buffer.shape[axis])) is True


def _filled(stmt: Stmt) -> list[Var]:
    """The tiles that a statement fills whatever they held."""
    if isinstance(stmt, Fill):
        return [stmt.dst.buffer]
    return [stmt.c.buffer] if isinstance(stmt, MicroGemm) and int_value(stmt.clear) == 1 else []


def _less_deep(gemm: MicroGemm, depth: int | Expr | None) -> MicroGemm:
    """``gemm`` on staged tiles without the K beyond their sources, where its form takes any K."""
    return replace(gemm, depth=depth) if depth is not None and takes_any(gemm.block.form) else gemm


def _narrower(gemm: MicroGemm, columns: int | Expr) -> MicroGemm:
    """``gemm`` on staged tiles without the columns beyond their sources, where panels fill its tile."""
    return replace(gemm, columns=columns) if static(gemm.columns) % gemm.block.cols == 0 else gemm


def _is_worth_rows(gemm: MicroGemm, moved: Matrix, depth: int | Expr) -> bool:
    """Whether reading ``a`` in place beats copying it: always where K steps may then be merged or it is read
    a few times or by bands, often where a matrix unit, which knows its K ahead, does; otherwise the copy is
    cheap, and avoids rows whose distance makes them fight for the same cache lines. So it is where the next
    columns of ``b`` are asked for in between, which leaves no registers for rows at a distance that is known
    at run time."""
    if has_bands(gemm, moved):
        return True
    buffer = moved.region.buffer
    side_by_side = moved.side_by_side
    if gemm.block.form == "across":
        return side_by_side and not _is_worth_a_copy(gemm)
    if word_form(gemm.block.form) is not None:
        if not _has_words(gemm, moved, depth):
            return False
        in_tiles = gemm.block.form in TILE_FORMS
        return _suits_tiles(gemm, buffer) if in_tiles else static(gemm.c.extent[-1]) <= gemm.block.cols
    if str(buffer.dtype) != gemm.computed:
        return False
    asks = gemm.asks_ahead and gemm.block.rows > 1
    if is_global(gemm.b.region.buffer) and not asks:
        return True
    if moved.row != len(buffer.shape) - 2 or len(buffer.strides):
        return False
    if gemm.has_few_panels and not asks:
        return True
    pitch = int_value(buffer.shape[-1])
    return pitch is not None and pitch * element_bytes(str(buffer.dtype)) % _ALIASING != 0


def _has_words(gemm: MicroGemm, moved: Matrix, depth: int | Expr) -> bool:
    """Whether rows of ``moved`` are whole words as the form of ``gemm`` reads them in place."""
    form, known = word_form(gemm.block.form), int_value(depth)
    if form is None or known is None or not moved.side_by_side:
        return False
    return form.ends_at(known) and form.holds(str(moved.region.buffer.dtype))


def _apart_at_run_time(gemm: MicroGemm, moved: Matrix, depth: int | Expr) -> Expr | None:
    """The condition under which a matrix unit reads rows of ``moved`` in place, whose distance is known when
    the code runs alone; None where that does not decide it."""
    buffer = moved.region.buffer
    if gemm.block.form not in TILE_FORMS or not _has_words(gemm, moved, depth):
        return None
    if int_value(buffer.shape[-1]) is not None or moved.row != len(buffer.shape) - 2 or len(buffer.strides):
        return None
    pitch = buffer.shape[-1]
    aliasing = tirx.const(_ALIASING_FAR // element_bytes(str(buffer.dtype)), dtype_of(pitch))
    return tirx.NE(tirx.floormod(pitch, aliasing), tirx.const(0, dtype_of(pitch)))


def _is_worth_a_copy(gemm: MicroGemm) -> bool:
    """Whether vectors along K read rows of ``a`` faster from a copy, which the first cache holds: several
    blocks of rows do so for each block of columns, where a step of K has enough vectors to pay for adding up
    their lanes after it."""
    rows, depth = (static(gemm.a.region.extent[axis]) for axis in (gemm.a.row, gemm.a.col))
    return rows > gemm.block.rows and depth >= _DEEP * gemm.block.unroll


def _suits_tiles(gemm: MicroGemm, buffer: Var) -> bool:
    """Whether a matrix unit may as well read rows of ``buffer`` as those of a copy: once, or from a cache."""
    pitch = int_value(buffer.shape[-1])
    apart = pitch is not None and pitch * element_bytes(str(buffer.dtype)) % _ALIASING_FAR != 0
    return apart or static(gemm.columns) <= gemm.block.cols


def _is_worth_columns(gemm: MicroGemm, moved: Matrix) -> bool:
    """Whether reading ``b`` in place beats packing it."""
    region = moved.region
    if str(region.buffer.dtype) != gemm.computed and not _converts_once(gemm):
        return False
    if moved.col != len(region.extent) - 1 or len(region.buffer.strides):
        return False
    is_wide = static(gemm.c.extent[-1]) >= MANY_BLOCKS * gemm.block.cols
    few = MANY_ROWS if is_wide else _FEW_ROWS
    return static(gemm.a.region.extent[gemm.a.row]) <= few or is_panel(region.buffer)


def _converts_once(gemm: MicroGemm) -> bool:
    """Whether multiply-adds of float32 convert each element of a narrower ``b`` once: for the rows of one
    register block."""
    rows = static(gemm.a.region.extent[gemm.a.row])
    return gemm.block.form == "fma" and gemm.computed == "float32" and rows <= gemm.block.rows


def _with_rest_cleared(gemm: MicroGemm) -> list[Stmt]:
    """``gemm``; where it clears, after a Fill of the rows that it leaves out, or of all where it leaves out
    columns."""
    rest = _left_out(gemm)
    if rest is None or int_value(gemm.clear) == 0:
        return [gemm]
    cleared = Fill(rest, tirx.const(0, str(gemm.c.buffer.dtype)), loc=gemm.loc)
    if int_value(gemm.clear) == 1:
        return [cleared, gemm]
    return [If(gemm.clear, (cleared,), (), loc=gemm.loc), gemm]


def _left_out(gemm: MicroGemm) -> Region | None:
    """What of ``c`` a product leaves out, or more; None for nothing."""
    if not same_number(gemm.columns, gemm.c.extent[-1]):
        return gemm.c
    if same_number(gemm.rows, gemm.c.extent[-2]):
        return None
    axis, first = len(gemm.c.start) - 2, trips_of(gemm.rows)
    start = (*gemm.c.start[:axis], gemm.c.start[axis] + first, gemm.c.start[-1])
    extent = (*gemm.c.extent[:axis], gemm.c.extent[axis] - first, gemm.c.extent[-1])
    return Region(gemm.c.buffer, start, extent)
