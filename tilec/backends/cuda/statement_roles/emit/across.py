"""What lanes read of operands stored across K: rows of bytes by ldmatrix.trans, of words in pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import ROWS_ACROSS, WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.products.wgmma import ROWS, STEP_BYTES
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.device.matrices import CUT, TURN_BY, ldmatrix
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.nodes import BringOperand, WarpgroupProduct, WarpTile
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, let, registers, run, u32
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region

#: Words of a row of instructions and a step that a lane holds.
WORDS = 4
#: Rows of an instruction that a warp has.
_ROWS_OF_A_WARP = ROWS // WARPS_OF_A_GROUP


def pointer(region: Region, row: Expr, column: Expr, ctx: DeviceContext) -> Expr:
    """The address of an element of a region."""
    storage = ctx.storage(region.buffer)
    *lead, first, second = (ctx.value(start) for start in region.start)
    return storage.data.ptr_to([storage.offset([*lead, first + row, second + column])])


class ByteRows:
    """32 rows of bytes by ldmatrix.x4.trans, of which a lane gets words of four neighbours along K in two
    columns: of rows 0 to 15 two, of the others two. Each matrix of 8 x 8 pairs has two rows of each four, for
    the lanes of the upper half of 16 the other two than for those of the lower half: rows 0, 1, 4, 5, 10, 11,
    14 and 15 meet no bank twice in slabs."""

    def __init__(self, lane: Expr) -> None:
        matrix, line = tirx.truncdiv(lane, i32(8)), tirx.truncmod(lane, i32(8))
        half = tirx.bitwise_xor(tirx.truncmod(matrix, i32(2)), tirx.truncdiv(line, i32(4)))
        row = tirx.truncdiv(matrix, i32(2)) * i32(16) + tirx.truncdiv(line, i32(2)) * i32(4)
        self._row = let("row", row + half * i32(2) + tirx.truncmod(line, i32(2)))
        is_upper = tirx.GE(tirx.truncmod(lane, i32(4)), i32(2))
        self._selector = let("selector", tirx.Select(is_upper, u32(0x2064), u32(0x6420)))

    def load(self, words: Expr, region: Region, row: Expr, column: Expr, ctx: DeviceContext) -> None:
        """Starts to load 16 columns from an element of a region on."""
        run(ldmatrix(WORDS, True).call(words, pointer(region, row + self._row, column, ctx)))

    def turn(self, to: Expr, words: Expr, swapped: Expr | None = None) -> None:
        """Makes words of what is loaded: those of even columns come first, where ``swapped`` is 1 the
        others."""
        selector = self._selector
        if swapped is not None:
            selector = tirx.bitwise_xor(selector, tirx.Cast("uint32", swapped) * u32(0x1111))
        run(TURN_BY.call(to, words, selector))


@emits(BringOperand)
def _bring(stmt: BringOperand, ctx: DeviceContext) -> None:
    """Four words for each row of instructions and each step."""
    count = stmt.tile.tiles[0] * stmt.tile.steps
    words = ctx.brought[stmt.registers] = registers(count * WORDS, "uint32")
    load = _bytes if _is_bytes(stmt.a) else _pairs
    load(stmt, words, first_row(stmt.tile, ctx), ctx)


def turned_words(stmt: WarpgroupProduct, ctx: DeviceContext) -> Var:
    """The A operand of all instructions of a product, of what lanes have loaded."""
    assert stmt.registers is not None
    assert ctx.lane is not None
    count = stmt.tile.tiles[0] * stmt.tile.steps * WORDS
    loaded, words = ctx.brought[stmt.registers], registers(count, "uint32")
    if not _is_bytes(stmt.a):
        for at in range(count):
            T.buffer_store(words, CUT.call(loaded[at]), [at])
        return words
    lines = ByteRows(ctx.lane)
    for at in range(0, count, WORDS):
        lines.turn(words.ptr_to([at]), loaded.ptr_to([at]))
    return words


def first_row(tile: WarpTile, ctx: DeviceContext) -> Expr:
    """The first row of this warpgroup."""
    assert ctx.warp is not None
    down, across = tile.warps[0] // WARPS_OF_A_GROUP, tile.warps[1]
    if down == 1:
        return i32(0)
    group = tirx.truncdiv(ctx.warp, i32(WARPS_OF_A_GROUP))
    return tirx.truncdiv(group, i32(across)) * i32(tile.tiles[0] * ROWS)


def _is_bytes(region: Region) -> bool:
    return element_bytes(str(region.buffer.dtype)) == 1


def _bytes(stmt: BringOperand, words: Var, first: Expr, ctx: DeviceContext) -> None:
    assert ctx.lane is not None
    assert ctx.warp is not None
    lines = ByteRows(ctx.lane)
    own = first + tirx.truncmod(ctx.warp, i32(WARPS_OF_A_GROUP)) * i32(_ROWS_OF_A_WARP)
    places = [(row, step) for row in range(stmt.tile.tiles[0]) for step in range(stmt.tile.steps)]
    for number, (row, step) in enumerate(places):
        at = words.ptr_to([number * WORDS])
        lines.load(at, stmt.a, i32(step * STEP_BYTES), own + i32(row * ROWS), ctx)


def _pairs(stmt: BringOperand, words: Var, first: Expr, ctx: DeviceContext) -> None:
    """Two neighbours of M at once, of which the first is an instruction's row lane // 4, the second that 8
    rows below."""
    assert ctx.lane is not None
    column = first + _own_row(ctx)
    for row in range(stmt.tile.tiles[0]):
        for part in range(stmt.tile.steps * 2):
            at = (row * stmt.tile.steps * 2 + part) * 2
            depth = tirx.truncmod(ctx.lane, i32(4)) + i32(part * 4)
            source = pointer(stmt.a, depth, column + i32(row * ROWS), ctx)
            run(moves.fetch(8).call(words.ptr_to([at]), source))


def _own_row(ctx: DeviceContext) -> Expr:
    """The row of an instruction's 64 that a lane reads first, by the digits of its layout."""
    places = {"lane": ctx.lane, "warp": ctx.warp}
    total: Expr = i32(0)
    weight = 1
    for digit in ROWS_ACROSS[4]:
        if digit.space in places:
            value = tirx.truncmod(tirx.truncdiv(places[digit.space], i32(digit.stride)), i32(digit.size))
            total = total + value * i32(weight)
        weight *= digit.size
    return let("own_row", total)
