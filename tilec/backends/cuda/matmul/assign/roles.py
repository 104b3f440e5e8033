"""A matrix product's warps get roles: one warpgroup loads, the others compute and store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.pipelines.ring_depth import COLD_LATENCY, wanted_stages
from tilec.backends.cuda.analysis.pipelines.stages_that_fit import fewer_stages
from tilec.backends.cuda.matmul.assign.bands import bands
from tilec.backends.cuda.matmul.assign.choose import with_choices, with_room, with_stages
from tilec.backends.cuda.matmul.assign.clusters import crosses, pair_axis
from tilec.backends.cuda.matmul.assign.swap_operands import can_swap, swapped
from tilec.backends.cuda.matmul.match.boxes import Boxes, over_boxes
from tilec.backends.cuda.matmul.match.heads import is_straight
from tilec.backends.cuda.matmul.match.launch import Match, match
from tilec.backends.cuda.matmul.match.load_maps import is_gathered, load_map
from tilec.backends.cuda.matmul.nodes import MatmulRoles, MatrixView, Proceed, SumParts, TileOrder
from tilec.backends.cuda.warp_roles.nodes import TAKE_TURNS, Roles, WarpgroupTile
from tilec.backends.cuda.warp_roles.ring import version_bytes
from tilec.backends.cuda.warp_roles.stores import STAGING_BUFFERS, STAGING_BYTES, parts_bytes, staging_room
from tilec.backends.cuda.warp_roles.strategy import Plan, check_launch
from tilec.backends.cuda.warp_roles.unfit import TooLarge, Unfit, about, need
from tilec.backends.cuda.warp_roles.wgmma import GATHERED_ROWS, check_registers, holds, roles, warpgroup_tile
from tilec.errors import CompileError, Kind
from tilec.ir.exprs import int_value, uses
from tilec.ir.nodes import Alloc, Bind, Fill, Gemm, Kernel, Launch, Stmt, Store, is_global, walk
from tilec.ir.places import place_of
from tilec.ir.schedule import Schedule
from tilec.ir.traits import expressions
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite

if TYPE_CHECKING:
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Blocks of a cluster that any device takes (CUDA C++ Programming Guide, "Thread Block Clusters").
_MOST_PARTS = 8


def launch_facts(kernel: Kernel, launch: Launch, found: Match) -> Facts:
    """What is known inside a launch's body, before its loop."""
    scope = ScopedRewrite(kernel, launch)
    for bind in found.head:
        scope.stmt(bind)
    return scope.facts


def plan(kernel: Kernel, launch: Launch, target: Target) -> Plan:
    """A launch that is one pipelined product with an elementwise epilogue: its loads in the producer, the
    rest in the consumers, over a persistent grid. As it stands, or transposed where the config asks for it,
    or where its rows are too few and nobody forbids it. Unfit where it is something else."""
    views = tuple(stmt for stmt in launch.body if isinstance(stmt, MatrixView))
    if views:
        launch = replace(launch, body=tuple(stmt for stmt in launch.body if stmt not in views))
    asked = swapped(launch) if launch.schedule.swap else None
    boxes = over_boxes(kernel, asked or launch)
    boxes = replace(boxes, views=(*views, *boxes.views))
    try:
        return _planned(kernel, boxes, target)
    except Unfit as unfit:
        turned = None if launch.schedule.swap is not None else swapped(boxes.launch, few_rows=True)
        if turned is None:
            raise
        try:
            return _planned(kernel, replace(boxes, launch=turned), target)
        except (Unfit, CompileError):
            raise unfit from None


