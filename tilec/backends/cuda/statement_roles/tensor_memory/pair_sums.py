"""Two neighbouring blocks multiply as one by tcgen05: 256 rows, of whose sums each block has 128."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.tensor_memory import PAIR, PAIRED_ROWS, ROWS
from tilec.backends.cuda.limits import has_tensor_memory
from tilec.backends.cuda.nodes import (
    ArriveOnce,
    BoxLoad,
    CloseTensorMemory,
    EachTile,
    OpenTensorMemory,
    TensorCommit,
    TensorProduct,
    TensorSums,
    opens_memory,
)
from tilec.backends.cuda.statement_roles.split.split_roles import split
from tilec.backends.cuda.statement_roles.tensor_memory.hold_sums import held
from tilec.backends.cuda.statement_roles.tensor_memory.pairs import Pairs, pair_axis, wide_axes
from tilec.backends.cuda.statement_roles.tensor_memory.whole_sums import PRODUCTS
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Block, If, Kernel, Launch, Region, Stmt, Store, walk
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier, ClusterBarrier, Group, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.ir.options import NO_ROLES
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.storage import convert, element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.roads import Road
    from tilec.targets import Target


class PairSums(Pass):
    """In: launches whose sums would lie in tensor memory, and whose schedule asks for pairs of blocks along
    an axis of the grid along which second operands stay the same. Out: those with the roles of their warps,
    their sums and rings for half of these in clusters of two blocks: the barriers of the first one count the
    bytes of both, a thread of it issues all products, and commits arrive in both. Where the grid may have an
    odd end, the second block of the last pair stores nothing. Other launches have the reason among their
    notes."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its pairs."""
        if not has_tensor_memory(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: _paired(kernel, launch, target))


