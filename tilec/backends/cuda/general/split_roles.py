"""Launches whose warps get roles by what their statements do: one warp loads boxes, the author's threads
compute.

A load whose place the producer can know for itself (`slices`) and that is a box (`boxes`) goes to the
producer, with the control flow around it; everything else stays with the consumers. The tiles become rings
(`rings`): the producer fills the next stage in the order of the program, consumers wait for it before the
first use and give it back behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.loads_ahead import load_of
from tilec.backends.cuda.analysis.threads import has_groups, thread_count
from tilec.backends.cuda.analysis.versions import with_versions
from tilec.backends.cuda.analysis.wgmma import Chooser
from tilec.backends.cuda.general.order import band_of, walks
from tilec.backends.cuda.general.registers import HANDED_ON
from tilec.backends.cuda.general.rings import Ring, fills, is_load, plan_rings, versions
from tilec.backends.cuda.general.slices import Program, all_needed
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import ArriveOnce, BoxLoad, EachTile, GiveBack, GridMeet, SetRegisters
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.strategy import check_hints, check_launch
from tilec.backends.cuda.warp_roles.unfit import Unfit, need, without_refusals, without_roles
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Bind,
    Block,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    Store,
    While,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier, Group, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.ir.options import NO_ROLES
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import in_line_of, road_of, with_roads
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Threads of the warp that loads.
_WARP = 32


class SplitRoles(Pass):
    """In: launches that no strategy has taken. Out: those that load boxes and multiply have a group of
    threads that loads behind their own threads; others have the reason among their roads."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its roles."""
        if not has_wgmma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: _split(kernel, launch, target))


