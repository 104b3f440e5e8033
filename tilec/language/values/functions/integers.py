"""Integer functions of the language. Python numbers stay numbers."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.values.conversions import common, tirx_function
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply, invert
from tilec.language.values.scalars import dtype
from tilec.language.values.value import Value, is_symbolic


def floordiv(a: Any, b: Any) -> Any:
    """Integer division that rounds toward minus infinity: ``a // b``."""
    return apply("//", a, b)


def floormod(a: Any, b: Any) -> Any:
    """The remainder of `floordiv`: ``a % b``."""
    return apply("%", a, b)


def truncdiv(a: Any, b: Any) -> Any:
    """Integer division that rounds toward zero, as in C."""
    return _truncating("truncdiv", a, b)


def truncmod(a: Any, b: Any) -> Any:
    """The remainder of `truncdiv`, as in C."""
    return _truncating("truncmod", a, b)


def _truncating(name: str, a: Any, b: Any) -> Any:
    if is_symbolic(a, b):
        left, right = common(a, b, f"T.{name}")
        return Value(tirx_function(name)(left.expr, right.expr))
    quotient = builtins.abs(a) // builtins.abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if name == "truncdiv" else a - quotient * b


def ceildiv(a: Any, b: Any) -> Any:
    """``(a + b - 1) // b``. Raises `SourceValueError` where ``b`` is known to be no size."""
    if isinstance(b, int) and b < 1:
        raise source_error(
            SourceValueError,
            f"T.ceildiv by {b}",
            construct="T.ceildiv",
            why="it counts pieces of a size, and a piece has one element at least",
            remedy="give a positive divisor; where it is a tile size, correct the config",
        )
    return (a + (b - 1)) // b


def align_up(x: Any, y: Any) -> Any:
    """The smallest multiple of ``y`` that is at least ``x``."""
    return ceildiv(x, y) * y


def index_to_coordinates(index: Any, shape: Sequence[Any]) -> list[Any]:
    """Where element ``index`` of a row-major array of ``shape`` stands, one coordinate per axis."""
    coordinates = []
    for extent in reversed(shape):
        coordinates.append(floormod(index, extent))
        index = floordiv(index, extent)
    return coordinates[::-1]


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is at least ``x``, a Python integer."""
    return 1 << (int(x) - 1).bit_length()


def bitwise_and(a: Any, b: Any) -> Any:
    """``a & b``."""
    return apply("&", a, b)


def bitwise_or(a: Any, b: Any) -> Any:
    """``a | b``."""
    return apply("|", a, b)


def bitwise_xor(a: Any, b: Any) -> Any:
    """``a ^ b``."""
    return apply("^", a, b)


def bitwise_not(x: Any) -> Any:
    """``~x``; on a bool the negation."""
    return invert(x) if is_symbolic(x) else ~x


def shift_left(a: Any, b: Any) -> Any:
    """``a << b``."""
    return apply("<<", a, b)


def shift_right(a: Any, b: Any) -> Any:
    """``a >> b``, arithmetic on signed integers."""
    return apply(">>", a, b)


def popcount(x: Any) -> Value:
    """The number of set bits, in the argument's dtype."""
    value = wrap(x)
    counts = [Value(tirx_function("popcount")(word.expr)) for word in _words(value, "T.popcount")]
    total = counts[0] if len(counts) == 1 else apply("+", *counts)
    return cast_value(total, value.dtype)


def clz(x: Any) -> Value:
    """The number of leading zero bits, int32; of 0 the width."""
    value = wrap(x)
    words = _words(value, "T.clz")
    counts = [cast_value(Value(tirx_function("clz")(word.expr)), dtype("int32")) for word in words]
    if len(words) == 1:
        return counts[0] if value.dtype.bits == 32 else apply("-", counts[0], 32 - value.dtype.bits)
    low, high = counts
    return Value(tirx_function("Select")(apply("==", words[1], 0).expr, apply("+", low, 32).expr, high.expr))


def _words(value: Value, construct: str) -> list[Value]:
    """The bits of an integer as uint32, the lower half of 64 bits first."""
    if not value.dtype.row.is_integer:
        raise source_error(
            SourceTypeError,
            f"{construct} takes an integer, not {value.dtype}",
            remedy="use T.reinterpret first",
        )
    unsigned = cast_value(value, dtype(f"uint{value.dtype.bits}"))
    if value.dtype.bits < 64:
        return [cast_value(unsigned, dtype("uint32"))]
    return [cast_value(part, dtype("uint32")) for part in (unsigned, apply(">>", unsigned, 32))]


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        function.__name__: function
        for function in (
            floordiv,
            floormod,
            truncdiv,
            truncmod,
            ceildiv,
            align_up,
            bitwise_and,
            bitwise_or,
            bitwise_xor,
            bitwise_not,
            shift_left,
            shift_right,
            popcount,
            clz,
            index_to_coordinates,
        )
    },
    "cdiv": ceildiv,
}
