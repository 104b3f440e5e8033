"""SparseWarpGemm as mma.sp: the values of A as a dense operand, two steps of B, and the values' places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.mma import ROWS, STEP_BYTES, sparse_instruction_name
from tilec.backends.cuda.device.matrices import sparse_mma
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.operands import Operand, TiledOperand
from tilec.backends.cuda.emit.products.places import Places
from tilec.backends.cuda.emit.products.warp_gemm import Operands, Product, Registers
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import SparseWarpGemm
from tilec.lowering.emission.statements import sequence, store_at
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region


@emit.register(SparseWarpGemm)
def _emit_sparse(stmt: SparseWarpGemm, ctx: DeviceContext) -> tirx.Stmt:
    return SparseProduct(stmt, ctx).emit()


class SparseProduct(Product):
    """The instructions of one warp."""

    def operands(self, a: Region, b: Region) -> Operands:
        """Those of a product, with two steps of B for each of A, and the places."""
        left, right = self.dense_operands(a, b, 2 * self.tile.steps)
        stmt = self.stmt
        assert isinstance(stmt, SparseWarpGemm)
        rows = self.tile.tiles[0]
        first = self.row * tirx.const(rows * ROWS, "int32")
        places = Places(stmt.e, stmt.trans_e, element_bytes(self.types[0]), self.ctx)
        return left, _Pairs(right), _Words(places, rows, first)

    def words(self) -> tuple[int, ...]:
        """Four of each tile of A, four of each of B, one of places."""
        rows, columns = self.tile.tiles
        return rows * 4, columns * 4, rows

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """One instruction on the operands from ``places`` on."""
        number = partial(tirx.const, dtype="int32")
        a, b, e = buffers
        instruction = sparse_instruction_name(self.tile.instruction, self.types)
        place = self.base + (i * number(self.tile.tiles[1]) + j) * number(4)
        return call(
            sparse_mma(instruction, self.types[2]).call(
                self.accumulator.ptr_to([place]),
                a.ptr_to([i * number(4) + number(places[0])]),
                b.ptr_to([j * number(4) + number(places[1])]),
                e[i + number(places[2])],
            )
        )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Two steps of an operand as one: the words of both, tile by tile."""

    inner: Operand

    @property
    def words(self) -> int:
        """As `Operand.words`."""
        return 2 * self.inner.words

    def begin(self) -> list[tirx.Stmt]:
        """Those of the operand."""
        return self.inner.begin()

    def load(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """Both steps beside each other, then the words of each tile brought together."""
        name, count = f"{to.name}_halves", self.inner.words
        halves = tirx.decl_buffer((2 * count,), "uint32", name=name, scope="local")
        loads = [part for half in (0, 1) for part in self.inner.load(halves, half * count, 2 * step + half)]
        moves = [
            tirx.BufferStore(
                to,
                tirx.BufferLoad(halves, [tirx.const(half * count + tile * 2 + word, "int32")]),
                [tirx.const(place + tile * 4 + half * 2 + word, "int32")],
            )
            for tile in range(count // 2)
            for half in (0, 1)
            for word in (0, 1)
        ]
        return [sequence([tirx.AllocBuffer(halves), *loads, *moves])]


@dataclass(frozen=True, eq=False)
class _Words(TiledOperand):
    """The places of a sparse operand's values: a word for every 16 rows from ``first`` on and step."""

    places: Places
    tiles: int
    first: Expr

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return 1

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The word of 16 rows."""
        first = self.first + tirx.const(tile * ROWS, "int32")
        return [store_at(to, place, self.places.word(first, step * 2 * STEP_BYTES // self.places.size))]
