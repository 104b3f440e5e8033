"""Launches whose rows stay in registers get roles: a producer warp that loads, warpgroups that compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Block, Copy, Gemm, Kernel, Launch, Pipelined, Stmt, Store, walk
from tilec.lowering.cuda.fragments import WARP
from tilec.lowering.cuda.hopper.assign_warps import specialised
from tilec.lowering.cuda.hopper.match import Unfit, check_launch
from tilec.lowering.cuda.hopper.nodes import Roles
from tilec.lowering.cuda.hopper.ring import tile_bytes
from tilec.lowering.cuda.hopper.streams.layouts import laid_out
from tilec.lowering.cuda.hopper.streams.load_maps import load_map
from tilec.lowering.cuda.hopper.streams.nodes import LaunchDependents, Streamed, TileRing
from tilec.lowering.cuda.hopper.streams.order import plan_order
from tilec.lowering.cuda.hopper.streams.parts import Parts, find_parts
from tilec.lowering.cuda.hopper.streams.rewriting import producer_facts
from tilec.lowering.cuda.hopper.streams.stores import staged_stores
from tilec.lowering.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Registers of a producer and a consumer thread by the number of consumer warpgroups: setmaxnreg hands out
#: what the block got at launch.
_REGISTERS = {1: None, 2: (40, 232), 3: (32, 160)}
#: Registers that a consumer thread needs beside fragments, and all that it has.
_OTHER_REGISTERS, _AVAILABLE = 20, {1: 255, 2: 232, 3: 160}
#: Shared memory for barriers, tile coordinates and alignment.
_BARRIER_BYTES = 2048


@dataclass(frozen=True)
class AssignStreams:
    """In: launches without roles. Out: a launch that is one pipelined loop of products whose results stay in
    registers, with arithmetic by row between them, holds a Streamed statement. Any other launch stays, with
    the reason in its hints."""

    name: str = "assign_streams"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with roles where they pay."""
        body: list[Stmt] = []
        for stmt in kernel.body:
            body += _assigned(kernel, stmt, target) if isinstance(stmt, Launch) else (stmt,)
        return replace(kernel, body=tuple(body))


def _assigned(kernel: Kernel, launch: Launch, target: Target) -> tuple[Stmt, ...]:
    products = sum(isinstance(stmt, Gemm) for stmt in walk(launch.body))
    if specialised(launch) is not None or products < 2:
        return (launch,)
    others = tuple(hint for hint in launch.hints if hint[0] != "no_roles")
    try:
        made = _streamed(kernel, launch, target)
    except Unfit as unfit:
        return (replace(launch, hints=(*others, ("no_roles", str(unfit)))),)
    staging, roles = made
    tiles = (*(ring.tile for ring in roles.rings), *staging)
    body = (*(Alloc(tile) for tile in tiles), roles)
    threads = (roles.roles.threads, 1, 1)
    return (*_cleared_counter(roles, launch), replace(launch, hints=others, threads=threads, body=body))


def _cleared_counter(roles: Streamed, launch: Launch) -> tuple[Stmt, ...]:
    """The tile counter, and the launch that sets it to 0: workspaces come with any contents. It starts early
    where ``launch`` is asked to."""
    counter = roles.order.counter
    if counter is None:
        return ()
    clear = Store(counter, (tirx.const(0, "int32"),), tirx.const(0, "uint32"))
    block = tirx.Var("block", "int32")
    hints = tuple(hint for hint in launch.hints if hint[0] == "pdl")
    return Alloc(counter), Launch((1,), (block,), (WARP, 1, 1), (LaunchDependents(), clear), hints)


def _streamed(kernel: Kernel, launch: Launch, target: Target) -> tuple[tuple[Var, ...], Streamed]:
    """The staging tiles and the roles of a launch; Unfit where it gets none."""
    parts = find_parts(launch)
    check_launch(launch)
    facts = producer_facts(kernel, launch, parts.producer)
    for copy in _copies(parts.producer):
        load_map(copy, facts)
    _check_registers(parts)
    consumer, staging = staged_stores(parts.consumer, facts)
    rings = _fitted(parts, staging, target)
    made = laid_out(kernel, launch, consumer, parts.warpgroups, target)
    roles = Roles(parts.warpgroups, _REGISTERS[parts.warpgroups])
    return staging, Streamed(roles, plan_order(launch, parts), rings, parts.producer, made)


def _copies(producer: Block) -> list[Copy]:
    return [stmt for stmt in walk(producer) if isinstance(stmt, Copy)]


def _check_registers(parts: Parts) -> None:
    held = sum(_words(stmt.buffer, parts.warpgroups) for stmt in parts.consumer if isinstance(stmt, Alloc))
    limit = _AVAILABLE[parts.warpgroups] - _OTHER_REGISTERS
    if held > limit:
        raise Unfit(f"its fragments take {held} registers a thread, more than {limit}")


def _words(buffer: Var, warpgroups: int) -> int:
    """Registers of a thread for a fragment; rows have a value for each of two rows in each lane."""
    shape = [int_value(extent) or 1 for extent in buffer.shape]
    if len(shape) == 1:
        return 2
    elements = shape[0] * shape[1] // (128 * warpgroups)
    return elements // 2 if str(buffer.dtype) in ("float16", "bfloat16") else elements


def _fitted(parts: Parts, staging: tuple[Var, ...], target: Target) -> tuple[TileRing, ...]:
    """Rings that fit shared memory beside staging. Tiles that are loaded once get a second version if there
    is room, so that those of the next tile arrive meanwhile."""
    assert target.gpu is not None
    room = target.gpu.shared_bytes - _BARRIER_BYTES
    loop = next(stmt for stmt in parts.producer if isinstance(stmt, Pipelined))
    streamed = {copy.dst.buffer for copy in _copies((loop,))}
    for versions in (2, 1):
        stages = {tile: max(loop.num_stages, 1) if tile in streamed else versions for tile in parts.tiles}
        rings = tuple(_ring(tile, stages[tile]) for tile in parts.tiles)
        size = sum(ring.bytes * ring.stages for ring in rings) + sum(map(tile_bytes, staging))
        if size <= room:
            return rings
    raise Unfit(f"tiles and staging of {size} bytes do not fit the {room} bytes of a block")


def _ring(tile: Var, stages: int) -> TileRing:
    version = tirx.decl_buffer(
        (stages, *tile.shape), str(tile.dtype), name=str(tile.name), scope="shared.dyn"
    )
    return TileRing(version, tile, stages, tile_bytes(tile), tirx.Var(f"{tile.name}_stage", "int32"))
