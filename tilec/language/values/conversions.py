"""Numbers and expressions to TVM expressions of a wanted dtype, by the store rules of the language."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec import dtypes
from tilec.errors import SourceError, SourceTypeError, SourceValueError
from tilec.language.values.places import source_error
from tilec.language.values.scalars import dtype, element_of
from tilec.language.values.value import Value, apply, is_number, is_symbolic, plain, resolve

if TYPE_CHECKING:
    from tvm.ir import Expr


def expression(value: Any, construct: str = "an operand") -> Expr:
    """``value`` as an expression: integers become int32 (int64 if they need it), floats float32."""
    value = resolve(value)
    if isinstance(value, Value):
        return value.expr
    if not is_number(value):
        raise _no_operand(construct, value)
    return _constant(plain(value), _natural(plain(value)))


def wrap(value: Any) -> Value:
    """``value`` as a `Value`."""
    value = resolve(value)
    return value if isinstance(value, Value) else Value(expression(value))


def stored(value: Any, to: str, construct: str = "a store") -> Expr:
    """``value`` cast as a store into a ``to`` element casts it: numbers wrap, floats truncate toward zero."""
    value = resolve(value)
    to = element_of(dtype(to)) if to == "tfloat32" else to
    if isinstance(value, Value):
        return _cast(value.expr, to)
    if not is_number(value):
        raise _no_operand(construct, value)
    return _constant(_wrapped(plain(value), dtypes.DTYPES[dtypes.split_lanes(to)[0]]), to)


def typed(value: Any, to: dtype) -> Value:
    """``T.int32(x)``: a cast; a number becomes a constant and must fit (`SourceValueError`)."""
    value = resolve(value)
    if isinstance(value, Value):
        return cast_value(value, to)
    if not is_number(value):
        raise _no_operand(f"T.{to}", value)
    number, row = plain(value), to.row
    if row.is_integer and not math.isfinite(number):
        raise source_error(
            SourceValueError, f"{number} is no value of {to}", remedy="use a float dtype, or a finite number"
        )
    if row.is_integer and _wrapped(number, row) != int(number):
        raise source_error(SourceValueError, f"{number} does not fit {to}", remedy="use a wider dtype")
    return Value(_constant(_wrapped(number, row), to))


def cast_value(value: Any, to: dtype) -> Value:
    """``T.cast``: by the store rules; a cast to the own dtype is the value itself."""
    value = resolve(value)
    if isinstance(value, Value) and value.dtype == to:
        return value
    return Value(stored(value, to, "T.cast"))


def tirx_function(name: str) -> Callable[..., Any]:
    """TVM's function of that name; loaded when a kernel first needs it."""
    from tvm import tirx

    found: Callable[..., Any] = getattr(tirx, name)
    return found


def common(a: Any, b: Any) -> tuple[Value, Value]:
    """Two operands in the dtype that an operator would bring them to."""
    left, right = resolve(a), resolve(b)
    if not is_symbolic(left, right):
        left = wrap(left)
    target = apply("max", left, right).dtype
    return cast_value(left, target), cast_value(right, target)


def condition(value: Any, construct: str) -> Expr:
    """``value`` as a bool expression; numbers other than bool mean ``!= 0``."""
    expr = expression(value, construct)
    return expr if expr.ty.dtype == "bool" else _cast(expr, "bool")


def _no_operand(construct: str, value: Any) -> SourceError:
    """The error for something that is neither a number nor an expression."""
    kind = type(value).__name__
    tile = kind in ("Buffer", "Slice")
    return source_error(
        SourceTypeError,
        f"{construct} takes numbers and expressions, not {'a whole tile' if tile else kind}",
        remedy="give elements, A[i, j], in a T.Parallel loop" if tile else "give a number or an expression",
    )


def _natural(number: int | float | bool) -> str:
    if isinstance(number, bool):
        return "bool"
    if isinstance(number, float):
        return "float32"
    return "int32" if -(2**31) <= number < 2**31 else "int64"


def _constant(number: int | float | bool, to: str) -> Expr:
    from tvm import tirx

    try:
        return tirx.const(_as_held(number, to), to)
    except Exception as error:  # TVM's range checks of literals
        why = str(error).strip().splitlines()[0]
        what, remedy = f"{number} does not fit {to}", "use a wider dtype, or a constant that fits"
        raise source_error(SourceValueError, what, why=why, remedy=remedy) from error


def _as_held(number: int | float | bool, to: str) -> int | float | bool:
    """A finite number as a type of 16 or 8 bits holds it; others as they are."""
    from tilec.dtypes import DTYPES

    row = DTYPES.get(to)
    if row is None or not row.is_float or row.bits not in (8, 16) or not math.isfinite(number):
        return number
    from tilec.ir.interp.values import held

    return held(number, to)


def _wrapped(number: int | float | bool, row: dtypes.DType) -> int | float | bool:
    """The number as an element of ``row`` holds it: truncated and wrapped for integers."""
    if row.kind == "bool":
        return bool(number)
    if row.is_float:
        return float(number)
    if not math.isfinite(number):
        raise source_error(
            SourceValueError,
            f"{number} cannot be stored as {row.name}",
            remedy="store a finite number: T.max_value or T.min_value of the dtype",
        )
    low = int(number) % (1 << row.bits)
    return low - (1 << row.bits) if row.kind == "int" and low >> (row.bits - 1) else low


def _cast(expr: Expr, to: str) -> Expr:
    from tvm import tirx

    if expr.ty.dtype == to:
        return expr
    if to == "bool":
        return tirx.NE(expr, tirx.const(0, str(expr.ty.dtype)))
    return tirx.Cast(to, expr)
