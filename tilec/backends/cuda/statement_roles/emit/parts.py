"""PartStore: each warpgroup fills its part of a tile and stores it by TMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import block_barrier, group_barrier
from tilec.backends.cuda.nodes import PartStore
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import boxes_of, part_map, row_axis
from tilec.backends.cuda.statement_roles.emit.box import argument, first_of_groups, part_of
from tilec.backends.cuda.warp_roles.emit.build import add, cached, coordinate, emits, i32, let, ptx, u32, when
from tilec.backends.cuda.warp_roles.emit.staging import STORE, drain_stores
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP

if TYPE_CHECKING:
    from tvm.ir import Expr


@emits(PartStore)
def _part(stmt: PartStore, ctx: DeviceContext) -> None:
    assert ctx.warp is not None
    group = let("group", tirx.truncdiv(ctx.warp, i32(WARPS_OF_A_GROUP)))
    with when(first_of_groups(ctx)):
        drain_stores()
    add(block_barrier(ctx))  # in step: 1572 us on an H200 where operands are scaled, 1586 else
    add(ctx.block(stmt.body))
    _meet(group, ctx)
    with when(first_of_groups(ctx)):
        _boxes_out(stmt, group, ctx)


def _meet(group: Expr, ctx: DeviceContext) -> None:
    """The threads of each warpgroup wait for each other."""
    assert ctx.group is not None
    for number in range(ctx.warps // WARPS_OF_A_GROUP):
        with when(tirx.EQ(group, i32(number))):
            add(group_barrier((ctx.group[0] + number * WARPGROUP, WARPGROUP), ctx))


def _boxes_out(stmt: PartStore, group: Expr, ctx: DeviceContext) -> None:
    """The boxes of a warpgroup's part."""
    tile, parts = stmt.src.buffer, part_of(stmt)
    made = boxes_of(stmt.dst, tile, ctx.storage(tile).layout)
    name, policy = cached(STORE.format(rank=len(stmt.dst.start)), stmt.evict)
    address = T.address_of(argument(part_map(stmt.dst, tile, parts.box), ctx))
    for first in parts.starts:
        row, column = (i32(at) + group * i32(step) for at, step in zip(first, parts.step, strict=True))
        place = row * i32(made.pitch) + tirx.truncdiv(column, i32(parts.box[1])) * i32(made.step)
        start = [coordinate(ctx.value(at)) for at in stmt.dst.start]
        start[row_axis(stmt.dst)] += row
        start[-1] += column
        ptx(name, address, *reversed(start), ctx.shared_place(tile) + u32(place), *policy)
    ptx("cp.async.bulk.commit_group")
