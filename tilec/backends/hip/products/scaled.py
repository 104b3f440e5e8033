"""ScaledWaveGemm as the matrix instruction for small floats with scales.

Lanes have rows and columns as in every other one (`tilec.backends.hip.products.instructions`). Of 128 numbers
along K a lane of part p = lane / 16 has, of 8 bits, 16 from 16 p on and 16 from 64 + 16 p on, of 4 bits 32
from 32 p on; its scale is that of the 32 from 32 p on, for whichever lanes hold these. (AMD's instruction set
architecture document of CDNA4, "V_MFMA_SCALE_F32_16X16X128_F8F6F4"; register maps in ROCm's
composable_kernel, test/mx_mfma_op.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from tvm import tirx

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.backends.cuda.emit.products.operands import bits
from tilec.backends.cuda.emit.products.warp_gemm import Operands, Registers
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.hip.products.emit import MemoryOperand, WaveProduct
from tilec.backends.hip.products.helpers import add_products
from tilec.backends.hip.products.instructions import FORMS, SCALED, SIDE, SMALL_FORMATS, SMALL_FORMS
from tilec.backends.hip.products.scales import GROUP, SCALED_DEPTH
from tilec.backends.hip.products.tiles import ScaledWaveGemm
from tilec.ir.exprs import int32
from tilec.ir.small_floats import number_type, numbers_of
from tilec.lowering.emission.statements import store_at

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Region

_TEXT = """
__device__ __forceinline__ void {name}(float* c, const unsigned* a, const unsigned* b, \
unsigned sfa, unsigned sfb) {{
  typedef int operand __attribute__((ext_vector_type(8)));
  typedef float sums __attribute__((ext_vector_type(4)));
  operand rows = {{}}, columns = {{}};
  sums held;
  __builtin_memcpy(&rows, b, {b_bytes});
  __builtin_memcpy(&columns, a, {a_bytes});
  __builtin_memcpy(&held, c, sizeof(held));
  held = {builtin}(rows, columns, held, {b_format}, {a_format}, 0, sfb, 0, sfa);
  __builtin_memcpy(c, &held, sizeof(held));
}}
"""
#: Runs along K of a lane's numbers of a step, by how many of them a byte holds.
_RUNS = {1: 2, 2: 1}


@emit.register(ScaledWaveGemm)
def _emit_scaled(stmt: ScaledWaveGemm, ctx: DeviceContext) -> tirx.Stmt:
    return ScaledWaveProduct(stmt, ctx).emit()


class ScaledWaveProduct(WaveProduct):
    """The instructions of one wave, whose operands may be of different forms."""

    def __init__(self, stmt: ScaledWaveGemm, ctx: DeviceContext) -> None:
        super().__init__(stmt, ctx)
        self.regions, self.scales = (stmt.a, stmt.b), (stmt.sfa, stmt.sfb)

    def registers(self, operands: Operands) -> Registers:
        """As `Product.registers`."""
        names = ("a", "b", "sfa", "sfb")
        return tuple(self._room(name, each.words) for name, each in zip(names, operands, strict=True))

    def words(self) -> tuple[int, ...]:
        """As `Product.words`; a scale is one."""
        each = [FORMS[SMALL_FORMS[numbers_of(region)]].words for region in self.regions]
        rows, columns = self.tile.tiles
        return rows * each[0], columns * each[1], rows, columns

    def prepared(self, words: Var, place: int, count: int) -> list[tirx.Stmt]:
        """Nothing: numbers are multiplied as they are."""
        return []

    def operands(self, a: Region, b: Region) -> Operands:
        """As `Product.operands`, and the scales."""
        turned, teams = (self.stmt.trans_a, not self.stmt.trans_b), (self.row, self.column)
        numbers: list[MemoryOperand] = []
        scales: list[MemoryOperand] = []
        for place, region in enumerate((a, b)):
            held, tiles = numbers_of(region), self.tile.tiles[place]
            form = FORMS[SMALL_FORMS[held]]
            rest = (teams[place], tiles, form, False, _RUNS[held], self.ctx)
            numbers.append(MemoryOperand(region, turned[place], *rest))
            scales.append(ScaleOperand(self.scales[place], False, *rest))
        return (*numbers, *scales)

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """One instruction on the operands from ``places`` on."""
        a, b, sfa, sfb = buffers
        counts, tiles = self.words(), self.tile.tiles
        place = self.base + (i * int32(tiles[1]) + j) * int32(self.sums)
        first = i * int32(counts[0] // tiles[0]) + int32(places[0])
        second = j * int32(counts[1] // tiles[1]) + int32(places[1])
        return call(
            multiply_scaled(*map(number_type, self.regions)).call(
                self.accumulator.ptr_to([place]),
                a.ptr_to([first]),
                b.ptr_to([second]),
                sfa[i + int32(places[2])],
                sfb[j + int32(places[3])],
            )
        )


@dataclass(frozen=True, eq=False)
class ScaleOperand(MemoryOperand):
    """The scales of an operand of ``form``, bytes (rows, K / 32): of a step a lane has one for each of
    ``tiles`` instructions."""

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return 1

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """A byte for an instruction."""
        column = self.part() + int32(step * (SCALED_DEPTH // GROUP))
        return [store_at(to, place, bits(self.element(self.item(tile), column), 1))]


@cache
def multiply_scaled(a_type: str, b_type: str) -> Helper:
    """c += a b^T for operands of these types: a lane's words of a row of a, those of a row of b, its sums,
    and the scales that it has of these rows."""
    kinds = (a_type, b_type)
    a_bytes, b_bytes = (4 * FORMS[SMALL_FORMS[_numbers_in_byte(kind)]].words for kind in kinds)
    name = f"tilec_mfma_scale_{a_type}_{b_type}"
    text = _TEXT.format(
        name=name, builtin=SCALED, a_bytes=a_bytes, b_bytes=b_bytes,
        a_format=SMALL_FORMATS[a_type], b_format=SMALL_FORMATS[b_type],
    )  # fmt: skip

    def meaning(given: Lanes, c: Any, a: Any, b: Any, sfa: Any, sfb: Any) -> None:
        rows = [
            _rows(given, kind, words) * _scales(given, held)
            for kind, words, held in zip(kinds, (a, b), (sfa, sfb), strict=True)
        ]
        add_products(given, FORMS[SMALL_FORMS[1]], "float32", c, *rows)

    return Helper(name, text, meaning)


def _numbers_in_byte(kind: str) -> int:
    return 2 if kind == "float4_e2m1fn" else 1


def _rows(lanes: Lanes, kind: str, pointer: Any) -> np.ndarray:
    """Rows of an operand, of all waves: (wave, 16, 128)."""
    held = _numbers_in_byte(kind)
    loaded = (lanes.load(pointer, "uint32", place) for place in range(FORMS[SMALL_FORMS[held]].words))
    words = np.stack([np.broadcast_to(word, lanes.count) for word in loaded], axis=-1)
    found = np.ascontiguousarray(words).view(np.uint8)
    if held == 2:
        found = np.stack([found & 15, found >> 4], axis=-1)
    values = found.view(getattr(ml_dtypes, kind)).astype(np.float64)
    runs = _RUNS[held]
    parts = values.reshape(-1, SCALED_DEPTH // GROUP, SIDE, runs, GROUP // runs)
    rows: np.ndarray = parts.transpose(0, 2, 3, 1, 4).reshape(len(parts), SIDE, SCALED_DEPTH)
    return rows


def _scales(lanes: Lanes, word: Any) -> np.ndarray:
    """The scales of all numbers of those rows."""
    held = (np.broadcast_to(word, lanes.count).astype(np.uint32) & 255).astype(np.uint8)
    parts = held.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    blocks = parts.reshape(-1, SCALED_DEPTH // GROUP, SIDE).transpose(0, 2, 1)
    return np.repeat(blocks, GROUP, axis=2)
