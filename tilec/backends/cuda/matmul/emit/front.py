"""Zeros in front of an operand's rows, where TMA has brought the end of other rows.

A box starts at a multiple of 16 bytes. An operand that begins in between is loaded from the multiple before;
what stands there belongs to other rows and must not count, so that consumers write zeros over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.build import i32, let, ptx, put, registers, run, u32, when
from tilec.backends.cuda.warp_roles.emit.staging import group_barrier
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.ring import GROUP_ROWS
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.emit.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import ClearFront, RingDrain
    from tilec.backends.cuda.warp_roles.emit.position import Position

#: The words of a chunk of 16 bytes, which the swizzle moves as one.
_WORD, _WORDS = 4, 4
#: The named barrier of warpgroups that share a tile.
_SHARERS = 7


def clear_fronts(stmt: RingDrain, fronts: list[ClearFront], ctx: MatmulContext, position: Position) -> None:
    """Waits for the first stage of a tile, clears what stands in front of its rows, and shows that to the
    tensor core (PTX ISA, "Async proxy"). All warpgroups that share the tile wait for each other: each clears
    some of the rows that the others multiply. One that takes turns comes here in its turn: until then the
    barrier of its stage may be two phases behind, which have the same parity."""
    stage = let("first_stage", position.stage)
    run(T.cuda.mbarrier_wait(ctx.full(stage), position.parity))
    with ctx.scope({stmt.stage: stage}):
        for front in fronts:
            _clear(front, ctx)
    ptx("fence.proxy.async.shared::cta")
    if ctx.roles.sharers == 1:
        group_barrier(ctx)
    else:
        ptx("bar.sync", u32(_SHARERS), ctx.roles.sharers * WARPGROUP)


def _clear(front: ClearFront, ctx: MatmulContext) -> None:
    """The first elements of all rows of a tile: a thread has every so many-th row."""
    tile = front.tile.buffer
    rows, threads = int_value(tile.shape[1]) or 0, ctx.roles.sharers * WARPGROUP
    first = let("tile", ctx.version(tile, ctx.value(front.tile.start[0])))
    cleared = let("cleared", ctx.value(front.columns) * element_bytes(str(tile.dtype)))
    own = let("row", ctx.share * WARPGROUP + ctx.own)
    for start in range(0, rows, threads):
        row = own + start
        if start + threads <= rows:
            _clear_row(first, row, cleared)
            continue
        with when(row < rows):
            _clear_row(first, row, cleared)


def _clear_row(first: Expr, row: Expr, cleared: Var) -> None:
    """The first ``cleared`` bytes of a row of a tile at ``first``, whose chunks are swapped by its number."""
    chunk = T.truncmod(row, i32(GROUP_ROWS)) * (_WORD * _WORDS)
    address = let("front", first + u32(row * ROW_BYTES + chunk))
    words = registers(_WORDS, "uint32")
    ptx("ld.shared.v4.b32", *[words[i] for i in range(_WORDS)], address)
    for word in range(_WORDS):
        gone = T.min(T.max(cleared - word * _WORD, i32(0)), i32(_WORD)) * 8
        mask = T.shift_left(tirx.const(0xFFFFFFFF, "uint64"), tirx.Cast("uint64", gone))
        put(words, T.bitwise_and(words[word], tirx.Cast("uint32", mask)), word)
    ptx("st.shared.v4.b32", address, *[words[i] for i in range(_WORDS)])
