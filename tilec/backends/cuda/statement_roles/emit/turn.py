"""TurnTile: of bytes by ldmatrix.trans, of words through registers of lanes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.turn_operands import UNITS
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.statement_roles.emit.across import WORDS, ByteRows, pointer
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, let, registers, run, when
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

#: Units that a warp reads before it writes the first of them: no read waits for a write.
_AHEAD = 4
#: What reads a unit, at a row and a column of the tile, into words of a lane, and what writes it from there.
Part: TypeAlias = "Callable[[Expr, Expr, Var], None]"


@emits(TurnTile)
def _turn(stmt: TurnTile, ctx: DeviceContext) -> None:
    """Warps take units of a tile in turns."""
    assert ctx.warp is not None
    size = element_bytes(str(stmt.src.buffer.dtype))
    read, write = _bytes(stmt, ctx) if size == 1 else _words(stmt, ctx)
    rows, columns = UNITS[size]
    across, along = static_extents(stmt.dst.buffer)[-2:]
    count, wide = across // columns * (along // rows), across // columns
    held = [registers(WORDS, "uint32") for _ in range(min(_AHEAD, -(-count // ctx.warps)))]
    for begin in range(0, count, ctx.warps * len(held)):
        for part in (read, write):
            for number, words in enumerate(held):
                first = begin + number * ctx.warps
                unit = ctx.warp + i32(first)
                row = tirx.truncdiv(unit, i32(wide)) * i32(rows)
                column = tirx.truncmod(unit, i32(wide)) * i32(columns)
                whole = first + ctx.warps <= count
                with nullcontext() if whole else when(tirx.LT(unit, i32(count))):
                    part(row, column, words)


def _bytes(stmt: TurnTile, ctx: DeviceContext) -> tuple[Part, Part]:
    """Turns 32 rows of 16 columns. Lanes of the upper half of a warp write odd columns first, so that rows of
    the turned tile meet no bank twice in slabs."""
    assert ctx.lane is not None
    lane, lines = ctx.lane, ByteRows(ctx.lane)
    upper = let("upper", tirx.truncdiv(lane, i32(16)))

    def read(down: Expr, column: Expr, words: Var) -> None:
        lines.load(words.ptr_to([0]), stmt.src, down, column, ctx)

    def write(down: Expr, column: Expr, words: Var) -> None:
        lines.turn(words.ptr_to([0]), words.ptr_to([0]), upper)
        own = column + tirx.truncdiv(lane, i32(4)) * i32(2)
        for number in range(WORDS):
            place = down + tirx.truncmod(lane, i32(4)) * i32(4) + i32(number // 2 * 16)
            odd = tirx.bitwise_xor(upper, i32(number % 2))
            to = pointer(stmt.dst, own + odd, place, ctx)
            run(moves.fetch(4).call(to, words.ptr_to([number])))

    return read, write


def _words(stmt: TurnTile, ctx: DeviceContext) -> tuple[Part, Part]:
    """Turns 4 rows of 32 columns: a lane reads a column of them, as its neighbours read theirs, and stores 16
    bytes; in slabs neither meets a bank twice."""
    assert ctx.lane is not None
    lane = ctx.lane

    def read(down: Expr, column: Expr, words: Var) -> None:
        for number in range(WORDS):
            source = pointer(stmt.src, down + i32(number), column + lane, ctx)
            run(moves.fetch(4).call(words.ptr_to([number]), source))

    def write(down: Expr, column: Expr, words: Var) -> None:
        run(moves.fetch(16).call(pointer(stmt.dst, column + lane, down, ctx), words.ptr_to([0])))

    return read, write
