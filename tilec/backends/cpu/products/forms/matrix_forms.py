"""Instructions of aarch64 that multiply 2 x K by K x 2 matrices held in two vectors (bf16, i8mm).

Their operands are pairs of 64-bit words, one for each row of ``a`` or column of ``b``; four sums of a vector
are the products of both rows with both columns, row by row (Arm ARM, BFMMLA, SMMLA, UMMLA, USMMLA).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.products.forms.dot_forms import DotForm

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.nodes import RegisterBlock
    from tilec.targets import Target

#: Rows of ``a``, or columns of ``b``, of one instruction.
PAIR = 2

_SOURCE = """
declare <4 x {sum}> @{intrinsic}(<4 x {sum}>, <{count} x {element}>, <{count} x {element}>)
define linkonce_odr hidden <4 x {sum}> @tilec_{name}(<4 x {sum}> %sum, <2 x i64> %a, <2 x i64> %b)
    alwaysinline nounwind memory(none) {{
  %left = bitcast <2 x i64> %a to <{count} x {element}>
  %right = bitcast <2 x i64> %b to <{count} x {element}>
  %next = call <4 x {sum}> @{intrinsic}(<4 x {sum}> %sum, <{count} x {element}> %left,
                                        <{count} x {element}> %right)
  ret <4 x {sum}> %next
}}
"""


@dataclass(frozen=True)
class MatrixForm(DotForm):
    """One instruction; ``sums`` is the type of what it adds up."""

    sums: str = "int32"

    def block(self, vectors: RegisterBlock, rows: int, depth: int, columns: int) -> RegisterBlock | None:
        """As for `DotForm`; one row alone would leave half of the instruction unused."""
        return super().block(vectors, rows, depth, columns) if rows > 1 else None

    def multiplied(self, a: Expr, b: Expr, total: Expr) -> Expr:
        """``total`` plus the products of the rows in ``a`` and the columns in ``b``."""
        return tirx.call_extern(f"{self.sums}x4", f"tilec_{self.name}", total, a, b)


def _bytes_form(name: str, stored: str) -> MatrixForm:
    intrinsic = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
    source = _SOURCE.format(name=name, intrinsic=intrinsic, sum="i32", element="i8", count=16)
    return MatrixForm(name, 8, stored, source=source, word="int64")


_BFMMLA = _SOURCE.format(
    name="bfmmla", intrinsic="llvm.aarch64.neon.bfmmla", sum="float", element="bfloat", count=8
)
MATRIX_FORMS = {
    form.name: form
    for form in (
        MatrixForm("bfmmla", 4, "bfloat16", source=_BFMMLA, word="int64", sums="float32"),
        _bytes_form("smmla", "int8"),
        _bytes_form("ummla", "uint8"),
        _bytes_form("usmmla", "int8"),
    )
}
_BY_TYPES = {
    ("bfloat16", "bfloat16", "float32"): ("bf16", "bfmmla"),
    ("int8", "int8", "int32"): ("i8mm", "smmla"),
    ("uint8", "uint8", "int32"): ("i8mm", "ummla"),
    ("uint8", "int8", "int32"): ("i8mm", "usmmla"),
}


def matrix_form(target: Target, a: str, b: str, c: str) -> MatrixForm | None:
    """The instruction for operands of types ``a`` and ``b`` into ``c``; None without one."""
    feature, name = _BY_TYPES.get((a, b, c), ("", ""))
    return MATRIX_FORMS[name] if name and target.has(feature) else None
