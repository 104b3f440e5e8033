"""Scalar functions of the language. Python numbers stay numbers where that is exact (min, max,
ceildiv...)."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tilec import dtypes
from tilec.errors import SourceTypeError, SourceValueError
from tilec.language import session as sessions
from tilec.language.conversions import cast_value, condition, expression, wrap
from tilec.language.places import source_error, unsupported
from tilec.language.scalars import dtype as make_dtype
from tilec.language.scalars import is_dtype_like
from tilec.language.values import Deferred, Value, apply, is_number, resolve

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
_BINARY = ("atan2", "hypot", "copysign", "fmod", "nextafter")
#: Names of TileLang's approximate functions; they are the ordinary ones here.
_FAST = ("exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tan")


def _tirx(name: str) -> Callable[..., Any]:
    from tvm import tirx

    found: Callable[..., Any] = getattr(tirx, name)
    return found


def _is_symbolic(*values: Any) -> bool:
    return any(isinstance(value, (Value, Deferred)) for value in values)


def _row(value: Value) -> dtypes.DType:
    return value.dtype.row


def _as_float(value: Any) -> Value:
    """The argument of a float function: integers and bools become float32."""
    wrapped = wrap(value)
    return wrapped if _row(wrapped).is_float else cast_value(wrapped, make_dtype("float32"))


def _unary(name: str) -> Callable[[Any], Value]:
    def call(x: Any) -> Value:
        return Value(_tirx(name)(_as_float(x).expr))

    call.__name__ = name
    call.__doc__ = (
        f"``{name}(x)``; integers are converted to float32 first, the result has the argument's dtype."
    )
    return call


def _same_float(x: Any, y: Any) -> tuple[Value, Value]:
    """Two arguments of a float function in their common dtype."""
    left, right = resolve(x), resolve(y)
    common = _as_float(apply("+", wrap(left), right)).dtype
    return cast_value(wrap(left), common), cast_value(wrap(right), common)


def _binary(name: str) -> Callable[[Any, Any], Value]:
    def call(x: Any, y: Any) -> Value:
        left, right = _same_float(x, y)
        return Value(_tirx(name)(left.expr, right.expr))

    call.__name__ = name
    call.__doc__ = f"``{name}(x, y)`` in the common float dtype of its arguments."
    return call


def pow(x: Any, y: Any) -> Any:
    """``x`` to the power ``y``; a Python int >= 0 is repeated multiplication."""
    if isinstance(y, int) and not isinstance(y, bool) and y >= 0:
        return _repeated(x, int(y))
    left, right = _same_float(x, y)
    return Value(_tirx("pow")(left.expr, right.expr))


def _repeated(x: Any, count: int) -> Any:
    result: Any = cast_value(1, wrap(x).dtype)
    for step in range(count):
        result = apply("*", result, x) if step else x
    return result


def _rounding(name: str) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        wrapped = wrap(x)
        return Value(_tirx(name)(wrapped.expr)) if _row(wrapped).is_float else wrapped

    call.__name__ = name
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


def max(a: Any, b: Any) -> Any:
    """The larger one; where one is NaN, the other."""
    return apply("max", a, b)


def min(a: Any, b: Any) -> Any:
    """The smaller one; where one is NaN, the other."""
    return apply("min", a, b)


def abs(x: Any) -> Any:
    """The absolute value."""
    if not _is_symbolic(x):
        return builtins.abs(x)
    value = wrap(x)
    return value if _row(value).kind in ("uint", "bool") else Value(_tirx("abs")(value.expr))


def fabs(x: Any) -> Any:
    """The absolute value of a float."""
    return abs(_as_float(x))


def clamp(x: Any, lo: Any, hi: Any) -> Any:
    """``min(max(x, lo), hi)``."""
    return min(max(x, lo), hi)


def if_then_else(cond: Any, t: Any, f: Any) -> Any:
    """``t`` where ``cond`` holds, else ``f``; only the taken side is evaluated. Dtypes are promoted."""
    cond = resolve(cond)
    if not isinstance(cond, Value):
        return t if cond else f
    left, right = common(t, f)
    return Value(_tirx("if_then_else")(condition(cond, "T.if_then_else"), left.expr, right.expr))


def Select(cond: Any, t: Any, f: Any) -> Value:
    """As `if_then_else` but both sides are evaluated; their dtypes must agree (`SourceTypeError`)."""
    left, right = wrap(t), wrap(f)
    if left.dtype != right.dtype:
        raise source_error(
            SourceTypeError, f"T.Select of {left.dtype} and {right.dtype}", remedy="cast one side"
        )
    return Value(_tirx("Select")(condition(cond, "T.Select"), left.expr, right.expr))


def common(a: Any, b: Any) -> tuple[Value, Value]:
    """Two operands in the dtype that an operator would bring them to."""
    left, right = resolve(a), resolve(b)
    if not _is_symbolic(left, right):
        left = wrap(left)
    target = apply("max", left, right).dtype
    return cast_value(left, target), cast_value(right, target)


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
    if _is_symbolic(a, b):
        left, right = common(a, b)
        return Value(_tirx(name)(left.expr, right.expr))
    quotient = builtins.abs(a) // builtins.abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if name == "truncdiv" else a - quotient * b


def ceildiv(a: Any, b: Any) -> Any:
    """``(a + b - 1) // b``."""
    return (a + (b - 1)) // b


