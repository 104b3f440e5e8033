"""Staging buffers: where a warpgroup's lie, and the boxes of a tensor that pass through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.build import i32, u32
from tilec.backends.cuda.warp_roles.load_ahead import first_column
from tilec.backends.cuda.warp_roles.wgmma import ROWS

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.context import Context
    from tilec.backends.cuda.warp_roles.nodes import TileStore


def staging_buffer(stmt: TileStore, ctx: Context, chunk: int) -> Expr:
    """The buffer through which a chunk of columns of this warpgroup's rows passes."""
    first = ctx.base + u32(ctx.shared.staging) + u32(ctx.group) * u32(ctx.shared.staging_bytes)
    return first + u32(chunk % stmt.buffers * stmt.rows * stmt.columns * 2)


def boxes(
    stmt: TileStore, ctx: Context, chunk: int, indices: Sequence[Expr]
) -> Iterator[tuple[int, list[Expr]]]:
    """The boxes of a chunk: byte offset in its buffer, and where the box starts in the tensor whose elements
    ``indices`` are. One has all rows; where results are turned, each has 64 of them."""
    for block in range(stmt.rows // ROWS if stmt.turned else 1):
        corner = {
            stmt.vars[0]: ctx.share * stmt.rows + block * ROWS,
            stmt.vars[1]: i32(stmt.chunks[chunk]) + first_column(stmt, ctx),
        }
        with ctx.scope(corner):
            start = [ctx.expr(index) for index in indices]
        yield block * stmt.columns * ROWS * 2, start
