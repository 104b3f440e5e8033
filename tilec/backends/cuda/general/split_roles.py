"""Launches whose warps get roles by what their statements do: a warp or a warpgroup loads, the author's
threads compute.

A load whose place the producer can know for itself (`slices`) goes to the producer, with the control flow
around it; everything else stays with the consumers. Boxes (`boxes`) are TMA, started by one thread of a warp,
which alone waits for room; where other loads of loops are among them (`loads`), a warpgroup carries these
out. The tiles become rings
(`rings`): the producer fills the next stage in the order of the program, consumers wait for it before the
first use and give it back behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.fit_operands import fit
from tilec.backends.cuda.analysis.loads_ahead import load_of
from tilec.backends.cuda.analysis.mma import MMA
from tilec.backends.cuda.analysis.threads import has_groups, thread_count
from tilec.backends.cuda.analysis.versions import with_versions
from tilec.backends.cuda.analysis.wgmma import Chooser
from tilec.backends.cuda.general.join_loops import joined
from tilec.backends.cuda.general.lanes import by_lanes
from tilec.backends.cuda.general.loads import Load, apart, is_loop
from tilec.backends.cuda.general.look_ups import ahead_of_loops, with_look_ups
from tilec.backends.cuda.general.made_tiles import with_made_tiles
from tilec.backends.cuda.general.order import order_of
from tilec.backends.cuda.general.places import Known, begun, in_step, places
from tilec.backends.cuda.general.raw_tiles import is_read_first, with_raw_tiles
from tilec.backends.cuda.general.registers import MOST_GROUPS, handed_on
from tilec.backends.cuda.general.rings import Plan, Ring, plan_rings, versions
from tilec.backends.cuda.general.slices import Program, all_needed
from tilec.backends.cuda.general.uses import check_ends, uses_of
from tilec.backends.cuda.limits import hands_registers_on, has_tma, has_wgmma
from tilec.backends.cuda.nodes import (
    ArriveLanded,
    ArriveOnce,
    BoxLoad,
    EachTile,
    GiveBack,
    GridMeet,
    WaitLanded,
)
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.strategy import check_hints, check_launch
from tilec.backends.cuda.warp_roles.unfit import Unfit, need, without_refusals, without_roles
from tilec.ir.analysis.renaming import copied
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Pipelined,
    Region,
    ScaledGemm,
    Stmt,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import (
    SCOPE,
    AllocBarrier,
    Arrive,
    BulkLoad,
    ClusterBarrier,
    ClusterCopy,
    ExpectBytes,
    Group,
    NamedArrive,
    SetRegisters,
    WaitPhase,
)
from tilec.ir.nodes.threads import Sync
from tilec.ir.options import NO_ROLES
from tilec.ir.roads import Loss, Road
from tilec.ir.serial import serial
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import in_line_of, road_of, with_notes, with_roads
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: What orders threads of a block, or of a cluster.
_BARRIERS = (Arrive, ClusterBarrier, ClusterCopy, ExpectBytes, NamedArrive, WaitPhase)
#: Threads of the warp that loads.
_WARP = 32


class SplitRoles(Pass):
    """In: launches that no strategy has taken. Out: those that load boxes and multiply have a group of
    threads that loads behind their own threads; others have the reason among their roads."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its roles."""
        if not has_tma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: split(kernel, launch, target))


def split(kernel: Kernel, launch: Launch, target: Target, halves: bool = False) -> Launch:
    """A launch with its roles. ``halves``: rings have the stages that there is room for where a block has
    half of each second operand, to which the launch has yet to be brought."""
    if not any(isinstance(stmt, (Gemm, ScaledGemm)) for stmt in walk(launch.body)) or has_groups(launch):
        return launch
    written = replace(launch, body=apart(launch.body))
    raw = with_raw_tiles(kernel, with_made_tiles(written), target)
    try:
        roles = None if raw is written else _roles(kernel, raw, target, halves)
    except Unfit:
        roles = None
    if roles is not None and roles.run_ahead():
        return roles.made()
    try:
        return _roles(kernel, written, target, halves).made()
    except Unfit as unfit:
        return launch if _is_told(launch, unfit) else without_roles(launch, unfit)


def runs_ahead(kernel: Kernel, launch: Launch, target: Target) -> bool:
    """Whether a launch would get roles here, with stages for all loads of loops to run ahead in."""
    written = replace(launch, body=apart(launch.body))
    try:
        return _roles(kernel, with_raw_tiles(kernel, with_made_tiles(written), target), target).run_ahead()
    except Unfit:
        return False


