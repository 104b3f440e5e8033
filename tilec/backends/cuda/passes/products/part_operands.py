"""Operands whose columns, along which products sum, are brought part by part are a tile for each part.

copy(X, A[:, 0:64]); copy(Y, A[:, 64:128]); C += A B
->
copy(X, A_0); copy(Y, A_1); C += A_0 B[0:64, :]; C += A_1 B[64:128, :]

One statement that fills all of a tile may run ahead of the products, as a box of its own; some columns of a
tile may not: in shared memory those of others lie between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.analysis.outermost import outermost
from tilec.ir.exprs import int_value, transform
from tilec.ir.nodes import Alloc, Block, Copy, Fill, Gemm, Launch, Parallel, Region, Stmt, walk
from tilec.ir.traits import Rewriter, buffers
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.counted import counted
from tilec.lowering.analysis.uses import touches
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: The axis that is parted. Rows are left: a part of them is a box of the tile.
_COLUMNS = 1
#: Bytes of a row that instructions multiply at once: parts have a multiple of that.
_STEP = 32


class PartOperands(LaunchPass):
    """In: any statements. Out: no shared tile of two axes whose columns products sum over is filled by
    statements of which each has some columns, where all else that names it does so with those of one part, or
    is a product or a fill: each part is a tile."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its operands in parts."""
        for alloc in [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)]:
            parting = _parting(alloc, launch)
            launch = launch if parting is None else replace(launch, body=parting.block(launch.body))
        return launch


class _Span(NamedTuple):
    """The columns of a tile that a statement touches; ``divisible``: it may be cut between any two."""

    first: int
    end: int
    written: bool
    divisible: bool = False


def _parting(alloc: Alloc, launch: Launch) -> _Parting | None:
    """How a tile may be parted; None where it may not."""
    tile = alloc.buffer
    sizes = [int_value(size) for size in tile.shape]
    if tile.scope() != "shared.dyn" or len(sizes) != 2 or None in sizes or alloc.asked or alloc.layout:
        return None
    if {axis for stmt in walk(launch.body) for axis in _summed(stmt, tile)} != {_COLUMNS}:
        return None
    found = [_spans(stmt, tile) for stmt in outermost(launch.body) if stmt is not alloc]
    spans = [span for each in found if each is not None for span in each]
    bounds = _bounds(spans, sizes[_COLUMNS] or 0)
    step = _STEP // element_bytes(str(tile.dtype))
    if None in found or len(bounds) < 3 or any((end - first) % step for first, end in pairwise(bounds)):
        return None
    whole = [span for span in spans if not span.divisible]
    fits = all(
        any(low <= span.first and span.end <= high for low, high in pairwise(bounds)) for span in whole
    )
    return _Parting(tile, bounds) if fits else None


def _summed(stmt: Stmt, tile: Var) -> Iterator[int]:
    """The axis of a tile that a product sums over."""
    if isinstance(stmt, Gemm) and stmt.a.buffer.same_as(tile):
        yield 0 if stmt.trans_a else 1
    if isinstance(stmt, Gemm) and stmt.b.buffer.same_as(tile):
        yield 1 if stmt.trans_b else 0


def _bounds(spans: Sequence[_Span], size: int) -> list[int]:
    """Where parts begin, and the end of the last one; nothing where what is stored is no parts."""
    parts = sorted({(span.first, span.end) for span in spans if span.written and not span.divisible})
    bounds = [0, *(end for _, end in parts)]
    return bounds if [first for first, _ in parts] == bounds[:-1] and bounds[-1] == size else []


def _spans(stmt: Stmt, tile: Var) -> list[_Span] | None:
    """Which columns of a tile a statement touches; None where nobody knows."""
    if isinstance(stmt, Parallel):
        return _of_elements(stmt, tile) if touches(stmt, tile) else []
    if tile not in set(buffers(stmt)):
        return []
    if isinstance(stmt, Gemm):
        twice = stmt.c.buffer.same_as(tile) or stmt.a.buffer.same_as(stmt.b.buffer)
        return None if twice else _of_regions([(stmt.a, False), (stmt.b, False)], tile, divisible=True)
    if isinstance(stmt, Fill):
        return _of_regions([(stmt.dst, True)], tile, divisible=True)
    return _of_regions([(stmt.src, False), (stmt.dst, True)], tile) if isinstance(stmt, Copy) else None


def _of_regions(
    regions: Sequence[tuple[Region, bool]], tile: Var, *, divisible: bool = False
) -> list[_Span] | None:
    own = [(region, written) for region, written in regions if region.buffer.same_as(tile)]
    found: list[_Span] = []
    for region, written in own:
        first, extent = int_value(region.start[_COLUMNS]), int_value(region.extent[_COLUMNS])
        if first is None or extent is None:
            return None
        found.append(_Span(first, first + extent, written, divisible))
    return found


