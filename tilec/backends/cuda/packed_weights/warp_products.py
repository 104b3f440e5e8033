"""Products of packed weights by mma.sync, for few columns: each warp multiplies for itself.

wgmma makes a warpgroup wait for its own products before it may use their operands' registers again, which
costs more than they do where the second operand has 8 or 16 rows. Here warps wait for data alone. Warps that
share the columns of a stage take chunks of 128 of them; each then holds more rows of the tile and uses the
second operand's registers for all of them. The sums of all warps meet in shared memory at the end.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.mma import COLUMNS
from tilec.backends.cuda.analysis.products.mma import ROWS as WARP_ROWS
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.packed_weights.consume import meet, release
from tilec.backends.cuda.packed_weights.convert import Converter, single, twice
from tilec.backends.cuda.packed_weights.packing import CHUNK, LANES, STEP
from tilec.backends.cuda.packed_weights.parts import add_vector
from tilec.backends.cuda.warp_roles.emit.barriers import meet_warp
from tilec.backends.cuda.warp_roles.emit.build import i32, let, ptx, put, registers, u32, when
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.packed_weights.nodes import PackedProduct
    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane

WARPS = 4
_STEPS = CHUNK // STEP
VECTOR_BYTES = 16
#: Registers of a 16 x 8 accumulator, of an A and of a B operand.
SUMS, LEFT, RIGHT = 4, 4, 2
_NAME = "mma.sync.aligned.m16n8k16.row.col.{types}.f32"
#: Blocks of rows whose products interleave.
_TOGETHER = 2
_OTHERS = 28


def warp_registers(stmt: PackedProduct) -> int:
    """About how many registers a thread takes: sums, those of blocks under way, operands, packed words, and
    what addresses take (ptxas reports 72 to 143 where this says 76 to 140)."""
    across = stmt.tile.columns // COLUMNS
    sums = SUMS * across * (stmt.slices + _TOGETHER)
    return sums + RIGHT * _STEPS * across + 2 * SUMS * stmt.slices + _OTHERS


class WarpConsumer:
    """What one warp holds from trip to trip: the sums of ``blocks`` blocks of 16 rows over its slice of K."""

    def __init__(self, stmt: PackedProduct, ctx: TileContext, lane: Lane) -> None:
        self.stmt, self.ctx, self.lane = stmt, ctx, lane
        self.blocks, self.across = stmt.slices, stmt.tile.columns // COLUMNS
        self._group = let("group_row", T.truncdiv(lane.lane, i32(LANES)))
        self._quad = let("quad", T.truncmod(lane.lane, i32(LANES)))
        self.slice = let("slice", T.truncmod(lane.warp, i32(stmt.slices)))
        share = T.truncdiv(lane.warp, i32(stmt.slices)) * self.blocks
        self.first_block = let("first_block", ctx.warpgroup * (ROWS // WARP_ROWS) + share)
        self._row = let("first_row", self.first_block * WARP_ROWS + self._group)
        self._converter = Converter(stmt.packing, stmt.tile.types.rpartition(".")[2])
        self._places = self._matrix_places()
        self.sums = registers(SUMS * self.blocks * self.across, "float32")
        for register in range(SUMS * self.blocks * self.across):
            put(self.sums, tirx.const(0.0, "float32"), register)

    def trip(self, stage: Expr) -> None:
        """Converts and multiplies this warp's chunks of one stage, and gives the stage back."""
        chunks = self.stmt.tile.steps // _STEPS // self.stmt.slices
        for number in range(chunks):
            chunk = let("chunk", self.slice * chunks + number)
            right = self._activations(stage, chunk)
            for block in range(0, self.blocks, _TOGETHER):
                self._multiply(range(block, min(block + _TOGETHER, self.blocks)), stage, chunk, right)
        meet_warp()
        release(self.stmt, stage, self.ctx, self.lane)

    # ---- what a stage holds ----

    def _matrix_places(self) -> list[Expr]:
        """Where in a slab of 64 columns this lane's row of ldmatrix lies, for its first and second half."""
        row, matrix = T.truncmod(self.lane.lane, i32(8)), T.truncdiv(self.lane.lane, i32(8))
        chunks = (T.bitwise_xor(matrix + half * 4, row) for half in range(2))
        return [let("matrix", u32(row * ROW_BYTES + chunk * VECTOR_BYTES)) for chunk in chunks]

    def _activations(self, stage: Expr, chunk: Expr) -> Var:
        """The second operand of all products of a chunk: RIGHT words by step and by 8 columns."""
        tile = self.stmt.b.buffer
        lines = int_value(tile.shape[1]) or 1
        first = let("slab", self.ctx.version(tile, stage) + u32(chunk) * u32(2 * lines * ROW_BYTES))
        held = registers(RIGHT * _STEPS * self.across, "uint32")
        for column in range(self.across):
            for part in range(_STEPS // 2):
                slab, half = divmod(part, 2)
                at = first + u32((slab * lines + column * COLUMNS) * ROW_BYTES) + self._places[half]
                base = (column * _STEPS + part * 2) * RIGHT
                words = [held[base + word] for word in range(2 * RIGHT)]
                ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16", *words, at)
        return held

    def _words(self, stage: Expr, chunk: Expr, block: int, below: int) -> dict[int, Var]:
        """This lane's vectors of a row of a chunk, prepared for conversion."""
        packing, tile = self.stmt.packing, self.stmt.a.buffer
        rows = int_value(tile.shape[1]) or 1
        found = next(load for load in self.stmt.loads if load.dst.buffer.same_as(tile))
        width, stride = found.map.box[-1], packing.chunk_stride or 0
        chunks = max(1, width // (stride * VECTOR_BYTES))
        slab = self.ctx.version(tile, stage) + u32(T.truncdiv(chunk, i32(chunks))) * u32(rows * width)
        line = slab + u32(self._row + (block * WARP_ROWS + below * 8)) * u32(width)
        vectors = {}
        for vector in sorted({place.vector for step in packing.places[:_STEPS] for place in step}):
            at = T.truncmod(chunk, i32(chunks)) * stride + self._quad * packing.stride + vector
            if found.map.swizzle:
                at = T.bitwise_xor(at, self._group)
            loaded = registers(4, "uint32")
            ptx("ld.shared.v4.b32", *(loaded[word] for word in range(4)), line + u32(at) * u32(VECTOR_BYTES))
            for word in range(4 if packing.signed else 0):
                put(loaded, self._converter.prepared(loaded[word]), word)
            vectors[vector] = loaded
        return vectors

    def _scale(self, stage: Expr, chunk: Expr, block: int, below: int, part: int) -> Expr | None:
        """Where the scale of a row lies, for group ``part`` of those that a chunk has."""
        scale, group = self.stmt.scale, self.stmt.group
        if scale is None:
            return None
        columns = int_value(scale.buffer.shape[-1]) or 1
        number = T.truncdiv(chunk, i32(group // CHUNK)) if group >= CHUNK else chunk * (CHUNK // group) + part
        row = self._row + (block * WARP_ROWS + below * 8)
        return self.ctx.version(scale.buffer, stage) + u32(number * columns + row) * u32(2)

    # ---- products ----

    def _multiply(self, blocks: range, stage: Expr, chunk: Expr, right: Var) -> None:
        """A chunk's products of some blocks of rows, step by step."""
        stmt = self.stmt
        words = {block: [self._words(stage, chunk, block, below) for below in range(2)] for block in blocks}
        parts = {
            block: registers(SUMS * self.across, "float32") if stmt.scales_sums else None for block in blocks
        }
        scales: dict[int, list[Expr]] = {}
        for step in range(_STEPS):
            for block in blocks:
                if (
                    stmt.scale is not None
                    and not stmt.scales_sums
                    and step * STEP % min(stmt.group, CHUNK) == 0
                ):
                    scales[block] = self._factors(stage, chunk, block, step * STEP // stmt.group)
                left = self._left(step, words[block], scales.get(block))
                self._products(block, step, left, right, parts[block])
        for block, part in parts.items():
            if part is not None:
                self._add(block, part, self._factors(stage, chunk, block, 0))

    def _factors(self, stage: Expr, chunk: Expr, block: int, part: int) -> list[Expr]:
        """The scales of this lane's two rows, as pairs of 16 bits or as float32."""
        found = []
        for below in range(2):
            place = self._scale(stage, chunk, block, below, part)
            assert place is not None
            value = single(place, self._converter.kind) if self.stmt.scales_sums else twice(place)
            found.append(let("scale", value))
        return found

    def _left(self, step: int, words: list[dict[int, Var]], scales: list[Expr] | None) -> Var:
        """The first operand of a step."""
        held = registers(LEFT, "uint32")
        for half, place in enumerate(self.stmt.packing.places[step]):
            for below in range(2):
                pair = self._converter.pair(words[below][place.vector][place.word], place)
                put(held, self._converter.scaled(pair, scales[below]) if scales else pair, 2 * half + below)
        return held

    def _products(self, block: int, step: int, left: Var, right: Var, part: Var | None) -> None:
        """The products of one step, 8 columns at a time; a part starts with the first of them."""
        name = _NAME.format(types=self.stmt.tile.types)
        for column in range(self.across):
            into = self.sums if part is None else part
            first = column * SUMS + (block * self.across * SUMS if part is None else 0)
            sums = [into[first + register] for register in range(SUMS)]
            zeros = [tirx.const(0.0, "float32")] * SUMS
            base = (column * _STEPS + step) * RIGHT
            ptx(
                name,
                *sums,
                *(left[word] for word in range(LEFT)),
                *(right[base + word] for word in range(RIGHT)),
                *(zeros if part is not None and step == 0 else sums),
            )

    def _add(self, block: int, part: Var, factors: list[Expr]) -> None:
        """Adds a chunk's sums times their scales."""
        for register in range(SUMS * self.across):
            at = block * self.across * SUMS + register
            put(self.sums, self.sums[at] + part[register] * factors[register % SUMS // 2], at)


def add_slices(consumer: WarpConsumer, team: Expr, sums: Var) -> None:
    """The sums of all warps that share rows, in the first team's registers as wgmma would leave them, through
    the memory of the ring."""
    stmt, ctx, across = consumer.stmt, consumer.ctx, consumer.across
    blocks, size = stmt.teams.rows * WARPS, across * SUMS * 32 * 4
    lane = u32(consumer.lane.lane) * u32(4 * SUMS)

    def place(part: Expr, block: Expr, column: int) -> Expr:
        return ctx.base + u32(part * blocks + block) * u32(size) + u32(column * SUMS * 32 * 4) + lane

    meet(stmt.teams.consumers * 128)
    own = let("part", team * stmt.slices + consumer.slice)
    for block in range(consumer.blocks):
        for column in range(across):
            first = (block * across + column) * SUMS
            values = [consumer.sums[first + register] for register in range(SUMS)]
            ptx("st.shared.v4.f32", place(own, consumer.first_block + block, column), *values)
    meet(stmt.teams.consumers * 128)
    with when(tirx.EQ(team, i32(0))):
        row = let("row_block", ctx.warpgroup * WARPS + consumer.lane.warp)
        for part, column in itertools.product(range(stmt.teams.depth * stmt.slices), range(across)):
            found = registers(SUMS, "float32")
            add_vector(sums, column * SUMS, found, place(i32(part), row, column))
