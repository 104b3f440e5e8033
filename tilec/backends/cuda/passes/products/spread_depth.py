"""Few tiles that are deep: as many blocks as a device runs share their K, through the workspace.

Blocks of a cluster (`split_k`) have to be neighbours, of which clusters of more than two leave some
multiprocessors out, and cannot share what they load with others. Parts that pass through the workspace take a
launch more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.cuda.matmul.match.heads import is_straight
from tilec.backends.cuda.matmul.match.launch import Match, match
from tilec.backends.cuda.warp_roles.epilogue import bounds
from tilec.backends.cuda.warp_roles.unfit import Obeying, Unfit, need
from tilec.ir.exprs import dtype_of, inlined, same
from tilec.ir.nodes import Alloc, Atomic, Bind, Block, Kernel, Launch, Parallel, Stmt, Store, walk
from tilec.ir.options import NO_ROLES
from tilec.ir.schedule import Schedule
from tilec.lowering.parted import Parted
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Axes of a grid beside that of parts.
_AXES = 2


class SpreadDepth(Pass):
    """In: launches of one product that ask for `spread_k`. Out: for each, one with a last grid axis of parts
    of K, which stores sums of whole tiles to the workspace of the call, and one behind it that adds the parts
    in their order and computes the epilogue."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its launches parted."""
        if kernel.option(NO_ROLES) is not None:
            return kernel
        body: list[Stmt] = []
        for stmt in kernel.body:
            asked = isinstance(stmt, Launch) and stmt.schedule.spread_k is not None
            body += _parted(stmt, target) if isinstance(stmt, Launch) and asked else (stmt,)
        return replace(kernel, body=tuple(body))


def _parted(launch: Launch, target: Target) -> Block:
    """Both launches; the one that there is where it is no product, of which its family says so."""
    try:
        found = match(launch)
    except Unfit:
        return (launch,)
    with Obeying("spread_k", launch):
        product = _product(launch, found, target)
    schedule = launch.schedule
    turns = replace(schedule, pingpong=schedule.pingpong or False, pdl=False)
    held = Alloc(product.places.buffer)
    return (held, product.multiplying(turns), product.adding(Schedule(pdl=True)))


@dataclass(frozen=True)
class _Tiles:
    """Sums of whole tiles of a launch, those of each part behind those of the one before."""

    buffer: Var
    launch: Launch

    def of(self, part: Expr, block: Sequence[Var]) -> tuple[Block, tuple[Expr, Expr, Expr]]:
        """The number of a tile's part, and the tile's first element."""
        number: Expr = part
        for index, extent in zip(reversed(block), reversed(self.launch.grid), strict=True):
            number = number * extent + index
        place, zero = tirx.Var("place", dtype_of(number)), tirx.const(0, "int32")
        return (Bind(place, number),), (place, zero, zero)


def _product(launch: Launch, found: Match, target: Target) -> Parted:
    """The product that a launch is. Unfit where its parts cannot be added by a launch of their own."""
    _check(launch, found)
    start, stop = found.ends
    trips = stop - start
    need(found.same_trips(launch), "its tiles differ in their trips")
    one = tirx.const(1, dtype_of(trips))
    tiles, paired = (reduce(mul, grid, one) for grid in (launch.grid, _paired(launch)))
    units = tirx.const(gpu_limits(target, {}).units, dtype_of(tiles))
    sums = found.gemm.c.buffer
    shape = (tirx.max(units, tiles), found.rows, found.columns)
    held = tirx.decl_buffer(shape, str(sums.dtype), f"{sums.name}_parts", scope="global.workspace")
    parts = _parts(launch, trips, paired, units)
    places = _Tiles(held, launch)
    kept = _kept(found.tail[0], found.names)
    return Parted(launch, found.loop, found.gemm.c, found.tail[0], found.names, parts, places, kept)


def _kept(epilogue: Parallel, names: Mapping[Var, Expr]) -> Expr | None:
    """The test of a row of a tile behind which an epilogue stores nothing; None where there is no such one.
    Rows that are outside take room in the workspace, and no time."""
    row = epilogue.vars[0]
    stores = [stmt for stmt in walk(epilogue.body) if isinstance(stmt, (Store, Atomic))]
    tests = [next((index < extent for index, extent in bounds(store, row)), None) for store in stores]
    first, *others = [None if test is None else inlined(test, names) for test in tests]
    return first if all(each is not None and same(each, first) for each in others) else None


def _check(launch: Launch, found: Match) -> None:
    """Unfit where tiles have no parts, or an epilogue that is no single loop."""
    need(found.is_single, "it has several products")
    alone = found.guard is None and found.promotion is None and is_straight(found.head)
    need(alone, "tiles that are looked up, or whose sums are scaled in every trip, have no parts")
    need(len(launch.grid) <= _AXES, "a grid of three axes has none for parts of K")
    simple = len(found.tail) == 1 and len(found.fragments) == 1
    need(simple, "its epilogue is more than one loop over its sums")
    need(not found.reads_pairs, "its epilogue reads other columns than an element's own")
    other = launch.schedule.split_k not in (None, 1)
    need(not other, "K is shared in one way", remedy="leave split_k or spread_k out")


def _paired(launch: Launch) -> Sequence[Expr | int]:
    """The extents of a grid whose clusters are whole."""
    sizes = (*(launch.schedule.clusters or ()), *[1] * len(launch.grid))
    pairs = zip(launch.grid, sizes, strict=False)
    return [extent if size == 1 else (extent + size - 1) // size * size for extent, size in pairs]


def _parts(launch: Launch, trips: Expr, tiles: Expr, units: Expr) -> Expr:
    """How many parts a tile has: as many as give all multiprocessors one, of so many trips at least."""
    one = tirx.const(1, dtype_of(tiles))
    return tirx.max(tirx.min(units // tirx.max(tiles, one), trips // launch.schedule.spread_k), one)
