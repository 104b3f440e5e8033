"""How lanes look one of 16 numbers up, which lie side by side in registers, by the four lower bits of an
index: by one instruction of AVX-512, by two of AVX2 and a choice among both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call
from tvm.target import codegen

from tilec.backends.cpu.bit_numbers import has_tables
from tilec.ir.exprs import int_value
from tilec.lowering.math.vectors import literal

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: Numbers of a table.
SIZE = 16
_WHOLE = "llvm.x86.avx512.permvar.sf.512"
_HALF = "llvm.x86.avx2.permps"
_CHOOSE = "llvm.x86.avx.blendv.ps.256"
_HALF_LANES = SIZE // 2
_HALF_BITS = 256
#: How far the bit of an index that tells halves apart is from the sign of its lane.
_TO_SIGN = 28


@dataclass(frozen=True)
class TableForm:
    """Look-ups in ``lanes`` lanes, which have to save ``least`` operations."""

    lanes: int
    least: int

    def of(self, table: Expr, at: Expr) -> Expr:
        """The numbers of ``table``, a vector of 16 floats, at ``at``, an int32 vector."""
        if self.lanes == SIZE:
            return tirx.call_llvm_pure_intrin(f"float32x{SIZE}", _WHOLE, table, at)
        low, high = (
            tirx.call_llvm_pure_intrin(f"float32x{self.lanes}", _HALF, half, at) for half in _halves(table)
        )
        signs = tirx.reinterpret(f"float32x{self.lanes}", at << literal(_TO_SIGN, "int32", self.lanes))
        return tirx.call_llvm_pure_intrin(f"float32x{self.lanes}", _CHOOSE, low, high, signs)


def table_form(target: Target) -> TableForm | None:
    """The form of a target; None where it has none."""
    if has_tables(target):
        return TableForm(SIZE, least=2)
    has_halves = target.arch == "x86_64" and target.vector_bits == _HALF_BITS
    return TableForm(_HALF_LANES, least=6) if has_halves else None


def looked_up(value: Expr) -> tuple[Expr, Expr] | None:
    """The table and the places of lanes that one instruction looks up; None for others."""
    if not isinstance(value, Call) or getattr(value.op, "name", "") != "tirx.call_llvm_pure_intrin":
        return None
    instruction, *parts = value.args
    return (parts[0], parts[1]) if int_value(instruction) == _instruction() else None


@lru_cache(maxsize=1)
def _instruction() -> int:
    return int(codegen.llvm_lookup_intrinsic_id(_WHOLE))


def _halves(table: Expr) -> list[Expr]:
    places = range(SIZE)
    return [tirx.Shuffle([table], list(half)) for half in (places[:_HALF_LANES], places[_HALF_LANES:])]
