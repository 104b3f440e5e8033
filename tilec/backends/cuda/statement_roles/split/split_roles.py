"""Launches whose warps get roles by what their statements do: a warp or a warpgroup loads, the author's
threads compute.

A load whose place the producer can know for itself (`slices`) goes to the producer, with the control flow
around it; everything else stays with the consumers. Boxes (`boxes`) are TMA, started by one thread of a warp,
which alone waits for room; where other loads of loops are among them (`loads`), a warpgroup carries these
out. The tiles become rings (`rings`): the `producer` fills the next stage in the order of the program, a
`consumer` waits for it before the first use and gives it back behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups, thread_count
from tilec.backends.cuda.analysis.pipelines.loads_ahead import load_of
from tilec.backends.cuda.analysis.products.fit_operands import fit
from tilec.backends.cuda.analysis.products.mma import MMA, sparse_tile
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.idioms.grids.open_tile_loops import OpenTileLoops
from tilec.backends.cuda.idioms.grids.part_flat_grids import PartFlatGrids
from tilec.backends.cuda.idioms.grids.walk_in_bands import WalkInBands
from tilec.backends.cuda.idioms.tiles.copy_boxes import CopyBoxes
from tilec.backends.cuda.idioms.trips.join_trips import joined as with_joined_trips
from tilec.backends.cuda.limits import hands_registers_on, has_tma, has_wgmma
from tilec.backends.cuda.nodes import EachTile, GridMeet
from tilec.backends.cuda.passes.threads.lower_threads import is_for_all
from tilec.backends.cuda.statement_roles.rings.plan import Plan, plan_rings
from tilec.backends.cuda.statement_roles.split.consumer import Consumer
from tilec.backends.cuda.statement_roles.split.join_loops import joined
from tilec.backends.cuda.statement_roles.split.loads import apart, filled, is_loop
from tilec.backends.cuda.statement_roles.split.made_tiles import with_made_tiles
from tilec.backends.cuda.statement_roles.split.opened_rings import OpenedRings
from tilec.backends.cuda.statement_roles.split.order import order_of
from tilec.backends.cuda.statement_roles.split.places import begun, in_step, places
from tilec.backends.cuda.statement_roles.split.producer import Producer
from tilec.backends.cuda.statement_roles.split.raw_tiles import with_raw_tiles
from tilec.backends.cuda.statement_roles.split.registers import MOST_GROUPS, handed_on
from tilec.backends.cuda.statement_roles.split.slices import Program
from tilec.backends.cuda.statement_roles.split.tile_turns import GROUPS, TileTurns, may_take_turns
from tilec.backends.cuda.statement_roles.split.uses import check_ends
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.strategy import check_hints, check_launch
from tilec.backends.cuda.warp_roles.unfit import (
    Unfit,
    need,
    refusal_of,
    refusals,
    without_refusals,
    without_roles,
)
from tilec.ir.analysis.renaming import copied
from tilec.ir.nodes import (
    PRODUCTS,
    Alloc,
    Block,
    Gemm,
    Kernel,
    Launch,
    Pipelined,
    ScaledGemm,
    SparseGemm,
    Stmt,
    Unscaled,
    While,
    children,
    is_global,
    walk,
)
from tilec.ir.nodes.barriers import (
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
from tilec.ir.nodes.threads import WARP, Return, Sync
from tilec.ir.options import NO_ROLES
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import buffers, mentioned
from tilec.lowering.analysis.roads import in_line_of, road_of, with_notes, with_roads
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

#: What orders threads of a block, or of a cluster.
_BARRIERS = (Arrive, ClusterBarrier, ClusterCopy, ExpectBytes, NamedArrive, WaitPhase)


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
    if not any(isinstance(stmt, PRODUCTS) for stmt in walk(launch.body)) or has_groups(launch):
        return launch
    copying = CopyBoxes().launch(launch)
    for form in dict.fromkeys((_with_joined_trips(kernel, copying, target), copying)):
        try:
            return _chosen(kernel, form, target, halves).made()
        except Unfit as found:
            unfit = found
    return launch if _is_told(launch, unfit) else without_roles(launch, unfit)


def _with_joined_trips(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    """A launch with trips as deep as the rows that wgmma reads."""
    chooser, warps = Chooser(launch, None), thread_count(launch) // WARP
    return with_joined_trips(kernel, launch, lambda gemm: has_wgmma(target) and chooser.takes(gemm, warps))


def _chosen(kernel: Kernel, launch: Launch, target: Target, halves: bool) -> _Roles:
    """The roles of a launch, in the form in which its loads run ahead the most."""
    turns = _in_turns(kernel, launch, target, halves)
    if turns is not None:
        return turns
    written = replace(launch, body=apart(launch.body))
    raw = with_raw_tiles(kernel, with_made_tiles(written), target)
    with suppress(Unfit):
        roles = None if raw is written else _roles(kernel, raw, target, halves)
        if roles is not None and roles.opened.run_ahead():
            return roles
    return _roles(kernel, written, target, halves)


def _in_turns(kernel: Kernel, launch: Launch, target: Target, halves: bool) -> _Roles | None:
    """The roles of a launch whose warpgroups take tiles in turns, where those of another form do: a launch
    over a grid of tiles for one whose author has blocks walk over them, and two warpgroups for one."""
    if not has_wgmma(target):
        return None
    form = launch
    for step in (OpenTileLoops(), PartFlatGrids(), WalkInBands()):
        form = step.launch(form)
    if thread_count(form) == WARPGROUP:
        form = replace(form, threads=(GROUPS * WARPGROUP, 1, 1))
    filling = [stmt for stmt in walk(form.body) if filled(stmt) is not None]
    if form is launch or not may_take_turns(form, filling):
        return None
    with suppress(Unfit):
        roles = _roles(kernel, replace(form, body=apart(form.body)), target, halves)
        return roles if roles.plan.turns > 1 else None
    return None


def runs_ahead(kernel: Kernel, launch: Launch, target: Target) -> bool:
    """Whether a launch would get roles here, with stages for all loads of loops to run ahead in."""
    if launch.thread_vars:
        return False
    written = replace(launch, body=apart(launch.body))
    try:
        raw = with_raw_tiles(kernel, with_made_tiles(written), target)
        return _roles(kernel, raw, target).opened.run_ahead()
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
    need(not launch.thread_vars, "its author names single threads")
    roles = _roles(kernel, replace(launch, body=apart(launch.body)), target)
    by_threads = any(ring.by_threads for ring in roles.rings)
    need(not by_threads, "its producer would load by threads what TMA does not bring")


def _roles(kernel: Kernel, launch: Launch, target: Target, halves: bool = False) -> _Roles:
    wide = _check(launch, target)
    program = Program.of(launch.body, changed_in(launch))
    halved = {stmt.b.buffer for stmt in walk(launch.body) if halves and isinstance(stmt, Gemm)}
    plan = plan_rings(kernel, launch, program, wide, target, halved)
    _check_left(program, plan)
    _check_behind(launch, program, plan)
    check_ends(launch.body, plan)
    return _Roles(OpenedRings(launch, program, plan), hands_registers_on(target))


def _is_told(launch: Launch, unfit: Unfit) -> bool:
    """Whether a strategy has told why there are no roles, of the line that is to blame here."""
    line = None if unfit.stmt is None or unfit.stmt.loc is None else unfit.stmt.loc.line
    return any(line in (None, road.line) for road in refusals(launch))


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
    stmts = list(walk(launch.body))
    _check_threads(launch, target, stmts)
    odd = next(_ordered(launch.body, False), None)
    need(odd is None, "its author orders threads by barriers", odd)
    products = [stmt for stmt in stmts if isinstance(stmt, Unscaled)]
    chooser, by_groups = Chooser(launch, None), has_wgmma(target)
    found = {
        gemm: chooser.product(gemm, threads // WARP)
        if by_groups
        else sparse_tile(gemm, threads // WARP, target)
        if isinstance(gemm, SparseGemm)
        else MMA.tile(fit(gemm, target).gemm, threads // WARP, target)
        for gemm in products
    }
    reason = next((each for each in found.values() if isinstance(each, str)), None)
    fast: set[Stmt] = {gemm for gemm, each in found.items() if not isinstance(each, str)}
    has_scaled = any(isinstance(stmt, ScaledGemm) for stmt in stmts)
    need(bool(fast) or has_scaled, str(reason), products[0] if products else None)
    return fast if by_groups else set()


def _check_threads(launch: Launch, target: Target, stmts: list[Stmt]) -> None:
    """Unfit for a launch whose author names threads in a way that other threads beside them change."""
    if not launch.thread_vars:
        return
    need(has_wgmma(target), "its author names single threads")
    in_line = launch.threads[0] == thread_count(launch)
    need(in_line, "its author names threads along several axes", remedy="give T.Kernel one number of threads")
    for_all = next((stmt for stmt in stmts if isinstance(stmt, Return) or is_for_all(stmt)), None)
    need(for_all is None, "all threads of the block tell each other something, or some end", for_all)
    waiting = next((stmt for stmt in stmts if _may_wait_for_blocks(stmt)), None)
    need(waiting is None, "threads may wait for blocks that would have no room beside them", waiting)


def _may_wait_for_blocks(stmt: Stmt) -> bool:
    """Whether a loop may end by what another block writes: the author may count on several of them a
    multiprocessor."""
    inside = walk((stmt,)) if isinstance(stmt, While) else ()
    return any(is_global(buffer) for each in inside for buffer in buffers(each))


def _ordered(block: Block, in_loop: bool) -> Iterator[Stmt]:
    """Statements by which an author orders threads: those of loops, and what all threads of a block come to.
    Outside of loops mbarriers, and what has no number, are for those who compute alone, and who has ended
    comes to no cluster's barrier."""
    for stmt in block:
        numbered = isinstance(stmt, Sync) and stmt.barrier is not None
        if numbered or isinstance(stmt, (GridMeet, BulkLoad, *(in_loop * (Sync, *_BARRIERS)))):
            yield stmt
        for inner in children(stmt):
            yield from _ordered(inner, in_loop or is_loop(stmt))


