"""Operands of mma.sync in registers: where each lane's four or two words come from.

Lane l of a warp has g = l // 4 and t = l % 4. Word q of A is row g + 8 * (q % 2), word q of B column g; both
hold 4 bytes of K from byte 4 * t of a 16-byte half, the second half for A's words 2 and 3 and B's word 1
(PTX ISA, "Matrix Fragments for mma"). ldmatrix gives eight rows of 16 bytes in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cuda.emit import call
from tilec.lowering.cuda.mma import COLUMNS, ROWS, STEP_BYTES
from tilec.lowering.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region
    from tilec.lowering.cuda.context import DeviceContext

_LDMATRIX = """
__device__ __forceinline__ void {name}(unsigned* to, const void* from) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{holes}}}, [%{count}];"
               : {outputs} : "r"(address) : "memory");
}}
"""
_BITS = """
__device__ __forceinline__ unsigned {name}(const void* from) {{ return *(const {type}*)from; }}
"""
_TF32 = """
__device__ __forceinline__ unsigned tilec_tf32(unsigned bits) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}
"""
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}


def _ldmatrix(to: Var, place: int, pointer: Expr, count: int, trans: bool) -> tirx.Stmt:
    name = f"tilec_ldmatrix_x{count}{'_trans' if trans else ''}"
    code = _LDMATRIX.format(
        name=name,
        count=count,
        trans=".trans" if trans else "",
        holes=", ".join(f"%{q}" for q in range(count)),
        outputs=", ".join(f'"=r"(to[{q}])' for q in range(count)),
    )
    return call(T.cuda.func_call(name, to.ptr_to([place]), pointer, source_code=code))


def bits(pointer: Expr, size: int) -> Expr:
    """``size`` bytes at ``pointer`` as an unsigned word."""
    name = f"tilec_bits_{size}"
    code = _BITS.format(name=name, type=_WORDS[size])
    return T.cuda.func_call(name, pointer, source_code=code, return_type="uint32")


def rounded(words: Var, ctx: DeviceContext) -> tirx.Stmt:
    """float32 words rounded to TF32, to nearest."""
    var = ctx.fresh("r", "int32")
    value = T.cuda.func_call("tilec_tf32", words[var], source_code=_TF32, return_type="uint32")
    count = tirx.const(int_value(words.shape[0]), "int32")
    return tirx.For(var, tirx.const(0), count, tirx.ForKind.UNROLLED, tirx.BufferStore(words, value, [var]))


@dataclass(frozen=True, eq=False)
class FragmentOperand:
    """An A operand in the registers of an earlier accumulator (16-bit elements, `operand_layout`)."""

    data: Var
    steps: int

    def load(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The four words of one instruction."""
        first = (tile * self.steps + step) * 8
        return [
            tirx.BufferStore(to, bits(self.data.ptr_to([first + 2 * q]), 4), [tirx.const(place + q, "int32")])
            for q in range(4)
        ]


