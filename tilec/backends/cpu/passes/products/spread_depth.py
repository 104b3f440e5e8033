"""Few tiles that are deep: tasks share their K, through the workspace.

How many parts a tile has follows from dims alone: results are the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, TypeVar

from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of, inlined, int_value, is_zero, loads, substitute, uses
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    walk,
)
from tilec.ir.places import place_of
from tilec.ir.schedule import Schedule
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.parted import HOST_TASKS, Parted
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

One = TypeVar("One")

#: Axes of a grid beside that of parts, and of a matrix.
_AXES = 2


class SpreadDepth(Pass):
    """In: launches of one product that ask for `spread_k`. Out: for each, one with a last grid axis of parts
    of K, which stores their sums to the workspace of the call, and one behind it that adds them in their
    order and computes the epilogue."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its launches parted."""
        body: list[Stmt] = []
        for stmt in kernel.body:
            asked = isinstance(stmt, Launch) and stmt.schedule.spread_k is not None
            body += _parted(stmt) if isinstance(stmt, Launch) and asked else (stmt,)
        return replace(kernel, body=tuple(body))


class _Unfit(Exception):
    """Why a launch has no parts: a clause."""


def _parted(launch: Launch) -> Block:
    """Both launches; the one that there is where it has no product."""
    if not any(isinstance(stmt, Gemm) for stmt in walk(launch.body)):
        return (launch,)
    try:
        product = _product(launch)
    except _Unfit as unfit:
        raise UnsupportedError(
            f"spread_k: {unfit}", place=place_of(launch, "T.Kernel"), remedy="leave spread_k out"
        ) from unfit
    schedule = replace(launch.schedule, spread_k=None)
    return (Alloc(product.places.buffer), product.multiplying(schedule), product.adding(Schedule()))


def _product(launch: Launch) -> Parted:
    """The product that a launch is. _Unfit where its parts cannot be added by a launch of their own."""
    _need(len(launch.grid) <= _AXES, "a grid of three axes has none for parts of K")
    loop = _only([stmt for stmt in launch.body if isinstance(stmt, (For, Pipelined))], "loop along K")
    at = launch.body.index(loop)
    names = values_of((*launch.body[:at], *loop.body))
    gemm = _multiplied(loop, launch.body[:at])
    ends = [inlined(end, names) for end in (loop.start, loop.stop)]
    known = not any(uses(end, launch.block_vars) or any(True for _ in loads(end)) for end in ends)
    _need(known, "its tiles differ in their trips")
    parts = _parts(launch, ends[1] - ends[0])
    epilogue = _epilogue(launch.body[at + 1 :], gemm)
    places = _places(launch, loop, gemm, names, parts)
    return Parted(launch, loop, gemm.c, epilogue, names, parts, places)


def _multiplied(loop: For | Pipelined, before: Block) -> Gemm:
    """The product of a loop of nothing else but copies and names, whose sums are cleared ``before`` it."""
    gemm = _only([stmt for stmt in loop.body if isinstance(stmt, Gemm)], "product in its loop")
    plain = all(isinstance(stmt, (Bind, Copy, Gemm)) for stmt in loop.body)
    _need(plain and int_value(gemm.clear) == 0, "its loop does more than add products")
    fills = [stmt for stmt in before if isinstance(stmt, Fill)]
    cleared = len(fills) == 1 and fills[0].dst.buffer.same_as(gemm.c.buffer) and is_whole(fills[0].dst)
    zero = cleared and is_zero(fills[0].value)
    _need(zero and is_whole(gemm.c) and len(gemm.c.extent) == _AXES, "its sums do not start at zero")
    _need(
        all(isinstance(stmt, (Alloc, Bind, Fill)) for stmt in before),
        "more than names stands before its loop",
    )
    return gemm


def _epilogue(after: Block, gemm: Gemm) -> Parallel:
    """The only statement behind a loop, as one over the elements of its sums."""
    last = _only([stmt for stmt in after if not isinstance(stmt, Alloc)], "statement behind its loop")
    loop = expand_copy(last) if isinstance(last, Copy) else last
    why = "its epilogue is no loop over its sums"
    if not isinstance(loop, Parallel):
        raise _Unfit(why)
    same = [int_value(extent) for extent in loop.extents] == [int_value(size) for size in gemm.c.extent]
    _need(same and len(loop.vars) == _AXES, why)
    reads = loads_of(*walk(loop.body))
    own = [load.indices for load in reads if load.source.same_as(gemm.c.buffer)]
    alone = all(index.same_as(var) for found in own for index, var in zip(found, loop.vars, strict=True))
    _need(alone, "its epilogue reads sums across elements")
    return loop


def _parts(launch: Launch, trips: Expr) -> Expr:
    """How many parts a tile has: as many as make enough tasks of all tiles, of so many trips at least."""
    one = tirx.const(1, dtype_of(trips))
    tiles = reduce(mul, launch.grid, one)
    return tirx.max(tirx.min(HOST_TASKS // tirx.max(tiles, one), trips // launch.schedule.spread_k), one)


@dataclass(frozen=True)
class _Matrices:
    """Sums of all tiles of a launch as a matrix, one for each part; ``start`` is a tile's first element."""

    buffer: Var
    launch: Launch
    start: tuple[Expr, Expr]

    def of(self, part: Expr, block: Sequence[Var]) -> tuple[Block, tuple[Expr, Expr, Expr]]:
        """The first element of a tile in the matrix of a part."""
        own = dict(zip(self.launch.block_vars, block, strict=True))
        row, column = (substitute(first, own) for first in self.start)
        return (), (part, row, column)


def _places(
    launch: Launch, loop: For | Pipelined, gemm: Gemm, names: dict[Var, Expr], parts: Expr
) -> _Matrices:
    """The matrices of a product of two: with the rows of its left operand and the columns of the right."""
    sides = ((gemm.a, int(gemm.trans_a)), (gemm.b, 1 - int(gemm.trans_b)))
    found = [_side(_source(loop, region.buffer), axis, names) for region, axis in sides]
    (row, rows), (column, columns) = found
    sums = gemm.c.buffer
    held = tirx.decl_buffer(
        (parts, rows, columns), str(sums.dtype), f"{sums.name}_parts", scope="global.workspace"
    )
    return _Matrices(held, launch, (row, column))


def _source(loop: For | Pipelined, tile: Var) -> Copy:
    """The copy of a matrix that fills an operand."""
    copies = [stmt for stmt in loop.body if isinstance(stmt, Copy) and stmt.dst.buffer.same_as(tile)]
    copy = _only(copies, f"copy to {tile.name}")
    _need(is_whole(copy.dst) and len(copy.src.extent) == _AXES, f"{tile.name} is no tile of a matrix")
    return copy


def _side(copy: Copy, axis: int, names: dict[Var, Expr]) -> tuple[Expr, Expr]:
    """Where the tile of a copy starts on an axis of its matrix, and how much that has."""
    start = inlined(copy.src.start[axis], names)
    known = not any(True for _ in loads(start))
    _need(known, f"{copy.dst.buffer.name} lies where memory says")
    return start, copy.src.buffer.shape[axis]


def _only(found: Sequence[One], what: str) -> One:
    _need(len(found) == 1, f"it has {len(found)} of what it may have one: {what}")
    return found[0]


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise _Unfit(why)