def _planned(kernel: Kernel, boxes: Boxes, target: Target) -> Plan:
    """A launch, seen as ``boxes``, with roles."""
    launch = boxes.launch
    try:
        asked = with_room(match(launch), launch.schedule)
        found = with_stages(asked, target)
        check_launch(launch)
        _check_results(found, launch.schedule)
        gathers = _gathers(kernel, launch, found)
        launch = with_notes(launch, fewer_stages(asked.loop, found.loop.num_stages, _shared_bytes(target)))
        launch = with_choices(launch, found, launch_facts(kernel, launch, found), gathers, target)
        schedule = launch.schedule
        turns = bool(schedule.pingpong)
        parts = roles(TAKE_TURNS if turns else found.warpgroups, turns, gathers)
        order = _order(kernel, launch, found, schedule)
        tile = _checked(found, parts, schedule, order, target)
        found = _deep(found, tile, parts, order, schedule.stages, target)
    except Unfit as unfit:
        obstacle = boxes.obstacle
        if obstacle is None:
            raise
        raise Unfit(f"{unfit}: {obstacle}", obstacle.stmt, obstacle.remedy) from unfit
    except TooLarge as broken:
        if not found.is_single:  # threads may hold several sums in other ways
            remedy = "choose smaller blocks, fewer stages or more threads"
            raise Unfit(str(broken), found.loop, remedy) from broken
        raise _refusal(kernel, launch, broken, target) from broken
    if parts.pingpong:
        found = _with_plain_ends(launch, found, launch_facts(kernel, launch, found))
    storage = [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
    body: tuple[Stmt, ...] = (
        *boxes.views,
        *(stmt for stmt in storage if stmt.buffer.scope() == "shared.dyn"),
        MatmulRoles(parts, order, _producer(found), _consumer(launch, found, tile, order)),
    )
    return Plan(replace(launch, threads=(parts.threads, 1, 1), body=body))


def _check_results(found: Match, schedule: Schedule) -> None:
    """Unfit where results are integers of 32 bits, which leave one by one here and in pairs by roles that
    statements tell (H200, 8192^3 804 us and 701, K of 1024 272 and 147), unless the config asks for what
    those roles have not."""
    own = (schedule.swap, schedule.split_k, schedule.spread_k, schedule.cluster, schedule.promote_k)
    if any(key is not None for key in own):
        return
    stores = (stmt for loop in found.tail for stmt in walk(loop.body) if isinstance(stmt, Store))
    words = next((stmt for stmt in stores if str(stmt.buffer.dtype) == "int32"), None)
    need(
        words is None or not is_global(words.buffer),
        "its results of int32 leave faster by other roles",
        words,
    )


def _gathers(kernel: Kernel, launch: Launch, found: Match) -> bool:
    """Whether loaders move an operand themselves. Unfit where neither they nor TMA can."""
    facts = launch_facts(kernel, launch, found)
    gathered = [is_gathered(copy, facts) for copy in found.loads]
    facts.bind_range(found.loop.var, found.loop.start, found.loop.stop)
    for bind in found.inner:
        facts.bind_value(bind.var, bind.value)
    for copy, by_hand in zip(found.loads, gathered, strict=True):
        if not by_hand:
            with about(copy):
                load_map(copy, facts)
            continue
        rows = int_value(copy.dst.extent[-2]) or 0
        need(
            rows % GATHERED_ROWS == 0,
            f"{rows} rows of {copy.src.buffer.name} are no multiple of {GATHERED_ROWS}",
            copy,
            f'give the dimension a guard such as "%8", for TMA, or tiles of {GATHERED_ROWS} rows',
        )
        inside = all(facts.prove(start >= 0) is True for start in copy.src.start)
        need(
            inside,
            f"rows of {copy.src.buffer.name} are unaligned, and its tiles may start in front of it",
            copy,
            'give the dimension a guard such as "%8", so that TMA loads it',
        )
    return any(gathered)


def _with_plain_ends(launch: Launch, found: Match, facts: Facts) -> Match:
    """The ends of the loop without names that are bound for one tile, where all tiles have the same:
    warpgroups that take turns count the trips of each other's tiles."""
    start, stop = facts.inline(found.loop.start), facts.inline(found.loop.stop)
    varies = any(uses(end, launch.block_vars) for end in (start, stop))
    return found if varies else replace(found, loop=replace(found.loop, start=start, stop=stop))


def _refusal(kernel: Kernel, launch: Launch, broken: TooLarge, target: Target) -> CompileError:
    return CompileError(
        f"the config of {kernel.name} does not fit {target.name}: {broken}",
        place=place_of(launch, "T.Kernel"),
        why="consumer warpgroups keep the accumulator in registers, a ring of stages in shared memory",
        remedy="choose smaller blocks, fewer stages or more threads in the config",
        kind=broken.kind,
    )


def _checked(
    found: Match,
    parts: Roles,
    schedule: Schedule,
    order: TileOrder,
    target: Target,
) -> WarpgroupTile:
    """A warpgroup's tile of the first product. Unfit unless every later step can do its part, TooLarge where
    memory is short."""
    promotes = _promotes(found, schedule)
    tile, *_ = (_tile(gemm, parts) for gemm in found.gemms)
    sums = sum(_tile(gemm, parts).registers for gemm in found.sums)
    held = 2 * sums if promotes else sums
    check_registers(held)
    need(
        holds(held, parts.consumer_registers),
        f"{held} accumulator registers a thread leave too few to load unaligned rows",
        found.loop,
        'give their dimension a guard such as "%8", for TMA, or choose smaller tiles',
    )
    need(
        can_swap(found) or not schedule.swap,
        "a branch, or scales of its sums, keep its operands in place",
        remedy="leave swap out",
    )
    _check_turns(found, parts, schedule)
    ring_bytes = _ring_bytes(found, tile, parts, order, found.loop.num_stages)
    if staging_room(ring_bytes, parts.consumers, target) < 0:
        limit = _shared_bytes(target)
        raise TooLarge(
            f"stages and parts of {ring_bytes} bytes are more than a block's {limit}", Kind.SHARED_MEMORY
        )
    return tile


def _shared_bytes(target: Target) -> int:
    assert target.gpu is not None
    return target.gpu.shared_bytes


def _tile(gemm: Gemm, parts: Roles) -> WarpgroupTile:
    """What a warpgroup issues for a product in a trip."""
    with about(gemm, "choose a tile of whole warpgroup products, and types that wgmma has"):
        return warpgroup_tile(gemm, parts.sharers)


def _ring_bytes(found: Match, tile: WarpgroupTile, parts: Roles, order: TileOrder, stages: int) -> int:
    """Shared memory of a ring of so many stages, and of the parts of sums beside it."""
    shares = parts.consumers * parts_bytes(tile, order.split)
    one = sum(version_bytes(copy.dst.buffer, order.crosses) for copy in found.loads)
    return shares + max(stages, 1) * one


def _deep(
    found: Match, tile: WarpgroupTile, parts: Roles, order: TileOrder, wanted: int | None, target: Target
) -> Match:
    """The loop with the stages ``wanted``, or as many as tensor cores want, where they leave results their
    room."""
    asked = max(found.loop.num_stages, 1)
    most = wanted or wanted_stages(found.gemms, target, latency=COLD_LATENCY)
    for stages in range(most, asked, -1):
        ring = _ring_bytes(found, tile, parts, order, stages)
        if staging_room(ring, parts.consumers, target) >= STAGING_BUFFERS * STAGING_BYTES:
            return replace(found, loop=replace(found.loop, num_stages=stages))
    return found


def _promotes(found: Match, schedule: Schedule) -> bool:
    """Whether sums leave the tensor core after every trip. Unfit where they should leave between two."""
    depth = int_value(found.a.dst.extent[0 if found.gemm.trans_a else 1])
    if schedule.promote_k is not None:
        need(
            found.is_single, "sums of several products stay in the tensor core", remedy="leave promote_k out"
        )
    if schedule.promote_k not in (None, depth):
        raise Unfit(f"sums cannot leave after {schedule.promote_k} steps of K, a stage has {depth}")
    if str(found.gemm.c.buffer.dtype) != "float32" and schedule.promote_k is not None:
        raise Unfit("sums of integers stay in the tensor core")
    return schedule.promote_k is not None or found.promotion is not None


def _check_turns(found: Match, parts: Roles, schedule: Schedule) -> None:
    """Whether the trips of tiles may be shared."""
    count = schedule.split_k or 1
    alone = found.guard is None and is_straight(found.head)
    need(
        found.is_single or count == 1,
        "blocks share the K of a single product alone",
        remedy="leave split_k out",
    )
    need(
        alone or count == 1,
        "blocks that look their tiles up take them one by one",
        remedy="leave split_k out",
    )
    need(
        count <= _MOST_PARTS,
        f"{count} blocks form no cluster",
        remedy=f"choose split_k of up to {_MOST_PARTS}",
    )
    need(
        count == 1 or not parts.pingpong,
        "warpgroups that take turns do not split K",
        remedy="leave split_k or pingpong out",
    )


def _order(kernel: Kernel, launch: Launch, found: Match, schedule: Schedule) -> TileOrder:
    """How tiles are walked: in bands along the rows of C, or as the launch asks for."""
    split = schedule.split_k or 1
    facts = launch_facts(kernel, launch, found)
    alone = split == 1 and found.guard is None and is_straight(found.head)
    pair = pair_axis(launch, found, facts) if alone else None
    across = crosses(launch, found, facts, pair)
    return replace(bands(launch, found, facts, pair), pair=pair, crosses=across, split=split)


def _producer(found: Match) -> tuple[Stmt, ...]:
    loads = replace(found.loop, body=(*found.inner, *found.loads), stage=None, order=None)
    return (*_needed(found, (loads,)), loads)


def _consumer(launch: Launch, found: Match, tile: WarpgroupTile, order: TileOrder) -> tuple[Stmt, ...]:
    clears = (stmt for stmt in walk(launch.body) if isinstance(stmt, Fill))
    body = found.gemms if found.promotion is None else (found.gemm, found.promotion)
    products = replace(found.loop, body=body, stage=None, order=None)
    parts = (SumParts(found.gemm.c.buffer, order.split, tile),) if order.split > 1 else ()
    tail = (products, *parts, *found.tail)
    return (*_needed(found, tail), *found.fragments, *clears, *tail)


def _needed(found: Match, block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The bindings before the loop; both roles compute their own."""
    if found.guard is not None:
        return (*found.head, Proceed(found.guard))
    if not is_straight(found.head):
        return found.head
    kept: list[Stmt] = []
    wanted = [expr for stmt in walk(block) for expr in expressions(stmt)]
    for bind in reversed(found.head):
        assert isinstance(bind, Bind)
        if any(uses(expr, (bind.var,)) for expr in wanted):
            kept.insert(0, bind)
            wanted.append(bind.value)
    return tuple(kept)
