"""Vector functions for CPU targets: float32 as polynomials without calls or branches, for any lane count.

float16 and bfloat16 are computed in float32 and rounded once. float64 goes to libm, one lane at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from tilec.lowering.cpu.math import exponentials, logarithms, special
from tilec.lowering.cpu.math.libm import scalar_calls
from tilec.lowering.cpu.math.vectors import Vectors, element_type

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
}

_ABOVE_BUILTIN_RULES = 100


@lru_cache(maxsize=1)
def register() -> None:
    """Makes TVM's LowerIntrin use these functions for LLVM targets of this process; idempotent."""
    from tvm.tirx import register_intrin_lowering

    for name, function in VECTOR_FUNCTIONS.items():
        register_intrin_lowering(
            f"tirx.{name}", target="llvm", f=partial(_lower, name, function), level=_ABOVE_BUILTIN_RULES
        )


def _lower(name: str, function: Callable[..., Expr], call: Call) -> Expr:
    """One call of a mathematical function as plain arithmetic."""
    from tvm import tirx

    element = element_type(call)
    if element == "float64":
        return scalar_calls(name, call)
    vectors = Vectors(call)
    if element == "float32":
        return vectors.close(function(vectors, *call.args))
    wide = [vectors.cast(argument, "float32") for argument in call.args]
    return tirx.Cast(call.ty.dtype, vectors.close(function(vectors, *wide)))
