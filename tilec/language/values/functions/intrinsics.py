"""Scalar functions of the language. Python numbers stay numbers where that is exact (min, max,
ceildiv...)."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tilec import dtypes
from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.values import vectors
from tilec.language.values.conversions import common, condition, tirx_function
from tilec.language.values.functions import bits, ieee, integers
from tilec.language.values.functions.small_numbers import SMALL_NUMBERS, rounded
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operands import cast_value, cast_vector, expression, operand, wrap
from tilec.language.values.operators import absolute, apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.scalars import is_dtype_like
from tilec.language.values.value import Value, Vector, is_number, is_symbolic, resolve
from tilec.language.values.vectors import lanewise, reinterpret_bits

#: Float functions of one argument that TVM has under the same name.
_UNARY = (
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sigmoid",
    "tanh",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
)
#: Float functions of two arguments that TVM has under the same name.
_BINARY = ("atan2", "hypot", "copysign", "fmod")


#: Floats that TVM tests as they are; the others are exact in float32.
_TESTED = ("float16", "float32", "float64")


def _row(value: Value) -> dtypes.DType:
    return value.dtype.row


def _as_float(value: Any) -> Value:
    """The argument of a float function: integers and bools become float32."""
    wrapped = wrap(value)
    return wrapped if _row(wrapped).is_float else cast_value(wrapped, make_dtype("float32"))


def call_function(name: str, *values: Value) -> Value:
    """TVM's function of floats of one dtype; of those that it does not take in float32, rounded back."""
    kind = values[0].dtype
    if kind.bits == 8 or (name == "pow" and kind == "bfloat16"):
        wide = (cast_value(value, make_dtype("float32")) for value in values)
        return cast_value(call_function(name, *wide), kind)
    return Value(tirx_function(name)(*(value.expr for value in values)))


def _unary(name: str) -> Callable[[Any], Value]:
    def call(x: Any) -> Value:
        return call_function(name, _as_float(x))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"``{name}(x)``; integers are converted to float32 first, the result has the argument's dtype."
    )
    return call


def same_float(x: Any, y: Any) -> tuple[Value, Value]:
    """Two arguments of a float function in their common dtype."""
    left, right = resolve(x), resolve(y)
    common = _as_float(apply("+", wrap(left), right)).dtype
    return cast_value(wrap(left), common), cast_value(wrap(right), common)


def _binary(name: str) -> Callable[[Any, Any], Value]:
    def call(x: Any, y: Any) -> Value:
        return call_function(name, *same_float(x, y))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}(x, y)`` in the common float dtype of its arguments."
    return call


def pow(x: Any, y: Any) -> Any:
    """``x`` to the power ``y``; a Python int >= 0 is repeated multiplication."""
    if isinstance(y, int) and not isinstance(y, bool) and y >= 0:
        return _repeated(x, int(y))
    return call_function("pow", *same_float(x, y))


def _repeated(x: Any, count: int) -> Any:
    from tilec.ir.analysis.numbers.long_names import is_long

    result: Any = cast_value(1, wrap(x).dtype)
    if count > 1 and is_long(wrap(x).expr):
        x = sessions.builder("T.pow").bind("base", wrap(x))
    for step in range(count):
        result = apply("*", result, x) if step else x
    return result


def _rounding(name: str) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        wrapped = wrap(x)
        return call_function(name, wrapped) if _row(wrapped).is_float else wrapped

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}(x)`` of a float; an integer is itself."
    return call


floor, ceil, trunc, nearbyint = (_rounding(name) for name in ("floor", "ceil", "trunc", "nearbyint"))
_round_away = _rounding("round")


def round(x: Any, rounding_mode: str = "ties-to-even") -> Any:
    """The nearest integer; ties to even, or with "ties-away-from-zero" away from it."""
    if rounding_mode == "ties-to-even":
        return nearbyint(x)
    if rounding_mode == "ties-away-from-zero":
        return _round_away(x)
    raise source_error(
        SourceValueError,
        f"rounding mode {rounding_mode!r} does not exist",
        construct="T.round",
        remedy='use "ties-to-even" or "ties-away-from-zero"',
    )


def max(a: Any, b: Any, nan_propagate: bool = False) -> Any:
    """The larger one. Where one is NaN, the other; with ``nan_propagate`` NaN."""
    return extreme("max", a, b, nan_propagate)