@dataclass(frozen=True, eq=False)
class SharedOperand:
    """An operand in shared memory, as (M or N, K) or with ``across`` as (K, M or N); this warp's part starts
    at ``first`` along M or N, all warps take ``covered`` rows or columns."""

    region: Region
    across: bool
    first: Expr
    covered: int
    ctx: DeviceContext

    def load(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The words of A for one instruction."""
        lane, start = self._lane(), tile * ROWS
        if not self._has_matrix_loads():
            return [self._word(to, place + q, start + 8 * (q % 2), step, q // 2) for q in range(4)]
        row, half = lane % 16, lane // 16
        if self.across:
            row, half = lane // 8 % 2 * 8, lane // 16
            return [_ldmatrix(to, place, self._at(row + start, lane % 8, half, step, 8), 4, True)]
        return [_ldmatrix(to, place, self._at(row + start, None, half, step, 1), 4, False)]

    def load_pair(self, to: Var, place: int, tile: int, step: int, count: int) -> list[tirx.Stmt]:
        """The words of B for one instruction or two neighbours."""
        lane, start = self._lane(), tile * COLUMNS
        if not self._has_matrix_loads():
            return [
                self._word(to, place + 2 * n + q, start + n * COLUMNS, step, q)
                for n in range(count)
                for q in range(2)
            ]
        half = lane // 8 % 2
        if self.across:
            column = lane // 16 * 8 if count == 2 else lane * 0
            return [_ldmatrix(to, place, self._at(column + start, lane % 8, half, step, 8), 2 * count, True)]
        column = lane % 8 + lane // 16 * 8 if count == 2 else lane % 8
        return [_ldmatrix(to, place, self._at(column + start, None, half, step, 1), 2 * count, False)]

    # ---- places ----

    def _lane(self) -> _Unsigned:
        assert self.ctx.lane is not None
        return _Unsigned(tirx.Cast("uint32", self.ctx.lane))

    @property
    def _size(self) -> int:
        return element_bytes(str(self.region.buffer.dtype))

    def _extent(self) -> int:
        """How many rows or columns the tile has."""
        return int_value(self.region.extent[-1 if self.across else -2]) or 1

    def _has_matrix_loads(self) -> bool:
        """Whether eight rows of 16 bytes can be loaded at once: they are aligned and, where they must be
        transposed, of 16-bit elements in whole groups of eight."""
        pitch, column = int_value(self.region.buffer.shape[-1]) or 0, self.region.start[-1]
        chunk = tirx.const(16 // self._size, dtype_of(column))
        zero = tirx.const(0, dtype_of(column))
        if pitch * self._size % 16:
            return False
        if self.ctx.facts.prove(tirx.EQ(tirx.floormod(column, chunk), zero)) is not True:
            return False
        return not self.across or (self._size == 2 and self._extent() % 8 == 0)

    def _at(self, item: _Unsigned, k: _Unsigned | None, half: _Unsigned, step: int, group: int) -> Expr:
        """The address of ``item`` (a row or column of the tile) at half ``half`` of a step along K; with
        ``k`` the row of that half."""
        offset = half * (16 // self._size) + step * (STEP_BYTES // self._size)
        if k is not None:
            offset = offset + k
        return self._pointer(self._clamped(item, group), offset.value)

    def _clamped(self, item: _Unsigned, group: int) -> Expr:
        """``item`` from this warp's part on, kept inside of the tile: results beyond are ignored."""
        place = tirx.Cast("int32", item.value) + self.first
        extent = self._extent()
        if self.covered <= extent:
            return place
        return tirx.min(place, tirx.const(extent - group, "int32"))

    def _pointer(self, item: Expr, k: Expr) -> Expr:
        k = tirx.Cast("int32", k)
        inner = (k, item) if self.across else (item, k)
        starts = [tirx.Cast("int32", self.ctx.value(start)) for start in self.region.start]
        indices = [*starts[:-2], starts[-2] + inner[0], starts[-1] + inner[1]]
        storage = self.ctx.storage(self.region.buffer)
        return storage.data.ptr_to([storage.offset(indices)])

    def _word(self, to: Var, place: int, start: int, step: int, half: int) -> tirx.Stmt:
        """One word, element by element."""
        lane, size = self._lane(), self._size
        count = 4 // size
        item = self._clamped(lane // 4 + start, 1)
        first = lane % 4 * count + (step * STEP_BYTES + half * 16) // size
        word: Expr = tirx.const(0, "uint32")
        for element in range(count):
            part = bits(self._pointer(item, (first + element).value), size)
            word = (
                part
                if element == 0
                else tirx.bitwise_or(word, tirx.shift_left(part, tirx.const(8 * size * element, "uint32")))
            )
        return tirx.BufferStore(to, word, [tirx.const(place, "int32")])


@dataclass(frozen=True, eq=False)
class _Unsigned:
    """An unsigned expression whose // and % are the machine's."""

    value: Expr

    def __add__(self, other: int | _Unsigned) -> _Unsigned:
        return _Unsigned(self.value + _word_of(other))

    def __mul__(self, other: int) -> _Unsigned:
        return _Unsigned(self.value * _word_of(other))

    def __floordiv__(self, other: int) -> _Unsigned:
        return _Unsigned(tirx.truncdiv(self.value, _word_of(other)))

    def __mod__(self, other: int) -> _Unsigned:
        return _Unsigned(tirx.truncmod(self.value, _word_of(other)))


def _word_of(value: int | _Unsigned) -> Expr:
    return value.value if isinstance(value, _Unsigned) else tirx.const(value, "uint32")
