"""SparseWarpgroupProduct as wgmma.sp: values by descriptors or in registers, places in words of lanes.

wgmma reads the words as late as operands in registers: lanes load their halves while the product of the trip
before runs (BringPlaces), and join them behind the wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.products.wgmma import ROWS, STEP_BYTES
from tilec.backends.cuda.device.matrices import PAIR, sparse_wgmma
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.places import ONE, TWO, Places
from tilec.backends.cuda.nodes import BringPlaces, SparseWarpgroupProduct, WarpTile
from tilec.backends.cuda.statement_roles.emit.across import first_row
from tilec.backends.cuda.statement_roles.emit.product import Product
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, ptx, registers

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Rows of an instruction that a warp has.
_ROWS_OF_A_WARP = ROWS // WARPS_OF_A_GROUP
#: Steps of B for one of A.
_SPREAD = 2


class _Words:
    """How many words of places lanes have for the instructions of a tile. Of 16-bit types a word is for two
    steps: two lanes of each four hold those of the first one, the others those of the second."""

    def __init__(self, tile: WarpTile) -> None:
        self.depth = int(tile.instruction.rpartition("k")[2])
        self.size = _SPREAD * STEP_BYTES // self.depth
        self.steps, self.steps_each = tile.steps, self.size
        self.of_a_row = -(-tile.steps // self.steps_each)
        self.count = tile.tiles[0] * self.of_a_row

    def place(self, row: int, step: int) -> tuple[int, int]:
        """The word of a row of instructions and a step, and the selector of the lanes that hold it."""
        number, selector = divmod(step, self.steps_each)
        return row * self.of_a_row + number, selector

    def lanes(self, step: int) -> int:
        """The lanes that hold what steps from this one on want: the last word may be for fewer of them."""
        return TWO if self.steps_each == 2 and step + 1 < self.steps else ONE


@emits(BringPlaces)
def _bring(stmt: BringPlaces, ctx: DeviceContext) -> None:
    """Two halves for every word."""
    assert ctx.warp is not None
    words = _Words(stmt.tile)
    places = Places(stmt.e, stmt.trans_e, words.size, ctx)
    held = ctx.brought[stmt.registers] = registers(2 * words.count, "uint32")
    own = tirx.truncmod(ctx.warp, i32(WARPS_OF_A_GROUP)) * i32(_ROWS_OF_A_WARP)
    for word in range(words.count):
        row, number = divmod(word, words.of_a_row)
        step = number * words.steps_each
        first = first_row(stmt.tile, ctx) + own + i32(row * ROWS)
        for half, made in enumerate(places.halves(first, step * words.depth, words.lanes(step))):
            T.buffer_store(held, made, [2 * word + half])


@emits(SparseWarpgroupProduct)
def _product(stmt: SparseWarpgroupProduct, ctx: DeviceContext) -> None:
    """All steps along K, as one group."""
    SparseProduct(stmt, ctx).issue()
    ptx("wgmma.commit_group.sync.aligned")


class SparseProduct(Product):
    """The instructions of one warpgroup."""

    opcode, spread = "wgmma.mma_async.sp.sync.aligned", _SPREAD
    is_in_table = False

    def issue(self) -> None:
        """Makes the words of all instructions in front of them."""
        assert self.stmt.registers is not None
        self._places, halves = _Words(self.stmt.tile), self.ctx.brought[self.stmt.registers]
        self._held = registers(self._places.count, "uint32")
        for word in range(self._places.count):
            T.buffer_store(self._held, PAIR.call(halves[2 * word], halves[2 * word + 1]), [word])
        super().issue()

    @property
    def from_registers(self) -> bool:
        """Whether the values of A are in registers."""
        return self.stmt.a.buffer in self.ctx.fragments

    def instruction(self, template: Any, step: int, row: int, first: int, operands: list[Expr]) -> Any:
        """One instruction with the word of its step."""
        word, selector = self._places.place(row, step)
        helper = sparse_wgmma(self.name, self.dtype, self.sums_each, self.from_registers, selector, self.tail)
        places = self._held.ptr_to([word])
        return helper.call(self.sums_at(row, first), *operands, places, self.adds(step))
