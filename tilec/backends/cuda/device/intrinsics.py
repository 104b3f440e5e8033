"""Intrinsics as CUDA has them: powers of two, erf, and LLVM's maximum and minimum, which conversions of 8-bit
floats use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.target import codegen

from tilec.backends.cuda.device import floats
from tilec.backends.cuda.device.floats import ERF, EXP2
from tilec.codegen.once import once
from tilec.errors import CompileError
from tilec.ir.exprs import cast_to, dtype_of
from tilec.ir.extremes import DROPPING, KEEPING
from tilec.lowering.emission.storage import is_nan

if TYPE_CHECKING:
    from tvm.ir import Call, Expr


@once
def register_intrinsics() -> None:
    """Tells TVM once how CUDA computes them."""
    _register_extremes()
    tirx.register_intrin_lowering("tirx.exp2", target="cuda", f=_exp2, level=99)
    tirx.register_intrin_lowering("tirx.erf", target="cuda", f=_erf, level=99)
    tirx.register_intrin_lowering("tirx.round", target="cuda", f=_round, level=99)


def _exp2(call: Call) -> Expr:
    (value,) = call.args
    if dtype_of(call) == "float64":
        return tirx.call_pure_extern("float64", "exp2", value)
    if dtype_of(call) != "float32":
        return call
    return EXP2.call(value)


def keeping_nan(kind: str, left: Expr, right: Expr) -> Expr:
    """max or min of floats that is NaN where either operand is."""
    if dtype_of(left) == "float64":
        numbers = DROPPING[kind](left, right)
        return tirx.Select(is_nan(left), left, tirx.Select(is_nan(right), right, numbers))
    return floats.keeping_nan(KEEPING[kind], kind).call(left, right)


def _round(call: Call) -> Expr:
    """Ties away from zero; TVM's own rule is that of nearbyint."""
    (value,) = call.args
    if dtype_of(call) == "float64":
        return tirx.call_pure_extern("float64", "round", value)
    nearest = tirx.call_pure_extern("float32", "roundf", tirx.Cast("float32", value))
    return cast_to(nearest, dtype_of(call))


def _erf(call: Call) -> Expr:
    (value,) = call.args
    return ERF.call(value) if dtype_of(call) == "float32" else call


def _register_extremes() -> None:
    """fmax and fmin, except that a NaN on the left stays."""
    pairs = (("llvm.maximum", tirx.Max), ("llvm.minimum", tirx.Min))
    kinds = {codegen.llvm_lookup_intrinsic_id(name): kind for name, kind in pairs}

    def lowered(call: Call) -> Expr:
        number, left, right = call.args
        kind = kinds.get(int(number.value))
        if kind is None:
            raise CompileError(f"CUDA has no form of LLVM intrinsic {int(number.value)}")
        return tirx.Select(is_nan(left), left, kind(left, right))

    tirx.register_intrin_lowering("tirx.call_llvm_pure_intrin", target="cuda", f=lowered, level=99)
