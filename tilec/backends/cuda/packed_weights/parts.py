"""Device code of sums whose K the blocks of a cluster share: the first block adds up what the others send
through its shared memory, in the order of the blocks, and stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.barriers import in_block, meet_warp
from tilec.backends.cuda.warp_roles.emit.build import i32, let, ptx, put, registers, run, u32, when
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.backends.cuda.warp_roles.unfit import Unfit

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.packed_weights.nodes import PackedProduct
    from tilec.backends.cuda.warp_roles.emit.context import TileContext

#: float32 registers that are moved at once, and their bytes.
_TOGETHER, _BYTES = 4, 16


def check_parts(product: PackedProduct) -> None:
    """Unfit where a ring, which nobody needs any longer, is too small for what the other blocks send."""
    wanted = (product.split - 1) * _registers(product) * _threads(product) * 4
    room = sum(tile_bytes(load.dst.buffer) for load in product.loads)
    if wanted > room:
        raise Unfit(
            f"{wanted} bytes of {product.split} parts do not fit a ring of {room}",
            remedy="choose smaller tiles, or less split_k",
        )


def meet_blocks() -> None:
    """The two points at which blocks meet, for warps that hold no sums."""
    meet_warp()
    for _ in range(2):
        run(T.cuda.cluster_sync())


def emit_sum(stmt: PackedProduct, ctx: TileContext, team: Expr) -> None:
    """All parts, in the first team's registers of the first block."""
    sums, count = ctx.held[stmt.c.buffer], _registers(stmt)
    own = let("own", ctx.warpgroup * WARPGROUP + ctx.own)

    def place(first: Expr, register: int) -> Expr:
        return first + u32(register // _TOGETHER * _threads(stmt) * _BYTES)

    def slot(part: Expr) -> Expr:
        return ctx.base + (u32(part) * u32(count // _TOGETHER * _threads(stmt)) + u32(own)) * u32(_BYTES)

    run(T.cuda.cluster_sync())
    with when(tirx.And(tirx.EQ(team, i32(0)), ctx.rank > 0)):
        there = let("there", in_block(slot(ctx.rank - 1), 0))
        for register in range(0, count, _TOGETHER):
            values = [sums[register + i] for i in range(_TOGETHER)]
            ptx("st.shared::cluster.v4.f32", place(there, register), *values)
    run(T.cuda.cluster_sync())
    with when(tirx.And(tirx.EQ(team, i32(0)), tirx.EQ(ctx.rank, i32(0)))):
        part = registers(_TOGETHER, "float32")
        for number in range(stmt.split - 1):
            here = let("here", slot(i32(number)))
            for register in range(0, count, _TOGETHER):
                add_vector(sums, register, part, place(here, register))


def add_vector(sums: Var, first: int, part: Var, place: Expr) -> None:
    """Adds sums in shared memory, by way of ``part``, to those of a thread from ``first`` on."""
    ptx("ld.shared.v4.f32", *[part[i] for i in range(_TOGETHER)], place)
    for i in range(_TOGETHER):
        put(sums, sums[first + i] + part[i], first + i)


def _registers(stmt: PackedProduct) -> int:
    return stmt.tile.rows * stmt.tile.columns // 2


def _threads(stmt: PackedProduct) -> int:
    """Those that hold the sums of a tile."""
    return stmt.teams.rows * WARPGROUP
