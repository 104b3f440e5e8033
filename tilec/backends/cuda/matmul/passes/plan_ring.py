"""The pipelined loop of a product becomes a ring of stages in shared memory.

    for ko in pipelined(n, 4): load A, B; C += A B
    ->    producer: for t: wait empty[t % 4]; load A, B    consumers: for t: wait full[t % 4]; C += A B

The ring goes on from one tile of a block to the next, so that loads never stop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.pipelines.versions import with_version
from tilec.backends.cuda.matmul.match.promotion import Promotion
from tilec.backends.cuda.matmul.nodes import MatmulRoles, MatrixView, RingDrain, RingFill, WindowCopy
from tilec.backends.cuda.warp_roles.nodes import Ring
from tilec.backends.cuda.warp_roles.ring import slab_shape, tile_layout, version_bytes
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Alloc, Copy, Fill, Kernel, Launch, Pipelined, Stmt
from tilec.ir.schedule import Schedule
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class PlanRing(Pass):
    """In: MatmulRoles with a Pipelined loop of copies in the producer and one of products in the consumers.
    Out: RingFill and RingDrain over one ring; its tiles have a version per stage and the layout that TMA
    writes and wgmma reads. The accumulator's Fill goes: a ring's sum starts at zero."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with rings."""
        return rewrite_roles(kernel, MatmulRoles, _with_ring)


def _with_ring(launch: Launch, roles: MatmulRoles) -> Launch:
    loop = next(stmt for stmt in roles.producer if isinstance(stmt, Pipelined))
    stages = max(loop.num_stages, 1)
    copies = [stmt for stmt in loop.body if isinstance(stmt, (Copy, WindowCopy))]
    halves = roles.order.crosses
    ring = Ring(stages, sum(version_bytes(copy.dst.buffer, halves) for copy in copies))
    tiles = {copy.dst.buffer: _versioned(copy.dst.buffer, stages, halves) for copy in copies}
    schedule = launch.schedule
    made = replace(
        roles,
        producer=tuple(_fill(stmt, ring, tiles) for stmt in roles.producer),
        consumer=tuple(
            _drain(stmt, ring, tiles, schedule) for stmt in roles.consumer if not isinstance(stmt, Fill)
        ),
    )
    allocs = tuple(_placed(tile) for tile in tiles.values())
    views = (stmt for stmt in launch.body if isinstance(stmt, MatrixView))
    return replace(launch, body=(*views, *allocs, made))


def _fill(stmt: Stmt, ring: Ring, tiles: dict[Var, Var]) -> Stmt:
    if not isinstance(stmt, Pipelined):
        return stmt
    stage = tirx.Var("stage", "int32")
    body = with_version(stmt.body, tiles, stage)
    return RingFill(ring, stage, stmt.var, stmt.start, stmt.stop, body, loc=stmt.loc)


def _drain(stmt: Stmt, ring: Ring, tiles: dict[Var, Var], schedule: Schedule) -> Stmt:
    if not isinstance(stmt, Pipelined):
        return stmt
    stage = tirx.Var("stage", "int32")
    body = with_version(stmt.body, tiles, stage)
    return RingDrain(
        ring,
        stage,
        _trips(stmt),
        body,
        unrolled=schedule.unroll != 1,
        promotes=schedule.promote_k is not None or any(isinstance(inner, Promotion) for inner in body),
        loc=stmt.loc,
    )


def _trips(loop: Pipelined) -> Expr:
    if int_value(loop.start) == 0:
        return loop.stop
    return tirx.Max(loop.stop - loop.start, tirx.const(0, dtype_of(loop.var)))


def _versioned(tile: Var, stages: int, halves: bool) -> Var:
    shape = (stages, *slab_shape(tile, halves))
    return tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope="shared.dyn")


def _placed(tile: Var) -> Alloc:
    shape = tuple(int_value(extent) or 1 for extent in tile.shape)
    return Alloc(tile, layout=tile_layout(shape, str(tile.dtype)))
