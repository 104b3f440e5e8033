"""Staging buffers: where a warpgroup's lie, and the boxes of a tensor that pass through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.warp_roles.emit.build import i32, ptx, u32, when
from tilec.backends.cuda.warp_roles.emit.load_ahead import first_column

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.emit.context import RoleContext, TileContext
    from tilec.backends.cuda.warp_roles.nodes import TileStore


STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"


def first_thread(ctx: RoleContext) -> Expr:
    """Whether this is the first thread of its warpgroup: the one that stores."""
    return tirx.EQ(ctx.own, i32(0))


def drain_stores(pending: int = 0) -> None:
    """Waits until all stores of this thread but ``pending`` have read shared memory."""
    ptx("cp.async.bulk.wait_group.read", pending)


def group_barrier(ctx: RoleContext) -> None:
    """All threads of the warpgroup; the first barriers of a block are those of one warpgroup each."""
    ptx("bar.sync", u32(ctx.warpgroup + 1), 128)


def finish_stores(ctx: RoleContext) -> None:
    """Waits until shared memory is no longer read by stores."""
    with when(first_thread(ctx)):
        drain_stores()


def staging_buffer(stmt: TileStore, ctx: TileContext, chunk: int) -> Expr:
    """The buffer through which a chunk of columns of this warpgroup's rows passes."""
    first = ctx.named_place("staging") + u32(ctx.warpgroup) * u32(ctx.staging_bytes)
    return first + u32(chunk % stmt.buffers * stmt.rows * stmt.columns * 2)


def boxes(
    stmt: TileStore, ctx: TileContext, chunk: int, indices: Sequence[Expr]
) -> Iterator[tuple[int, list[Expr]]]:
    """The boxes of a chunk: byte offset in its buffer, and where the box starts in the tensor whose elements
    ``indices`` are. One has all rows; where results are turned, each has 64 of them."""
    for block in range(stmt.rows // ROWS if stmt.turned else 1):
        corner = {
            stmt.vars[0]: ctx.share * stmt.rows + block * ROWS,
            stmt.vars[1]: i32(stmt.chunks[chunk]) + first_column(stmt, ctx),
        }
        with ctx.scope(corner):
            start = [ctx.value(index) for index in indices]
        yield block * stmt.columns * ROWS * 2, start