def _check_behind(launch: Launch, program: Program, plan: Plan) -> None:
    """Unfit for a launch in which threads meet, or do something one by one, in front of a load or in a loop
    around one: a producer knows of neither, and meets nobody. Behind these they are those who compute."""
    outer = {(*program.around[load], load)[0] for load in plan.loads}
    order = list(program.around)
    ends = [place for place, stmt in enumerate(order) if outer & {*program.around[stmt], stmt}]
    early = order[: max(ends, default=0) + 1]
    met = next((stmt for stmt in early if isinstance(stmt, Sync)), None)
    need(met is None, "threads meet in front of a load", met)
    names = set(launch.thread_vars)
    alone = next((stmt for stmt in early if names & mentioned(stmt)), None)
    need(alone is None, "single threads do something in front of a load", alone)


def _check_left(program: Program, plan: Plan) -> None:
    """Unfit for a launch with loads that would run ahead of their trips by cp.async and that no producer
    carries out: they would wait in every trip beside rings."""
    for stmt, around in program.around.items():
        load = load_of(stmt)
        ahead = any(isinstance(loop, Pipelined) and loop.num_stages > 1 for loop in around)
        carried = any(each in plan.loads for each in (stmt, *around))
        if load is None or not ahead or carried or load.tile in plan.tables:
            continue
        if str(load.source.dtype) == str(load.tile.dtype):
            raise Unfit(plan.kept.get(stmt, f"the places of {load.source.name} are computed"), stmt)


