"""TurnBytes as ldmatrix.trans: a warp turns 32 rows of 16 columns at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.tiles import static_extents
from tilec.backends.cuda.analysis.turn_operands import COLUMNS, ROWS
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.device.matrices import TURN, ldmatrix
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.nodes import TurnBytes
from tilec.backends.cuda.warp_roles.build import emits, i32, let, registers, run, when

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Region


@emits(TurnBytes)
def _turn(stmt: TurnBytes, ctx: DeviceContext) -> None:
    """Matrices of 8 x 8 pairs, rows of which are taken such that a lane gets four neighbours along K."""
    assert ctx.lane is not None
    assert ctx.warp is not None
    columns, rows = static_extents(stmt.dst.buffer)
    count = columns // COLUMNS * (rows // ROWS)
    matrix, line = tirx.truncdiv(ctx.lane, i32(8)), tirx.truncmod(ctx.lane, i32(8))
    row = tirx.truncdiv(matrix, i32(2)) * i32(16) + tirx.truncmod(matrix, i32(2)) * i32(2)
    row = let("row", row + tirx.truncdiv(line, i32(2)) * i32(4) + tirx.truncmod(line, i32(2)))
    words = registers(4, "uint32")
    for first in range(0, count, ctx.warps):
        unit = ctx.warp + i32(first)
        if first + ctx.warps <= count:
            _unit(stmt, unit, columns // COLUMNS, row, words, ctx)
            continue
        with when(tirx.LT(unit, i32(count))):
            _unit(stmt, unit, columns // COLUMNS, row, words, ctx)


def _unit(stmt: TurnBytes, unit: Expr, across: int, row: Expr, words: Expr, ctx: DeviceContext) -> None:
    """Turns 32 rows of 16 columns; ``row``: the one whose place this lane gives."""
    assert ctx.lane is not None
    down = tirx.truncdiv(unit, i32(across)) * i32(ROWS)
    column = tirx.truncmod(unit, i32(across)) * i32(COLUMNS)
    run(ldmatrix(4, True).call(words.ptr_to([0]), _pointer(stmt.src, down + row, column, ctx)))
    run(TURN.call(words.ptr_to([0])))
    own = column + tirx.truncdiv(ctx.lane, i32(4)) * i32(2)
    for number in range(4):
        place = down + tirx.truncmod(ctx.lane, i32(4)) * i32(4) + i32(number // 2 * 16)
        to = _pointer(stmt.dst, own + i32(number % 2), place, ctx)
        run(moves.fetch(4).call(to, words.ptr_to([number])))


def _pointer(region: Region, row: Expr, column: Expr, ctx: DeviceContext) -> Expr:
    storage = ctx.storage(region.buffer)
    *lead, first, second = (ctx.value(start) for start in region.start)
    return storage.data.ptr_to([storage.offset([*lead, first + row, second + column])])
