"""Which shared tiles a producer fills: the loads that bring boxes, the rings that they go to, their
stages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.tiles import alike, is_whole
from tilec.backends.cuda.analysis.wgmma import slab_bytes, slabs
from tilec.backends.cuda.general.boxes import check_box
from tilec.backends.cuda.general.slices import Program
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value, loads
from tilec.ir.foreign import addressed
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Gemm,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.ir.traits import buffers, expressions, written
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Stages of a ring that a loop without num_stages fills, and bytes of shared memory that barriers take.
_STAGES, _RESERVED = 2, 1024
#: Stages that keep tensor cores busy, and bytes of elements that registers hold in pieces too small to store.
_ENOUGH, _NARROW = 3, 2


@dataclass(frozen=True, eq=False)
class Ring:
    """Tiles that are loaded together: ``bytes`` of one stage, and ``stages`` of them. ``by_products``:
    nothing but products reads them."""

    tiles: tuple[Var, ...]
    stages: int
    bytes: int
    by_products: bool

    @property
    def name(self) -> str:
        """The names of its tiles."""
        return "_".join(str(tile.name) for tile in self.tiles)


def plan_rings(
    kernel: Kernel, launch: Launch, program: Program, wide: Set[Stmt], target: Target
) -> tuple[tuple[Ring, ...], Mapping[Stmt, str]]:
    """The rings of a launch whose products ``wide`` wgmma carries out, and why other loads do not fill any.
    Unfit where there is no ring, or no room."""
    found = _Loads(kernel, launch, program)
    loads = found.of_rings()
    if not loads:
        first = next(iter(found.kept), None)
        raise Unfit("no load of it is a box that TMA brings" if first is None else found.kept[first], first)
    rings = [_ring(tiles, loads, launch, program, wide) for tiles in _together(loads, launch)]
    return _fitted(rings, launch, target), found.kept


# ---- loads ----


def is_load(stmt: Stmt) -> bool:
    """Whether a statement copies from a tensor to a shared tile."""
    return (
        isinstance(stmt, Copy)
        and str(stmt.src.buffer.scope()).startswith("global")
        and str(stmt.dst.buffer.scope()) == "shared.dyn"
    )


class _Loads(ScopedRewrite):
    """Sorts the loads of a launch: those that TMA carries out, and why it does not (``kept``)."""

    def __init__(self, kernel: Kernel, launch: Launch, program: Program) -> None:
        super().__init__(kernel, launch)
        self.kept: dict[Stmt, str] = {}
        self._program, self._changed = program, changed_in(launch)
        self.block(launch.body)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Nothing is rewritten."""
        if is_load(stmt):
            try:
                self._check(stmt)  # type: ignore[arg-type]
            except Unfit as unfit:
                self.kept[stmt] = str(unfit)
        return super().stmt(stmt)

    def _check(self, load: Copy) -> None:
        """Unfit for a load that a producer cannot carry out by TMA."""
        need(not load.hints.avoids_tma, "its author keeps it from TMA")
        need(is_whole(load.dst), f"{load.dst.buffer.name} is filled in part")
        need(load.src.buffer not in self._changed, f"the launch writes {load.src.buffer.name}")
        check_box(load.src, load.dst, self.facts)
        self._program.needed(load)

    def of_rings(self) -> dict[Var, list[Copy]]:
        """The tiles that loads fill, and these."""
        body = self.launch.body
        allocs = {stmt.buffer: stmt for stmt in walk(body) if isinstance(stmt, Alloc)}
        named = {buffer for stmt in walk(body) for expr in expressions(stmt) for buffer in addressed(expr)}
        found: dict[Var, list[Copy]] = {}
        for tile, alloc in allocs.items():
            writers = [stmt for stmt in walk(body) if tile in written(stmt)]
            loads = [stmt for stmt in writers if is_load(stmt)]
            if not loads or any(load in self.kept for load in loads):
                continue
            reason = None
            if len(loads) < len(writers):
                reason = f"other statements write {tile.name}, too"
            elif tile in named:
                reason = f"foreign code gets the address of {tile.name}"
            elif not has_slabs(alloc):
                reason = f"T.annotate_layout gives {tile.name} another order than TMA writes"
            elif not _is_ring(tile, body):
                reason = f"{tile.name} is used where its load does not stand before"
            if reason is None:
                found[tile] = loads  # type: ignore[assignment]
            else:
                self.kept |= dict.fromkeys(loads, reason)
        return found


def has_slabs(alloc: Alloc) -> bool:
    """Whether no layout is asked for that TMA does not write."""
    if alloc.asked is None:
        return True
    return slab_bytes(alloc.buffer) != 0 and alike(alloc.asked.layout, slabs(alloc.buffer))


def _is_ring(tile: Var, body: Block) -> bool:
    """Whether every use of a tile stands behind its load in the same block or in one inside, and loads of one
    block alone around it."""
    return all(_is_covered(tile, stmt, chain) for stmt, chain in _chains(body) if tile in set(buffers(stmt)))


def _chains(
    body: Block, outer: tuple[tuple[Block, int], ...] = ()
) -> Iterator[tuple[Stmt, tuple[tuple[Block, int], ...]]]:
    """Every statement, with the blocks around it and its position in each."""
    for position, stmt in enumerate(body):
        chain = (*outer, (body, position))
        yield stmt, chain
        for inner in children(stmt):
            yield from _chains(inner, chain)


def _is_covered(tile: Var, stmt: Stmt, chain: tuple[tuple[Block, int], ...]) -> bool:
    levels = [(block, position) for block, position in chain if any(fills(each, tile) for each in block)]
    if len(levels) != 1:
        return False
    block, position = levels[0]
    first = next(index for index, each in enumerate(block) if fills(each, tile))
    return first <= position if fills(stmt, tile) else first < position


