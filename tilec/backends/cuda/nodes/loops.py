"""Loops spread over threads, loops over tiles, and bodies that some threads run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.layout import Layout
from tilec.ir.nodes import LOOPS, For, Parallel
from tilec.ir.stmt import Block, Defines, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class ThreadLoop(Stmt):
    """A Parallel whose iterations are spread over threads and registers by ``layout``; iterations of padding
    (beyond ``extents``) do nothing. The first ``vector`` values of the last variable lie in one thread."""

    syntax = "threads(*extents, layout=, vector=)"

    vars: Defines[tuple[Var, ...]]
    extents: tuple[int, ...]
    layout: Layout
    body: Block
    vector: int = 1

    def broken(self) -> str:
        """Each variable has an extent, and the layout a place for each iteration."""
        name, shape = type(self).__name__, self.layout.shape
        if not len(self.vars) == len(self.extents) == len(shape) > 0:
            return f"{name} of {len(self.vars)} variables, extents {self.extents} and a layout of {shape}"
        if not all(0 < extent <= places for extent, places in zip(self.extents, shape, strict=True)):
            return f"{name} of extents {self.extents} has places for {shape}"
        return "" if self.vector > 0 else f"{name} of vectors of {self.vector} iterations"

    @property
    def is_padded(self) -> bool:
        """Whether threads have places beyond the extents."""
        return self.layout.shape != self.extents


@dataclass(frozen=True, eq=False)
class RaggedLoop(Parallel):
    """A Parallel whose accesses of tensors along its last variable are vectors of up to ``width`` elements,
    each where a test says so as the loop runs: rows may begin and end anywhere. Where its body first names a
    shift s and a column, the latter is ``place - s``, and of the first s places the last s columns. ``cut``:
    vectors at the ends of rows are read whole, and what is beside the row is cut off."""

    syntax = "ragged(*extents, dtypes=, hints=, width=, cut=)"

    width: int = 1
    cut: bool = False


@dataclass(frozen=True, eq=False)
class RaggedThreadLoop(ThreadLoop):
    """A `RaggedLoop` spread over threads and registers."""

    syntax = "ragged_threads(*extents, layout=, vector=, cut=)"

    cut: bool = False


@dataclass(frozen=True, eq=False)
class EndLoop(Parallel):
    """A Parallel for where tensors of one axis end, beside one that moves them in vectors where they do not:
    it moves single elements, which costs a block alone."""

    syntax = "ends(*extents, dtypes=, hints=)"


@dataclass(frozen=True, eq=False)
class EndThreadLoop(ThreadLoop):
    """An `EndLoop` spread over threads and registers."""

    syntax = "end_threads(*extents, layout=, vector=)"


@dataclass(frozen=True, eq=False)
class AheadLoop(ThreadLoop):
    """A ThreadLoop that reads one tensor's elements to a fragment, which nothing waits for before TakeAhead:
    vectors go to its registers as they come, whole."""

    syntax = "ahead(*extents, layout=, vector=)"


@dataclass(frozen=True, eq=False)
class ThreadVector(For):
    """A T.vectorized loop of one thread over stores alone, from 0 to a power of two: neighbours in memory
    move at once."""


@dataclass(frozen=True, eq=False)
class EachTile(Stmt):
    """``body`` for every tile of a launch's ``grid`` that falls to this block: those gridDim.x apart from its
    own number on, which the launch's block variables stand for there. Tiles follow each other along the first
    axis, or in bands of ``band`` along the second one. ``pair``: blocks with numbers 2 n and 2 n + 1 have
    neighbours along that axis, the second of which may lie outside of the grid. ``turns``: so many groups of
    threads take the block's tiles one after the other, this one as number ``turn``."""

    syntax = "each_tile(*grid, band=, pair=, turn=, turns=)"

    grid: tuple[int | Expr, ...]
    body: Block
    band: int = 0
    pair: int | None = None
    turn: int = 0
    turns: int = 1


#: What runs its body again and again in device code.
REPEATING = (*LOOPS, EachTile)


@dataclass(frozen=True, eq=False)
class EachLane(Stmt):
    """Each of the first ``count`` threads of those that run it, all of one warp, runs ``body``, with its
    number among them as ``var``."""

    syntax = "each_lane(count)"

    var: Defines[Var]
    count: int
    body: Block


@dataclass(frozen=True, eq=False)
class Anew(Stmt):
    """``body``, in which a thread finds its places in tiles from its lane's number anew, with ``warp`` from
    its warp's, too."""

    syntax = "anew(warp=)"

    body: Block
    warp: bool = False
