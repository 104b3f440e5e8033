"""Vector values: several lanes of one dtype, each operation lane by lane.

A vector is a value of the frontend alone: its lanes are expressions, and what is computed with it is computed
with each of them. T.Ramp, T.Broadcast, T.Shuffle and calls of vector dtypes make vectors, a buffer with a
vector as an index gives one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.values.conversions import tirx_function, typed_value
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import cast_value, lanes_of, operand, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.scalars import element_of
from tilec.language.values.value import Value, Vector


def pack(values: Sequence[Any], kind: make_dtype) -> Vector:
    """``T.bfloat16x2(a, b)``: a vector of these lanes; one value fills them all, another vector is cast."""
    if len(values) == 1:
        values = lanes_of(values[0], kind.lanes)
    if len(values) != kind.lanes:
        raise source_error(
            SourceValueError,
            f"T.{kind} takes {kind.lanes} lanes, got {len(values)}",
            remedy="give one value per lane, or one for all",
        )
    return Vector(tuple(typed_value(value, element_of(kind)) for value in values))


def lanewise(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of scalars, which takes vectors too."""

    def call(*given: Any, **kwargs: Any) -> Any:
        args = tuple(map(operand, given))
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
        for vector in map(operand, vectors)
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
    vec = operand(vec)
    if not isinstance(vec, Vector):
        raise source_error(
            SourceTypeError,
            "T.extract_lane takes a vector",
            construct="T.extract_lane",
            remedy="give a vector first: T.extract_lane(v, 0)",
        )
    return Shuffle([vec], [lane])


def reinterpret_bits(value: Any, kind: make_dtype) -> Any:
    """The bits of a scalar or a vector as another dtype of the same total width, the first lane lowest."""
    value = operand(value)
    lanes = value.lanes if isinstance(value, Vector) else (wrap(value),)
    width = lanes[0].dtype.bits
    if width * len(lanes) != kind.bits * kind.lanes:
        shown = value.dtype if isinstance(value, Vector) else lanes[0].dtype
        remedy = "the widths must be equal"
        if str(shown) == "int32" and kind.bits * kind.lanes in (8, 16):
            narrow = f'T.cast(value, "uint{kind.bits * kind.lanes}")'
            remedy += f": arithmetic of narrower integers with numbers is int32, give {narrow}"
        raise source_error(SourceValueError, f"T.reinterpret of {shown} as {kind}", remedy=remedy)
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
    return typed_value(value, kind)


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (Ramp, Broadcast, Shuffle, extract_lane)}
