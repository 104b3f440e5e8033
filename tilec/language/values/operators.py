"""What operators of values do. All go through `apply`, which keeps the *text* of values that depend on
dimensions alone, so that tensor extents can be written down by name ("K // 2")."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from tilec.errors import SourceError, SourceTypeError, SourceValueError
from tilec.language.values.arithmetic import Arithmetic, Rules
from tilec.language.values.casts import constant, wrap_number
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operand_errors import operand_error, several
from tilec.language.values.operands import cast_value, cast_vector, is_tile, operand, wrap
from tilec.language.values.scalars import dtype
from tilec.language.values.value import (
    Deferred,
    Dim,
    Value,
    Vector,
    are_several,
    is_number,
    plain,
    resolve,
    text_of,
)

#: Operators of an expression inside of each other; compilers walk over them by recursion.
_DEEPEST = 200
_TEXT_OPS = {"+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!="}
_CALLED = {"min": min, "max": max}
_OF_NUMBERS = {"+", "-", "*", "/", "//", "%", "<<", ">>"}
_OF_BITS = {"<<", ">>", "&", "|", "^"}
_WRAPPING = {"+", "-", "*", "<<"}
#: What the extremes of two truths are.
_OF_TRUTHS = {"max": "|", "min": "&"}
#: Bits of an int literal's type.
_LITERAL_BITS = 32
_LEAST = -(1 << 31)
_FLOAT_OPS = {"+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "min", "max"}
_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_ATOM = re.compile(r"\w+")


def apply(symbol: str, left: Any, right: Any) -> Any:
    """``left symbol right`` for any mix of numbers, dimensions, expressions and symbols."""
    if not sessions.active() and (isinstance(left, Deferred) or isinstance(right, Deferred)):
        return Deferred(apply, symbol, left, right)
    left, right = operand(resolve(left)), operand(resolve(right))
    if isinstance(left, Vector) or isinstance(right, Vector):
        return _lane_by_lane(symbol, left, right)
    if not (_is_operand(left) and _is_operand(right)):
        return _identity(symbol, left, right)
    if isinstance(left, Value) or isinstance(right, Value):
        return _expression(symbol, left, right)
    return named(symbol, left, right) if isinstance(left, int) else _python(symbol)(left, right)


def _lane_by_lane(symbol: str, left: Any, right: Any) -> Any:
    """An operation of vectors of one length, or of a vector and a scalar."""
    counts = {len(side.lanes) for side in (left, right) if isinstance(side, Vector)}
    if len(counts) > 1:
        raise source_error(
            SourceTypeError,
            f"operator {symbol} does not take {left.dtype} and {right.dtype}",
            remedy="give both as many lanes",
        )
    (count,) = counts
    sides = [side.lanes if isinstance(side, Vector) else (side,) * count for side in (left, right)]
    return Vector(tuple(apply(symbol, a, b) for a, b in zip(*sides, strict=True)))


def invert(value: Any) -> Any:
    """``~value``; of a bool the negation."""
    from tvm import tirx

    value = operand(value)
    if isinstance(value, Vector):
        return Vector(tuple(map(invert, value.lanes)))
    value = wrap(value)
    if value.dtype == "bool":
        return Value(tirx.Not(value.expr))
    if value.dtype.row.is_float:
        raise source_error(
            SourceTypeError, f"operator ~ does not take {value.dtype}", remedy="use T.reinterpret first"
        )
    return Value(tirx.bitwise_not(value.expr))


def absolute(value: Any) -> Any:
    """The absolute value; of 8-bit floats computed in float32."""
    from tvm import tirx

    from tilec.ir.exprs import int_value

    value = operand(value)
    if isinstance(value, Vector):
        return Vector(tuple(map(absolute, value.lanes)))
    value = wrap(value)
    row = value.dtype.row
    if row.is_float and row.bits == 8:
        return cast_value(absolute(cast_value(value, dtype("float32"))), value.dtype)
    if row.kind in ("uint", "bool"):
        return value
    number = int_value(value.expr) if row.is_integer else None
    if number is not None:
        return Value(constant(wrap_number(abs(number), row), value.dtype))
    return Value(tirx.abs(value.expr))


def negative(value: Any) -> Any:
    """``-value``."""
    value = operand(value)
    if isinstance(value, Vector):
        return Vector(tuple(negative(lane) for lane in value.lanes))
    if isinstance(value, Deferred):
        return apply("*", value, -1)
    if not isinstance(value, Value):
        return -value
    if value.dtype == "bool":
        raise source_error(
            SourceTypeError, "unary minus on a bool", remedy="use `not`, or cast to an integer first"
        )
    if value.dtype.row.is_float and value.dtype.bits == 8:
        return cast_value(negative(cast_value(value, dtype("float32"))), value.dtype)
    if value.dtype.startswith("uint"):
        return apply("-", cast_value(0, value.dtype), value)
    return Value(-value.expr, text=_text("-", 0, value))


def _is_operand(value: Any) -> bool:
    return isinstance(value, Value) or is_number(value)


def _identity(symbol: str, left: Any, right: Any) -> Any:
    """Comparisons with None, strings and the like are Python's; everything else is a type error."""
    other = right if _is_operand(left) else left
    if symbol in ("==", "!=") and not isinstance(other, (str, list, tuple, dict)):
        return NotImplemented if is_tile(other) else (left is right) == (symbol == "==")
    if are_several(other):
        raise several(f"operator {symbol} takes one index, not several")
    if symbol not in _CALLED and isinstance(other, (str, list, tuple, dict, type(None))):
        raise source_error(
            SourceTypeError,
            f"operator {symbol} does not take an expression and {other!r}",
            remedy="compute with numbers and expressions; f-strings show expressions while building",
        )
    if symbol not in _CALLED:
        return NotImplemented
    raise source_error(
        SourceTypeError,
        f"T.{symbol} takes numbers and expressions, not {type(other).__name__}",
        construct=f"T.{symbol}",
        remedy=f"use T.{symbol} on elements in a T.Parallel loop, T.reduce_{symbol} on a tile",
    )


