"""Names of TVM's script that kernels of TileLang may use beside the language's own: ``T.Add(a, b)`` for
``a + b``, ``T.IntImm``, ``T.buffer_store``. All of them are other spellings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.ir import nodes as ir
from tilec.language.control.jumps import jump, loop_break
from tilec.language.control.lets import LetStmt, bind
from tilec.language.threads.lanes import shfl_xor
from tilec.language.tiles.parameters.signatures import Var as dimension
from tilec.language.values.conversions import condition, tirx_function, typed_value
from tilec.language.values.functions.integers import bitwise_not, truncdiv, truncmod
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import unsupported
from tilec.language.values.operators import apply
from tilec.language.values.scalars import NAMES as DTYPES
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value
from tilec.language.values.vectors import Broadcast, Ramp

_OPERATORS = {
    "Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "Min": "min", "Max": "max",
    "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "BitwiseAnd": "&", "BitwiseOr": "|",
    "BitwiseXor": "^", "LShift": "<<", "RShift": ">>",
}  # fmt: skip


class _OfNodes(type):
    """``isinstance(x, IntImm)``: whether it is an expression of that node of TVM's."""

    node: str

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Value) and type(value.expr).__name__ == cls.node

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)  # type: ignore[attr-defined]


class IntImm(metaclass=_OfNodes):
    """``IntImm("int32", 3)``: an integer of a dtype."""

    node = "IntImm"

    @staticmethod
    def make(dtype: Any, value: int) -> Value:
        """The constant."""
        return typed_value(int(value), make_dtype(dtype))


class FloatImm(metaclass=_OfNodes):
    """``FloatImm("float32", 0.5)``: a number of a floating-point dtype."""

    node = "FloatImm"

    @staticmethod
    def make(dtype: Any, value: float) -> Value:
        """The constant."""
        return typed_value(float(value), make_dtype(dtype))


class Var(metaclass=_OfNodes):
    """``Var("m", "int32")``: a runtime dimension of that name, as ``T.dynamic``."""

    node = "Var"

    @staticmethod
    def make(name: str, dtype: Any = "int32") -> Any:
        """The dimension."""
        return dimension(name, dtype)


def _operator(name: str, symbol: str) -> Callable[[Any, Any], Any]:
    def call(a: Any, b: Any) -> Any:
        return apply(symbol, a, b)

    call.__name__, call.__doc__ = name, f"``a {symbol} b``."
    return call


def Div(a: Any, b: Any) -> Any:
    """``a / b``; of integers the quotient towards zero."""
    return apply("/", a, b) if _is_float(a) or _is_float(b) else truncdiv(a, b)


def _is_float(value: Any) -> bool:
    return value.dtype.row.is_float if isinstance(value, Value) else isinstance(value, float)


def And(*conditions: Any) -> Value:
    """The conjunction of conditions."""
    return _joined("And", conditions)


def Or(*conditions: Any) -> Value:
    """The disjunction of conditions."""
    return _joined("Or", conditions)


def _joined(name: str, conditions: tuple[Any, ...]) -> Value:
    first, *rest = (condition(each, f"T.{name}") for each in conditions)
    for each in rest:
        first = tirx_function(name)(first, each)
    return Value(first)


def Not(a: Any) -> Value:
    """The negation of a condition."""
    return Value(tirx_function("Not")(condition(a, "T.Not")))


def BufferLoad(buffer: Any, indices: Any) -> Any:
    """``buffer[indices]``."""
    return buffer[tuple(indices)]


def buffer_store(buffer: Any, value: Any, indices: Any, predicate: Any = None) -> None:
    """``buffer[indices] = value``."""
    if predicate is not None:
        raise unsupported("T.buffer_store(predicate=...)", remedy="store under an if")
    buffer[tuple(indices)] = value


def continue_loop() -> None:
    """``continue`` of the innermost loop as a call."""
    if jump(sessions.builder("T.continue_loop"), "continue", ir.Continue):
        raise unsupported("T.continue_loop in a loop over a Python iterable", remedy="write continue")


def tvm_warp_shuffle_xor(mask: Any, value: Any, lane_mask: Any, width: int, warp_size: int) -> Value:
    """`shfl_xor` in TVM's order of arguments."""
    return shfl_xor(value, lane_mask, width, mask)


def meta_var(value: Any) -> Any:
    """The value itself: everything is Python's while a kernel is built."""
    return value


#: Every name of this module that the T namespace offers.
NAMES: dict[str, Any] = {
    **{name: _operator(name, symbol) for name, symbol in _OPERATORS.items()},
    **{f.__name__: f for f in (And, BufferLoad, Div, FloatImm, IntImm, LetStmt, Not, Or)},
    **{f.__name__: f for f in (bind, buffer_store, continue_loop, meta_var, tvm_warp_shuffle_xor)},
    "Bind": bind,
    "BitwiseNot": bitwise_not,
    "Break": loop_break,
    "Continue": continue_loop,
    "Mod": truncmod,
    "boolean": DTYPES["bool"],
    "break_loop": loop_break,
    "broadcast": Broadcast,
    "ramp": Ramp,
}
