"""Launches whose rows stay in registers get roles: a producer warp that loads, warpgroups that compute."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.products.wgmma import ROWS, holds_product
from tilec.backends.cuda.attention.assign.layouts import laid_out, load_map
from tilec.backends.cuda.attention.assign.list_trips import with_listed_trips
from tilec.backends.cuda.attention.assign.memory import fitted
from tilec.backends.cuda.attention.assign.order import plan_order
from tilec.backends.cuda.attention.assign.parts import Parts, find_parts
from tilec.backends.cuda.attention.assign.registers import most_words, words
from tilec.backends.cuda.attention.assign.stores import staged_stores
from tilec.backends.cuda.attention.assign.windows import window_trips
from tilec.backends.cuda.attention.nodes import AsyncProduct, AttentionRoles, LaunchDependents
from tilec.backends.cuda.attention.passes.rewriting import producer_facts
from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.cuda.warp_roles.nodes import HANDED_ON, REGISTER_UNIT, WARPGROUP, Roles
from tilec.backends.cuda.warp_roles.strategy import Plan, check_launch
from tilec.backends.cuda.warp_roles.unfit import Unfit, about
from tilec.ir.exprs import all_of, dtype_of
from tilec.ir.nodes import Alloc, Block, Copy, If, Kernel, Launch, Store, walk
from tilec.ir.schedule import Schedule

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Stages of tiles along windows, where there is room: loads of the next tile run ahead of it (H200, windows
#: of 128, 512 and 1024 keys, us with 2, 3 and 4 stages: 95, 92, 89; 192, 183, 183; 309, 302, 302).
_STAGES = 4


def plan(kernel: Kernel, launch: Launch, target: Target) -> Plan:
    """A launch that is one pipelined loop of products whose results stay in registers, with arithmetic by row
    between them. Unfit where it is something else."""
    launch, listing = with_listed_trips(launch)
    staging, roles = _roles(kernel, launch, target)
    tiles = (*(ring.tile for ring in roles.rings), *staging)
    body = (*(Alloc(tile) for tile in tiles), roles)
    made = replace(launch, threads=(roles.roles.threads, 1, 1), body=body)
    return Plan(made, _with_cleared_counter(listing, roles, launch))


def _with_cleared_counter(listing: Block, roles: AttentionRoles, launch: Launch) -> Block:
    """The tile counter, and the launch that sets it to 0, that of ``listing`` where there is one: workspaces
    come with any contents. It starts early where ``launch`` is asked to, and has no block for few tiles."""
    counter = roles.order.counter
    if counter is None:
        return listing
    clear = Store(counter, (tirx.const(0, "int32"),), tirx.const(0, "uint32"))
    if listing:
        *tables, lists = listing
        assert isinstance(lists, Launch)
        first = all_of([tirx.EQ(var, tirx.const(0, dtype_of(var))) for var in lists.block_vars])
        return *tables, Alloc(counter), replace(lists, body=(If(first, (clear,)), *lists.body))
    block = tirx.Var("block", "int32")
    schedule = Schedule(pdl=launch.schedule.pdl)
    tiles: Expr = reduce(mul, launch.grid, tirx.const(1, "int64"))
    clears = tirx.Min(tirx.floordiv(tiles, roles.order.few + 1), tirx.const(1, "int64"))
    return Alloc(counter), Launch((clears,), (block,), (WARP, 1, 1), (LaunchDependents(), clear), schedule)


def _roles(kernel: Kernel, launch: Launch, target: Target) -> tuple[tuple[Var, ...], AttentionRoles]:
    """The staging tiles and the roles of a launch."""
    parts = find_parts(launch)
    check_launch(launch)
    facts = producer_facts(kernel, launch, parts.producer)
    for copy in _copies(parts.producer):
        with about(copy):
            load_map(copy, facts)
    consumer, staging = staged_stores(parts.consumer, ROWS * parts.warpgroups, facts)
    together = _together(parts, staging, target)
    alone = not _fits_registers(parts, together)
    stages = 1 if window_trips(launch, parts) is None else _STAGES
    memory = fitted(parts, staging, target, together, stages)
    made = laid_out(kernel, launch, memory.hosted(consumer), parts.warpgroups, target)
    roles = Roles(parts.warpgroups, _handed_on(parts, together))
    order = plan_order(launch, parts, gpu_limits(target, {}).units)
    found = AttentionRoles(roles, order, memory.rings, parts.producer, made, alone=alone, together=together)
    return memory.staging, replace(found, turner=parts.turner)


def _together(parts: Parts, staging: tuple[Var, ...], target: Target) -> int:
    """How many blocks a multiprocessor is to hold: two where its registers and memory have room, else one.

    One of two computes while the other waits for products; that is worth one product of each warpgroup under
    way in place of more, and fewer stages than the author's. H200, tiles of 64 x 64, 4096 queries and keys,
    microseconds of one block and of two:

        heads of 128, 3 stages and 2    656    461
        heads of 160, 2 stages and 1    718    651
        heads of 192, 2 stages and 1    749    627"""
    products = [stmt for stmt in walk(parts.consumer) if isinstance(stmt, AsyncProduct)]
    threads = 2 * (parts.warpgroups + 1) * WARPGROUP
    held = all(holds_product(stmt.columns, threads) for stmt in products)
    if (parts.warpgroups, 2) not in HANDED_ON or not held:
        return 1
    try:
        fitted(parts, staging, target, 2)
        _fits_registers(parts, 2)
        return 2
    except Unfit:
        return 1


def _handed_on(parts: Parts, together: int) -> tuple[int, int] | None:
    """Registers of a loading and of a computing thread; one that turns tiles takes a unit of each of those
    that compute."""
    handed = HANDED_ON.get((parts.warpgroups, together))
    if handed is None or not parts.turner:
        return handed
    return handed[0] + REGISTER_UNIT * parts.warpgroups, handed[1] - REGISTER_UNIT


def _copies(producer: Block) -> list[Copy]:
    return [stmt for stmt in walk(producer) if isinstance(stmt, Copy)]


def _fits_registers(parts: Parts, together: int) -> bool:
    """Whether registers hold all fragments at once. Where operands of products have to share those of
    results, such products are not under way together. Unfit where that does not suffice either."""
    fragments = [stmt.buffer for stmt in parts.consumer if isinstance(stmt, Alloc)]
    operands = {stmt.a.buffer for stmt in walk(parts.consumer) if isinstance(stmt, AsyncProduct)}
    held = sum(words(buffer, parts.warpgroups) for buffer in fragments)
    shared = sum(words(buffer, parts.warpgroups) for buffer in fragments if buffer in operands)
    limit = most_words(_handed_on(parts, together), together)
    if held - shared > limit:
        raise Unfit(
            f"its fragments take {held - shared} registers a thread, more than {limit}",
            remedy="choose smaller tiles, or more threads with as many rows each",
        )
    return held <= limit
