"""Expressions in the interpreter: casts, arithmetic, functions, laziness."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from ir_samples import F32, I32, buffer, f32, i32, launch, load, store, tensor, var
from tvm import tirx

from tilec.errors import EvalError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.interp.interpreter import run
from tilec.ir.interp.values import numpy_dtype

I = var("i")  # noqa: E741
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 100.0, np.inf, -np.inf, np.nan]


def _map(function, values, dtype=None):
    """``function`` of every element, as an array; elements are computed together and one by one."""
    values = np.asarray(values)
    source = values.dtype.name if values.dtype != np.bool_ else "bool"
    x = buffer("x", values.shape, source)
    expr = function(load(x, I))
    y = buffer("y", values.shape, str(expr.ty.dtype))
    together, alone = (np.zeros(values.shape, numpy_dtype(str(expr.ty.dtype))) for _ in range(2))
    loops = (
        ir.Parallel((I,), values.shape, (store(y, I, expr),)),
        ir.For("serial", I, i32(0), i32(values.size), i32(1), (store(y, I, expr),)),
    )
    for out, body in zip((together, alone), loops, strict=True):
        kernel = ir.Kernel("k", (tensor(x), tensor(y)), (), (launch([1], [var("bx")], body),))
        run(kernel, [values, out], {})
    np.testing.assert_array_equal(*(out.astype(np.float64) for out in (together, alone)))
    return together


def _cast(dtype):
    return lambda x: tirx.Cast(dtype, x)


def test_float_to_integer_truncates():
    assert _map(_cast(I32), np.float32([1.9, -1.9, 0.5, -0.5])).tolist() == [1, -1, 0, 0]
    assert _map(_cast("int8"), np.float32([127.9, -128.0, 300.0])).tolist() == [127, -128, 44]
    assert _map(_cast("uint64"), np.float64([2.0**63])).tolist() == [2**63]
    assert _map(_cast("int64"), np.float64([-(2.0**63)])).tolist() == [-(2**63)]


def test_integers_wrap():
    assert _map(_cast("int8"), np.int32([127, 128, 255, -129])).tolist() == [127, -128, -1, 127]
    assert _map(lambda x: x + x, np.int32([2**31 - 1])).tolist() == [-2]
    assert _map(lambda x: x * x, np.uint8([16, 20])).tolist() == [0, 144]


def test_narrowing_rounds_to_nearest_even():
    assert _map(_cast("float16"), np.float32([2049, 2051, 1e6])).tolist() == [2048, 2052, np.inf]
    out = _map(_cast("bfloat16"), np.float32([257, 259, 1.0]))
    assert out.astype(np.float32).tolist() == [256, 260, 1]


@pytest.mark.parametrize(("dtype", "top"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_float8_saturates_to_finite(dtype, top):
    out = _map(_cast(dtype), np.float32([1e9, -np.inf, 0.1, np.nan])).astype(np.float32)
    assert out[:2].tolist() == [top, -top]
    np.testing.assert_allclose(out[2:], [0.1, np.nan], atol=0.01)


def test_bool_compares_with_zero():
    assert _map(_cast("bool"), np.float32([0, -0.0, 0.5, np.nan])).tolist() == [False, False, True, True]
    assert _map(_cast(I32), np.array([True, False])).tolist() == [1, 0]


def test_division_and_remainder():
    x = np.int32([-7, 7, -8, 0])
    assert _map(lambda x: tirx.floordiv(x, i32(2)), x).tolist() == [-4, 3, -4, 0]
    assert _map(lambda x: tirx.floormod(x, i32(3)), x).tolist() == [2, 1, 1, 0]
    assert _map(lambda x: tirx.truncdiv(x, i32(2)), x).tolist() == [-3, 3, -4, 0]
    assert _map(lambda x: tirx.truncmod(x, i32(3)), x).tolist() == [-1, 1, -2, 0]
    assert _map(lambda x: tirx.truncdiv(x, i32(-2)), x).tolist() == [3, -3, 4, 0]
    assert _map(lambda x: tirx.Div(x, f32(0.0)), np.float32([1, -1])).tolist() == [np.inf, -np.inf]


def test_integer_division_by_zero_raises():
    for divide in (tirx.floordiv, tirx.floormod, tirx.truncdiv, tirx.truncmod):
        with pytest.raises(EvalError, match="division by zero"):
            _map(lambda x, divide=divide: divide(i32(1), x), np.int32([1, 0]))


def test_if_then_else_is_lazy():
    def guarded(x):
        return tirx.if_then_else(tirx.NE(x, i32(0)), tirx.floordiv(i32(12), x), i32(-1))

    assert _map(guarded, np.int32([3, 0, 4])).tolist() == [4, -1, 3]
    assert _map(guarded, np.int32([0, 0])).tolist() == [-1, -1]


def test_select_evaluates_both():
    with pytest.raises(EvalError):
        _map(lambda x: tirx.Select(tirx.NE(x, i32(0)), tirx.floordiv(i32(12), x), i32(-1)), np.int32([3, 0]))


def test_extrema_ignore_nan():
    x = np.float32([np.nan, 1.0])
    assert _map(lambda x: tirx.max(x, f32(0.5)), x).tolist() == [0.5, 1.0]
    assert _map(lambda x: tirx.min(f32(0.5), x), x).tolist() == [0.5, 0.5]
    half = _map(lambda x: tirx.max(x, tirx.const(0.5, "bfloat16")), x.astype(ml_dtypes.bfloat16))
    assert half.astype(np.float32).tolist() == [0.5, 1.0]


def test_bits():
    x = np.int32([1, 12, -1, 0])
    assert _map(lambda x: x << i32(2), x).tolist() == [4, 48, -4, 0]
    assert _map(lambda x: x >> i32(1), x).tolist() == [0, 6, -1, 0]
    assert _map(lambda x: ~(x & i32(6) | i32(1) ^ x), x).tolist() == [~(n & 6 | 1 ^ n) for n in x.tolist()]
    assert _map(tirx.popcount, x).tolist() == [1, 2, 32, 0]
    assert _map(tirx.clz, x).tolist() == [31, 28, 0, 32]
    assert _map(lambda x: tirx.reinterpret(F32, x), np.int32([0x3F800000])).tolist() == [1.0]


def test_logic():
    x = np.int32([0, 1, 2, 3])
    inside = _map(lambda x: tirx.And(tirx.GT(x, i32(0)), tirx.Not(tirx.EQ(x, i32(3)))), x)
    assert inside.tolist() == [False, True, True, False]
    either = _map(lambda x: tirx.Or(tirx.LE(x, i32(0)), tirx.GE(x, i32(3))), x)
    assert either.tolist() == [True, False, False, True]
    assert _map(lambda x: tirx.likely(tirx.NE(x, i32(2))), x).tolist() == [True, True, False, True]


def _reference(function):
    def safe(x):
        try:
            return function(x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    return safe


UNARY = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "nearbyint": round,
    "round": lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name, dtype):
    kind = numpy_dtype(dtype)
    x = np.array([v for v in SPECIAL if math.isfinite(v)], np.float32).astype(kind)
    out = _map(getattr(tirx, name), x)
    assert out.dtype == kind
    reference = _reference(UNARY[name])
    for value, got in zip(x.astype(np.float64), out.astype(np.float64), strict=True):
        expected = reference(float(value))
        if expected is not None and math.isfinite(expected):
            with np.errstate(over="ignore"):
                rounded = float(
                    np.float32(expected).astype(kind) if dtype == "bfloat16" else kind.type(expected)
                )
            assert got == rounded or abs(got - expected) <= 1e-15 * abs(expected)


def test_functions_at_special_values():
    inf, nan = np.inf, np.nan
    cases = {
        "exp": ([-inf, inf, nan, 0], [0, inf, nan, 1]),
        "exp2": ([-inf, inf, -200], [0, inf, 0]),
        "log": ([0, inf, -1, 1], [-inf, inf, nan, 0]),
        "rsqrt": ([0, inf, -1, 4], [inf, 0, nan, 0.5]),
        "sigmoid": ([-inf, inf, -200, 0], [0, 1, 0, 0.5]),
        "tanh": ([-inf, inf, nan], [-1, 1, nan]),
        "erf": ([-inf, inf, nan], [-1, 1, nan]),
        "round": ([0.5, 1.5, 2.5, -0.5], [1, 2, 3, -1]),
        "nearbyint": ([0.5, 1.5, 2.5, -0.5], [0, 2, 2, 0]),
    }
    for name, (given, expected) in cases.items():
        out = _map(getattr(tirx, name), np.float32(given))
        np.testing.assert_allclose(out, np.float32(expected), atol=1e-30, err_msg=name)


def test_functions_of_two_arguments():
    x = np.float32([2.0, -3.0])
    assert _map(lambda x: tirx.power(x, f32(2.0)), x).tolist() == [4, 9]
    assert _map(lambda x: tirx.atan2(x, f32(1.0)), x).tolist() == [np.float32(math.atan2(v, 1)) for v in x]
    assert _map(lambda x: tirx.hypot(x, f32(4.0)), x)[1] == 5
    assert _map(lambda x: tirx.fmod(x, f32(2.0)), x).tolist() == [0, -1]
    assert _map(lambda x: tirx.copysign(f32(1.0), x), x).tolist() == [1, -1]
    assert _map(lambda x: tirx.nextafter(x, f32(9.0)), x).tolist() == np.nextafter(x, np.float32(9)).tolist()
    assert _map(lambda x: tirx.ldexp(x, i32(3)), x).tolist() == [16, -24]


def test_float_tests_and_absolute_values():
    x = np.float32([1, np.inf, np.nan, -2])
    assert _map(tirx.isnan, x).tolist() == [False, False, True, False]
    assert _map(tirx.isinf, x).tolist() == [False, True, False, False]
    assert _map(tirx.isfinite, x).tolist() == [True, False, False, True]
    assert _map(tirx.abs, np.float32([-1.5, 2])).tolist() == [1.5, 2]
    assert _map(tirx.abs, np.int32([-3, 3])).tolist() == [3, 3]


def test_let_binds_once():
    t = var("t")
    assert _map(lambda x: tirx.Let(t, x + i32(1), t * t), np.int32([1, 2])).tolist() == [4, 9]


def test_half_arithmetic_rounds_every_operation():
    x = np.float16([2048])
    one = tirx.const(1.0, "float16")
    assert _map(lambda x: x + one + one, x).tolist() == [2048]


def test_unknown_functions_are_refused():
    with pytest.raises(UnsupportedError, match="no function f"):
        _map(lambda x: tirx.call_pure_extern(F32, "f", x), np.float32([1]))
