"""Vector values: several lanes of one dtype, each operation lane by lane.

A vector is a value of the frontend alone: its lanes are expressions, and what is computed with it is computed
with each of them. T.Ramp, T.Broadcast, T.Shuffle and calls of vector dtypes make vectors, a buffer with a
vector as an index gives one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.values.conversions import cast_value, tirx_function, typed, wrap
from tilec.language.values.places import source_error
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.scalars import element_of
from tilec.language.values.value import Value, Vector, apply

PAIRS = ("float16x2", "bfloat16x2", "float32x2")


def packed(values: Sequence[Any], kind: make_dtype) -> Vector:
    """``T.bfloat16x2(a, b)``: a vector of these lanes; one value fills them all, another vector is cast."""
    if len(values) == 1:
        values = lanes_of(values[0], kind.lanes)
    if len(values) != kind.lanes:
        raise source_error(
            SourceValueError,
            f"T.{kind} takes {kind.lanes} lanes, got {len(values)}",
            remedy="give one value per lane, or one for all",
        )
    return Vector(tuple(typed(value, element_of(kind)) for value in values))


def lanes_of(value: Any, count: int) -> tuple[Any, ...]:
    """The lanes of a vector of ``count``; a scalar in each of them."""
    if not isinstance(value, Vector):
        return (value,) * count
    if len(value.lanes) == count:
        return value.lanes
    raise source_error(
        SourceValueError,
        f"a vector of {len(value.lanes)} lanes stands where {count} are needed",
        remedy="use vectors of one width, or scalars, which are broadcast",
    )


def cast_vector(value: Any, kind: make_dtype) -> Any:
    """A vector cast lane by lane, a scalar to all lanes; ``kind`` names a scalar or a vector dtype."""
    count = len(value.lanes) if isinstance(value, Vector) else kind.lanes
    if kind.lanes not in (1, count):
        raise source_error(
            SourceValueError,
            f"a vector of {count} lanes cannot be cast to {kind}",
            remedy="cast to a dtype of as many lanes",
        )
    return Vector(tuple(cast_value(lane, element_of(kind)) for lane in lanes_of(value, count)))


def lanewise(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of scalars, which takes vectors too."""

    def call(*args: Any, **kwargs: Any) -> Any:
        widths = {len(arg.lanes) for arg in args if isinstance(arg, Vector)}
        if not widths:
            return function(*args, **kwargs)
        count = max(widths)
        columns = zip(
            *(lanes_of(arg, count) if _is_value(arg) else (arg,) * count for arg in args), strict=True
        )
        return Vector(tuple(wrap(function(*column, **kwargs)) for column in columns))

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _is_value(arg: Any) -> bool:
    return isinstance(arg, (Vector, Value))


# ---- making and taking apart ----


def Ramp(base: Any, stride: Any, lanes: int) -> Vector:
    """``base``, ``base + stride``, ...: ``lanes`` values."""
    return Vector(tuple(wrap(apply("+", base, apply("*", stride, lane))) for lane in range(int(lanes))))


def Broadcast(value: Any, lanes: int) -> Vector:
    """``value`` in every lane."""
    return Vector((wrap(value),) * int(lanes))


def Shuffle(vectors: Any, indices: Any) -> Any:
    """The lanes at build-time ``indices`` of all ``vectors`` in a row; one index gives a scalar."""
    lanes = [
        lane
        for vector in vectors
        for lane in (vector.lanes if isinstance(vector, Vector) else (wrap(vector),))
    ]
    places = [int(index) for index in indices]
    outside = [place for place in places if not 0 <= place < len(lanes)]
    if outside:
        raise source_error(
            SourceValueError,
            f"lane {outside[0]} of {len(lanes)} does not exist",
            construct="T.Shuffle",
            remedy="number lanes from 0",
        )
    found = tuple(lanes[place] for place in places)
    return found[0] if len(found) == 1 else Vector(found)


def extract_lane(vec: Any, lane: int) -> Any:
    """One lane of a vector."""
    if not isinstance(vec, Vector):
        raise source_error(
            SourceTypeError,
            "T.extract_lane takes a vector",
            construct="T.extract_lane",
            remedy="give a vector first: T.extract_lane(v, 0)",
        )
    return Shuffle([vec], [lane])


