"""Results that pass through shared memory leave by TMA, each warpgroup's by themselves, while it goes on to
the block's next tile.

    for tile: for k: C += A[k] B[k]; stage = C; sync; out[tile] = stage
    ->    for tile: for k: C += A[k] B[k]; each warpgroup: stage[own] = C; out[tile, own] = stage[own]

A warpgroup that is behind keeps tensor cores busy while the other one stores. What else the tile
stores (sums of rows, scales, other results), and parts of rows (of transposed results), make it slower than
by all threads: H200, 8192^3, us by all and by parts: 8-bit floats converted 1337 and 1315, scaled where
they lie 1630 and 1596, with sums of rows beside it 1542 and 1550, with scales 1505 and 1517, three
results 4496 and 4526; transposed 785 and 790. Grids of one axis leave blocks few tiles: of two each 105.3 and
107.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import only_store
from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.analysis.pipelines.parts import parts_of
from tilec.backends.cuda.analysis.products.wgmma import slab_bytes, slabs
from tilec.backends.cuda.emit.threads.groups import free_barriers
from tilec.backends.cuda.nodes import EachTile, PartStore, ThreadLoop
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import check_box
from tilec.backends.cuda.statement_roles.split.registers import MOST_GROUPS
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value, linear_in
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Region, Stmt, Store, is_global, walk
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import addressed_in, overlapping
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.roads import Road
    from tilec.targets import Target

#: Statements of a store (one that fills a tile, one that brings it out), and variables of their loops.
_PAIR = 2
#: Named barriers of a launch: one for each warpgroup, and for the threads that compute together.
_BARRIERS = MOST_GROUPS + 1


class StoreParts(Pass):
    """In: launches whose blocks take tile after tile of a grid of several axes, and at their end a loop that
    fills a shared tile with a fragment and one that brings it to a tensor. Out: a PartStore for both, where
    TMA stores such boxes of whole rows, the tile is for them alone, and no other tensor is stored."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its stores."""
        return rewrite_launches(kernel, lambda launch: _rewritten(kernel, launch))


def _rewritten(kernel: Kernel, launch: Launch) -> Launch:
    if not any(isinstance(stmt, EachTile) for stmt in walk(launch.body)):
        return launch
    parts = _Parts(kernel, launch)
    made = parts.launch_with(parts.block(launch.body))
    return with_roads(made, parts.roads) if parts.roads else launch


class _Parts(ScopedRewrite):
    """Rewrites the stores of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.roads: list[Road] = []
        self._stmts = list(walk(launch.body))
        self._kept = addressed_in(launch.body) | overlapping(launch)
        self._in_tiles = False

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A statement over rewritten blocks. Groups of threads have tiles of their own."""
        before = self._in_tiles, self._stmts
        self._in_tiles |= isinstance(stmt, EachTile) and len(stmt.grid) > 1
        if isinstance(stmt, EachTile):
            self._stmts = list(walk((stmt,)))
        try:
            return [stmt] if isinstance(stmt, ThreadLoop) else super().stmt(stmt)
        finally:
            self._in_tiles, self._stmts = before

    def block(self, block: Block) -> Block:
        """A block whose last statements are such a store, with a tile that lies as TMA takes it."""
        made = super().block(block)
        part = self._part(made[-2:])
        if part is None:
            return made
        self.roads.append(road_of(part, "tma", "TMA store"))
        tile = part.src.buffer
        return tuple(
            replace(stmt, layout=slabs(tile)) if isinstance(stmt, Alloc) and stmt.buffer == tile else stmt
            for stmt in (*made[:-2], part)
        )

    def _part(self, stmts: Block) -> PartStore | None:
        """A loop that fills a tile and the one behind it that brings it out, as one; None where statements
        are something else."""
        if not self._in_tiles or len(stmts) != _PAIR:
            return None
        fill, bring = map(_storing, stmts)
        if fill is None or bring is None:
            return None
        try:
            dst = self._check(fill, bring)
        except Unfit:
            return None
        return PartStore(whole_tile(only_store(fill).buffer), dst, body=(fill,), loc=bring.loc)

    def _check(self, fill: ThreadLoop, bring: ThreadLoop) -> Region:
        """The part of a tensor that gets a tile. Unfit where TMA does not bring it there, part by part."""
        filled, brought = only_store(fill), only_store(bring)
        tile, tensor, source = filled.buffer, brought.buffer, brought.value
        need(isinstance(source, TensorLoad) and source.source.same_as(tile), "a tile is brought to a tensor")
        need(tile.scope() == "shared.dyn", f"{tile.name} is no shared tile")
        need(_names(filled.indices, fill) and _names(source.indices, bring), "a tile is filled as it lies")
        need(_alone(tile, (fill, bring), self._stmts), f"{tile.name} is used elsewhere")
        need(_alone(tensor, (bring,), self._stmts) and tensor not in self._kept, f"{tensor.name} is, too")
        need(_stored(self._stmts) == {tensor}, "other tensors are stored")
        dst = _region(tensor, brought.indices, bring)
        need(dst is not None and slab_bytes(tile) != 0, f"{tensor.name} gets no box")
        assert dst is not None
        check_box(dst, dst.start, whole_tile(tile), True, self.facts)
        need(len(free_barriers(self.launch)) >= _BARRIERS, "the author takes the named barriers")
        need(not fill.is_padded, f"warpgroups have places behind the ends of {tile.name}")
        columns = slab_bytes(tile) // element_bytes(str(tile.dtype))
        parts = parts_of(fill.layout, columns)
        need(parts is not None and parts.step[1] == 0, "warpgroups have no boxes of whole rows")
        return dst


def _storing(stmt: Stmt) -> ThreadLoop | None:
    """A loop of two variables over threads that stores elements; None for anything else."""
    if not isinstance(stmt, ThreadLoop) or type(stmt) is not ThreadLoop or len(stmt.vars) != _PAIR:
        return None
    return stmt if [type(inner) for inner in stmt.body] == [Store] else None


def _names(indices: tuple[Expr, ...], loop: ThreadLoop) -> bool:
    """Whether indices are a loop's variables."""
    pairs = zip(indices, loop.vars, strict=False)
    return len(indices) == 2 and all(index.same_as(var) for index, var in pairs)


def _alone(buffer: Var, users: tuple[Stmt, ...], stmts: list[Stmt]) -> bool:
    """Whether nothing else uses a buffer."""
    inside = [stmt for stmt in walk(users) if buffer in set(buffers(stmt))]
    return len(inside) == sum(buffer in set(buffers(stmt)) for stmt in stmts)


def _stored(stmts: list[Stmt]) -> set[Var]:
    """The tensors that statements write."""
    return {buffer for stmt in stmts for buffer in written(stmt) if is_global(buffer)}


def _region(tensor: Var, indices: tuple[Expr, ...], loop: ThreadLoop) -> Region | None:
    """The box of a tensor whose elements a loop stores; None where they are no box with rows along the last
    axis."""
    start, extent, found = [], [], []
    for index in indices:
        *steps, base = linear_in(index, loop.vars) or (None,)
        moved = [place for place, step in enumerate(steps) if int_value(step) != 0]
        if base is None or len(moved) > 1 or any(int_value(steps[place]) != 1 for place in moved):
            return None
        found += moved
        start.append(base)
        extent.append(tirx.const(loop.extents[moved[0]] if moved else 1, "int32"))
    is_box = found == [0, 1] and int_value(extent[-1]) == loop.extents[1]
    return Region(tensor, tuple(start), tuple(extent)) if is_box else None
