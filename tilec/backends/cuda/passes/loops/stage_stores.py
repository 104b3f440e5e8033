"""Results of products leave through shared memory: an accumulator's neighbours lie in different lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST, vector_width
from tilec.backends.cuda.analysis.layouts.fragments import PAIR
from tilec.backends.cuda.analysis.layouts.held_alike import held_across, held_alike, sums_in
from tilec.backends.cuda.analysis.layouts.loops import loop_extents, written_out
from tilec.backends.cuda.analysis.layouts.tiles import swizzled
from tilec.backends.cuda.analysis.layouts.two_loops import in_two, run_along, stored
from tilec.backends.cuda.passes.waits.place_shared import pool_plan
from tilec.backends.cuda.warp_roles.epilogue import moves_by_one
from tilec.ir.exprs import uses
from tilec.ir.nodes import Alloc, Kernel, Launch, Parallel, Stmt, Store, is_global, walk
from tilec.ir.roads import Loss
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Elements of a row from which on a warp stores to fewer rows than the eight of an accumulator.
_ROW = 16


class StageStores(Pass):
    """In: Parallel loops that store to global memory what products left in fragments, or what others computed
    of it in the same or the transposed places. Out: such a loop writes a shared tile, and a second one
    copies the tile out, wherever the accumulator's layout would store fewer bytes at once than rows allow.

        for i, j: C[i, j] = acc[i, j]    ->    for i, j: S[i, j] = acc[i, j];  for i, j: C[i, j] = S[i, j]

    The tile is swizzled, so that lanes meet no bank twice. The second loop moves wide vectors; where rows may
    begin anywhere, single elements that neighbouring lanes have beside each other, while those of an
    accumulator are in eight rows (sm_80's code on an H100, 2048 x 2047 float16: 26.9 us, 9.5 so). The tile
    takes shared memory that the product is done with; where there is no room for it, the store stays."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its results staged."""
        return rewrite_launches(kernel, lambda launch: _Staging(kernel, launch, target).run())


class _Staging(ScopedRewrite):
    """Rewrites the loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        assert target.gpu is not None
        self._limit = target.gpu.shared_bytes
        sums = sums_in(walk(launch.body))
        held = held_alike(walk(launch.body), sums)
        self._sums = held | held_across(walk(launch.body), held)
        self._tiles: list[Var] = []

    def run(self) -> Launch:
        """The launch, with staging tiles as far as they fit."""
        if not self._sums:
            return self.launch
        staged = replace(self.launch, body=self.block(self.launch.body))
        if not self._tiles:
            return self.launch
        total = pool_plan(staged).total
        if total <= self._limit:
            return staged
        why = f"with room to stage them the shared tiles would take {total} bytes, a block has {self._limit}"
        loss = Loss("", why, "choose fewer stages or smaller tiles")
        stores = [
            stmt
            for stmt in walk(staged.body)
            if isinstance(stmt, Parallel) and _brings_out(stmt, self._tiles)
        ]
        roads = [road_of(stmt, "elements", "results leave in pieces of a few bytes", loss) for stmt in stores]
        return with_roads(self.launch, roads)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop that stores a result becomes two."""
        if not isinstance(stmt, Parallel):
            return super().stmt(stmt)
        self._learn(stmt)
        loop = _along_rows(stmt)
        cond, store = _stored(loop)
        if store is None or not self._gains(loop, store):
            return [stmt]
        return self._staged(loop, store, cond)

    def _gains(self, loop: Parallel, store: Store) -> bool:
        """Whether a loop stores a product's result, in vectors wider than an accumulator's."""
        if not is_global(store.buffer) or len(loop.vars) < 2:
            return False
        items = accesses(loop.body)
        read = {item.buffer for item in items if not item.is_write}
        writes = [item for item in items if item.is_write and item.buffer.same_as(store.buffer)]
        if not read & self._sums or store.buffer in read or len(writes) != 1:
            return False
        indices = written_out(store.indices, loop)
        extent = loop_extents(loop)[-1]
        size = element_bytes(str(store.buffer.dtype))
        limit = min(WIDEST // size, extent & -extent)
        width = vector_width(store.buffer, indices, loop.vars[-1], limit, self.facts)
        if width == 1:
            return extent >= _ROW and _goes_along(indices, loop.vars[-1])
        return width > PAIR and PAIR * size < WIDEST // 2

    def _staged(self, loop: Parallel, store: Store, cond: Expr | None) -> list[Stmt]:
        extents, dtype = loop_extents(loop), str(store.buffer.dtype)
        tile = tirx.decl_buffer(extents, dtype, name=f"{store.buffer.name}_stage", scope="shared.dyn")
        self._tiles.append(tile)
        return in_two(loop, store, cond, Alloc(tile, layout=swizzled(tile), loc=loop.loc))


def _along_rows(loop: Parallel) -> Parallel:
    """A loop with the variable last along which its store goes, as results leave that are kept transposed."""
    _, store = stored(loop)
    if store is None or loop.hints.loop_layout is not None:
        return loop
    indices = written_out(store.indices, loop)
    places = [place for place, var in enumerate(loop.vars) if _goes_along(indices, var)]
    return run_along(loop, places[0]) if len(places) == 1 else loop


def _stored(loop: Parallel) -> tuple[Expr | None, Store | None]:
    """The store that a loop ends with, and the condition around it if it is the same for all of a row and
    depends on no fragment."""
    cond, store = stored(loop)
    if cond is None:
        return cond, store
    (test,) = written_out((cond,), loop)
    return (None, None) if uses(test, loop.vars[-1:]) else (cond, store)


def _goes_along(indices: Sequence[Expr], var: Var) -> bool:
    """Whether each value of ``var`` has the next element of a row."""
    *rows, last = indices
    return moves_by_one(last, var) and not any(uses(row, (var,)) for row in rows)


def _brings_out(loop: Parallel, tiles: list[Var]) -> bool:
    """Whether a loop brings staged results to their tensor."""
    return any(not item.is_write and item.buffer in tiles for item in accesses((loop,)))
