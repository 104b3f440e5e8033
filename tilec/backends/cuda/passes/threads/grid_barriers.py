"""The barrier of all blocks of a launch: arrivals counted in memory of the call, by blocks all at once there.

A cooperative launch starts only if the device holds all of its blocks at once, so that none waits for one
that cannot begin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.device.barriers import GRID_MEET
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import block_barrier, call, emit
from tilec.backends.cuda.nodes import GridMeet
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Pipelined, Stmt, Store, walk
from tilec.ir.nodes.barriers import GridBarrier
from tilec.ir.serial import serial
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.statements import guarded, sequence
from tilec.lowering.passes.base import Pass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

_NOTE = "T.sync_grid: a cooperative launch, behind one that sets its count of arrivals to 0"


class OpenGridBarriers(Pass):
    """In: GridBarrier anywhere. Out: GridMeet at a count in the workspace of the call, which a launch in
    front of the first such launch sets to 0: workspaces come with any contents, and calls at the same time
    have each their own. Pipelined loops around one run their trips in order."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its barriers of the grid."""
        first = next((launch for launch in kernel.launches if _meets(launch)), None)
        if first is None:
            return kernel
        arrivals = tirx.decl_buffer((1,), "uint32", "grid_arrivals", scope="global.workspace")
        body: list[Stmt] = []
        for stmt in kernel.body:
            body += [Alloc(arrivals), _clear(arrivals)] if stmt is first else []
            body.append(_opened(stmt, arrivals) if isinstance(stmt, Launch) else stmt)
        return replace(kernel, body=tuple(body))


def has_grid_meet(body: Block) -> bool:
    """Whether blocks wait for each other within the ``body`` of an opened launch."""
    return any(isinstance(stmt, GridMeet) for stmt in walk(body))


def _meets(stmt: Stmt) -> bool:
    return any(isinstance(inner, GridBarrier) for inner in walk((stmt,)))


def _clear(arrivals: Var) -> Launch:
    zero = Store(arrivals, (tirx.const(0, "int32"),), tirx.const(0, "uint32"))
    return Launch((1,), (tirx.Var("block", "int32"),), (WARP, 1, 1), (zero,))


def _opened(launch: Launch, arrivals: Var) -> Launch:
    if not _meets(launch):
        return launch

    def rewrite(block: Block) -> list[Stmt]:
        return [_stmt(stmt, arrivals) for stmt in block]

    return with_notes(replace(launch, body=rewrite_blocks(launch.body, rewrite)), [_NOTE])


def _stmt(stmt: Stmt, arrivals: Var) -> Stmt:
    if isinstance(stmt, GridBarrier):
        return GridMeet(arrivals, loc=stmt.loc)
    if isinstance(stmt, Pipelined) and has_grid_meet(stmt.body):
        return serial(stmt, stmt.body)
    return stmt


@emit.register(GridMeet)
def _emit_meet(stmt: GridMeet, ctx: DeviceContext) -> tirx.Stmt:
    assert ctx.thread is not None
    at = ctx.storage(stmt.arrivals).data.ptr_to([tirx.const(0, "int32")])
    meet = call(GRID_MEET.call(at))
    alone = guarded(meet, [tirx.EQ(ctx.thread, tirx.const(0, "int32"))])
    return sequence([block_barrier(ctx), alone, block_barrier(ctx)])
