"""LLVM's maximum and minimum, which conversions of 8-bit floats use, as CUDA has them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.target import codegen

from tilec.errors import CompileError
from tilec.lowering.cpu.storage import is_nan

if TYPE_CHECKING:
    from tvm.ir import Call, Expr


@cache
def register_intrinsics() -> None:
    """Tells TVM once how CUDA computes them: fmax and fmin, except that a NaN on the left stays."""
    pairs = (("llvm.maximum", tirx.Max), ("llvm.minimum", tirx.Min))
    kinds = {codegen.llvm_lookup_intrinsic_id(name): kind for name, kind in pairs}

    def lowered(call: Call) -> Expr:
        number, left, right = call.args
        kind = kinds.get(int(number.value))
        if kind is None:
            raise CompileError(f"CUDA has no form of LLVM intrinsic {int(number.value)}")
        return tirx.Select(is_nan(left), left, kind(left, right))

    tirx.register_intrin_lowering("tirx.call_llvm_pure_intrin", target="cuda", f=lowered, level=99)