def _paired(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    asked = launch.schedule.clusters
    if asked is None or set(asked) == {1}:
        return launch
    made = held(split(kernel, launch, target, halves=True), target)
    if not any(isinstance(stmt, PRODUCTS) for stmt in walk(made.body)):
        return launch
    try:
        found = Pairs(made, pair_axis(launch, asked), Facts(kernel, changed_in(launch)))
        return _Paired(found).made()
    except Unfit as unfit:
        told = f"no pairs of blocks for one product: {unfit}"
        return with_notes(launch, [f"{told}; {unfit.remedy}" if unfit.remedy else told])


class _Paired:
    """One launch in pairs."""

    def __init__(self, found: Pairs) -> None:
        self.found, self.launch = found, found.launch
        self.full = {load.barrier for load in found.loads}
        self.read = tirx.decl_buffer((1,), "uint64", name="sums_read", scope=SCOPE)
        self.turn = tirx.decl_buffer((1,), "int32", name="sums_turn", scope="local.var")
        dtype = dtype_of(found.var)
        self.rank = tirx.floormod(found.var, tirx.const(PAIR, dtype))
        self.leads = tirx.EQ(self.rank, tirx.const(0, dtype))

    def made(self) -> Launch:
        """The launch."""
        opened = next(stmt for stmt in walk(self.launch.body) if isinstance(stmt, OpenTensorMemory))
        memory = (opened.memory, opened.columns, True)
        body = [*rewrite_blocks(tuple(map(self._inside, self.launch.body)), self._block)]
        first = next(place for place, stmt in enumerate(body) if isinstance(stmt, Group))
        meet = (ClusterBarrier("arrive"), ClusterBarrier("wait"))
        body[first:first] = [AllocBarrier(self.read, (PAIR,), True), OpenTensorMemory(*memory), *meet]
        body += [*meet, CloseTensorMemory(*memory)]
        made = replace(
            self.launch,
            grid=self._grid(),
            body=tuple(body),
            schedule=replace(self.launch.schedule, cluster=None, cluster_dims=self._shape()),
            roads=tuple(map(_of_pairs, self.launch.roads)),
        )
        axis = self.found.var.name
        return with_notes(made, [f"pairs of blocks along {axis} multiply {PAIRED_ROWS} rows together"])

    def _grid(self) -> tuple[int | Expr, ...]:
        """A grid of whole pairs."""
        grid, axis = list(self.launch.grid), self.found.axis
        if not self.found.is_even:
            grid[axis] = _whole_pairs(grid[axis])
        return tuple(grid)

    def _shape(self) -> tuple[int, ...]:
        """The blocks of a cluster: of those that walk neighbours along the only axis that they have."""
        if any(isinstance(stmt, EachTile) for stmt in walk(self.launch.body)):
            return (PAIR,)
        return tuple(PAIR if axis == self.found.axis else 1 for axis in range(len(self.launch.grid)))

    def _inside(self, stmt: Stmt) -> Stmt:
        """A group, of which a second block outside of the grid does nothing behind its sums."""
        if isinstance(stmt, Group):
            return replace(stmt, body=self._guarded(stmt.body))
        return stmt

    def _guarded(self, block: Block) -> Block:
        tiles = next((stmt for stmt in block if isinstance(stmt, EachTile)), None)
        if self.found.is_even:
            return block
        if tiles is not None:
            made = replace(tiles, body=self._guarded(tiles.body))
            return tuple(made if stmt is tiles else stmt for stmt in block)
        sums, behind = self.found.split(block)
        kept = tuple(stmt for stmt in behind if not isinstance(stmt, CloseTensorMemory))
        end, var = self.launch.grid[self.found.axis], self.found.var
        limit = tirx.const(end, dtype_of(var)) if isinstance(end, int) else convert(end, dtype_of(var))
        return (*sums, If(tirx.LT(var, limit), kept)) if kept else sums

    def _block(self, block: Block) -> list[Stmt]:
        before = (None, *block)
        return [new for stmt, last in zip(block, before, strict=False) for new in self._stmt(stmt, last)]

    def _stmt(self, stmt: Stmt, before: Stmt | None) -> Block:
        """A statement over the memory of both blocks, behind the one ``before``."""
        zero = tirx.const(0, "int32")
        if isinstance(stmt, CloseTensorMemory) or (isinstance(stmt, Sync) and opens_memory(before)):
            return ()
        if opens_memory(stmt):
            return (Alloc(self.turn, init=zero),)
        if isinstance(stmt, EachTile):
            return (replace(stmt, pair=self.found.axis),)
        if isinstance(stmt, Alloc) and stmt.buffer in self.found.halves:
            return (replace(stmt, buffer=self.found.halves[stmt.buffer], asked=None),)
        if isinstance(stmt, AllocBarrier):
            return (replace(stmt, cluster=True),)
        if isinstance(stmt, BoxLoad):
            return (self._load(stmt),)
        if isinstance(stmt, ArriveOnce) and stmt.barrier in self.full:
            return (If(self.leads, (replace(stmt, expect=self._bytes(stmt)),)),)
        if isinstance(stmt, TensorProduct):
            return (replace(stmt, b=self.found.part(stmt.b), pair=True),)
        if isinstance(stmt, TensorCommit):
            tiles = tuple(self.found.halves.get(tile, tile) for tile in stmt.tiles)
            return (replace(stmt, tiles=tiles, pair=True),)
        if isinstance(stmt, Group) and any(isinstance(inner, TensorCommit) for inner in stmt.body):
            return (replace(stmt, body=(If(self.leads, (*self._begin(), *stmt.body)),)),)
        if isinstance(stmt, Sync) and isinstance(before, TensorSums):
            return (stmt, ArriveOnce(self.read, zero, block=zero))
        return (stmt,)

    def _begin(self) -> Block:
        """Products overwrite sums that both blocks have loaded."""
        zero = tirx.const(0, "int32")
        other = tirx.bitwise_xor(tirx.BufferLoad(self.turn, [zero]), tirx.const(1, "int32"))
        return WaitPhase(self.read, zero, other), Store(self.turn, (zero,), other)

    def _load(self, load: BoxLoad) -> BoxLoad:
        """A load whose bytes the first block counts, of a second operand half of it."""
        tile = load.dst.buffer
        if tile not in self.found.halves:
            return replace(load, pair=True)
        side = self.found.sides[tile]
        axis, size = wide_axes(load.src)[side], static_extents(self.found.halves[tile])[side]
        start, extent = list(load.src.start), list(load.src.extent)
        start[axis] = start[axis] + tirx.Cast(dtype_of(start[axis]), self.rank) * size
        extent[axis] = size
        src = Region(load.src.buffer, tuple(start), tuple(extent))
        return replace(load, src=src, dst=self.found.part(load.dst), pair=True)

    def _bytes(self, stmt: ArriveOnce) -> Expr:
        """What both blocks bring of a stage."""
        tiles = {load.dst.buffer for load in self.found.loads if load.barrier.same_as(stmt.barrier)}
        total = sum(_stage_bytes(self.found.halves.get(tile, tile)) for tile in tiles)
        return tirx.const(PAIR * total, "int32")


def _of_pairs(road: Road) -> Road:
    """The road of a product, with the rows of both blocks."""
    if road.kind != "tcgen05":
        return road
    return replace(road, instruction=road.instruction.replace(f"m{ROWS}", f"m{PAIRED_ROWS}", 1))


def _stage_bytes(tile: Var) -> int:
    return prod(static_extents(tile)[1:]) * element_bytes(str(tile.dtype))


def _whole_pairs(extent: int | Expr) -> int | Expr:
    if isinstance(extent, int):
        return -(-extent // PAIR) * PAIR
    one, two = (tirx.const(value, dtype_of(extent)) for value in (1, PAIR))
    return tirx.floordiv(extent + one, two) * two
