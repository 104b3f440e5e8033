"""Loops that ask for one stage load a trip ahead, where that costs no block of a multiprocessor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups, thread_count
from tilec.backends.cuda.analysis.pipelines.loads_ahead import load_of
from tilec.backends.cuda.limits import gpu_limits, has_tma
from tilec.backends.cuda.passes.waits.place_shared import pool_plan
from tilec.backends.cuda.statement_roles.split.registers import blocks_by_registers
from tilec.ir.nodes import (
    Alloc,
    Block,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    Unscaled,
    children,
    walk,
    with_children,
)
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.targets import SYSTEM_SHARED_BYTES

if TYPE_CHECKING:
    from tilec.targets import Target


class RunAhead(Pass):
    """In: launches whose warps have no roles, with loops of one stage that multiply. Out: two stages, where a
    multiprocessor holds as many blocks as before: one stage has threads wait for memory in every trip."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its stages."""
        if not has_tma(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: _ahead(launch, target))


def _ahead(launch: Launch, target: Target) -> Launch:
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Pipelined) and _waits(stmt)]
    if not loops or has_groups(launch):
        return launch
    assert target.gpu is not None
    allocs = {stmt.buffer: stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)}
    filled = {load.tile for loop in loops for stmt in loop.body if (load := load_of(stmt)) is not None}
    pool = pool_plan(launch).total
    more = pool + sum(tile_bytes(allocs[tile]) for tile in filled if tile in allocs)
    whole = gpu_limits(target, {}).shared_bytes
    held = min(whole // (pool + SYSTEM_SHARED_BYTES), blocks_by_registers(launch.body, thread_count(launch)))
    if more > target.gpu.shared_bytes or whole // (more + SYSTEM_SHARED_BYTES) < held:
        return launch
    names = ", ".join(f"the loop over {loop.var.name}" for loop in loops)
    note = f"{names} asks for one stage and has two: its loads run a trip ahead"
    return replace(launch, body=_staged(launch.body), notes=(*launch.notes, note))


def _waits(loop: Pipelined) -> bool:
    """Whether a loop of products has one stage, and no order that its author gives."""
    multiplies = any(isinstance(stmt, Unscaled) for stmt in loop.body)
    return multiplies and loop.num_stages == 1 and loop.stage is None and loop.order is None


def _staged(block: Block) -> Block:
    return tuple(map(_stmt, block))


def _stmt(stmt: Stmt) -> Stmt:
    made = with_children(stmt, [_staged(inner) for inner in children(stmt)])
    return replace(made, num_stages=2) if isinstance(made, Pipelined) and _waits(made) else made
