"""Bands of ``a``: the rows of one register block, copied to where the first cache keeps them, meet all
columns.

Panels of ``b`` then come from the second cache, once for each band, and ``a`` is read where it lies once for
each tile of columns. Rows of ``a`` that are a power of two apart share a few sets of every cache, and a copy
of the whole tile takes room that the sums of a tile need: on a Xeon of model 207 float32 products of 1024^3
ran at 0.81 of the core's peak from a copy of the whole tile, at 0.90 from bands.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm, RegisterBlock, element
from tilec.backends.cpu.products.forms.word_forms import group_of, takes_any, word_form
from tilec.backends.cpu.products.tir import (
    CACHE_LINE,
    SECOND,
    index,
    loop,
    prefetch,
    sequence,
    trips_of,
    unrolled,
)
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Region, is_global
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert, element_bytes
from tilec.lowering.math.vectors import with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.products.blocks.register_tile import Memory

#: Blocks of columns from which on a band is read often enough to pay for its copy.
MANY_BLOCKS = 8

#: Rows of a tile above which panels of ``b`` are read often enough to be better in the second cache.
MANY_ROWS = 128

#: Bytes of a band: a third of the first cache of most cores.
_BAND_BYTES = 16 * 1024


def has_bands(gemm: MicroGemm, a: Matrix) -> bool:
    """Whether ``gemm`` reads its first operand ``a``, which lies in a tensor, by bands."""
    rows, depth = (int_value(a.region.extent[axis]) for axis in (a.row, a.col))
    columns, block = int_value(gemm.c.extent[-1]), gemm.block
    if rows is None or depth is None or columns is None or not takes_any(block.form):
        return False
    if not a.side_by_side or not is_global(a.region.buffer):
        return False
    fits = block.rows * depth * element_bytes(_held(gemm, a)) <= _BAND_BYTES
    return fits and rows > MANY_ROWS and columns >= MANY_BLOCKS * block.cols


def band_of(gemm: MicroGemm) -> Var:
    """The tile for the bands of a product: rows are a cache line longer than K, so that they start in
    different sets of a cache."""
    held, depth = _held(gemm, gemm.a), static(gemm.a.region.extent[gemm.a.col])
    shape = (gemm.block.rows, depth + CACHE_LINE // element_bytes(held))
    return tirx.decl_buffer(shape, held, f"{gemm.a.region.buffer.name}_band", scope="shared.dyn")


def _held(gemm: MicroGemm, a: Matrix) -> str:
    """The type of a band's elements: the one that is multiplied, or the bits of words."""
    form, dtype = word_form(gemm.block.form), str(a.region.buffer.dtype)
    if form is None:
        return gemm.computed
    return f"uint{8 * element_bytes(dtype)}" if form.holds(dtype) else form.stored


class Bands:
    """Fills and reads the bands of ``gemm``, whose ``band`` is the tile for them."""

    def __init__(self, gemm: MicroGemm, band: Var, memory: Memory) -> None:
        self.gemm = gemm
        self.band = band
        self.memory = memory
        self.form = word_form(gemm.block.form)
        self.group = group_of(gemm.block.form)

    def filled(self, row: Expr, rows: int) -> tirx.Stmt:
        """Copies ``rows`` rows from ``row`` on: by vectors, then the rest of K one by one, with zeros behind
        it that complete a word."""
        depth, lanes = trips_of(self.gemm.depth), self.gemm.block.lanes * self.group
        whole = tirx.truncdiv(depth, index(lanes))
        vectors = loop(whole, lambda v: unrolled(rows, lambda r: self._copied(row, r, v * lanes, lanes)))
        if (int_value(depth) or 1) % lanes == 0:
            return vectors
        done = whole * lanes
        rest = loop(depth - done, lambda k: unrolled(rows, lambda r: self._copied(row, r, done + k, 1)))
        return sequence(vectors, rest, *self._completed(depth, rows))

    def _completed(self, depth: Expr, rows: int) -> list[tirx.Stmt]:
        """Zeros from ``depth`` on to the end of a word."""
        if self.group == 1:
            return []
        group, zero = index(self.group), tirx.const(0, str(self.band.dtype))
        behind = tirx.truncmod(group - tirx.truncmod(depth, group), group)
        cleared = partial(self.memory.store, self.band, value=zero)
        return [loop(behind, lambda k: unrolled(rows, lambda r: cleared((r, depth + k))))]

    def _copied(self, row: Expr, r: Expr, k: Expr, lanes: int) -> tirx.Stmt:
        a, held = self.gemm.a.region.buffer, str(self.band.dtype)
        place = element(self.gemm.a, row + r, k)
        if self.form is not None and self.form.holds(str(a.dtype)):
            return self.memory.store(self.band, (r, k), self.memory.word(a, place, with_lanes(held, lanes)))
        return self.memory.store(self.band, (r, k), convert(self.memory.load(a, place, lanes), held))

    def at(self, row: Expr) -> MicroGemm:
        """The product whose ``a`` is the band that starts at ``row``."""
        region = Region(self.band, (-row, index(0)), tuple(map(static, self.band.shape)))
        return replace(self.gemm, a=Matrix(region, 0, 1))

    def asked(self, row: Expr, col: Expr, block: RegisterBlock) -> list[tirx.Stmt]:
        """Asks for a part of the band behind the one that starts at ``row``: all blocks of columns together
        ask for all of it."""
        if block.cols != self.gemm.block.cols or block.rows != self.gemm.block.rows:
            return []
        line = CACHE_LINE // element_bytes(str(self.gemm.a.region.buffer.dtype))
        depth, columns = static(self.gemm.a.region.extent[self.gemm.a.col]), static(self.gemm.c.extent[-1])
        each = -(-depth * block.cols // (columns * line)) * line
        first = tirx.truncdiv(col, index(block.cols)) * each
        places = [(r, first + k) for r in range(block.rows) for k in range(0, each, line)]
        return [self._line(row + (block.rows + r), k) for r, k in places]

    def _line(self, row: Expr, k: Expr) -> tirx.Stmt:
        where = self.memory.address(self.gemm.a.region.buffer, element(self.gemm.a, row, k))
        return prefetch(where, near=SECOND)
