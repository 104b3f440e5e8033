"""Device code of `TmaLoad`: TMA brings boxes of a tensor to a version of a tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.emit.build import cached, coordinate, ptx, u32, when
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.emit.context import RoleContext
    from tilec.backends.cuda.warp_roles.nodes import TmaLoad

LOAD = "cp.async.bulk.tensor.{rank}d.shared::{scope}.global.{mode}.mbarrier::complete_tx::bytes"
#: Of what a load names a place: the block, or the cluster. PTX before 8.6 has the cluster's alone; on sm_120
#: that takes a call of a function, beside which registers are not handed on.
OF_BLOCK, OF_CLUSTER = "cta", "cluster"
#: To the same place in both blocks of a cluster, whose barriers there count the bytes.
_TO_BOTH = ".multicast::cluster"


def emit_load(
    load: TmaLoad,
    ctx: RoleContext,
    stage: Expr,
    barrier: Expr,
    part: tuple[Expr, Expr] | None = None,
    to_both: bool = False,
) -> None:
    """One box for each slab of columns of a tile, or of some rows of it, to one of its versions; ``barrier``
    counts the bytes.
    ``part``: the row of the tile that the boxes begin at, and its offset in bytes; ``to_both``: both blocks
    of a pair get them."""
    if load.parts:
        _emit_one(load, ctx, lambda chosen: emit_load(chosen, ctx, stage, barrier, part, to_both))
        return
    tile, width = load.dst.buffer, load.map.box[-1]
    size = element_bytes(str(tile.dtype))
    first = ctx.version(tile, stage)
    row = int_value(load.dst.start[-2]) if len(load.dst.start) > 1 else 0
    if row:
        first = first + u32(row * width * size)
    start = [coordinate(ctx.value(index)) for index in load.start]
    if part is not None:
        start[-2], first = start[-2] + part[0], first + part[1]
    name = LOAD.format(rank=len(start), scope=OF_CLUSTER, mode="im2col" if load.offsets else "tile")
    extra = [tirx.Cast("uint16", ctx.value(offset)) for offset in reversed(load.offsets)]
    if to_both:
        name, extra = name + _TO_BOTH, [*extra, tirx.const(0b11, "uint16")]
    name, policy = cached(name, load.evict)
    behind = (barrier, *extra, *policy)
    slab_bytes = (int_value(tile.shape[-2]) or 1) * width * size
    for slab in range(-(-(int_value(load.dst.extent[-1]) or 1) // width)):
        at = [*start[:-1], start[-1] + slab * width]
        ptx(name, first + u32(slab * slab_bytes), ctx.map_of(load.map), *reversed(at), *behind)


def _emit_one(load: TmaLoad, ctx: RoleContext, emit: Callable[[TmaLoad], None]) -> None:
    """The load of one of the maps that there are."""
    assert load.part is not None
    number = ctx.value(load.part)
    for part, found in enumerate(load.parts):
        with when(tirx.EQ(number, tirx.const(part, dtype_of(number)))):
            emit(replace(load, map=found, parts=(), part=None))
