"""SparseWarpgroupProduct as wgmma.sp: values by descriptors or in registers, places in words of lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.products.wgmma import ROWS, STEP_BYTES
from tilec.backends.cuda.device.matrices import sparse_wgmma
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.places import ONE, TWO, Places
from tilec.backends.cuda.nodes import SparseWarpgroupProduct
from tilec.backends.cuda.statement_roles.emit.product import Product
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, ptx, registers
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Rows of an instruction that a warp has.
_ROWS_OF_A_WARP = ROWS // WARPS_OF_A_GROUP


@emits(SparseWarpgroupProduct)
def _product(stmt: SparseWarpgroupProduct, ctx: DeviceContext) -> None:
    """All steps along K, as one group."""
    SparseProduct(stmt, ctx).issue()
    ptx("wgmma.commit_group.sync.aligned")


class SparseProduct(Product):
    """The instructions of one warpgroup: two steps of B for each of A. Of 16-bit types lanes hold the places
    of two steps in a word: two of each four those of the first one, the others those of the second."""

    opcode, spread = "wgmma.mma_async.sp.sync.aligned", 2
    is_in_table = False

    def __init__(self, stmt: SparseWarpgroupProduct, ctx: DeviceContext) -> None:
        super().__init__(stmt, ctx)
        size = element_bytes(str(stmt.a.buffer.dtype))
        self._places = Places(stmt.e, stmt.trans_e, size, ctx)
        self._steps_each = 2 if size == 2 else 1
        self._depth = self.spread * STEP_BYTES // size

    def issue(self) -> None:
        """Loads the words of all instructions in front of them."""
        each = self._words_of_a_row
        self._held = registers(self.rows * each, "uint32")
        for place in range(self.rows * each):
            T.buffer_store(self._held, self._word(*divmod(place, each)), [place])
        super().issue()

    def instruction(self, template: Any, step: int, row: int, first: int, operands: list[Expr]) -> Any:
        """One instruction with the word of its step."""
        number, selector = divmod(step, self._steps_each)
        helper = sparse_wgmma(self.name, self.dtype, self.sums_each, self.from_registers, selector, self.tail)
        word = self._held[row * self._words_of_a_row + number]
        return helper.call(self.sums_at(row, first), *operands, word, self.adds(step))

    @property
    def _words_of_a_row(self) -> int:
        """Of a row of instructions."""
        return -(-self.stmt.tile.steps // self._steps_each)

    def _word(self, row: int, number: int) -> Expr:
        """That of a row of instructions and some steps: the last one may have fewer."""
        assert self.ctx.warp is not None
        step = number * self._steps_each
        lanes = TWO if step + 1 < self.stmt.tile.steps and self._steps_each == 2 else ONE
        own = tirx.truncmod(self.ctx.warp, i32(WARPS_OF_A_GROUP)) * i32(_ROWS_OF_A_WARP)
        return self._places.word(self.row + own + i32(row * ROWS), step * self._depth, lanes)