def _of_elements(loop: Parallel, tile: Var) -> list[_Span] | None:
    """Which columns of a tile the iterations of a loop touch."""
    if None in map(int_value, loop.extents):
        return None
    analyzer = counted(loop.vars, _extents(loop))
    found: list[_Span] = []
    for access in accesses(loop.body):
        if access.buffer.same_as(tile):
            bound = analyzer.const_int_bound(access.indices[_COLUMNS])
            if not 0 <= bound.min_value <= bound.max_value < (int_value(tile.shape[_COLUMNS]) or 0):
                return None
            found.append(_Span(bound.min_value, bound.max_value + 1, access.is_write))
    return found


def _extents(loop: Parallel) -> list[int]:
    return [int_value(extent) or 0 for extent in loop.extents]


@dataclass(frozen=True)
class _Part:
    """Columns of a tile from ``first`` on, as a ``tile`` of their own."""

    tile: Var
    first: int
    end: int


class _Parting(Rewriter):
    """Statements over the parts of a tile, which begin at ``bounds``."""

    def __init__(self, tile: Var, bounds: Sequence[int]) -> None:
        super().__init__()
        self._tile = tile
        self._parts = [_part(tile, number, *bound) for number, bound in enumerate(pairwise(bounds))]
        self._analyzer = sym.Analyzer()

    def stmts(self, stmt: Stmt) -> Block:
        """Storage, fills and products of the tile for each part."""
        if isinstance(stmt, Alloc) and stmt.buffer.same_as(self._tile):
            return tuple(replace(stmt, buffer=part.tile) for part in self._parts)
        if isinstance(stmt, Fill) and stmt.dst.buffer.same_as(self._tile):
            return tuple(replace(stmt, dst=region) for _, region in self._cut(stmt.dst))
        if isinstance(stmt, Gemm) and any(True for _ in _summed(stmt, self._tile)):
            return self._products(stmt)
        if isinstance(stmt, Parallel) and touches(stmt, self._tile):
            counted(stmt.vars, _extents(stmt), self._analyzer)
        return super().stmts(stmt)

    def _products(self, gemm: Gemm) -> Block:
        """A product for each part of the operand; those behind the first one add."""
        is_left = gemm.a.buffer.same_as(self._tile)
        own, other = (gemm.a, gemm.b) if is_left else (gemm.b, gemm.a)
        is_last = gemm.trans_b if is_left else not gemm.trans_a
        along = len(other.start) - (1 if is_last else 2)
        made: list[Gemm] = []
        for offset, region in self._cut(own):
            start, extent = list(other.start), list(other.extent)
            start[along] = self._analyzer.simplify(start[along] + offset)
            extent[along] = region.extent[_COLUMNS]
            rest = Region(other.buffer, tuple(start), tuple(extent))
            a, b = (region, rest) if is_left else (rest, region)
            clear = gemm.clear if not made else tirx.const(False, "bool")
            made.append(replace(gemm, a=a, b=b, clear=clear))
        return tuple(made)

    def _cut(self, region: Region) -> Iterator[tuple[int, Region]]:
        """The parts of a region, and how far behind its start they begin."""
        begin = int_value(region.start[_COLUMNS]) or 0
        end = begin + (int_value(region.extent[_COLUMNS]) or 0)
        for part in self._parts:
            first, last = max(begin, part.first), min(end, part.end)
            if first < last:
                start, extent = list(region.start), list(region.extent)
                start[_COLUMNS], extent[_COLUMNS] = tirx.const(first - part.first, "int32"), last - first
                yield first - begin, Region(part.tile, tuple(start), tuple(extent))

    def region(self, region: Region) -> Region:
        """A region of one part."""
        if not region.buffer.same_as(self._tile):
            return super().region(region)
        ((_, made),) = self._cut(region)
        return made

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """An element of one part."""
        return self._element(indices) if buffer.same_as(self._tile) else (buffer, indices)

    def expr(self, expr: Expr) -> Expr:
        """A value, with the elements of parts in place of the tile's."""

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, TensorLoad) or not node.source.same_as(self._tile):
                return None
            tile, indices = self._element(tuple(map(self.expr, node.indices)))
            return tirx.BufferLoad(tile, list(indices))

        return transform(expr, visit)

    def _element(self, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        first = self._analyzer.const_int_bound(indices[_COLUMNS]).min_value
        part = next(each for each in self._parts if each.first <= first < each.end)
        at = list(indices)
        at[_COLUMNS] = self._analyzer.simplify(at[_COLUMNS] - part.first)
        return part.tile, tuple(at)


def _part(tile: Var, number: int, first: int, end: int) -> _Part:
    shape = [*tile.shape[:_COLUMNS], tirx.const(end - first, "int32")]
    own = tirx.decl_buffer(shape, str(tile.dtype), name=f"{tile.name}_{number}", scope=tile.scope())
    return _Part(own, first, end)
