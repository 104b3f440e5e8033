"""``tilec.tvm.tir``: the names that kernel files take from TVM's ``tir`` to compute with, on tilec's values.

Helpers of dequantising kernels build their expressions with ``tir.const``, ``tir.reinterpret`` and the like
and mix them with elements of tiles; so these give the language's expressions. Every other name is TVM's own.
"""

from __future__ import annotations

from typing import Any

_OF_THE_LANGUAGE = frozenset(
    (
        "Cast", "Select", "abs", "ceil", "ceildiv", "clz", "cos", "erf", "exp", "exp2", "floor", "floordiv",
        "floormod", "fmod", "if_then_else", "infinity", "isfinite", "isinf", "isnan", "likely", "log", "log2",
        "max", "max_value", "min", "min_value", "popcount", "pow", "reinterpret", "round", "rsqrt", "sigmoid",
        "sin", "sqrt", "tanh", "trunc", "truncdiv", "truncmod",
    )
)  # fmt: skip
_EXPRESSIONS = ("PrimExpr", "Expr")


def const(value: Any, dtype: Any = None) -> Any:
    """The number ``value`` as an expression of ``dtype``: by default int32, float32 or bool, as its Python
    type says. Raises ValueError where ``value`` is out of the range of ``dtype``."""
    from tilec import language

    return language.dtype(type(value) if dtype is None else dtype)(value)


def __getattr__(name: str) -> Any:
    if name in _EXPRESSIONS:
        from tilec.language.values import Value

        return Value
    if name in _OF_THE_LANGUAGE:
        from tilec import language

        return getattr(language, name)
    import tvm

    return getattr(tvm.tirx, name)