def _python(symbol: str) -> Callable[[Any, Any], Any]:
    function: Callable[[Any, Any], Any] = _CALLED.get(symbol) or _OPS[symbol]
    return function


def named(symbol: str, left: Any, right: Any) -> Any:
    """Arithmetic of pinned dimensions with integers: a `Dim` while both sides have a text."""
    if not (isinstance(left, int) and isinstance(right, int)):
        return (
            NotImplemented
            if isinstance(left, Arithmetic) or isinstance(right, Arithmetic)
            else _python(symbol)(_unnamed(left), _unnamed(right))
        )
    result = _python(symbol)(int(left), int(right))
    text = _text(symbol, left, right)
    named = isinstance(left, Dim) or isinstance(right, Dim)
    return Dim(result, text) if named and text is not None else result


def _unnamed(value: Any) -> Any:
    return int(value) if isinstance(value, Dim) else value


def _expression(symbol: str, left: Any, right: Any) -> Value:
    if _is_bool(left) and _is_bool(right) and symbol in _OF_NUMBERS:
        raise source_error(
            SourceTypeError,
            f"operator {symbol} does not take bool and bool",
            remedy="use & | ^ on conditions, or cast one side: T.cast(x, 'int32')",
        )
    if _is_bool(left) and _is_bool(right) and symbol in _OF_TRUTHS:
        return _expression(_OF_TRUTHS[symbol], left, right)
    if _meets_small_float(left, right):
        return _small_float(symbol, left, right)
    symbol, left, right = _without_sign(symbol, *_alike_unsigned(left, right))
    few = _of_few_bits(symbol, left, right)
    if few is not None:
        return few
    zero = _float_zero(right) if symbol == "/" else None
    if zero is not None:
        return _over_zero(left, right, zero)
    try:
        result = _folded(symbol, left, right)
        if result is None:
            result = _tvm(symbol)(_typed(symbol, left), _typed(symbol, right))
    except SourceError:
        raise
    except Exception as error:  # TVM reports operand errors in many classes
        raise operand_error(symbol, _types(left, right), right, error) from error
    if hasattr(result, "asobject"):  # == and != of anything but two numbers
        result = result.asobject()
    made = Value(result, text=_text(symbol, left, right))
    made.depth = 1 + max(getattr(value, "depth", 0) for value in (left, right))
    if made.depth > _DEEPEST:
        raise source_error(
            SourceValueError,
            f"an expression has more than {_DEEPEST} operators inside of each other",
            why="Python's loops and sum() write every term into it",
            remedy="add up in a T.alloc_var in a T.serial or T.unroll loop, or give parts of it names",
        )
    return made


def _alike_unsigned(left: Any, right: Any) -> tuple[Any, Any]:
    """Operands of which a negative typed constant beside an unsigned integer that is no narrower has wrapped
    around to that type, as a value that is no constant does: TVM has no such number."""
    if not (isinstance(left, Value) and isinstance(right, Value)):
        return left, right
    return _as_unsigned(left, right), _as_unsigned(right, left)


def _as_unsigned(value: Value, other: Value) -> Value:
    from tilec.ir.exprs import int_value

    row, own = other.dtype.row, value.dtype.row
    if row.kind != "uint" or own.kind != "int" or own.bits > row.bits:
        return value
    number = int_value(value.expr)
    return value if number is None or number >= 0 else Value(constant(wrap_number(number, row), other.dtype))


def _without_sign(symbol: str, left: Any, right: Any) -> tuple[str, Any, Any]:
    """``x - 3`` for ``x + (-3)`` where ``x`` is unsigned and no narrower than an int32: TVM has no negative
    number of its type."""
    value, number = (right, left) if symbol == "+" and isinstance(left, int) else (left, right)
    unsigned = isinstance(value, Value) and value.dtype in ("uint32", "uint64")
    if symbol not in ("+", "-") or not unsigned or not isinstance(number, int) or not _LEAST < number < 0:
        return symbol, left, right
    return "-" if symbol == "+" else "+", value, -number