def _split(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    if not any(isinstance(stmt, Gemm) for stmt in walk(launch.body)) or has_groups(launch):
        return launch
    try:
        wide = _check(launch)
        program = Program.of(launch.body, changed_in(launch))
        rings, kept = plan_rings(kernel, launch, program, wide, target)
        _check_left(program, rings, kept)
        return _Roles(launch, program, rings, kept).made()
    except Unfit as unfit:
        told = unfit.stmt is None and without_refusals(launch.roads) != launch.roads
        return launch if told else without_roles(launch, unfit)


def _check(launch: Launch) -> set[Stmt]:
    """The products that wgmma carries out. Unfit for a launch whose threads cannot be given roles."""
    check_launch(launch)
    check_hints(launch)
    threads = thread_count(launch)
    need(
        threads % WARPGROUP == 0 and threads // WARPGROUP in HANDED_ON,
        f"{threads} threads are not one to {max(HANDED_ON)} warpgroups",
        remedy="give T.Kernel threads=128, 256 or 384",
    )
    need(not launch.thread_vars, "its author names single threads")
    odd = next((stmt for stmt in walk(launch.body) if isinstance(stmt, (AllocBarrier, Sync, GridMeet))), None)
    need(odd is None, "its author orders threads by barriers", odd)
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    chooser = Chooser(launch, None)
    found = {gemm: chooser.product(gemm, threads // _WARP) for gemm in products}
    reason = next((each for each in found.values() if isinstance(each, str)), None)
    wide: set[Stmt] = {gemm for gemm, each in found.items() if not isinstance(each, str)}
    need(bool(wide), str(reason), products[0])
    return wide


def _check_left(program: Program, rings: tuple[Ring, ...], kept: Mapping[Stmt, str]) -> None:
    """Unfit for a launch with loads that would run ahead of their trips by cp.async and not by TMA: they
    would wait in every trip beside rings."""
    tiles = {tile for ring in rings for tile in ring.tiles}
    for stmt, around in program.around.items():
        load = load_of(stmt)
        ahead = any(isinstance(loop, Pipelined) and loop.num_stages > 1 for loop in around)
        if load is None or not ahead or load.tile in tiles:
            continue
        if str(load.source.dtype) == str(load.tile.dtype):
            raise Unfit(kept.get(stmt, f"the places of {load.source.name} are computed"), stmt)


class _Place:
    """Where a role stands in a ring: variables of its threads for the stage and the parity of the round."""

    def __init__(self, ring: Ring, role: str) -> None:
        self.ring = ring
        self.stage, self.parity = (
            tirx.decl_buffer((1,), "int32", name=f"{ring.name}_{word}_{role}", scope="local.var")
            for word in ("stage", "round")
        )

    def begin(self) -> Block:
        """The first stage of the first round."""
        zero = tirx.const(0, "int32")
        return Alloc(self.stage, init=zero), Alloc(self.parity, init=zero)

    def now(self) -> tuple[Block, Var, Var]:
        """Names for the stage and the parity at hand."""
        stage, parity = tirx.Var("stage", "int32"), tirx.Var("parity", "int32")
        first, stages = (tirx.const(number, "int32") for number in (0, self.ring.stages))
        value = first if self.ring.stages == 1 else _value(self.stage)
        known = Assume(tirx.And(stage >= first, stage < stages))
        return (Bind(stage, value), known, Bind(parity, _value(self.parity))), stage, parity

    def advance(self, stage: Var, parity: Var) -> Block:
        """On to the next stage."""
        zero, one = (tirx.const(number, "int32") for number in (0, 1))
        other = tirx.bitwise_xor(parity, one)
        if self.ring.stages == 1:
            return (Store(self.parity, (zero,), other),)
        last = tirx.EQ(stage, tirx.const(self.ring.stages - 1, "int32"))
        return (
            Store(self.parity, (zero,), tirx.Select(last, other, parity)),
            Store(self.stage, (zero,), tirx.Select(last, zero, stage + one)),
        )


def _value(buffer: Var) -> Expr:
    return tirx.BufferLoad(buffer, [tirx.const(0, "int32")])


class _Roles:
    """The roles of one launch. ``kept``: why loads stay with those who compute."""

    def __init__(
        self, launch: Launch, program: Program, rings: tuple[Ring, ...], kept: Mapping[Stmt, str]
    ) -> None:
        self.launch, self.program, self.rings, self.kept = launch, program, rings, kept
        self.threads = thread_count(launch)
        self.tiles = {tile: made for ring in rings for tile, made in versions(ring).items()}
        self.full = {ring: _barriers(ring, "full") for ring in rings}
        self.empty = {ring: _barriers(ring, "empty") for ring in rings}
        self.filling = {ring: _Place(ring, "filled") for ring in rings}
        self.reading = {ring: _Place(ring, "read") for ring in rings}
        self.roads: list[Road] = []

    def made(self) -> Launch:
        """The launch with its roles."""
        allocs = {stmt.buffer: stmt for stmt in walk(self.launch.body) if isinstance(stmt, Alloc)}
        tiles = tuple(replace(allocs[tile], buffer=made, asked=None) for tile, made in self.tiles.items())
        registers = HANDED_ON[self.threads // WARPGROUP]
        consumed, produced = self._tiles(self._consumed(self.launch.body)), self._tiles(self._produced())
        consumer = (*self._registers(registers, 1), *self._begin(self.reading), *consumed)
        load = Group(self.threads, _WARP, (*self._begin(self.filling), *produced))
        producer: Stmt = load
        threads = self.threads + _WARP
        if registers is not None:
            threads = self.threads + WARPGROUP
            producer = Group(self.threads, WARPGROUP, (*self._registers(registers, 0), load))
        body = (*tiles, *self._barriers(), producer, Group(0, self.threads, consumer))
        made = replace(
            self.launch,
            threads=(threads, 1, 1),
            body=body,
            roads=without_refusals(self.launch.roads),
        )
        stages = ", ".join(f"{tile.name} {ring.stages}" for ring in self.rings for tile in ring.tiles)
        groups = self.threads // WARPGROUP
        how = f"a loading warp, computing warpgroups {groups}, TMA rings of {stages} stages"
        own = in_line_of(Road("T.Kernel", "warp_roles", f"warp roles: {how}"), self.launch)
        return with_roads(made, (own, *self.roads, *self._left()))

    def _tiles(self, body: Block) -> Block:
        """What a role does, for every tile of a block that walks."""
        loads = [stmt for stmt in self.program.around if self._is_load(stmt)]
        band = band_of(self.launch, self.program, loads)
        if not band or not walks(self.launch, self.program, self.threads):
            return body
        return (EachTile(self.launch.block_vars, self.launch.grid, body, band),)

    def _left(self) -> Iterator[Road]:
        """Loads of loops that stay with those who compute, and why: what a strategy has said of them, too."""
        said = {road.line: road.loss for road in self.launch.roads if road not in without_refusals([road])}
        for stmt, around in self.program.around.items():
            if self._is_load(stmt) or not any(map(_is_loop, around)):
                continue
            known = None if stmt.loc is None else said.get(stmt.loc.line)
            if is_load(stmt):
                loss = Loss("tma", self.kept[stmt], "docs/cuda.md lists what TMA takes")
            elif load_of(stmt) is not None and known is not None:
                loss = replace(known, road="tma")
            else:
                continue
            yield road_of(stmt, "threads", "loaded by the threads that compute, in its trip", loss)

    def _registers(self, registers: tuple[int, int] | None, role: int) -> Block:
        return () if registers is None else (SetRegisters(registers[role], bool(role)),)

    def _begin(self, places: Mapping[Ring, _Place]) -> Block:
        return tuple(stmt for place in places.values() for stmt in place.begin())

    def _barriers(self) -> Block:
        made: list[Stmt] = []
        for ring in self.rings:
            readers = self.threads // WARPGROUP if ring.by_products else self.threads
            made.append(AllocBarrier(self.full[ring], (1,) * ring.stages))
            made.append(AllocBarrier(self.empty[ring], (readers,) * ring.stages))
        return tuple(made)

    # ---- the producer ----

    def _produced(self) -> Block:
        """The loads and what they need."""
        loads = [stmt for stmt in self.program.around if self._is_load(stmt)]
        kept = all_needed(self.program, loads)
        return copied(self._put(self.program.slice(kept)))

    def _is_load(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Copy) and stmt.dst.buffer in self.tiles

    def _put(self, block: Block) -> Block:
        """A block with its loads into the next stages."""
        made: list[Stmt] = []
        done: set[Stmt] = set()
        for position, stmt in enumerate(block):
            if stmt in done:
                continue
            if not isinstance(stmt, Copy):
                made.append(_serial(with_children(stmt, [self._put(inner) for inner in children(stmt)])))
                continue
            ring = self._ring(stmt.dst.buffer)
            loads = [each for each in block[position:] if self._loads(each, ring)][: len(ring.tiles)]
            done.update(loads)
            made += [
                bind
                for bind in block[position:]
                if isinstance(bind, Bind) and self._between(bind, block, loads)
            ]
            done.update(stmt for stmt in made if isinstance(stmt, Bind))
            made += self._filled(ring, loads)
        return tuple(made)

    def _between(self, bind: Stmt, block: Block, loads: list[Stmt]) -> bool:
        """Whether a name stands between loads that go together."""
        return block.index(loads[0]) < block.index(bind) < block.index(loads[-1])

    def _loads(self, stmt: Stmt, ring: Ring) -> bool:
        return isinstance(stmt, Copy) and stmt.dst.buffer in ring.tiles

    def _ring(self, tile: Var) -> Ring:
        return next(ring for ring in self.rings if tile in ring.tiles)

    def _filled(self, ring: Ring, loads: list[Copy]) -> Block:
        place = self.filling[ring]
        names, stage, parity = place.now()
        one = tirx.const(1, "int32")
        boxes = [self._box(load, ring, stage) for load in loads]
        return (
            *names,
            WaitPhase(self.empty[ring], stage, tirx.bitwise_xor(parity, one)),
            ArriveOnce(self.full[ring], stage, tirx.const(ring.bytes, "int32")),
            *boxes,
            *place.advance(stage, parity),
        )

    def _box(self, load: Copy, ring: Ring, stage: Var) -> BoxLoad:
        tile = load.dst.buffer
        zero = tirx.const(0, "int32")
        dst = replace(
            load.dst,
            buffer=self.tiles[tile],
            start=(stage, *(zero for _ in tile.shape)),
            extent=(1, *load.dst.extent),
        )
        self.roads.append(road_of(load, "tma", f"TMA, ring of {ring.stages} stages"))
        return BoxLoad(load.src, dst, self.full[ring], stage, load.hints.eviction, loc=load.loc)

    # ---- the consumers ----

    def _consumed(self, block: Block) -> Block:
        """A block without its loads, with waits before the first uses of what they bring."""
        before: dict[int, list[Stmt]] = {}
        after: dict[int, list[Stmt]] = {}
        stmts = list(block)
        for ring in self.rings:
            puts = [i for i, stmt in enumerate(block) if fills(stmt, ring.tiles[0]) and self._is_load(stmt)]
            for number, first in enumerate(puts):
                end = puts[number + 1] if number + 1 < len(puts) else len(block)
                self._used(ring, stmts, range(first + 1, end), before, after)
        made: list[Stmt] = []
        for position, stmt in enumerate(stmts):
            made += before.get(position, ())
            if not self._is_load(stmt) and not (isinstance(stmt, Alloc) and stmt.buffer in self.tiles):
                made.append(_serial(with_children(stmt, [self._consumed(inner) for inner in children(stmt)])))
            made += after.get(position, ())
        return tuple(made)

    def _used(
        self,
        ring: Ring,
        stmts: list[Stmt],
        span: range,
        before: dict[int, list[Stmt]],
        after: dict[int, list[Stmt]],
    ) -> None:
        """Waits for a stage and gives it back, around its uses among ``stmts[span]``."""
        uses = [i for i in span if _uses(stmts[i], ring) and not self._is_load(stmts[i])]
        first, last = (uses[0], uses[-1]) if uses else (span.start - 1, span.start - 1)
        place = self.reading[ring]
        names, stage, parity = place.now()
        wait = WaitPhase(self.full[ring], stage, parity)
        before.setdefault(first, []).extend([*names, wait, *place.advance(stage, parity)])
        tiles = tuple(self.tiles[tile] for tile in ring.tiles)
        after.setdefault(last, []).append(GiveBack(self.empty[ring], stage, tiles, ring.by_products))
        for index in uses:
            redirected = {tile: (self.tiles[tile], stage) for tile in ring.tiles}
            (stmts[index],) = with_versions((stmts[index],), redirected)


def _is_loop(stmt: Stmt) -> bool:
    return isinstance(stmt, (For, Pipelined, While))


def _uses(stmt: Stmt, ring: Ring) -> bool:
    return any(set(ring.tiles) & set(buffers(inner)) for inner in walk((stmt,)))


def _barriers(ring: Ring, word: str) -> Var:
    return tirx.decl_buffer((ring.stages,), "uint64", name=f"{ring.name}_{word}", scope=SCOPE)


def _serial(stmt: Stmt) -> Stmt:
    """A pipelined loop as a loop: its loads have rings."""
    if not isinstance(stmt, Pipelined):
        return stmt
    one = tirx.const(1, dtype_of(stmt.var))
    return For("serial", stmt.var, stmt.start, stmt.stop, one, stmt.body, loc=stmt.loc)
