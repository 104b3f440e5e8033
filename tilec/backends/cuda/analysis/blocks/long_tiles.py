"""Tiles that go on from one block of a grid to the next: where the tile of a block ends, in the tensor that
it is a part of, that of the next block begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.ir import Var

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.ir.exprs import inlined, int_value, loads, uses
from tilec.ir.nodes import Block, Copy, Gemm, Launch, Parallel, Stmt, Store, children, is_global, walk
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr


@dataclass(frozen=True)
class LongTiles:
    """The tiles of a ``launch`` that go on along the axis of the grid whose blocks ``block`` numbers: the
    axis of each (``axes``); of loops over their elements the variable that runs along it (``rows``)."""

    launch: Launch
    block: Var
    axes: Mapping[Var, int]
    rows: Mapping[Stmt, Var]

    def extent(self, tile: Var) -> int:
        """Elements of a tile along its axis."""
        return static_extents(tile)[self.axes[tile]]


def long_tiles(launch: Launch, block: Var) -> LongTiles:
    """The tiles that copies bring from boxes that move with ``block``, and those that follow from them."""
    finder = _Finder(launch, block)
    known = -1
    while known < len(finder.axes):
        known = len(finder.axes)
        for stmt in outside_of_elements(launch.body):
            finder.learn(stmt)
    return LongTiles(launch, block, finder.axes, finder.rows)


class _Finder:
    """Learns from one statement after the other, until nothing is new."""

    def __init__(self, launch: Launch, block: Var) -> None:
        self.axes: dict[Var, int] = {}
        self.rows: dict[Stmt, Var] = {}
        self._block = block
        self._values = values_of(walk(launch.body))

    def learn(self, stmt: Stmt) -> None:
        """What a statement says of its tiles."""
        if isinstance(stmt, Copy):
            self._copy(stmt)
        elif isinstance(stmt, Gemm):
            for tile, axis, of_sums in operand_axes(stmt):
                self._join(tile, axis, stmt.c.buffer, of_sums)
        elif isinstance(stmt, Parallel):
            self._loop(stmt)

    def _copy(self, copy: Copy) -> None:
        for source, target in sides(copy):
            if not on_chip(copy.dst.buffer):
                continue
            if on_chip(copy.src.buffer):
                self._join(copy.src.buffer, source, copy.dst.buffer, target)
            elif uses(inlined(copy.src.start[source], self._values), (self._block,)):
                self.axes.setdefault(copy.dst.buffer, target)

    def _join(self, one: Var, axis: int, other: Var, of_other: int) -> None:
        """Both of two tiles go on along these axes if one of them does."""
        if self.axes.get(one) == axis:
            self.axes.setdefault(other, of_other)
        elif self.axes.get(other) == of_other:
            self.axes.setdefault(one, axis)

    def _loop(self, loop: Parallel) -> None:
        """All tiles in which a loop's row is an index go on with the one that is known to."""
        places = list(elements(loop, self._values))
        along = [at[self.axes[tile]] for tile, at in places if tile in self.axes]
        row = next((index for index in along if isinstance(index, Var) and index in loop.vars), None)
        if row is None:
            return
        self.rows[loop] = row
        for tile, at in places:
            axis = next((axis for axis, index in enumerate(at) if index.same_as(row)), None)
            if axis is not None and on_chip(tile):
                self.axes.setdefault(tile, axis)


def on_chip(buffer: Var) -> bool:
    """Whether a buffer is no tensor."""
    return not is_global(buffer)


def outside_of_elements(block: Block) -> Iterator[Stmt]:
    """The statements of a block and those inside, but for what loops do with elements."""
    for stmt in block:
        yield stmt
        if not isinstance(stmt, Parallel):
            for inner in children(stmt):
                yield from outside_of_elements(inner)


def elements(loop: Parallel, values: Mapping[Var, Expr]) -> Iterator[tuple[Var, Sequence[Expr]]]:
    """The buffers that a loop reads and writes, with the indices of an element."""
    for stmt in walk(loop.body):
        if isinstance(stmt, Store):
            yield stmt.buffer, [inlined(index, values) for index in stmt.indices]
        for expr in expressions(stmt):
            for load in loads(expr):
                yield load.source, [inlined(index, values) for index in load.indices]


def operand_axes(gemm: Gemm) -> Iterator[tuple[Var, int, int]]:
    """Of each operand's tile the axis that is one of the sums, and which of theirs."""
    last = len(gemm.c.extent) - 1
    yield gemm.a.buffer, len(gemm.a.extent) - (1 if gemm.trans_a else 2), last - 1
    yield gemm.b.buffer, len(gemm.b.extent) - (2 if gemm.trans_b else 1), last


def sides(copy: Copy) -> list[tuple[int, int]]:
    """The axes of a copy's source with those of its target."""
    wide = ([axis for axis, extent in enumerate(region.extent) if int_value(extent) != 1]
            for region in (copy.src, copy.dst))  # fmt: skip
    return list(zip(*wide, strict=False))
