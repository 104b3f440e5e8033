"""``tilec.tvm.tirx``: the names that kernel files take from TVM's ``tirx`` (``tir`` in older versions) to
compute with, on tilec's values.

Helpers of dequantising kernels build their expressions with ``tir.const``, ``tir.reinterpret`` and the like
and mix them with elements of tiles; so these give the language's expressions. Every other name is TVM's own,
which takes the language's expressions and gives TVM's; kernels take those too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilec.packages import find_aliases

find_aliases(__name__)

_OF_THE_LANGUAGE = frozenset(
    (
        "Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Broadcast Cast Div EQ FloorDiv FloorMod GE "
        "GT LE LShift LT Max Min Mod Mul NE Not Or RShift Ramp Select Shuffle Sub abs acos acosh "
        "address_of asin asinh assume atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor "
        "call_extern call_intrin call_pure_extern ceil ceildiv clz comm_reducer copysign cos cosh "
        "decl_buffer erf exp exp10 exp2 floor floordiv floormod fmod hypot if_then_else infinity "
        "isfinite isinf isnan ldexp likely log log10 log1p log2 max max_value min min_value nearbyint "
        "nextafter popcount pow reinterpret round rsqrt shift_left shift_right sigmoid sin sinh sqrt tan "
        "tanh trunc truncdiv truncmod tvm_access_ptr tvm_thread_allreduce"
    ).split()
)
_SPELLED = {"all": "And", "any": "Or", "indexdiv": "floordiv", "indexmod": "floormod", "power": "pow"}
#: Classes that annotations and isinstance name -> modules and names of tilec's.
_CLASSES = {
    "PrimExpr": ("values.value", "Value"),
    "Expr": ("values.value", "Value"),
    "Buffer": ("tiles.buffers", "Buffer"),
    "BufferLoad": ("tiles.buffers", "Element"),
    "BufferRegion": ("tiles.buffers", "Slice"),
    "FloatImm": ("frontend.script_names", "FloatImm"),
    "IntImm": ("frontend.script_names", "IntImm"),
    "PrimFunc": ("frontend.programs", "PrimFunc"),
    "Var": ("frontend.script_names", "Var"),
}


def const(value: Any, dtype: Any = None) -> Any:
    """The number ``value`` as an expression of ``dtype``: by default int32, float32 or bool, as its Python
    type says. Raises ValueError where ``value`` is out of the range of ``dtype``."""
    from tilec import language

    return language.dtype(type(value) if dtype is None else dtype)(value)


def convert(value: Any) -> Any:
    """A number, an expression or a list of them as expressions."""
    from tilec.language.values.operands import wrap

    return [convert(each) for each in value] if isinstance(value, (list, tuple)) else wrap(value)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        module, found = _CLASSES[name]
        return getattr(import_module(f"tilec.language.{module}"), found)
    if name in _OF_THE_LANGUAGE or name in _SPELLED:
        return getattr(import_module("tilec.language"), _SPELLED.get(name, name))
    from tvm import tirx

    return getattr(tirx, name)
