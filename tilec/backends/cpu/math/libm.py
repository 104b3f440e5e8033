"""Calls of libm, one lane at a time: what has no vector form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import scalar_dtype
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Call, Expr

#: What LLVM turns into instructions.
_INSTRUCTIONS = ("copysign", "round", "sqrt")


def scalar_calls(name: str, call: Call) -> Expr:
    """``call`` as libm calls: ``name`` for float64, ``name`` + "f" for float32."""
    element = scalar_dtype(call)
    count = lanes_of(call)
    if count == 1:
        return _scalar(name, element, list(call.args))
    results = []
    for lane in range(count):
        results.append(_scalar(name, element, [tirx.Shuffle([argument], [lane]) for argument in call.args]))
    return tirx.Shuffle(results, list(range(count)))


def _scalar(name: str, element: str, arguments: list[Expr]) -> Expr:
    one = tirx.const(1.0, element)
    if name == "rsqrt":
        return one / _scalar("sqrt", element, arguments)
    if name == "sigmoid":
        return one / (one + _scalar("exp", element, [tirx.const(0.0, element) - arguments[0]]))
    if name in _INSTRUCTIONS:
        return tirx.call_llvm_pure_intrin(element, f"llvm.{name}", *arguments)
    suffix = "f" if element == "float32" else ""
    return tirx.call_pure_extern(element, f"{name}{suffix}", *arguments)
