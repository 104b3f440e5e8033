"""Loads and stores of products become tensor copies: one instruction of one thread for a box of a tensor.

    copy(A[by * 128:+128, ko * 64:+64], As)    ->    tma_load(map of A, (ko * 64, by * 128), As)

Which tensor maps there are, where boxes reach beyond their tensors, and who of a cluster loads what is
settled here; an operand that TMA cannot take keeps its copy, which threads of the producer carry out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.emit.grid.early_start import is_asked
from tilec.backends.cuda.matmul.assign.clusters import is_shared
from tilec.backends.cuda.matmul.match.load_maps import is_gathered, load_map
from tilec.backends.cuda.matmul.nodes import (
    ClearFront,
    GatherLoad,
    MatmulRoles,
    RingDrain,
    RingFill,
    RowsView,
    WindowCopy,
)
from tilec.backends.cuda.warp_roles.nodes import TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.stores import parts_bytes, plan_store, staging_room
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles, with_roles
from tilec.backends.cuda.warp_roles.tails import with_tail
from tilec.backends.cuda.warp_roles.tma import rows_of_a_group
from tilec.backends.cuda.warp_roles.wgmma import warpgroup_tile
from tilec.ir.exprs import dtype_of, int_value, uses
from tilec.ir.nodes import Bind, Block, Copy, Gemm, Kernel, Launch, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.nodes import TensorMap
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target


class SelectTma(Pass):
    """In: MatmulRoles with Copy or WindowCopy in its RingFill, Parallel behind its RingDrain. Out: TmaLoad
    (or GatherLoad, where rows are not aligned), TileStore."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with tensor copies."""
        return rewrite_roles(
            kernel, MatmulRoles, lambda launch, roles: _selected(kernel, launch, roles, target)
        )


def _selected(kernel: Kernel, launch: Launch, roles: MatmulRoles, target: Target) -> Launch:
    scope = ScopedRewrite(kernel, launch)
    for stmt in (*roles.producer, *roles.consumer):
        if isinstance(stmt, Bind):
            scope.stmt(stmt)
    gemms = [stmt for stmt in walk(roles.consumer) if isinstance(stmt, Gemm)]
    tiles = {static_extents(gemm.c.buffer): warpgroup_tile(gemm, roles.roles.sharers) for gemm in gemms}
    (tile, *_) = tiles.values()
    ring = next(stmt.ring for stmt in roles.producer if isinstance(stmt, RingFill))
    evict, split, consumers = launch.schedule.evict, roles.order.split, roles.roles.consumers
    parts = consumers * parts_bytes(tile, split)
    room = staging_room(ring.stages * ring.bytes + parts, consumers, target)
    pair = None if roles.order.pair is None else launch.block_vars[roles.order.pair]
    views = {stmt.view: stmt for stmt in launch.body if isinstance(stmt, RowsView)}
    shared = _Shared(pair, roles.order.crosses, values_of(walk(roles.producer)), scope.facts, views)
    found = tuple(made for stmt in roles.producer for made in _loads(stmt, shared, evict))
    made = replace(
        roles,
        producer=_with_tails(found, gemms, roles.consumer, scope.facts),
        consumer=_with_apart_residuals(
            plan_store(stmt, tiles[_extents(stmt)], room, scope.facts, split, evict)
            if isinstance(stmt, Parallel)
            else stmt
            for stmt in _with_clear_fronts(roles, views)
        ),
    )
    return with_roles(launch, _with_early_loads(made, launch))


def _extents(loop: Parallel) -> tuple[int, ...]:
    """The shape of the accumulators that an epilogue is over."""
    return tuple(int_value(extent) or 0 for extent in loop.extents)


def _with_apart_residuals(consumer: Iterable[Stmt]) -> Block:
    """The consumers' statements; residuals come through staging buffers where no other epilogue uses them:
    the first boxes are there before the sums are."""
    block = tuple(consumer)
    if sum(isinstance(stmt, TileStore) and stmt.columns > 0 for stmt in block) < 2:
        return block
    return tuple(replace(stmt, residual=None) if isinstance(stmt, TileStore) else stmt for stmt in block)


def _with_clear_fronts(roles: MatmulRoles, views: Mapping[Var, RowsView]) -> Block:
    """The consumers' statements with zeros for what loads of ``views`` bring in front of their rows."""
    copies = [stmt for stmt in walk(roles.producer) if isinstance(stmt, Copy) and stmt.src.buffer in views]
    fronts = {copy.dst.buffer: views[copy.src.buffer].front for copy in copies}

    def cleared(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, RingDrain):
            return stmt
        gemms = (inner for inner in stmt.body if isinstance(inner, Gemm))
        tiles = (region for gemm in gemms for region in (gemm.a, gemm.b) if region.buffer in fronts)
        return replace(stmt, body=(*(ClearFront(tile, fronts[tile.buffer]) for tile in tiles), *stmt.body))

    return tuple(map(cleared, roles.consumer))


