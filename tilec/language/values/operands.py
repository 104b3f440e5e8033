"""What values become where statements and functions take them: expressions of TVM, casts, lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceTypeError, SourceValueError
from tilec.language.values import casts
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.scalars import dtype, element_of
from tilec.language.values.value import Value, Vector, is_number, plain, resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr


def expression(value: Any, construct: str = "an operand") -> Expr:
    """``value`` as an expression: integers become int32 (int64 if they need it), floats float32."""
    value = resolve(value)
    if isinstance(value, Value):
        return value.expr
    if not is_number(value):
        raise no_operand(construct, value)
    return casts.constant(plain(value), casts.natural(plain(value)))


def wrap(value: Any) -> Value:
    """``value`` as a `Value`."""
    value = resolve(value)
    return value if isinstance(value, Value) else Value(expression(value))


def stored_value(value: Any, to: str, construct: str = "a store") -> Expr:
    """``value`` cast as a store into a ``to`` element casts it: numbers wrap, floats truncate toward zero."""
    value = resolve(value)
    to = element_of(dtype(to)) if to == "tfloat32" else to
    if isinstance(value, Value):
        return casts.cast(value.expr, to)
    if not is_number(value):
        raise no_operand(construct, value)
    return casts.constant(casts.wrap_number(plain(value), dtype(to).row), to)


def cast_value(value: Any, to: dtype) -> Value:
    """``T.cast``: by the store rules; a cast to the own dtype is the value itself."""
    value = resolve(value)
    if isinstance(value, Value) and value.dtype == to:
        return value
    return Value(stored_value(value, to, "T.cast"))


def warn_of_loss(value: Any, to: str, what: str) -> None:
    """Warns where an integer element does not hold a Python number that is stored to it."""
    row = dtype(to).row
    if is_number(value) and casts.loses(plain(value), row):
        kept = casts.wrap_number(plain(value), row)
        sessions.builder(what).warn_once(f"{what} makes {kept} of {value}, which {to} does not hold")


def is_tile(value: Any) -> bool:
    """Whether a buffer or a part of one stands where numbers do."""
    return type(value).__name__ in ("Buffer", "Slice")


def no_operand(construct: str, value: Any) -> SourceError:
    """The error for something that is neither a number nor an expression."""
    tile = is_tile(value)
    kind = "a whole tile" if tile else type(value).__name__
    return source_error(
        SourceTypeError,
        f"{construct} takes numbers and expressions, not {kind}",
        remedy="give elements, A[i, j], in a T.Parallel loop" if tile else "give a number or an expression",
    )


def operand(value: Any) -> Any:
    """What is computed with where ``value`` stands: of a slice its elements as a vector."""
    vector = getattr(value, "vector", None)
    return value if vector is None else vector()


def lanes_of(value: Any, count: int) -> tuple[Any, ...]:
    """The lanes of a vector of ``count``; a scalar in each of them."""
    if not isinstance(value, Vector):
        return (value,) * count
    if len(value.lanes) == count:
        return value.lanes
    raise source_error(
        SourceValueError,
        f"a vector of {counted(len(value.lanes), 'lane')} stands where {count} are needed",
        remedy="use vectors of one width, or scalars, which are broadcast",
    )


def cast_vector(value: Any, kind: dtype) -> Any:
    """A vector cast lane by lane, a scalar to all lanes; ``kind`` names a scalar or a vector dtype."""
    count = len(value.lanes) if isinstance(value, Vector) else kind.lanes
    if kind.lanes not in (1, count):
        raise source_error(
            SourceValueError,
            f"a vector of {count} lanes cannot be cast to {kind}",
            remedy="cast to a dtype of as many lanes",
        )
    return Vector(tuple(cast_value(lane, element_of(kind)) for lane in lanes_of(value, count)))
