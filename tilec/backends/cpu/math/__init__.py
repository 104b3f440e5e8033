"""Vector functions for CPU targets: float32 as polynomials without calls or branches, for any lane count.

float16 and bfloat16 are computed in float32 and rounded once. float64 goes to libm, one lane at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx import register_intrin_lowering

from tilec.backends.cpu.math import exponentials, inverses, logarithms, powers, special, trigonometric
from tilec.codegen.once import once
from tilec.ir.exprs import scalar_dtype
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Call, Expr

#: Functions of the language (TVM's operator names) that have a float32 vector form.
VECTOR_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": exponentials.exp,
    "exp2": exponentials.exp2,
    "exp10": exponentials.exp10,
    "sigmoid": exponentials.sigmoid,
    "tanh": exponentials.tanh,
    "sinh": exponentials.sinh,
    "cosh": exponentials.cosh,
    "log": logarithms.log,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "log1p": logarithms.log1p,
    "erf": special.erf,
    "sqrt": special.sqrt,
    "rsqrt": special.rsqrt,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": inverses.asin,
    "acos": inverses.acos,
    "atan": inverses.atan,
    "atan2": inverses.atan2,
    "asinh": inverses.asinh,
    "acosh": inverses.acosh,
    "atanh": inverses.atanh,
    "pow": powers.pow,
    "hypot": powers.hypot,
    "ldexp": powers.ldexp,
    "copysign": special.copysign,
    "round": special.round,
}
#: Functions that libm computes for float32 too: rare, and exact only bit by bit.
SCALAR_FUNCTIONS = ("fmod", "nextafter")

#: Functions with more than one argument.
ARITY = dict.fromkeys(("atan2", "copysign", "fmod", "hypot", "ldexp", "nextafter", "pow"), 2)
_ABOVE_BUILTIN_RULES = 100


@once
def register() -> None:
    """Makes TVM's LowerIntrin use these functions for LLVM targets of this process; idempotent."""
    for name in (*VECTOR_FUNCTIONS, *SCALAR_FUNCTIONS):
        rule = partial(_lower, name)
        register_intrin_lowering(_operator(name), target="llvm", f=rule, level=_ABOVE_BUILTIN_RULES)
    register_intrin_lowering("prim.clz", target="llvm", f=_leading_zeros, level=_ABOVE_BUILTIN_RULES)


def expanded(call: Call) -> Expr | None:
    """A call of a function of this package as plain arithmetic; None for any other call."""
    name = _name_of(call)
    return None if name is None else _lower(name, call)


def is_expanded(call: Call) -> bool:
    """Whether `expanded` has arithmetic for a call."""
    return _name_of(call) is not None


def _name_of(call: Call) -> str | None:
    return _names().get(str(getattr(call.op, "name", "")))


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return {_operator(name): name for name in (*VECTOR_FUNCTIONS, *SCALAR_FUNCTIONS)}


def _operator(name: str) -> str:
    """TVM's full name of a function: most are "tirx.<name>", some "prim.<name>"."""
    function = getattr(tirx, name)
    call = function(*(tirx.Var("x", "float32") for _ in range(ARITY.get(name, 1))))
    return str(call.op.name)


def _lower(name: str, call: Call) -> Expr:
    """One call of a mathematical function as plain arithmetic, or as calls of libm."""
    element = scalar_dtype(call)
    if element in ("float32", "float64"):
        return _lower_wide(name, element, call)
    vectors = Vectors(call)
    wide = [_widened(vectors, argument) for argument in call.args]
    result = getattr(tirx, name)(*wide)
    return tirx.Cast(call.ty.dtype, _lower_wide(name, "float32", result))


def _leading_zeros(call: Call) -> Expr:
    """Of 0 the width; TVM's own rule leaves that undefined."""
    (value,) = call.args
    count = tirx.call_llvm_pure_intrin(value.ty.dtype, "llvm.ctlz", value, tirx.const(False))
    return tirx.Cast(call.ty.dtype, count)


def _lower_wide(name: str, element: str, call: Call) -> Expr:
    if element == "float64" or name in SCALAR_FUNCTIONS:
        return scalar_calls(name, call)
    vectors = Vectors(call)
    return vectors.close(VECTOR_FUNCTIONS[name](vectors, *call.args))


def _widened(vectors: Vectors, argument: Expr) -> Expr:
    """float32 of a shorter float; integers stay."""
    return vectors.cast(argument, "float32") if scalar_dtype(argument).startswith("float") else argument


# ---- what has no vector form ----

#: What LLVM turns into instructions.
_INSTRUCTIONS = ("copysign", "round", "sqrt")


def scalar_calls(name: str, call: Call) -> Expr:
    """``call`` as libm calls: ``name`` for float64, ``name`` + "f" for float32."""
    element, v = scalar_dtype(call), Vectors(call)
    arguments = [v.name(argument) for argument in call.args]
    if v.lanes == 1:
        return v.close(_scalar(name, element, arguments))
    results = []
    for lane in range(v.lanes):
        results.append(_scalar(name, element, [tirx.Shuffle([argument], [lane]) for argument in arguments]))
    return v.close(tirx.Shuffle(results, list(range(v.lanes))))


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