def _typed(symbol: str, value: Any) -> Any:
    """An operand as TVM takes it: beside bits a literal is an int32, or an int64, as it is beside other
    operators, for which TVM knows that."""
    if symbol not in _OF_BITS or isinstance(value, (Value, bool)) or not isinstance(value, int):
        return plain(value)
    return wrap(int(value)).expr


def _folded(symbol: str, left: Any, right: Any) -> Any:
    """What wraps around of two typed constants, for which TVM has no number beyond their type; None for
    anything else."""
    if symbol not in _WRAPPING or not (isinstance(left, Value) and isinstance(right, Value)):
        return None
    from tilec.ir.exprs import int_value

    a, b = int_value(left.expr), int_value(right.expr)
    row = left.dtype.row
    if a is None or b is None or left.dtype != right.dtype or not row.is_integer:
        return None
    if symbol == "<<" and not 0 <= b < row.bits:
        return None
    return constant(wrap_number(_OPS[symbol](a, b), row), left.dtype)


def _of_few_bits(symbol: str, left: Any, right: Any) -> Value | None:
    """``left & 15`` or ``left >> 4`` of a small integer: an int32, whose bits the small type has; None for
    anything else."""
    if symbol not in ("&", ">>") or not isinstance(left, Value) or isinstance(right, (Value, bool, float)):
        return None
    row = left.dtype.row
    if row.kind not in ("int", "uint") or row.bits >= _LITERAL_BITS:
        return None
    most = row.bits - 1 if symbol == ">>" else (1 << (row.bits - (row.kind == "int"))) - 1
    if not 0 <= right <= most:
        return None
    small = cast_value(int(right), left.dtype)
    return cast_value(Value(_OPS[symbol](left.expr, small.expr)), dtype("int32"))


def _float_zero(value: Any) -> float | None:
    """The zero, with its sign, that a typed constant of floats is; None for anything else."""
    from tvm import tirx

    known = isinstance(value, Value) and isinstance(value.expr, tirx.FloatImm)
    return float(value.expr.value) if known and value.expr.value == 0 else None


def _over_zero(left: Any, right: Value, zero: float) -> Value:
    """``left`` over a typed zero, which TVM does not divide by: the same infinities and NaN (IEEE 754) as
    ``left`` times the infinity of the sign of the zero gives."""
    return _expression("*", left, Value(constant(math.copysign(math.inf, zero), right.dtype)))


def _is_bool(value: Any) -> bool:
    return value.dtype == "bool" if isinstance(value, Value) else isinstance(value, bool)


def _meets_small_float(*values: Any) -> bool:
    """Whether operands meet in an 8-bit float: one is of that kind and none is a wider float."""
    rows = [value.dtype.row for value in values if isinstance(value, Value)]
    wide = any(row.is_float and row.bits > 8 for row in rows) or any(isinstance(v, float) for v in values)
    return not wide and any(row.is_float and row.bits == 8 for row in rows)


def _small_float(symbol: str, left: Any, right: Any) -> Value:
    """An operation on 8-bit floats: computed in float32 and rounded back; comparisons are exact."""
    kinds = {value.dtype for value in (left, right) if isinstance(value, Value) and value.dtype.row.is_float}
    if len(kinds) != 1 or symbol not in _FLOAT_OPS:
        error = TypeError("8-bit floats meet their own kind and integers")
        raise operand_error(symbol, _types(left, right), right, error)
    (kind,) = kinds
    wide = (cast_value(cast_value(value, kind), dtype("float32")) for value in (left, right))
    result = _expression(symbol, *wide)
    return result if result.dtype == "bool" else cast_value(result, kind)


def _tvm(symbol: str) -> Callable[[Any, Any], Any]:
    if symbol not in _CALLED:
        return _OPS[symbol]
    from tvm import tirx

    function: Callable[[Any, Any], Any] = tirx.min if symbol == "min" else tirx.max
    return function


def _text(symbol: str, left: Any, right: Any) -> str | None:
    a, b = text_of(left), text_of(right)
    if a is None or b is None:
        return None
    if symbol in _CALLED:
        return f"{symbol}({a}, {b})"
    if symbol not in _TEXT_OPS:
        return None
    return f"{_bracketed(a)} {symbol} {_bracketed(b)}"


def _bracketed(text: str) -> str:
    return text if _ATOM.fullmatch(text) else f"({text})"


def _types(*values: Any) -> str:
    """The dtypes of operands as errors show them."""
    return " and ".join(str(value.dtype) if isinstance(value, Value) else repr(value) for value in values)


Arithmetic.rules = Rules(apply, named, negative, invert, absolute, cast_value, cast_vector)
