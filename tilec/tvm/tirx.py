"""``tilec.tvm.tirx``: the names that kernel files take from TVM's ``tirx`` (``tir`` in older versions) to
compute with, on tilec's values.

Helpers of dequantising kernels build their expressions with ``tir.const``, ``tir.reinterpret`` and the like
and mix them with elements of tiles; so these give the language's expressions. Every other name is TVM's own,
which takes the language's expressions and gives TVM's; kernels take those too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_OF_THE_LANGUAGE = frozenset(
    (
        "Broadcast Cast Ramp Select Shuffle abs acos acosh address_of asin asinh assume atan atan2 "
        "atanh bitwise_and bitwise_not bitwise_or bitwise_xor call_extern call_intrin "
        "call_pure_extern ceil ceildiv clz comm_reducer copysign cos cosh decl_buffer erf exp exp10 "
        "exp2 floor floordiv floormod fmod hypot if_then_else infinity isfinite isinf isnan ldexp "
        "likely log log10 log1p log2 max max_value min min_value nearbyint nextafter popcount pow "
        "reinterpret round rsqrt shift_left shift_right sigmoid sin sinh sqrt tan tanh trunc "
        "truncdiv truncmod tvm_access_ptr tvm_thread_allreduce"
    ).split()
)
_SPELLED = {"power": "pow", "indexdiv": "floordiv", "indexmod": "floormod"}
#: Classes that annotations and isinstance name -> modules and names of tilec's.
_CLASSES = {
    "PrimExpr": ("values", "Value"),
    "Expr": ("values", "Value"),
    "Buffer": ("buffers", "Buffer"),
    "BufferLoad": ("buffers", "Element"),
    "BufferRegion": ("buffers", "Slice"),
    "PrimFunc": ("programs", "PrimFunc"),
}


class _OfConstants(type):
    """``isinstance(x, IntImm)``: whether it is an expression that is a number of that kind."""

    node: str

    def __instancecheck__(cls, value: Any) -> bool:
        from tilec.language.values import Value

        return isinstance(value, Value) and type(value.expr).__name__ == cls.node

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)  # type: ignore[attr-defined]


class IntImm(metaclass=_OfConstants):
    """``IntImm("int32", 3)``: an integer of a dtype."""

    node = "IntImm"

    @staticmethod
    def make(dtype: Any, value: int) -> Any:
        """The constant."""
        return const(int(value), dtype)


class FloatImm(metaclass=_OfConstants):
    """``FloatImm("float32", 0.5)``: a number of a floating-point dtype."""

    node = "FloatImm"

    @staticmethod
    def make(dtype: Any, value: float) -> Any:
        """The constant."""
        return const(float(value), dtype)


class Var(metaclass=_OfConstants):
    """``Var("m", "int32")``: a runtime dimension of that name, as ``T.dynamic``."""

    node = "Var"

    @staticmethod
    def make(name: str, dtype: Any = "int32") -> Any:
        """The dimension."""
        from tilec import language

        return language.Var(name, dtype)


def const(value: Any, dtype: Any = None) -> Any:
    """The number ``value`` as an expression of ``dtype``: by default int32, float32 or bool, as its Python
    type says. Raises ValueError where ``value`` is out of the range of ``dtype``."""
    from tilec import language

    return language.dtype(type(value) if dtype is None else dtype)(value)


def convert(value: Any) -> Any:
    """A number, an expression or a list of them as expressions."""
    from tilec.language.conversions import wrap

    return [convert(each) for each in value] if isinstance(value, (list, tuple)) else wrap(value)


def all(*conditions: Any) -> Any:
    """The conjunction of conditions."""
    return _joined("And", conditions)


def any(*conditions: Any) -> Any:
    """The disjunction of conditions."""
    return _joined("Or", conditions)


def _joined(name: str, conditions: tuple[Any, ...]) -> Any:
    from tilec.language.conversions import condition, tirx_function
    from tilec.language.values import Value

    first, *rest = (condition(each, "a conjunction") for each in conditions)
    for each in rest:
        first = tirx_function(name)(first, each)
    return Value(first)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        module, found = _CLASSES[name]
        return getattr(import_module(f"tilec.language.{module}"), found)
    if name in _OF_THE_LANGUAGE or name in _SPELLED:
        return getattr(import_module("tilec.language"), _SPELLED.get(name, name))
    from tvm import tirx

    return getattr(tirx, name)