def loads_by_one_warp(kernel: Kernel, launch: Launch, target: Target) -> bool:
    """Whether a launch would get roles here, and TMA brings all that its producer loads."""
    try:
        check_one_warp_loads(kernel, launch, target)
    except Unfit:
        return False
    return True


def check_one_warp_loads(kernel: Kernel, launch: Launch, target: Target) -> None:
    """Unfit for a launch that would get no roles here, or whose producer loads what TMA does not bring."""
    roles = _roles(kernel, replace(launch, body=apart(launch.body)), target)
    need(roles.loading == _WARP, "its producer would load by threads what TMA does not bring")


def _roles(kernel: Kernel, launch: Launch, target: Target, halves: bool = False) -> _Roles:
    wide = _check(launch, target)
    program = Program.of(launch.body, changed_in(launch))
    halved = {stmt.b.buffer for stmt in walk(launch.body) if halves and isinstance(stmt, Gemm)}
    plan = plan_rings(kernel, launch, program, wide, target, halved)
    _check_left(program, plan)
    check_ends(launch.body, plan)
    return _Roles(launch, program, plan, hands_registers_on(target))


def _is_told(launch: Launch, unfit: Unfit) -> bool:
    """Whether a strategy has told why there are no roles, of the line that is to blame here."""
    line = None if unfit.stmt is None or unfit.stmt.loc is None else unfit.stmt.loc.line
    return any(line in (None, road.line) for road in _refused(launch))


def _refused(launch: Launch) -> list[Road]:
    """What strategies have said of a launch that they have not taken."""
    return [road for road in launch.roads if road not in without_refusals([road])]


