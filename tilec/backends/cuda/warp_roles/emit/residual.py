"""Device code of a tensor that an epilogue reads where it writes: boxes of it come by TMA.

They come to the staging buffers and stay until the results take their place: a warp reads the 16 x 16
elements that it will store with ldmatrix, which is the inverse of the stmatrix that stores them. The first
boxes of a tile are on their way while its products are computed, the others while the chunks before theirs
are converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.ir import TensorLoad
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.build import (
    cell,
    coordinate,
    i32,
    move,
    ptx,
    put,
    registers,
    run,
    u32,
    when,
)
from tilec.backends.cuda.warp_roles.emit.load import LOAD, OF_CLUSTER
from tilec.backends.cuda.warp_roles.emit.staging import boxes, drain_stores, first_thread, staging_buffer
from tilec.ir.traits import loads_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.nodes import TileStore

_READ = {
    False: "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    True: "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
}
#: Barriers of a warpgroup: one for each of its staging buffers.
MOST_BUFFERS = 2


def residual_bytes(warpgroups: int) -> int:
    """Shared memory for the barriers of all warpgroups."""
    return warpgroups * MOST_BUFFERS * 8


def open_residuals(ctx: TileContext) -> None:
    """Sets the barriers up."""
    for number in range(ctx.roles.consumers * MOST_BUFFERS):
        ptx("mbarrier.init.shared.b64", ctx.named_place("residual", 8 * number), u32(1))


class Residual:
    """The boxes of one epilogue loop, by one consumer."""

    def __init__(self, stmt: TileStore, ctx: TileContext) -> None:
        assert stmt.map is not None
        assert stmt.residual is not None
        self._stmt, self._ctx = stmt, ctx
        self.load = residual_load(stmt)
        self._parities = [cell(0) for _ in range(stmt.buffers)]
        self._bytes = stmt.rows * stmt.columns * 2

    @property
    def _chunks(self) -> int:
        return len(self._stmt.chunks)

    def begin(self) -> None:
        """Starts the first boxes of a tile, behind the stores of the last one."""
        with when(first_thread(self._ctx)):
            drain_stores()
            for chunk in range(min(self._stmt.buffers, self._chunks)):
                self._start(chunk)

    def wait(self, chunk: int) -> None:
        """Until the box of a chunk is there."""
        parity = self._parities[chunk % self._stmt.buffers]
        run(T.cuda.mbarrier_wait(self._barrier(chunk), parity[0]))
        put(parity, T.bitwise_xor(parity[0], i32(1)))

    def go_on(self, chunk: int) -> None:
        """Starts the box that takes the buffer of a chunk whose store is under way; by the storing thread."""
        if chunk + self._stmt.buffers < self._chunks:
            drain_stores()
            self._start(chunk + self._stmt.buffers)

    def pairs(self, address: Expr) -> list[tuple[TensorLoad, Var]]:
        """The elements of this thread in a block of 16 x 16: four pairs, in the order of stmatrix, and what
        they stand for."""
        packed = registers(4, "uint32")
        ptx(_READ[self._stmt.turned], *[packed[i] for i in range(4)], address)
        found = []
        for quarter in range(4):
            pair = registers(2, str(self.load.source.dtype))
            move(pair, packed, i32(quarter), 4)
            found.append((self.load, pair))
        return found

    def _barrier(self, chunk: int) -> Expr:
        number = u32(self._ctx.warpgroup) * u32(MOST_BUFFERS) + u32(chunk % self._stmt.buffers)
        return self._ctx.named_place("residual") + number * u32(8)

    def _start(self, chunk: int) -> None:
        ctx, stmt = self._ctx, self._stmt
        assert stmt.residual is not None
        to = staging_buffer(stmt, ctx, chunk)
        ptx("mbarrier.arrive.expect_tx.shared.b64", self._barrier(chunk), u32(self._bytes))
        name = LOAD.format(rank=len(self.load.indices), scope=OF_CLUSTER, mode="tile")
        for offset, start in boxes(stmt, ctx, chunk, tuple(self.load.indices)):
            places = map(coordinate, reversed(start))
            ptx(name, to + u32(offset), ctx.map_of(stmt.residual), *places, self._barrier(chunk))


def residual_load(stmt: TileStore) -> TensorLoad:
    """The element of the residual that an element of the loop reads."""
    assert stmt.residual is not None
    buffer = stmt.residual.buffer
    found = loads_of(*stmt.body)
    return next(load for load in found if load.source.same_as(buffer))