class _Roles:
    """The roles of one launch."""

    def __init__(self, opened: OpenedRings, hands_on: bool) -> None:
        self.opened, self._hands_on = opened, hands_on
        self.launch, self.plan, self.rings = opened.launch, opened.plan, opened.rings
        self.threads, self.loading = opened.threads, opened.loading
        steps = in_step(self.launch.body, self.rings, self.plan.loads)
        apart = {ring: ring for ring in self.rings}
        self._filling = places(apart if self.loading > WARP else steps, "filled")
        self._reading = places(steps, "read")

    def made(self) -> Launch:
        """The launch with its roles."""
        opened = self.opened
        allocs = {stmt.buffer: stmt for stmt in walk(self.launch.body) if isinstance(stmt, Alloc)}
        tiles = tuple(replace(allocs[tile], buffer=made, asked=None) for tile, made in opened.tiles.items())
        groups = self.threads // WARPGROUP
        registers = handed_on(groups, self.plan.loads.values(), self.launch.body) if self._hands_on else None
        producer, consumer = Producer(opened, self._filling), Consumer(opened, self._reading)
        consumed = joined(consumer.body(self.launch.body))
        load: Block = (*begun(self._filling), *self._tiles(producer.body()))
        threads = self.threads + (self.loading if registers is None else WARPGROUP)
        if self.loading < WARPGROUP and registers is not None:
            load = (Group(self.threads, self.loading, load),)
        load = (*_registers(registers, 0), *load)
        loading = Group(self.threads, threads - self.threads, load)
        told, computing = self._computing(consumed, registers)
        barriers = (*opened.barriers(self.threads // self.plan.turns), *told)
        made = replace(
            self.launch,
            threads=(threads, 1, 1),
            body=(*tiles, *barriers, loading, *computing),
            roads=without_refusals(self.launch.roads),
        )
        own = in_line_of(self._road(groups), self.launch)
        return with_notes(with_roads(made, (own, *producer.roads, *self._left())), self._told())

    def _computing(self, block: Block, registers: tuple[int, int] | None) -> tuple[Block, Block]:
        """The threads that compute, as one group or as several that take tiles in turns, and in front of them
        the barriers of these."""
        begin, groups = (*_registers(registers, 1), *begun(self._reading)), self.plan.turns
        if groups == 1:
            return (), (Group(0, self.threads, (*begin, *self._tiles(block))),)
        turns = TileTurns(groups, block, tuple(dict.fromkeys(self._reading.values())))
        own = (
            (*begin, *turns.begin(turn), *self._tiles(turns.tile(turn), *turns.falls_to(turn)))
            for turn in range(groups)
        )
        made = (Group(turn * WARPGROUP, WARPGROUP, copied(body)) for turn, body in enumerate(own))
        return (turns.barriers(),), tuple(made)

    def _road(self, groups: int) -> Road:
        """What the launch has become."""
        stages = ", ".join(f"{tile.name} {ring.stages}" for ring in self.rings for tile in ring.tiles)
        who = "warp" if self.loading == WARP else "warpgroup"
        kind = "rings" if any(ring.by_threads for ring in self.rings) else "TMA rings"
        turns = " that take tiles in turns" if self.plan.turns > 1 else ""
        how = f"a loading {who}, computing warpgroups {groups}{turns}, {kind} of {stages} stages"
        return Road("T.Kernel", "warp_roles", f"warp roles: {how}")

    def _told(self) -> Iterator[str]:
        """Why no strategy, of those that know what such a launch does, has taken it."""
        for road in refusals(self.launch):
            yield f"its statements tell its roles, no strategy does: {road.loss}"

    def _tiles(self, body: Block, turn: int = 0, turns: int = 1) -> Block:
        """What a role does, for every tile of a block that walks whose ``turn`` it is."""
        loads, guarded = list(self.plan.loads), self.plan.turns > 1
        band = order_of(self.launch, self.opened.program, loads, self.threads, guarded)
        return body if band is None else (EachTile(self.launch.grid, body, band, turn=turn, turns=turns),)

    def _left(self) -> Iterator[Road]:
        """Loads of loops that stay with those who compute, and why: what a strategy has said of them, too."""
        for stmt, around in self.opened.program.around.items():
            if self.opened.is_load(stmt) or not any(map(is_loop, around)):
                continue
            known = refusal_of(self.launch, stmt)
            if stmt in self.plan.kept:
                loss = Loss("tma", self.plan.kept[stmt], "docs/cuda.md lists what producers take")
            elif load_of(stmt) is not None and known is not None:
                loss = known
            else:
                continue
            yield road_of(stmt, "threads", "loaded by the threads that compute, in its trip", loss)


def _registers(registers: tuple[int, int] | None, role: int) -> Block:
    return () if registers is None else (SetRegisters(registers[role], bool(role)),)
