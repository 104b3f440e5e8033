"""RingTurn: bytes by ldmatrix.trans, permutations and stmatrix, by warps of the loading warpgroup.

A warp turns units of 32 rows and 16 columns: ldmatrix gives a lane two rows each of a pair of columns from
four matrices of eight rows, permutations make four neighbours of a column of each two matrices, and stmatrix
writes four matrices of eight columns: even and odd ones, of the first and of the second 16 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import RingTurn
from tilec.backends.cuda.device.exchange import ANEW
from tilec.backends.cuda.device.matrices import TURN
from tilec.backends.cuda.warp_roles.emit.barriers import arrive
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, let, ptx, registers, run, u32
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Warps that turn, the last ones: two share the columns of a tile such that places differ by constants.
_WARPS = 2
TURNERS = 32 * _WARPS
#: Rows of a unit and bytes of one of its rows; how many units a warp reads before it writes the first one.
_ROWS, _CHUNK, _AHEAD = 32, 16, 4
_WORDS, _CHUNKS = 4, ROW_BYTES // _CHUNK
_LOAD = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
_STORE = "stmatrix.sync.aligned.m8n8.x4.shared.b16"


@emits(RingTurn)
def _turn(stmt: RingTurn, ctx: AttentionContext) -> None:
    source, ring = stmt.source, stmt.ring
    read, written = ctx.positions[source.tile], ctx.positions[ring.tile]
    run(T.cuda.mbarrier_wait(ctx.full(source), read.parity))
    run(T.cuda.mbarrier_wait(ctx.empty(ring), written.other_parity))
    _units(_Unit.of(stmt, ctx))
    ptx("fence.proxy.async.shared::cta")
    arrive(ctx.full(ring))
    arrive(ctx.empty(source))
    read.advance()
    written.advance()


def _units(tile: _Unit) -> None:
    """A warp turns its columns."""
    places = [(chunk, down) for chunk in range(tile.chunks) for down in range(0, tile.rows, _ROWS)]
    held = [registers(_WORDS, "uint32") for _ in range(_AHEAD)]
    for begin in range(0, len(places), _AHEAD):
        batch = list(zip(places[begin : begin + _AHEAD], held, strict=False))
        for (chunk, down), words in batch:
            ptx(_LOAD, *(words[place] for place in range(_WORDS)), tile.read(chunk, down))
            run(TURN.call(words.ptr_to([0])))
        for (chunk, down), words in batch:
            ptx(_STORE, tile.written(chunk, down), *(words[place] for place in range(_WORDS)))


@dataclass(frozen=True)
class _Unit:
    """Where a lane reads and writes units of a tile of ``rows`` rows and ``chunks`` chunks of 16 columns of
    this warp, in slabs of 128 bytes whose chunks are swapped as TMA does: shared addresses of the first unit,
    and what of them is swapped."""

    rows: int
    chunks: int
    source: Var
    source_swap: Var
    target: Var
    target_swap: Var

    @classmethod
    def of(cls, stmt: RingTurn, ctx: AttentionContext) -> _Unit:
        """The places of this lane. They are found anew for each tile: kept ones would spill."""
        rows, columns = (int_value(extent) or 1 for extent in stmt.source.source.shape)
        chunks = columns // _CHUNK // _WARPS
        warp, lane = (
            let(name, u32(ANEW.call(number)))
            for name, number in (("turner", tirx.truncdiv(ctx.own, i32(32))), ("own_lane", ctx.lane))
        )
        warp = warp - u32(WARPGROUP // 32 - _WARPS)
        matrix, line = tirx.truncdiv(lane, u32(8)), tirx.truncmod(lane, u32(8))
        slab, chunk = divmod(chunks, _CHUNKS)
        across = lane * u32(ROW_BYTES) + warp * u32(slab * rows * ROW_BYTES)
        along = line * u32(2) + tirx.truncmod(matrix, u32(2))
        swap = T.bitwise_xor(tirx.truncdiv(matrix, u32(2)), tirx.truncmod(along, u32(_CHUNKS)))
        down = (warp * u32(chunks * _CHUNK) + along) * u32(ROW_BYTES)
        return cls(
            rows,
            chunks,
            let("source", ctx.version(stmt.source.tile, ctx.stage(stmt.source)) + across),
            let("source_swap", T.bitwise_xor(warp * u32(chunk), line) * u32(_CHUNK)),
            let("target", ctx.version(stmt.ring.tile, ctx.stage(stmt.ring)) + down),
            let("target_swap", swap * u32(_CHUNK)),
        )

    def read(self, chunk: int, down: int) -> Expr:
        """Of a unit the address of the row that this lane names to ldmatrix."""
        slab, own = divmod(chunk, _CHUNKS)
        place = self.source + u32(slab * self.rows * ROW_BYTES + down * ROW_BYTES)
        return place + T.bitwise_xor(self.source_swap, u32(own * _CHUNK))

    def written(self, chunk: int, down: int) -> Expr:
        """Of a unit the address of the 16 bytes that this lane names to stmatrix."""
        slab, own = divmod(down, ROW_BYTES)
        columns = self.chunks * _WARPS * _CHUNK
        place = self.target + u32(slab * columns * ROW_BYTES + chunk * _CHUNK * ROW_BYTES)
        return place + T.bitwise_xor(self.target_swap, u32(own))
