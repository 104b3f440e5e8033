"""Rings get more stages than their author asks for, where products would wait for loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.pipelines.ring_depth import wanted_stages
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.statement_roles.split.registers import handed_on
from tilec.backends.cuda.statement_roles.trips.pair_trips import PAIRED_STAGES, is_wide
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.exprs import inlined
from tilec.ir.exprs import loads as loads_in
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Pipelined,
    SparseGemm,
    Stmt,
    Store,
    Unscaled,
    walk,
)
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.emission.memory import tile_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.backends.cuda.statement_roles.rings.ring import Ring
    from tilec.backends.cuda.statement_roles.split.loads import Load
    from tilec.backends.cuda.statement_roles.split.slices import Program
    from tilec.targets import Target

#: What of a trip keeps threads busy for no longer than products take.
_LIGHT = (Alloc, Bind, Fill, For, Gemm, If, Pipelined, SparseGemm, TurnTile)
#: Stages from which on one more gains less than room for what later passes need.
_MANY = 8


def deepened(
    rings: Sequence[Ring],
    loads: Mapping[Stmt, Load],
    launch: Launch,
    program: Program,
    target: Target,
    room: int,
    most: Mapping[tuple[Var, ...], float],
    latency: int,
) -> tuple[Ring, ...]:
    """``rings`` with the stages that their loops want, smaller ones first, as far as ``room`` bytes of shared
    memory go, divided by the blocks that a multiprocessor holds as it is; ``most``: as many as are filled;
    ``latency``: clocks that a load takes."""
    assert target.gpu is not None
    used = target.gpu.shared_bytes - room + sum(ring.taken for ring in rings)
    blocks = _blocks(launch, loads, used, target)
    free, passages = target.gpu.shared_bytes // blocks - used, _passages(launch)
    shifted = shifted_bytes(launch)
    made = list(rings)
    for ring in sorted(rings, key=lambda ring: ring.bytes):
        wanted = _wanted(ring, loads, program, target, blocks, latency)
        if wanted and launch.schedule.stages is not None:
            wanted = launch.schedule.stages
        more = int(min(min(wanted, most[ring.tiles]) - ring.stages, free // ring.bytes))
        more = min(more, (free - shifted) // ring.bytes)
        if ring.stages + more > _MANY:
            more = min(more, max((free - passages) // ring.bytes, _MANY - ring.stages))
        more = max(more, 0)
        made[made.index(ring)] = replace(ring, stages=ring.stages + more)
        free -= more * ring.bytes
    return tuple(made)


def _passages(launch: Launch) -> int:
    """Bytes of the tiles that fragments may pass through, where threads read elements of others: later passes
    make them."""
    held = (stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    return sum(tile_bytes(stmt) for stmt in held if stmt.buffer.scope() == "local.fragment")


def shifted_bytes(launch: Launch) -> int:
    """Bytes of the tiles that fragments do pass through, whatever their layouts are: threads reach an element
    beside their own."""
    reached = {
        access.buffer
        for stmt in walk(launch.body)
        if isinstance(stmt, Parallel)
        for access in accesses(stmt.body)
        if access.buffer.scope() == "local.fragment"
        and any(isinstance(index, (tirx.Add, tirx.Sub)) for index in access.indices)
    }
    return sum(tile_bytes(Alloc(buffer)) for buffer in reached)


def _blocks(launch: Launch, loads: Mapping[Stmt, Load], used: int, target: Target) -> int:
    """Blocks of so many bytes of shared memory that a multiprocessor holds: one where registers are handed
    on."""
    if handed_on(thread_count(launch) // WARPGROUP, loads.values()) is not None:
        return 1
    assert target.gpu is not None
    return max(target.gpu.shared_bytes // used, 1)


def _wanted(
    ring: Ring, loads: Mapping[Stmt, Load], program: Program, target: Target, blocks: int, latency: int
) -> int:
    """The stages that the loop around the loads of a ring wants; 0 outside of loops. Where threads are busy
    beside products, loads are early enough but those that look up their places, and those of tiles that two
    trips read at a time, which get another stage."""
    own = next(stmt for stmt, load in loads.items() if load.tile in ring.tiles)
    loop = next((stmt for stmt in reversed(program.around[own]) if isinstance(stmt, (For, Pipelined))), None)
    if loop is None:
        return 0
    brought = {inner for load in loads for inner in walk((load,))}
    alone = all(isinstance(stmt, _LIGHT) or stmt in brought for stmt in walk(loop.body))
    alone = alone or (blocks == 1 and _only_makes(loop.body, brought))
    looks_up = any(_looks_up(stmt, program) for stmt in walk((own,)))
    if alone or looks_up:
        wanted = wanted_stages(loop.body, target, blocks, 1 + looks_up, latency)
        return max(wanted, PAIRED_STAGES) if wanted and _makes_wide(loop.body, brought) else wanted
    return ring.stages + 1 if _spans_trips(ring, loop.body) else 0


def _spans_trips(ring: Ring, body: Block) -> bool:
    """Whether the first product of a trip and the last one read a ring, and that one alone stands behind
    arithmetic: it is issued in the next trip (`rotate_trips`), whose first product holds a stage of its own
    by then, and a load would have nothing but arithmetic to run beside (gradients of queries, heads of 128,
    on an H200: 1716 us with two stages of keys, 1596 with three)."""
    products = [stmt for stmt in walk(body) if isinstance(stmt, Gemm)]
    late = [stmt for stmt in products if stmt.a.buffer.scope() == "local.fragment"]
    ends = (products[0], products[-1]) if len(late) == 1 and late[0] is products[-1] else ()
    return bool(ends) and all(any(each.buffer in ring.tiles for each in (stmt.a, stmt.b)) for stmt in ends)


def _only_makes(body: Block, brought: Set[Stmt]) -> bool:
    """Whether threads touch no sums of a trip's products: they make operands beside those of other trips.
    Several blocks of a multiprocessor are beside each other anyway."""
    sums = {stmt.c.buffer for stmt in walk(body) if isinstance(stmt, Unscaled)}
    others = (stmt for stmt in walk(body) if not isinstance(stmt, _LIGHT) and stmt not in brought)
    return not any(sums & set(buffers(stmt)) for stmt in others)


def _makes_wide(body: Block, brought: Set[Stmt]) -> bool:
    """Whether threads make an operand of the only product of a trip, and trips are taken in pairs."""
    products = [stmt for stmt in walk(body) if isinstance(stmt, Gemm)]
    others = (stmt for stmt in walk(body) if not isinstance(stmt, _LIGHT) and stmt not in brought)
    return len(products) == 1 and is_wide(products[0]) and any(True for _ in others)


def _looks_up(stmt: Stmt, program: Program) -> bool:
    """Whether a part of a load reads a table to know its place."""
    places = stmt.src.start if isinstance(stmt, Copy) else ()
    if isinstance(stmt, Store):
        places = tuple(index for load in loads_in(stmt.value) for index in load.indices)
    names = values_of(program.definers.values())
    return any(True for place in places for _ in loads_in(inlined(place, names)))