def reinterpreted(value: Any, kind: make_dtype) -> Any:
    """The bits of a scalar or a vector as another dtype of the same total width, the first lane lowest."""
    lanes = value.lanes if isinstance(value, Vector) else (wrap(value),)
    width = lanes[0].dtype.bits
    if width * len(lanes) != kind.bits * kind.lanes:
        shown = value.dtype if isinstance(value, Vector) else lanes[0].dtype
        raise source_error(
            SourceValueError, f"T.reinterpret of {shown} as {kind}", remedy="the widths must be equal"
        )
    words = [_bits(lane, make_dtype(f"uint{width}")) for lane in lanes]
    if width < kind.bits:
        words = _joined(words, kind.bits // width, make_dtype(f"uint{kind.bits}"))
    elif width > kind.bits:
        words = _split(words, kind.bits)
    found = tuple(_bits(word, element_of(kind)) for word in words)
    return found[0] if len(found) == 1 else Vector(found)


def _bits(value: Value, kind: make_dtype) -> Value:
    if value.dtype == kind:
        return value
    return Value(tirx_function("reinterpret")(str(kind), value.expr))


def _joined(words: list[Value], count: int, kind: make_dtype) -> list[Value]:
    """Words of ``kind``, each from ``count`` narrower ones."""
    width, joined = kind.bits // count, []
    for first in range(0, len(words), count):
        total: Any = cast_value(words[first], kind)
        for place in range(1, count):
            part = apply("<<", cast_value(words[first + place], kind), _number(place * width, kind))
            total = apply("|", total, part)
        joined.append(total)
    return joined


def _split(words: list[Value], width: int) -> list[Value]:
    kind = make_dtype(f"uint{width}")
    return [
        cast_value(apply(">>", word, _number(place, word.dtype)), kind)
        for word in words
        for place in range(0, word.dtype.bits, width)
    ]


def _number(value: int, kind: make_dtype) -> Value:
    return typed(value, kind)


# ---- packed pairs ----


def _pair(name: str, function: Callable[..., Any]) -> Callable[..., Vector]:
    def call(*values: Any, **options: bool) -> Vector:
        for value in values:
            if not isinstance(value, Vector) or str(value.dtype) not in PAIRS:
                shown = getattr(value, "dtype", type(value).__name__)
                raise source_error(
                    SourceValueError,
                    f"T.{name} takes {', '.join(PAIRS)}, not {shown}",
                    construct=f"T.{name}",
                    remedy="use T.float16x2(a, b) and the like",
                )
        kinds = {str(value.dtype) for value in values}
        if len(kinds) > 1:
            raise source_error(
                SourceValueError,
                f"T.{name} takes one dtype, got {', '.join(sorted(kinds))}",
                remedy="cast one side with T.cast",
            )
        made: Vector = lanewise(function)(*values, **options)
        return cast_vector(made, values[0].dtype)  # type: ignore[no-any-return]

    call.__name__ = name
    call.__doc__ = f"``{name.rstrip('2')}`` of both lanes of pairs ({', '.join(PAIRS)})."
    return call


def _fma(x: Any, y: Any, z: Any) -> Any:
    return apply("+", apply("*", x, y), z)


def _extreme_pair(kind: str) -> Callable[..., Vector]:
    def of_lanes(x: Any, y: Any, nan_propagate: bool = False) -> Any:
        from tilec.language.values.intrinsics import extreme

        return extreme(kind, x, y, nan_propagate)

    pair = _pair(f"{kind}2", of_lanes)

    def call(x: Vector, y: Vector, nan_propagate: bool = False) -> Vector:
        return pair(x, y, nan_propagate=nan_propagate)

    call.__name__ = f"{kind}2"
    call.__doc__ = f"{pair.__doc__} Of NaN and a number the number, with ``nan_propagate`` NaN."
    return call


def _absolute(x: Any) -> Any:
    from tilec.language.values.intrinsics import abs

    return abs(x)


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (Ramp, Broadcast, Shuffle, extract_lane)},
    "add2": _pair("add2", lambda x, y: apply("+", x, y)),
    "sub2": _pair("sub2", lambda x, y: apply("-", x, y)),
    "mul2": _pair("mul2", lambda x, y: apply("*", x, y)),
    "max2": _extreme_pair("max"),
    "min2": _extreme_pair("min"),
    "fma2": _pair("fma2", _fma),
    "abs2": _pair("abs2", _absolute),
}
