"""T.nextafter, of floats of 16 and 8 bits too, whose neighbours are not those of float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.dtypes import FLOAT_FORMATS
from tilec.language.values.functions.intrinsics import FUNCTIONS as _FUNCTIONS
from tilec.language.values.functions.intrinsics import Select, call_function, isnan, reinterpret, same_float
from tilec.language.values.kernel import session as sessions
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value
from tilec.language.values.vectors import lanewise

_SINGLE, _WORD = make_dtype("float32"), make_dtype("uint32")


def nextafter(x: Any, y: Any) -> Value:
    """``nextafter(x, y)`` in the common float dtype of its arguments."""
    left, right = same_float(x, y)
    return (
        _next_narrow(left, right) if left.dtype in FLOAT_FORMATS else call_function("nextafter", left, right)
    )


def _next_narrow(x: Value, y: Value) -> Value:
    """The neighbour of ``x`` on the side of ``y``; ``y`` where they are equal, NaN where one is NaN. In exact
    float32 arithmetic: the distance to a neighbour follows from the power of two below."""
    kind = x.dtype
    form = FLOAT_FORMATS[kind]
    digits, least, beyond = form.mantissa, 1 - form.bias, form.beyond
    left, right = (_named(cast_value(value, _SINGLE)) for value in (x, y))
    size = _named(_FUNCTIONS["min"](_FUNCTIONS["abs"](left), min(beyond, 3.4028234e38)))
    zero = apply("==", left, 0.0)
    grows = _named(Select(zero, wrap(True), apply("==", apply("<", left, right), apply(">", left, 0.0))))
    near = _named(Select(grows, size, apply("*", size, 1 - 2.0 ** -(digits + 2))))
    power = _named(_FUNCTIONS["max"](_power_below(near), 2.0**least))
    step = _named(apply("*", power, 2.0**-digits))
    moved = _named(Select(grows, apply("+", size, step), apply("-", size, step)))
    signed = _named(_FUNCTIONS["copysign"](moved, Select(zero, right, left)))
    narrow = _named(cast_value(signed, kind))
    if kind != "float8_e4m3fn":
        ends = cast_value(float("inf"), kind), cast_value(float("-inf"), kind)
        end = _named(Select(apply(">", signed, 0.0), *ends))
        narrow = _named(Select(apply(">=", moved, min(beyond, 3.4028234e38)), end, narrow))
    found = _named(Select(apply("==", left, right), y, narrow))
    found = _named(Select(isnan(right), y, found))
    made: Value = Select(isnan(left), x, found)
    return made


def _power_below(value: Value) -> Value:
    """The largest power of two that a float32 reaches; 0 below the normal ones."""
    bits = apply("&", reinterpret(value, _WORD), cast_value(0x7F800000, _WORD))
    return _named(reinterpret(bits, _SINGLE))


def _named(value: Any) -> Value:
    """The value, evaluated once: TVM takes exponential time over nested choices."""
    return sessions.builder("T.nextafter").bind("next", wrap(value))


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {"nextafter": lanewise(nextafter)}