def min(a: Any, b: Any, nan_propagate: bool = False) -> Any:
    """The smaller one. Where one is NaN, the other; with ``nan_propagate`` NaN."""
    return extreme("min", a, b, nan_propagate)


def extreme(kind: str, a: Any, b: Any, nan_propagate: bool) -> Any:
    """The larger or the smaller one, ``kind`` "max" or "min", in the common dtype of both."""
    dropping = apply(kind, a, b)
    if not nan_propagate:
        return dropping
    if not isinstance(dropping, Value):
        return builtins.max((dropping, a, b), key=_is_nan)
    if not _row(dropping).is_float:
        return dropping
    from tilec.ir import extremes

    kept = dropping.dtype
    wide = make_dtype("float32") if kept.bits == 8 else kept
    left, right = (cast_value(cast_value(wrap(value), kept), wide) for value in (a, b))
    return cast_value(Value(extremes.extreme(kind, left.expr, right.expr, True)), kept)


def _is_nan(number: Any) -> bool:
    return bool(number != number)


def abs(x: Any) -> Any:
    """The absolute value."""
    return absolute(x) if is_symbolic(x) else builtins.abs(x)


def fabs(x: Any) -> Any:
    """The absolute value of a float."""
    return abs(_as_float(x))


def clamp(x: Any, lo: Any, hi: Any, nan_propagate: bool = False) -> Any:
    """``min(max(x, lo), hi)``: a NaN ``x`` gives ``lo``, and a bound that is NaN does not count; with
    ``nan_propagate`` any of them gives NaN."""
    return min(max(x, lo, nan_propagate), hi, nan_propagate)


def if_then_else(cond: Any, t: Any, f: Any) -> Any:
    """``t`` where ``cond`` holds, else ``f``; only the taken side is evaluated. Dtypes are promoted."""
    cond = resolve(cond)
    if not isinstance(cond, Value):
        return t if cond else f
    left, right = common(t, f, "T.if_then_else")
    return Value(tirx_function("if_then_else")(condition(cond, "T.if_then_else"), left.expr, right.expr))


def Select(cond: Any, t: Any, f: Any) -> Value:
    """As `if_then_else` but both sides are evaluated; their dtypes must agree (`SourceTypeError`)."""
    left, right = wrap(t), wrap(f)
    if left.dtype != right.dtype:
        raise source_error(
            SourceTypeError, f"T.Select of {left.dtype} and {right.dtype}", remedy="cast one side"
        )
    return Value(tirx_function("Select")(condition(cond, "T.Select"), left.expr, right.expr))


def _float_test(name: str) -> Callable[[Any], Value]:
    def call(x: Any) -> Value:
        value = _as_float(x)
        exact = value if value.dtype in _TESTED else cast_value(value, make_dtype("float32"))
        return Value(tirx_function(name)(exact.expr))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}(x)`` as a bool."
    return call


isnan, isinf, isfinite = (_float_test(name) for name in ("isnan", "isinf", "isfinite"))


def infinity(dtype: Any) -> Value:
    """Plus infinity of a float dtype."""
    kind = make_dtype(dtype)
    if not kind.row.is_float:
        raise unsupported(f"T.infinity of {kind}", remedy="use T.max_value")
    return Value(tirx_function("const")(float("inf"), str(kind)))


def max_value(dtype: Any) -> Value:
    """The largest finite value of a dtype."""
    kind = make_dtype(dtype)
    form = _unknown_to_tvm(kind)
    return Value(tirx_function("max_value")(str(kind))) if form is None else cast_value(form.largest, kind)


def min_value(dtype: Any) -> Value:
    """The lowest finite value of a dtype."""
    kind = make_dtype(dtype)
    form = _unknown_to_tvm(kind)
    return Value(tirx_function("min_value")(str(kind))) if form is None else cast_value(-form.largest, kind)


def _unknown_to_tvm(kind: str) -> dtypes.FloatFormat | None:
    """The format of a float whose largest value TVM does not know exactly."""
    return None if kind == "float16" else dtypes.FLOAT_FORMATS.get(kind)


def ldexp(x: Any, exponent: Any) -> Any:
    """``x * 2**exponent``."""
    return apply("*", _as_float(x), _UNARY_FUNCTIONS["exp2"](cast_value(exponent, make_dtype("float32"))))