def _check(launch: Launch, target: Target) -> set[Stmt]:
    """The products that wgmma carries out. Unfit for a launch whose threads cannot be given roles, and for
    one without products on tensor cores, by wgmma where the target has it. Products with scales are on them
    wherever `ExpandScaled` has left some."""
    check_launch(launch)
    check_hints(launch)
    threads = thread_count(launch)
    need(
        threads % WARPGROUP == 0 and threads // WARPGROUP <= MOST_GROUPS,
        f"{threads} threads are not one to {MOST_GROUPS} warpgroups",
        remedy="give T.Kernel threads=128, 256 or 384",
    )
    need(not launch.thread_vars, "its author names single threads")
    odd = next(_ordered(launch.body, False), None)
    need(odd is None, "its author orders threads by barriers", odd)
    stmts = list(walk(launch.body))
    products = [stmt for stmt in stmts if isinstance(stmt, Gemm)]
    chooser, by_groups = Chooser(launch, None), has_wgmma(target)
    found = {
        gemm: chooser.product(gemm, threads // _WARP)
        if by_groups
        else MMA.tile(fit(gemm, target).gemm, threads // _WARP, target)
        for gemm in products
    }
    reason = next((each for each in found.values() if isinstance(each, str)), None)
    fast: set[Stmt] = {gemm for gemm, each in found.items() if not isinstance(each, str)}
    has_scaled = any(isinstance(stmt, ScaledGemm) for stmt in stmts)
    need(bool(fast) or has_scaled, str(reason), products[0] if products else None)
    return fast if by_groups else set()


def _ordered(block: Block, in_loop: bool) -> Iterator[Stmt]:
    """Statements by which an author orders threads: those of loops, and what all threads of a block come to.
    Outside of loops mbarriers are for those who compute alone, and who has ended comes to no cluster's
    barrier."""
    for stmt in block:
        if isinstance(stmt, (Sync, GridMeet, BulkLoad)) or (in_loop and isinstance(stmt, _BARRIERS)):
            yield stmt
        for inner in children(stmt):
            yield from _ordered(inner, in_loop or is_loop(stmt))


def _check_left(program: Program, plan: Plan) -> None:
    """Unfit for a launch with loads that would run ahead of their trips by cp.async and that no producer
    carries out: they would wait in every trip beside rings."""
    for stmt, around in program.around.items():
        load = load_of(stmt)
        ahead = any(isinstance(loop, Pipelined) and loop.num_stages > 1 for loop in around)
        if load is None or not ahead or stmt in plan.loads or load.tile in plan.tables:
            continue
        if str(load.source.dtype) == str(load.tile.dtype):
            raise Unfit(plan.kept.get(stmt, f"the places of {load.source.name} are computed"), stmt)


class _Roles:
    """The roles of one launch."""

    def __init__(self, launch: Launch, program: Program, plan: Plan, hands_on: bool) -> None:
        self.launch, self.program, self.plan, self.rings = launch, program, plan, plan.rings
        self.hands_on = hands_on
        self.threads = thread_count(launch)
        self.loading = WARPGROUP if any(ring.by_threads for ring in self.rings) else _WARP
        self.tiles = {tile: made for ring in self.rings for tile, made in versions(ring).items()}
        self.full = {ring: _barriers(ring, "full") for ring in self.rings}
        self.empty = {ring: _barriers(ring, "empty") for ring in self.rings}
        steps = in_step(launch.body, self.rings, plan.loads)
        apart = {ring: ring for ring in self.rings}
        self.filling = places(apart if self.loading > _WARP else steps, "filled")
        self.reading = places(steps, "read")
        self.looked_up = _only_looked_up(program, plan)
        self.roads: list[Road] = []
        self.places = 0

    def run_ahead(self) -> bool:
        """Whether all loads of loops have stages to run ahead in: one, where its tile is read first."""
        for stmt, load in self.plan.loads.items():
            trips = [each for each in self.program.around[stmt] if is_loop(each)]
            if trips and self._ring(stmt).stages == 1 and not is_read_first(load.tile, trips[-1]):
                return False
        return True

    def made(self) -> Launch:
        """The launch with its roles."""
        allocs = {stmt.buffer: stmt for stmt in walk(self.launch.body) if isinstance(stmt, Alloc)}
        tiles = tuple(replace(allocs[tile], buffer=made, asked=None) for tile, made in self.tiles.items())
        groups = self.threads // WARPGROUP
        registers = handed_on(groups, self.plan.loads.values(), self.launch.body) if self.hands_on else None
        consumed, produced = (
            self._tiles(joined(self._consumed(self.launch.body))),
            self._tiles(self._produced()),
        )
        consumer = (*self._registers(registers, 1), *begun(self.reading), *consumed)
        load: Block = (*begun(self.filling), *produced)
        threads = self.threads + (self.loading if registers is None else WARPGROUP)
        if self.loading < WARPGROUP and registers is not None:
            load = (Group(self.threads, self.loading, load),)
        producer = Group(self.threads, threads - self.threads, (*self._registers(registers, 0), *load))
        body = (*tiles, *self._barriers(), producer, Group(0, self.threads, consumer))
        made = replace(
            self.launch,
            threads=(threads, 1, 1),
            body=body,
            roads=without_refusals(self.launch.roads),
        )
        stages = ", ".join(f"{tile.name} {ring.stages}" for ring in self.rings for tile in ring.tiles)
        who = "warp" if self.loading == _WARP else "warpgroup"
        kind = "TMA rings" if self.loading == _WARP else "rings"
        how = f"a loading {who}, computing warpgroups {groups}, {kind} of {stages} stages"
        own = in_line_of(Road("T.Kernel", "warp_roles", f"warp roles: {how}"), self.launch)
        return with_notes(with_roads(made, (own, *self.roads, *self._left())), self._told())

    def _told(self) -> Iterator[str]:
        """Why no strategy, of those that know what such a launch does, has taken it."""
        for road in _refused(self.launch):
            yield f"its statements tell its roles, no strategy does: {road.loss}"

    def _tiles(self, body: Block) -> Block:
        """What a role does, for every tile of a block that walks."""
        band = order_of(self.launch, self.program, list(self.plan.loads), self.threads)
        return body if band is None else (EachTile(self.launch.grid, body, band),)

    def _left(self) -> Iterator[Road]:
        """Loads of loops that stay with those who compute, and why: what a strategy has said of them, too."""
        for stmt, around in self.program.around.items():
            if self._is_load(stmt) or not any(map(is_loop, around)):
                continue
            known = self._said(stmt)
            if stmt in self.plan.kept:
                loss = Loss("tma", self.plan.kept[stmt], "docs/cuda.md lists what producers take")
            elif load_of(stmt) is not None and known is not None:
                loss = known
            else:
                continue
            yield road_of(stmt, "threads", "loaded by the threads that compute, in its trip", loss)

    def _said(self, stmt: Stmt) -> Loss | None:
        """What a strategy says that keeps a load from TMA, if it blames its line."""
        refused = _refused(self.launch)
        losses = {road.line: road.loss for road in refused}
        known = None if stmt.loc is None else losses.get(stmt.loc.line)
        return None if known is None else replace(known, road="tma")

    def _registers(self, registers: tuple[int, int] | None, role: int) -> Block:
        return () if registers is None else (SetRegisters(registers[role], bool(role)),)

    def _barriers(self) -> Block:
        made: list[Stmt] = []
        for ring in self.rings:
            readers = self.threads // (WARPGROUP if ring.by_products else _WARP)
            writers = WARPGROUP if ring.by_threads else 1
            made.append(AllocBarrier(self.full[ring], (writers,) * ring.stages))
            made.append(AllocBarrier(self.empty[ring], (readers,) * ring.stages))
        return tuple(made)

    # ---- the producer ----

    def _produced(self) -> Block:
        """The loads and what they need."""
        kept = all_needed(self.program, self.plan.loads)
        return copied(ahead_of_loops(self._put(self.program.slice(kept, self.plan.loads))))

    def _is_load(self, stmt: Stmt) -> bool:
        return stmt in self.plan.loads

    def _put(self, block: Block) -> Block:
        """A block with its loads into the next stages."""
        made: list[Stmt] = []
        done: set[Stmt] = set()
        known: Known = {}
        for position, stmt in enumerate(block):
            if stmt in done:
                continue
            if not self._is_load(stmt):
                made.append(_serial(with_children(stmt, [self._put(inner) for inner in children(stmt)])))
                continue
            ring = self._ring(stmt)
            loads = [each for each in block[position:] if self._loads(each, ring)][: len(ring.tiles)]
            done.update(loads)
            made += [
                bind
                for bind in block[position:]
                if isinstance(bind, Bind) and self._between(bind, block, loads)
            ]
            done.update(stmt for stmt in made if isinstance(stmt, Bind))
            made += self._filled(ring, [self.plan.loads[each] for each in loads], known)
        return tuple(made)

    def _between(self, bind: Stmt, block: Block, loads: list[Stmt]) -> bool:
        """Whether a name stands between loads that go together."""
        return block.index(loads[0]) < block.index(bind) < block.index(loads[-1])

    def _loads(self, stmt: Stmt, ring: Ring) -> bool:
        return self._is_load(stmt) and self.plan.loads[stmt].tile in ring.tiles

    def _ring(self, stmt: Stmt) -> Ring:
        return next(ring for ring in self.rings if self._loads(stmt, ring))

    def _filled(self, ring: Ring, loads: list[Load], known: Known) -> Block:
        names, (stage, parity), behind = self.filling[ring].taken(ring, known)
        one = tirx.const(1, "int32")
        ahead: list[Stmt] = []
        if ring.by_threads:
            brought = [part for load in loads for part in self._threads(load, ring, stage, ahead)]
        else:
            expect = ArriveOnce(self.full[ring], stage, tirx.const(ring.brought, "int32"))
            brought = [expect, *(self._boxes(load, ring, stage, ahead) for load in loads)]
        made: Block = (
            *names,
            *ahead,
            *self._under(ring),
            WaitPhase(self.empty[ring], stage, tirx.bitwise_xor(parity, one)),
            *brought,
            *behind,
        )
        alone = not ring.by_threads and self.loading > _WARP
        return (Group(self.threads, _WARP, made),) if alone else made

    def _under(self, ring: Ring) -> Block:
        """Waits for the tiles where a ring will lie, which are filled once."""
        zero = tirx.const(0, "int32")
        under = [each for each in self.rings if ring.over and each.tiles == ring.over]
        return tuple(WaitPhase(self.empty[each], zero, zero) for each in under)

    def _threads(self, load: Load, ring: Ring, stage: Var, ahead: list[Stmt]) -> Block:
        """A load by all threads, each of which arrives when its part is there. What it looks up goes
        ``ahead``."""
        looked_up, own = with_look_ups(load.made, f"{ring.name}_{self.places}")
        self.places += 1
        ahead += looked_up
        made = with_versions((own,), {load.tile: (self.tiles[load.tile], stage)})
        size = load.width * element_bytes(str(load.tile.dtype))
        how = f"cp.async of {size} bytes" if size else "stores"
        how = f"{how} by the loading warpgroup, ring of {ring.stages} stages"
        for part in load.parts:
            loss = None
            if load.no_box is not None and isinstance(part, Copy):
                loss = Loss("tma", load.no_box, "docs/cuda.md lists what TMA takes")
            elif not isinstance(part, Copy):
                loss = self._said(part)
            self.roads.append(road_of(part, "cp.async" if size else "threads", how, loss))
        arrive = ArriveLanded if size else Arrive
        return (*made, arrive(self.full[ring], stage))

    def _boxes(self, load: Load, ring: Ring, stage: Var, ahead: list[Stmt]) -> Stmt:
        """A load by TMA. What the boxes of a loop look up goes ``ahead``."""
        boxes = {part: self._box(part, ring, stage) for part in load.parts}
        if not isinstance(load.stmt, For):
            return boxes[load.stmt]
        loop = replace(load.stmt, body=tuple(boxes.get(part, part) for part in load.stmt.body))  # type: ignore[call-overload]
        looked_up, made = by_lanes(loop)
        ahead += looked_up
        return made

    def _box(self, copy: Stmt, ring: Ring, stage: Var) -> BoxLoad:
        assert isinstance(copy, Copy)
        tile = self.tiles[copy.dst.buffer]
        dst = Region(tile, (stage, *copy.dst.start), (1, *copy.dst.extent))
        self.roads.append(road_of(copy, "tma", f"TMA, ring of {ring.stages} stages"))
        return BoxLoad(copy.src, dst, self.full[ring], stage, copy.hints.eviction, loc=copy.loc)

    # ---- the consumers ----

    def _consumed(self, block: Block) -> Block:
        """A block without its loads, with waits before the first uses of what they bring."""
        before: dict[int, list[Stmt]] = {}
        after: dict[int, list[Stmt]] = {}
        stmts = [with_children(stmt, [self._consumed(inner) for inner in children(stmt)]) for stmt in block]
        found = [(uses or [first], ring) for ring, first, uses in uses_of(block, self.plan)]
        known: Known = {}
        for uses, ring in sorted(found, key=lambda each: each[0][0]):
            self._used(ring, stmts, uses, before, after, known)
        made: list[Stmt] = []
        for position, stmt in enumerate(stmts):
            made += before.get(position, ())
            if not self._is_left_out(block[position]):
                made.append(_serial(stmt))
            made += after.get(position, ())
        return tuple(made)

    def _is_left_out(self, stmt: Stmt) -> bool:
        """Whether those who compute have no such statement."""
        of_ring = isinstance(stmt, Alloc) and stmt.buffer in self.tiles
        return self._is_load(stmt) or of_ring or stmt in self.looked_up

    def _used(
        self,
        ring: Ring,
        stmts: list[Stmt],
        uses: list[int],
        before: dict[int, list[Stmt]],
        after: dict[int, list[Stmt]],
        known: Known,
    ) -> None:
        """Waits for a stage and gives it back, around its ``uses`` among the statements of a block."""
        names, (stage, parity), behind = self.reading[ring].taken(ring, known)
        wait = (WaitLanded if ring.is_fenced else WaitPhase)(self.full[ring], stage, parity)
        before.setdefault(uses[0], []).extend([*names, wait, *behind])
        tiles = tuple(self.tiles[tile] for tile in ring.tiles)
        after.setdefault(uses[-1], []).append(GiveBack(self.empty[ring], stage, tiles, ring.by_products))
        redirected = {tile: (self.tiles[tile], stage) for tile in ring.tiles}
        for index in uses:
            (stmts[index],) = with_versions((stmts[index],), redirected)


def _only_looked_up(program: Program, plan: Plan) -> set[Stmt]:
    """The statements that bring what only the producer looks up: those who compute need none of them."""
    moved = {inner for load in plan.loads for inner in walk((load,))}
    found: set[Stmt] = set()
    for table in plan.tables:
        givers = {stmt for writer in program.writers.get(table, ()) for stmt in walk((writer,))}
        users = {stmt for stmt in program.around if table in set(buffers(stmt))}
        if users <= givers | moved | {program.definers[table]}:
            found |= givers | {program.definers[table]}
    return found


def _barriers(ring: Ring, word: str) -> Var:
    return tirx.decl_buffer((ring.stages,), "uint64", name=f"{ring.name}_{word}", scope=SCOPE)


def _serial(stmt: Stmt) -> Stmt:
    """A pipelined loop as a loop: its loads have rings."""
    return serial(stmt, stmt.body) if isinstance(stmt, Pipelined) else stmt