def align_up(x: Any, y: Any) -> Any:
    """The smallest multiple of ``y`` that is at least ``x``."""
    return ceildiv(x, y) * y


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
    if not _is_symbolic(x):
        return ~x
    value = wrap(x)
    if value.dtype == "bool":
        return Value(_tirx("Not")(value.expr))
    if _row(value).is_float:
        raise source_error(
            SourceTypeError, f"operator ~ does not take {value.dtype}", remedy="use T.reinterpret first"
        )
    return Value(_tirx("bitwise_not")(value.expr))


def shift_left(a: Any, b: Any) -> Any:
    """``a << b``."""
    return apply("<<", a, b)


def shift_right(a: Any, b: Any) -> Any:
    """``a >> b``, arithmetic on signed integers."""
    return apply(">>", a, b)


def popcount(x: Any) -> Value:
    """The number of set bits."""
    return Value(_tirx("popcount")(wrap(x).expr))


def clz(x: Any) -> Value:
    """The number of leading zero bits."""
    return Value(_tirx("clz")(wrap(x).expr))


def _float_test(name: str) -> Callable[[Any], Value]:
    def call(x: Any) -> Value:
        return Value(_tirx(name)(_as_float(x).expr))

    call.__name__ = name
    call.__doc__ = f"``{name}(x)`` as a bool."
    return call


isnan, isinf, isfinite = (_float_test(name) for name in ("isnan", "isinf", "isfinite"))


def infinity(dtype: Any) -> Value:
    """Plus infinity of a float dtype."""
    kind = make_dtype(dtype)
    if not kind.row.is_float:
        raise unsupported(f"T.infinity of {kind}", remedy="use T.max_value")
    return Value(_tirx("const")(float("inf"), str(kind)))


def max_value(dtype: Any) -> Value:
    """The largest finite value of a dtype."""
    return Value(_tirx("max_value")(str(make_dtype(dtype))))


def min_value(dtype: Any) -> Value:
    """The lowest finite value of a dtype."""
    return Value(_tirx("min_value")(str(make_dtype(dtype))))


def ldexp(x: Any, exponent: Any) -> Any:
    """``x * 2**exponent``."""
    return apply("*", _as_float(x), _UNARY_FUNCTIONS["exp2"](cast_value(exponent, make_dtype("float32"))))


def fma(x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``; the target may round once or twice."""
    return apply("+", apply("*", x, y), z)


def fmul(x: Any, y: Any) -> Any:
    """``x * y``."""
    return apply("*", x, y)


def fast_rcp(x: Any) -> Any:
    """``1 / x``."""
    return apply("/", 1.0, _as_float(x))


def likely(cond: Any) -> Any:
    """The condition itself; a hint."""
    return cond


def cast(value: Any, dtype: Any, round: str = "", sat: bool = True, rbits: Any = None) -> Value:
    """``value`` as ``dtype``, by the store rules."""
    if round == "rs" or rbits is not None or not sat:
        raise unsupported(
            "T.cast with stochastic rounding or sat=False", remedy="leave round, sat and rbits out"
        )
    return cast_value(value, make_dtype(dtype))


def Cast(dtype: Any, value: Any) -> Value:
    """`cast` with its arguments the other way round."""
    return cast_value(value, make_dtype(dtype))


def reinterpret(value: Any, dtype: Any) -> Value:
    """The bits of ``value`` as another dtype of the same width; the order (dtype, value) is accepted."""
    if is_dtype_like(value) and not is_dtype_like(dtype):
        value, dtype = dtype, value
    source, kind = wrap(value), make_dtype(dtype)
    if source.dtype.bits != kind.bits:
        raise source_error(
            SourceValueError, f"T.reinterpret of {source.dtype} as {kind}", remedy="the widths must be equal"
        )
    return Value(_tirx("reinterpret")(str(kind), source.expr))


def evaluate(value: Any) -> None:
    """Evaluate for effect; expressions of the language have none."""
    if not is_number(resolve(value)):
        expression(value, "T.evaluate")


def assume(cond: Any) -> None:
    """State a fact that the compiler may rely on."""
    from tilec.ir import nodes as ir
    from tilec.language.places import loc

    sessions.builder("T.assume").emit(ir.Assume(condition(cond, "T.assume"), loc=loc()), "T.assume")


_UNARY_FUNCTIONS = {name: _unary(name) for name in _UNARY}

#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_UNARY_FUNCTIONS,
    **{name: _binary(name) for name in _BINARY},
    **{f"__{name}": _UNARY_FUNCTIONS[name] for name in _FAST},
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
            isnan,
            isinf,
            isfinite,
            infinity,
            max_value,
            min_value,
            ldexp,
            fma,
            fmul,
            fast_rcp,
            likely,
            cast,
            Cast,
            reinterpret,
            evaluate,
            assume,
        )
    },
    "cdiv": ceildiv,
}
