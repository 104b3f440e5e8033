"""One warpgroup's work on a stage of packed weights.

A consumer reads its packed words and makes operands from them, a batch of steps along K at a time; while the
products of one batch run it makes the operands of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.wgmma import ROWS, STEP_BYTES
from tilec.backends.cuda.device import barriers
from tilec.backends.cuda.device.matrices import DESCRIPTOR
from tilec.backends.cuda.packed_weights.convert import Converter
from tilec.backends.cuda.packed_weights.sums import GroupSums, ScaledOperands
from tilec.backends.cuda.warp_roles.emit.barriers import arrive
from tilec.backends.cuda.warp_roles.emit.build import cell, let, ptx, put, registers, run, u32, when
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Region

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.packed_weights.nodes import PackedProduct
    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane

#: Of a matrix descriptor: a step that swizzled layouts ignore.
_LOW_BITS = 1 << 16
#: The barrier of all consumers; those of one warpgroup come first.
_CONSUMERS = 9


def meet(threads: int) -> None:
    """Waits for all consumers, ``threads`` of them."""
    run(barriers.meet(_CONSUMERS, threads).call())


def release(stmt: PackedProduct, stage: Expr, ctx: TileContext, lane: Lane) -> None:
    """Each warp gives back a stage that it has read (none below 0), to every block that writes to it."""
    empty, pairs = ctx.empty(stage), stmt.pairs
    with when(tirx.And(lane.lane < pairs, stage >= 0)):
        arrive(empty, None if pairs == 1 else lane.lane)


class Consumer:
    """What one warpgroup holds from trip to trip."""

    def __init__(self, stmt: PackedProduct, ctx: TileContext, lane: Lane, sums: Var) -> None:
        self._stmt, self._ctx, self._lane = stmt, ctx, lane
        self._group = let("group_row", T.truncdiv(lane.lane, tirx.const(4, "int32")))
        self._quad = let("quad", T.truncmod(lane.lane, tirx.const(4, "int32")))
        self._converter = Converter(stmt.packing, stmt.tile.types.rpartition(".")[2])
        kind = GroupSums if stmt.scales_sums else ScaledOperands
        self._sums = kind(stmt, self._converter, sums)
        self._operands = [registers(4 * self._sums.batch, "uint32") for _ in range(2)]
        self._previous = cell(-1)

    def trip(self, stage: Expr) -> None:
        """Converts and multiplies one stage; gives back the one before when its products are done, or this
        one where they are done at its end."""
        stmt, ctx, tile = self._stmt, self._ctx, self._stmt.tile
        packed = let("packed", ctx.version(stmt.a.buffer, stage))
        second = let("b", self._low_word(stage))
        for block in range(tile.rows):
            first = ctx.warpgroup * (tile.rows * ROWS) + block * ROWS
            row = let("row", first + self._lane.warp * 16 + self._group)
            words = [self._words(packed, row + below) for below in (0, 8)]
            scales = [self._scale_addresses(stage, row + below) for below in (0, 8)]
            for batch in range(tile.steps // self._sums.batch):
                ptx("wgmma.wait_group.sync.aligned", 1)
                self._sums.begin(block, batch * self._sums.batch, scales)
                self._batch(batch, words, second)
                if block == 0 and batch == 1 and not self._stmt.scales_sums:
                    release(stmt, self._previous[0], ctx, self._lane)
        if self._sums.close():
            release(stmt, stage, ctx, self._lane)
        put(self._previous, stage)

    def finish(self) -> None:
        """Leaves the sums in the accumulator when all products are done."""
        ptx("wgmma.wait_group.sync.aligned", 0)
        self._sums.finish()

    # ---- what a stage holds ----

    def _words(self, packed: Expr, row: Expr) -> dict[int, Var]:
        """This lane's vectors of a row, prepared for conversion."""
        stmt, tile = self._stmt, self._stmt.a.buffer
        rows = int_value(tile.shape[1]) or 1
        found = next(load for load in stmt.loads if load.dst.buffer.same_as(tile))
        width = found.map.box[-1]
        vectors = {}
        for vector in stmt.packing.vectors:
            slab, chunk = vector * 16 // width, vector * 16 % width // 16
            at = self._quad * stmt.packing.stride + chunk
            if found.map.swizzle:
                at = T.bitwise_xor(at, self._group)
            address = packed + u32(row) * u32(width) + u32(at) * u32(16) + u32(slab * rows * width)
            loaded = registers(4, "uint32")
            ptx("ld.shared.v4.b32", *(loaded[word] for word in range(4)), address)
            for word in range(4 if stmt.packing.signed else 0):
                put(loaded, self._converter.prepared(loaded[word]), word)
            vectors[vector] = loaded
        return vectors

    def _scale_addresses(self, stage: Expr, row: Expr) -> list[Expr]:
        """Where the scales of a row's groups lie."""
        scale: Region | None = self._stmt.scale
        if scale is None:
            return []
        groups, columns = (int_value(extent) or 1 for extent in scale.buffer.shape[1:])
        first = let("scales", self._ctx.version(scale.buffer, stage) + u32(row) * u32(2))
        return [first + u32(group * columns * 2) for group in range(groups)]

    def _low_word(self, stage: Expr) -> Expr:
        address = T.shift_right(self._ctx.version(self._stmt.b.buffer, stage), u32(4))
        return T.bitwise_or(address, u32(_LOW_BITS))

    def _step_bytes(self, step: int) -> int:
        """Where a step's columns lie in the second operand's tile."""
        lines = int_value(self._stmt.b.buffer.shape[1]) or 1
        slab, part = divmod(step * STEP_BYTES, ROW_BYTES)
        return slab * lines * ROW_BYTES + part

    # ---- products ----

    def _batch(self, batch: int, words: list[dict[int, Var]], second: Expr) -> None:
        """Makes the operands of one batch and issues its products."""
        stmt, held = self._stmt, self._operands[batch % 2]
        first, steps = batch * self._sums.batch, range(self._sums.batch)
        for step in steps:
            self._sums.begin_step(first + step)
            for half, place in enumerate(stmt.packing.places[first + step]):
                for below in range(2):
                    pair = self._converter.pair(words[below][place.vector][place.word], place)
                    put(held, self._sums.operand(pair, below), 4 * step + 2 * half + below)
        ptx("wgmma.fence.sync.aligned")
        name = f"wgmma.mma_async.sync.aligned.m64n{stmt.tile.columns}k16.{stmt.tile.types}"
        for step in steps:
            number = first + step
            operand = [held[4 * step + word] for word in range(4)]
            at = DESCRIPTOR.call(second + u32(self._step_bytes(number) >> 4))
            adds = T.ptx.pred(int(self._sums.adds(number)))
            ptx(name, *self._sums.registers(), *operand, at, adds, 1, 1, 0)
        ptx("wgmma.commit_group.sync.aligned")