def fills(stmt: Stmt, tile: Var) -> bool:
    """Whether a statement itself writes a tile."""
    return tile in written(stmt)


# ---- rings ----


def _together(loads: Mapping[Var, list[Copy]], launch: Launch) -> list[tuple[Var, ...]]:
    """Tiles whose loads follow each other everywhere and that are first used by the same statement."""
    groups: list[tuple[Var, ...]] = []
    for run in _runs(launch.body, loads):
        groups += [run] if run not in groups else []
    alone: list[tuple[Var, ...]] = []
    for tile in loads:
        of_tile = [run for run in groups if tile in run]
        made = of_tile[0] if len(of_tile) == 1 and _agree(of_tile[0], groups) else (tile,)
        alone += [made] if made not in alone else []
    return alone


def _agree(run: tuple[Var, ...], groups: Sequence[tuple[Var, ...]]) -> bool:
    return all(run == other or not set(run) & set(other) for other in groups)


def _runs(block: Block, loads: Mapping[Var, list[Copy]]) -> Iterator[tuple[Var, ...]]:
    """The tiles of each run of loads in a block and those inside, apart where their first uses are."""
    run: dict[Var, Stmt | None] = {}
    for position, stmt in enumerate(block):
        tile = stmt.dst.buffer if isinstance(stmt, Copy) and stmt.dst.buffer in loads else None
        if tile is not None:
            run[tile] = next((each for each in block[position + 1 :] if _uses(each, tile)), None)
        elif not isinstance(stmt, Bind):
            yield from _by_use(run)
            run = {}
        for inner in children(stmt):
            yield from _runs(inner, loads)
    yield from _by_use(run)


def _by_use(run: Mapping[Var, Stmt | None]) -> Iterator[tuple[Var, ...]]:
    for use in dict.fromkeys(run.values()):
        yield tuple(tile for tile, first in run.items() if first is use)


def _uses(stmt: Stmt, tile: Var) -> bool:
    return any(tile in set(buffers(inner)) for inner in walk((stmt,)))


def _ring(
    tiles: tuple[Var, ...],
    loads: Mapping[Var, list[Copy]],
    launch: Launch,
    program: Program,
    wide: Set[Stmt],
) -> Ring:
    copies = [copy for tile in tiles for copy in loads[tile]]
    stages = max(_stages(copy, program) for copy in copies)
    readers = [stmt for stmt in walk(launch.body) if set(tiles) & set(buffers(stmt)) and stmt not in copies]
    size = sum(tile_bytes(Alloc(tile)) for tile in tiles)
    return Ring(tiles, stages, size, all(stmt in wide for stmt in readers))


def _stages(load: Copy, program: Program) -> int:
    """As many as the loop around it asks for; one where there is none."""
    loop = next((stmt for stmt in reversed(program.around[load]) if hasattr(stmt, "body")), None)
    if loop is None:
        return 1
    return max(_STAGES, loop.num_stages) if isinstance(loop, Pipelined) else _STAGES


def _fitted(rings: list[Ring], launch: Launch, target: Target) -> tuple[Ring, ...]:
    """The rings with as many stages as there is room for; the largest one loses them first. Results that
    leave through shared memory are given room where that keeps `_ENOUGH` stages."""
    assert target.gpu is not None
    tiles = {tile for ring in rings for tile in ring.tiles}
    allocs = (stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.buffer not in tiles)
    others = sum(tile_bytes(stmt) for stmt in allocs if stmt.buffer.scope() == "shared.dyn")
    room = target.gpu.shared_bytes - _RESERVED - others
    whole = _cut(rings, room)
    if whole is None:
        raise Unfit("its tiles do not fit shared memory with one stage each", remedy="choose smaller tiles")
    beside = _cut(rings, room - _staged_bytes(launch))
    pairs = zip(whole, beside or (), strict=False)
    fits = beside is not None and all(few.stages >= min(many.stages, _ENOUGH) for many, few in pairs)
    return beside if fits and beside is not None else whole


def _cut(rings: Sequence[Ring], room: int) -> tuple[Ring, ...] | None:
    """The rings with stages taken away until they fit; None where they do not with one each."""
    made = list(rings)
    while sum(ring.stages * ring.bytes for ring in made) > room:
        several = [ring for ring in made if ring.stages > 1]
        if not several:
            return None
        largest = max(several, key=lambda ring: ring.stages * ring.bytes)
        made = [replace(ring, stages=ring.stages - 1) if ring is largest else ring for ring in made]
    return tuple(made)


def _staged_bytes(launch: Launch) -> int:
    """Bytes of the largest result of up to 16 bits that leaves registers for a tensor."""
    sums = {stmt.c.buffer for stmt in walk(launch.body) if isinstance(stmt, Gemm)}
    sizes = [0]
    for stmt in walk(launch.body):
        loop = expand_copy(stmt) if isinstance(stmt, Copy) and stmt.src.buffer in sums else stmt
        for store in loop.body if isinstance(loop, Parallel) else ():
            if not isinstance(store, Store) or not store.buffer.scope().startswith("global"):
                continue
            size = element_bytes(str(store.buffer.dtype))
            if size <= _NARROW and sums & {load.source for load in loads(store.value)}:
                sizes.append(size * math.prod(int_value(extent) or 1 for extent in loop.extents))
    return max(sizes)


def versions(ring: Ring) -> dict[Var, Var]:
    """For each tile of a ring the tile of all of its stages."""
    return {
        tile: tirx.decl_buffer((ring.stages, *(int_value(extent) or 1 for extent in tile.shape)),
                               str(tile.dtype), name=str(tile.name), scope="shared.dyn")
        for tile in ring.tiles
    }  # fmt: skip
