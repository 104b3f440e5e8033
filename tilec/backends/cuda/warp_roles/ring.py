"""Pipelined loops of specialised launches become a ring of stages in shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.versions import with_version
from tilec.backends.cuda.matmul.match import Match
from tilec.backends.cuda.matmul.promotion import Promotion
from tilec.backends.cuda.warp_roles.nodes import (
    MatrixView,
    Ring,
    RingDrain,
    RingFill,
    Specialised,
    WindowCopy,
)
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.nodes import Alloc, Copy, Fill, Kernel, Launch, Pipelined, Stmt
from tilec.ir.schedule import Schedule
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.exprs import dtype_of, int_value
from tilec.lowering.passes.base import rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Tiles in the pattern of 128 bytes begin at multiples of it, as its rows repeat after eight.
TILE_ALIGNMENT = 1024
#: Rows after which the pattern repeats.
GROUP_ROWS = 8


@dataclass(frozen=True)
class PlanRing:
    """In: Specialised with a Pipelined loop of copies in the producer and one of products in the consumers.
    Out: RingFill and RingDrain over one ring; its tiles have a version per stage and the layout that TMA
    writes and wgmma reads. The accumulator's Fill goes: a ring's sum starts at zero."""

    name: str = "plan_ring"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with rings."""
        return rewrite_launches(kernel, _with_ring)


def tile_bytes(tile: Var) -> int:
    """Bytes of one version of a tile."""
    return math.prod(int_value(extent) or 1 for extent in tile.shape) * element_bytes(str(tile.dtype))


def slab_shape(tile: Var, halves: bool) -> tuple[int, int]:
    """Rows and columns that one version of an operand takes: rows end with a slab of 128 bytes, and there is
    a whole number of groups in each of their ``halves``. Products read what there is."""
    rows, columns = (int_value(extent) or 1 for extent in tile.shape)
    slab = ROW_BYTES // element_bytes(str(tile.dtype))
    return 2 * half_rows(rows) if halves else rows, -(-columns // slab) * slab


def half_rows(rows: int) -> int:
    """Rows that one block of a pair brings, in groups of the eight after which the swizzle repeats."""
    return -(-rows // (2 * GROUP_ROWS)) * GROUP_ROWS


def version_bytes(tile: Var, halves: bool) -> int:
    """Bytes of one version of an operand in a ring."""
    rows, columns = slab_shape(tile, halves)
    return rows * columns * element_bytes(str(tile.dtype))


def stage_bytes(tile: Var) -> int:
    """Bytes of one version of a tile whose first axis are its versions."""
    return tile_bytes(tile) // (int_value(tile.shape[0]) or 1)


def place_tiles(tiles: Iterable[Var]) -> tuple[dict[Var, int], int]:
    """Where ``tiles`` begin in shared memory, aligned and one behind the other; the byte behind the last."""
    at, places = 0, {}
    for tile in tiles:
        places[tile] = at
        at += -(-tile_bytes(tile) // TILE_ALIGNMENT) * TILE_ALIGNMENT
    return places, at


def promotion(found: Match, schedule: Schedule) -> bool:
    """Whether sums leave the tensor core after every trip. Unfit where they should leave between two."""
    depth = int_value(found.a.dst.extent[0 if found.gemm.trans_a else 1])
    if schedule.promote_k not in (None, depth):
        raise Unfit(f"sums cannot leave after {schedule.promote_k} steps of K, a stage has {depth}")
    if str(found.gemm.c.buffer.dtype) != "float32" and (
        (schedule.split_k or 1) > 1 or schedule.promote_k is not None
    ):
        raise Unfit("sums of integers stay in the tensor core of one block")
    if found.promotion is not None and (schedule.split_k or 1) > 1:
        raise Unfit("sums that are scaled after every trip do not share K")
    return schedule.promote_k is not None or found.promotion is not None


def tile_layout(shape: tuple[int, ...], dtype: str) -> Layout:
    """(stages, rows, columns) in slabs of 128 bytes of columns, all rows of a slab one below the other, the
    eight 16-byte chunks of a row swapped by the row's number."""
    row = ROW_BYTES // element_bytes(dtype)
    stages, rows, columns = shape
    slabs = columns // row
    digits = (
        (Digit(stages, rows * columns),),
        (Digit(rows, row),),
        (Digit(row, 1), Digit(slabs, rows * row)),
    )
    return Layout(digits, Swizzle(width=8, unit=row // 8, row=row))


def _with_ring(launch: Launch) -> Launch:
    roles = next((stmt for stmt in launch.body if isinstance(stmt, Specialised)), None)
    if roles is None:
        return launch
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