def _with_tails(producer: Block, gemms: Sequence[Gemm], consumer: Block, facts: Facts) -> Block:
    """Loads with boxes for tiles that end beyond their tensor. Where sums leave the tensor core after every
    trip, a choice of boxes costs whole tiles 2 % (4096^3 on an H200: 119 us in place of 117)."""
    loops = [stmt for stmt in consumer if isinstance(stmt, Parallel)]
    firsts = {gemm.a.buffer for gemm in gemms}
    few = any(isinstance(stmt, RingDrain) and stmt.promotes for stmt in consumer)

    def made(stmt: Stmt, moving: tuple[Var, ...]) -> Stmt:
        if not isinstance(stmt, TmaLoad) or stmt.parts:
            return stmt
        axis = int(stmt.dst.buffer not in firsts)
        return with_tail(stmt, axis, loops, moving, facts, few)

    def filled(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, RingFill):
            return stmt
        moving = (stmt.var, *(inner.var for inner in stmt.body if isinstance(inner, Bind)))
        return replace(stmt, body=tuple(made(inner, moving) for inner in stmt.body))

    return tuple(map(filled, producer))


def _with_early_loads(roles: MatmulRoles, launch: Launch) -> MatmulRoles:
    """Loads of tensors that no launch in flight writes marked as early, where a launch that starts early has
    nothing to compute or to agree on with other blocks before them."""
    constant = launch.schedule.constant or ()
    *head, fill = roles.producer
    if head or not isinstance(fill, RingFill) or not is_asked(launch) or roles.order.pair is not None:
        return roles
    if any(isinstance(stmt, GatherLoad) for stmt in walk(roles.producer)):
        return roles
    body = (
        replace(stmt, early=True) if isinstance(stmt, TmaLoad) and stmt.map.buffer.name in constant else stmt
        for stmt in fill.body
    )
    return replace(roles, producer=(replace(fill, body=tuple(body)),))


@dataclass(frozen=True, eq=False)
class _Shared:
    """What pairs of blocks along the grid axis of ``pair``, if there are some, bring once; ``crosses`` as
    `TileOrder` says, ``names`` those of starts, ``views`` those of groups of rows."""

    pair: Var | None
    crosses: bool
    names: Mapping[Var, Expr]
    facts: Facts
    views: Mapping[Var, RowsView]

    def has(self, copy: Copy | WindowCopy) -> bool:
        """Whether both blocks of a pair want the same."""
        pair = self.pair
        return pair is not None and is_shared(copy, pair, self.names, self.facts, padded=self.crosses)

    def map_of(self, copy: Copy | WindowCopy) -> TensorMap:
        """The tensor map of a copy, of half of its rows where pairs may bring it once."""
        return load_map(copy, self.facts, halves=self.crosses or self.has(copy))


def _loads(stmt: Stmt, shared: _Shared, evict: Mapping[str, str]) -> list[Stmt]:
    if not isinstance(stmt, RingFill):
        return [stmt]
    ahead: list[Stmt] = []
    body: list[Stmt] = []
    for inner in stmt.body:
        load = _load(inner, shared, evict) if isinstance(inner, (Copy, WindowCopy)) else inner
        body.append(_with_fixed_place(load, stmt, ahead))
    return [*ahead, replace(stmt, body=tuple(body))]


def _with_fixed_place(stmt: Stmt, ring: RingFill, ahead: list[Stmt]) -> Stmt:
    """A load of pixels with names for the coordinates that all trips have in common: they take divisions."""
    if not isinstance(stmt, TmaLoad) or not stmt.offsets:
        return stmt
    inside = {ring.var, *(inner.var for inner in ring.body if isinstance(inner, Bind))}
    start = []
    for axis, index in enumerate(stmt.start):
        if uses(index, inside) or int_value(index) is not None:
            start.append(index)
            continue
        name = tirx.Var(f"{stmt.map.buffer.name}_{axis}", dtype_of(index))
        ahead.append(Bind(name, index))
        start.append(name)
    return replace(stmt, start=tuple(start))


def _load(copy: Copy | WindowCopy, shared: _Shared, evict: Mapping[str, str]) -> TmaLoad | GatherLoad:
    if is_gathered(copy, shared.facts):
        return GatherLoad(copy.src.buffer, copy.src.start, copy.dst, loc=copy.loc)
    asked = copy.hints.eviction if isinstance(copy, Copy) else None
    when = asked or evict.get(str(copy.src.buffer.name))
    offsets = copy.offsets if isinstance(copy, WindowCopy) else ()
    both, found = shared.has(copy), shared.map_of(copy)
    load = TmaLoad(found, copy.src.start, copy.dst, both, when, offsets, shared.crosses, loc=copy.loc)
    view = shared.views.get(copy.src.buffer)
    return load if view is None else replace(load, parts=_maps_of_rows(found, view), part=view.part)


def _maps_of_rows(found: TensorMap, view: RowsView) -> tuple[TensorMap, ...]:
    """For each row of a group a map that ends with it, and with the last group that has one. Where there are
    fewer rows than a group has, maps of those that are missing end with the last one."""
    rows, columns = view.root.shape
    fold = rows_of_a_group(view.root)

    def ends(part: int) -> tuple[Expr, Expr]:
        groups = (rows + (fold - 1 - part)) // fold
        last = tirx.min(rows, tirx.const(part + 1, dtype_of(rows)))
        return tirx.max(groups, tirx.const(1, dtype_of(groups))), last * columns

    return tuple(replace(found, inside=ends(part)) for part in range(fold))
