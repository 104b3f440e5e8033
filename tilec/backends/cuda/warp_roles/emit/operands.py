"""Matrix descriptors: how wgmma finds its operands in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.wgmma import ROWS, STEP_BYTES
from tilec.backends.cuda.warp_roles.emit.build import u32
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.emit.context import RoleContext
    from tilec.ir.nodes import Region

#: Matrix descriptor (PTX ISA, "Shared Memory Matrix Layout"): 128-byte swizzle, 1024 bytes from one group of
#: eight rows to the next. The field at bit 16 is the step between slabs where rows run across K.
_SWIZZLED, _GROUP_STEP, _SLAB_BIT = 1 << 62, (1024 >> 4) << 32, 16


class Operand:
    """One version of a shared tile as an operand. ``across``: its rows of 128 bytes run along M or N, else
    along K."""

    def __init__(self, region: Region, across: bool, ctx: RoleContext) -> None:
        self._across = across
        self._slab = (int_value(region.buffer.shape[1]) or 1) * ROW_BYTES
        self._first = ctx.version(region.buffer, ctx.value(region.start[0]))

    @property
    def block_bytes(self) -> int:
        """From one block of 64 rows of M to the next."""
        return self._slab if self._across else ROWS * ROW_BYTES

    def descriptor(self, block: Expr | None = None) -> Expr:
        """The matrix descriptor, of a block of 64 rows of M where one is given."""
        step = self._slab >> 4 if self._across else 1
        place = self._first if block is None else self._first + u32(block) * u32(self.block_bytes)
        low = T.bitwise_and(T.shift_right(place, u32(4)), u32(0x3FFF))
        return tirx.Cast("uint64", low) + tirx.const(_SWIZZLED | _GROUP_STEP | step << _SLAB_BIT, "uint64")

    def step(self, number: int, block: int = 0) -> Expr:
        """What a step of 32 bytes along K (16 rows of it, or a quarter of a row) adds to a descriptor, with
        so many blocks of rows."""
        if self._across:
            offset = number * STEP_BYTES // 2 * ROW_BYTES
        else:
            slab, part = divmod(number, ROW_BYTES // STEP_BYTES)
            offset = slab * self._slab + part * STEP_BYTES
        return tirx.const(offset + block * self.block_bytes >> 4, "uint64")
