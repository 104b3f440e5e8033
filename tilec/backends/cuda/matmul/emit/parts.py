"""Device code of sums that the blocks of a cluster hold in parts: through distributed shared memory.

Block r gets share r of the columns from every block, its own included, adds the parts in the order of the
blocks, and so gives the same bits in every run. Of few columns the first blocks alone have shares, the
others send what they hold. Two barriers: `arrived` (all parts of a tile are here: it counts their bytes, as a
thread that told of its stores would wait for the whole GPU first) and `taken` (all blocks with shares have
read theirs, so that the next tile's may be written). Nobody signals `taken` for a last tile. Each thread
arrives for itself: that a warp has met, the assembler knows and leaves no trace of for tools that look for
races.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.barriers import WAIT_CLUSTER
from tilec.backends.cuda.device.remote import send_four
from tilec.backends.cuda.warp_roles.emit.barriers import in_block
from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, ptx, put, registers, run, u32, when

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.emit.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import SumParts

_GROUP = 128


class Exchange:
    """The parity of the exchange of a consumer; tiles alternate."""

    def __init__(self) -> None:
        self.parity = cell(0)


def open_exchange(stmt: SumParts, ctx: MatmulContext) -> None:
    """Sets up the two barriers: one thread announces bytes, every consumer thread of those with shares says
    that it has read."""
    ptx("mbarrier.init.shared.b64", _arrived(ctx), u32(1))
    ptx("mbarrier.init.shared.b64", _taken(ctx), u32(ctx.roles.consumers * _GROUP * stmt.shares))


def has_share(stmt: SumParts, ctx: MatmulContext) -> Expr | None:
    """Whether this block has a share; None where all have."""
    return None if stmt.shares == stmt.parts else let("shares", ctx.rank < stmt.shares)


def emit_sum(stmt: SumParts, ctx: MatmulContext, exchange: Exchange) -> None:
    """Sends every share to its block, waits for all parts of the own share and adds them."""
    _wait(_taken(ctx), T.bitwise_xor(exchange.parity[0], i32(1)))
    _announce(stmt, ctx)
    for block in range(stmt.shares):
        _send(stmt, ctx, block)
    with nullcontext() if ctx.present is None else when(ctx.present):
        _wait(_arrived(ctx), exchange.parity[0])
        _add(stmt, ctx)
        assert ctx.is_last is not None
        with when(tirx.Not(ctx.is_last)):
            for block in range(stmt.parts):
                _arrive(in_block(_taken(ctx), block))
    put(exchange.parity, T.bitwise_xor(exchange.parity[0], i32(1)))


def _arrived(ctx: MatmulContext) -> Expr:
    return ctx.named_place("exchange")


def _taken(ctx: MatmulContext) -> Expr:
    return ctx.named_place("exchange", 8)


def _wait(barrier: Expr, parity: Expr) -> None:
    run(WAIT_CLUSTER.call(barrier, u32(parity)))


def _arrive(barrier: Expr) -> None:
    ptx("mbarrier.arrive.release.cluster.shared::cluster.b64", barrier)


def _announce(stmt: SumParts, ctx: MatmulContext) -> None:
    """One thread of a block with a share says how many bytes come."""
    total = stmt.parts * ctx.roles.consumers * stmt.tile.rows * _held(stmt) * _GROUP * 4
    first = tirx.And(tirx.EQ(ctx.warpgroup, i32(0)), tirx.EQ(ctx.own, i32(0)))
    with when(first if ctx.present is None else tirx.And(first, ctx.present)):
        ptx("mbarrier.arrive.expect_tx.shared.b64", _arrived(ctx), u32(total))


def _held(stmt: SumParts) -> int:
    """Registers of a share in one block of 64 rows."""
    return stmt.tile.columns // stmt.shares // 2


def _slot(stmt: SumParts, ctx: MatmulContext, source: Expr, row: int, register: int) -> Expr:
    """Where four registers of a thread lie: 16 bytes of each thread side by side."""
    held = _held(stmt)
    share = stmt.tile.rows * held * _GROUP * 4
    groups = u32(source) * u32(ctx.roles.consumers) + u32(ctx.warpgroup)
    return (
        ctx.named_place("parts", (row * held + register) * _GROUP * 4)
        + groups * u32(share)
        + u32(ctx.own) * u32(16)
    )


def _kind(sums: Var) -> str:
    """How instructions call the sums' type."""
    return "f32" if str(sums.dtype) == "float32" else "b32"


def _send(stmt: SumParts, ctx: MatmulContext, block: int) -> None:
    sums, held = ctx.held[stmt.fragment], _held(stmt)
    first = let("slot", in_block(_slot(stmt, ctx, ctx.rank, 0, 0), block))
    arrived, store = let("arrived", in_block(_arrived(ctx), block)), send_four(_kind(sums))
    for row in range(stmt.tile.rows):
        for register in range(0, held, 4):
            at = row * stmt.tile.columns // 2 + block * held + register
            place = first + u32((row * held + register) * _GROUP * 4)
            run(store.call(place, arrived, *[sums[at + i] for i in range(4)]))


def _add(stmt: SumParts, ctx: MatmulContext) -> None:
    sums, held = ctx.held[stmt.fragment], _held(stmt)
    for row in range(stmt.tile.rows):
        for register in range(0, held, 4):
            parts = registers(4 * stmt.parts, str(sums.dtype))
            for block in range(stmt.parts):
                at = _slot(stmt, ctx, i32(block), row, register)
                ptx(f"ld.shared.v4.{_kind(sums)}", *[parts[4 * block + i] for i in range(4)], at)
            for i in range(4):
                total = sum((parts[4 * block + i] for block in range(1, stmt.parts)), parts[i])
                put(sums, total, row * held + register + i)
