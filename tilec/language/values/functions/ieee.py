"""Arithmetic that no target contracts or approximates, and CUDA's approximate functions.

Both are calls by CUDA's names, which the interpreter and the CPU know as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.values.conversions import tirx_function
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

_MODES = ("rn", "rz", "ru", "rd")


def call_named(kind: str, name: str, *values: Value) -> Value:
    """A call of a function without effect by its name."""
    return Value(tirx_function("call_pure_extern")(kind, name, *(value.expr for value in values)))


def _float(value: Any, construct: str) -> Value:
    """A float argument; another dtype is a `SourceTypeError`."""
    found = wrap(value)
    if found.dtype.row.is_float:
        return found
    raise source_error(
        SourceTypeError, f"{construct} takes a float, not {found.dtype}", remedy="cast it with T.cast first"
    )


def _checked(mode: str, construct: str) -> str:
    if mode in _MODES:
        return mode
    raise source_error(
        SourceValueError,
        f"rounding mode {mode!r} does not exist",
        construct=construct,
        remedy='use "rn", "rz", "ru" or "rd"',
    )


def _ieee(construct: str, word: str, values: tuple[Any, ...], mode: str) -> Value:
    """A call of ``__f<word>_<mode>`` on float32, ``__d<word>_rn`` on float64; 16-bit floats are computed in
    float32."""
    mode = _checked(mode, construct)
    floats = [_float(value, construct) for value in values]
    total = floats[0]
    for value in floats[1:]:
        total = apply("+", total, value)
    kind = total.dtype
    if kind == "float64":
        return _double(construct, word, [cast_value(value, kind) for value in floats], mode)
    if kind.bits < 32 and mode != "rn":
        raise unsupported(f"{construct} of {kind} with mode {mode!r}", remedy="cast to float32 first")
    single = make_dtype("float32")
    made = call_named("float32", f"__f{word}_{mode}", *(cast_value(value, single) for value in floats))
    return cast_value(made, kind)


def _double(construct: str, word: str, values: list[Value], mode: str) -> Value:
    if mode != "rn" or word in ("maf", "rsqrt"):
        raise unsupported(f"{construct} of float64 with mode {mode!r}", remedy="cast to float32 first")
    return call_named("float64", f"__d{word}_rn", *values)


def ieee_add(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """``x + y``, never contracted; ``rounding_mode``: "rn", "rz", "ru" or "rd" (CPUs know "rn" alone)."""
    return _ieee("T.ieee_add", "add", (x, y), rounding_mode)


def ieee_sub(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """``x - y``, as `ieee_add`."""
    return _ieee("T.ieee_sub", "sub", (x, y), rounding_mode)


def ieee_mul(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """``x * y``, as `ieee_add`."""
    return _ieee("T.ieee_mul", "mul", (x, y), rounding_mode)


def ieee_fmaf(x: Any, y: Any, z: Any, rounding_mode: str = "rn") -> Value:
    """``x * y + z``, rounded once."""
    return _ieee("T.ieee_fmaf", "maf", (x, y, z), rounding_mode)


def ieee_frcp(x: Any, rounding_mode: str = "rn") -> Value:
    """``1 / x``, correctly rounded."""
    return _ieee("T.ieee_frcp", "rcp", (x,), rounding_mode)


def ieee_fsqrt(x: Any, rounding_mode: str = "rn") -> Value:
    """The square root, correctly rounded."""
    return _ieee("T.ieee_fsqrt", "sqrt", (x,), rounding_mode)


def ieee_frsqrt(x: Any) -> Value:
    """``1 / sqrt(x)``, rounded to nearest."""
    return _ieee("T.ieee_frsqrt", "rsqrt", (x,), "rn")


def ieee_fdiv(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """``x / y``, correctly rounded."""
    return _ieee("T.ieee_fdiv", "div", (x, y), rounding_mode)


def _fast(name: str) -> Callable[[Any], Value]:
    """``T.__exp`` and the like: CUDA's approximation of float32 and 16-bit floats."""

    def call(x: Any) -> Value:
        value = _float(x, f"T.__{name}")
        if value.dtype == "float64":
            return Value(tirx_function(name)(value.expr))
        single = cast_value(value, make_dtype("float32"))
        return cast_value(call_named("float32", f"__{name}f", single), value.dtype)

    call.__name__ = call.__qualname__ = f"__{name}"
    call.__doc__ = f"``{name}(x)``: approximate on CUDA, the ordinary function on CPUs; floats alone."
    return call


def _fast_exp2(x: Any) -> Value:
    """``exp2(x)``, which is one instruction on CUDA already; floats alone."""
    value = _float(x, "T.__exp2")
    return cast_value(
        Value(tirx_function("exp2")(cast_value(value, _at_least_single(value)).expr)), value.dtype
    )


def _at_least_single(value: Value) -> make_dtype:
    return value.dtype if value.dtype == "float64" else make_dtype("float32")


def fast_rcp(x: Any) -> Value:
    """``1 / x``: approximate on CUDA, the ordinary quotient on CPUs; floats alone."""
    value = _float(x, "T.fast_rcp")
    if value.dtype == "float64":
        return Value(1.0 / value.expr)
    one, single = wrap(1.0), cast_value(value, make_dtype("float32"))
    return cast_value(call_named("float32", "__fdividef", one, single), value.dtype)


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        f.__name__: f
        for f in (
            ieee_add,
            ieee_sub,
            ieee_mul,
            ieee_fmaf,
            ieee_frcp,
            ieee_fsqrt,
            ieee_frsqrt,
            ieee_fdiv,
            fast_rcp,
        )
    },
    **{f"__{name}": _fast(name) for name in ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan")},
    "__exp2": _fast_exp2,
}