def fma(x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``; the target may round once or twice."""
    return apply("+", apply("*", x, y), z)


def fmul(x: Any, y: Any) -> Any:
    """``x * y``."""
    return apply("*", x, y)


def likely(cond: Any) -> Any:
    """The condition itself; a hint."""
    return cond


def cast(value: Any, dtype: Any, round: str = "", sat: bool = True, rbits: Any = None) -> Any:
    """``value`` as ``dtype``, by the store rules; of a dtype that nothing computes with (float8_e8m0fnu,
    or of four bits) the number as it is computed with. ``sat=False``: what is too large for an 8-bit float
    becomes infinity or NaN. ``round``: "rn", "rz", "rp" and "rm" are accepted and round to nearest."""
    if isinstance(value, str):
        raise source_error(
            SourceTypeError,
            f"T.cast does not take {str(value)!r} as a value",
            remedy="give the value first, T.cast(x, 'int32'), or T.Cast('int32', x)",
        )
    if round == "rs" or rbits is not None:
        raise unsupported("T.cast with stochastic rounding", remedy="leave round and rbits out")
    if round not in ("", "rn", "rz", "rp", "rm"):
        raise source_error(
            SourceValueError, f"T.cast has no rounding {round!r}", remedy='use "rn", or leave round out'
        )
    kind = make_dtype(dtype)
    if not sat and kind in _OVERFLOW:
        return _unsaturated(value, kind)
    return rounded(value, kind) if kind in SMALL_NUMBERS else _cast(value, kind)


#: 8-bit float -> the float32 from which on it overflows, and the bits that it then has.
_OVERFLOW = {"float8_e4m3fn": (464.00003051757812, 0x7F), "float8_e5m2": (61440.0, 0x7C)}


def _unsaturated(value: Any, kind: make_dtype) -> Value:
    """A cast to an 8-bit float that overflows."""
    limit, code = _OVERFLOW[kind]
    wide, byte = cast_value(value, make_dtype("float32")), make_dtype("uint8")
    bits = reinterpret_bits(cast_value(wide, kind), byte)
    sign = apply("&", bits, cast_value(0x80, byte))
    too_large = apply(">=", call_function("abs", wide), limit)
    found = Select(too_large, apply("|", sign, cast_value(code, byte)), bits)
    return reinterpret_bits(found, kind)  # type: ignore[no-any-return]


def Cast(dtype: Any, value: Any) -> Any:
    """`cast` with its arguments the other way round."""
    return _cast(value, make_dtype(dtype))


def _cast(value: Any, kind: make_dtype) -> Any:
    value = operand(value)
    if isinstance(value, Vector) or kind.lanes > 1:
        return cast_vector(value, kind)
    return cast_value(value, kind)


def reinterpret(value: Any, dtype: Any) -> Any:
    """The bits of ``value`` as another dtype of the same width; the order (dtype, value) is accepted."""
    if any(
        isinstance(part, str) and part == "handle" for part in (value, dtype)
    ):  # what T.attr takes for a place to hang an attribute on
        return wrap(0)
    if is_dtype_like(value) and not is_dtype_like(dtype):
        value, dtype = dtype, value
    return reinterpret_bits(value, make_dtype(dtype))


def evaluate(value: Any) -> None:
    """Evaluate for effect; expressions of the language have none."""
    if not is_number(resolve(value)):
        expression(value, "T.evaluate")


def assume(cond: Any) -> None:
    """State a fact that the compiler may rely on."""
    sessions.builder("T.assume").emit(ir.Assume(condition(cond, "T.assume"), loc=loc()), "T.assume")


_UNARY_FUNCTIONS = {name: _unary(name) for name in _UNARY}

_SCALAR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_UNARY_FUNCTIONS,
    **{name: _binary(name) for name in _BINARY},
    **{
        f.__name__: f
        for f in (
            pow,
            floor,
            ceil,
            trunc,
            nearbyint,
            round,
            max,
            min,
            abs,
            fabs,
            clamp,
            if_then_else,
            Select,
            isnan,
            isinf,
            isfinite,
            infinity,
            max_value,
            min_value,
            ldexp,
            fma,
            fmul,
            likely,
            evaluate,
            assume,
        )
    },
    **integers.FUNCTIONS,
    **bits.FUNCTIONS,
    **ieee.FUNCTIONS,
}

#: Every function of values that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: lanewise(function) for name, function in _SCALAR_FUNCTIONS.items()},
    **{f.__name__: f for f in (cast, Cast, reinterpret)},
    **vectors.FUNCTIONS,
}
