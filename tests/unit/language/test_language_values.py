"""Dtypes, operators, promotion, casts and scalar functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from language_build import build, call

import tilec
import tilec.language as T
from tilec import dtypes
from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.language.values.operators import apply
from tilec.language.values.value import Dim


def evaluate(make, dtype="float32", count=1, **inputs):
    """The value of ``make(elements...)``: scalars of the given arrays go in, one element comes out."""
    kinds = {name: T.Tensor((1,), str(array.dtype)) for name, array in inputs.items()}

    @T.prim_func
    def main(a: kinds.get("a"), b: kinds.get("b", T.Tensor((1,), "int32")), out: T.Tensor((count,), dtype)):
        with T.Kernel(1):
            out[0] = make(a[0], b[0])

    rest = inputs.get("b", np.zeros(1, np.int32))
    out = np.zeros(count, np.dtype(dtype))
    kernel = build(main)
    call(kernel, {}, inputs["a"], rest, out)
    store = next(stmt for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Store))
    return out[0], store.value


def dtype_of(make, a="float32", b="int32"):
    """The dtype of ``make(x, y)`` for elements of these dtypes."""
    found = []

    @T.prim_func
    def main(A: T.Tensor((1,), a), B: T.Tensor((1,), b)):
        with T.Kernel(1):
            found.append(make(A[0], B[0]).dtype)
            A[0] = 0

    build(main)
    return found[0]


# Dtype objects --------------------------------------------------------------------------------------------


def test_dtypes_are_strings():
    assert T.float16 == "float16"
    assert hash(T.float16) == hash("float16")
    assert {T.int8: 1}["int8"] == 1
    assert (T.float16.bits, T.float16.bytes, T.int4.itemsize, T.float32x4.lanes) == (16, 2, 1, 4)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("half", "float16"),
        ("long", "int64"),
        ("uint", "uint32"),
        (bool, "bool"),
        (int, "int32"),
        (float, "float32"),
        (np.float16, "float16"),
        (np.dtype("int8"), "int8"),
        ("float8_e4m3", "float8_e4m3fn"),
        (T.int16, "int16"),
    ],
)
def test_dtype_spellings(spec, name):
    assert T.dtype(spec) == name


def test_torch_dtypes():
    torch = pytest.importorskip("torch")
    assert T.dtype(torch.bfloat16) == "bfloat16"
    assert T.bfloat16.as_torch() is torch.bfloat16
    assert T.float16 != torch.float16


def test_unknown_dtypes():
    with pytest.raises(ValueError, match="did you mean 'float16'"):
        T.dtype("flaot16")
    with pytest.raises(TypeError, match="no dtype"):
        T.dtype(3)
    with pytest.raises(UnsupportedError, match="float6_e2m3fn"):
        T.dtype("float6_e2m3fn")


def test_the_table_is_consistent():
    for name, row in dtypes.DTYPES.items():
        assert row.name == name
        assert row.bytes == max(1, row.bits // 8)
    assert set(dtypes.ALIASES.values()) <= set(dtypes.DTYPES)


# Promotion ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "a", "b", "result"),
    [
        (lambda a, b: a + 1, "float16", "int32", "float16"),
        (lambda a, b: a * 0.5, "float16", "int32", "float32"),
        (lambda a, b: a + 1, "int8", "int32", "int32"),
        (lambda a, b: a * 0.5, "int64", "int32", "float32"),
        (lambda a, b: a + 5_000_000_000, "int32", "int32", "int64"),
        (lambda a, b: a + 1, "bool", "int32", "int32"),
        (lambda a, b: a + True, "int8", "int32", "int8"),
        (lambda a, b: a << 5, "uint8", "int32", "int32"),
        (lambda a, b: a >> 3, "uint8", "int32", "int32"),
        (lambda a, b: a & 15, "int8", "int32", "int32"),
        (lambda a, b: 300 | a, "uint8", "int32", "int32"),
        (lambda a, b: a ^ 1, "uint32", "int32", "uint32"),
        (lambda a, b: a & 5_000_000_000, "int32", "int32", "int64"),
        (lambda a, b: a << T.uint8(5), "uint8", "int32", "uint8"),
        (lambda a, b: a + b, "float16", "int64", "float16"),
        (lambda a, b: a + b, "float16", "bfloat16", "float16"),
        (lambda a, b: a + b, "int32", "uint8", "int32"),
        (lambda a, b: a + b, "int32", "uint32", "uint32"),
        (lambda a, b: T.max(a, b), "float16", "float32", "float32"),
        (lambda a, b: T.if_then_else(b > 0, a, 0), "float16", "int32", "float16"),
        (lambda a, b: a < b, "float16", "int32", "bool"),
        (lambda a, b: 1 - a, "int32", "int32", "int32"),
        (lambda a, b: T.exp(a), "int32", "int32", "float32"),
        (lambda a, b: T.exp(a), "float16", "int32", "float16"),
        (lambda a, b: T.pow(a, b), "float16", "float32", "float32"),
    ],
)
def test_promotion(make, a, b, result):
    assert dtype_of(make, a, b) == result


@pytest.mark.parametrize(
    ("make", "kind", "match"),
    [
        (lambda a, b: a / b, SourceRuntimeError, "integer division is ambiguous"),
        (lambda a, b: a // 0, SourceValueError, "give a divisor other than 0"),
        (lambda a, b: a % 0, SourceValueError, "give a divisor other than 0"),
        (lambda a, b: a.astype("float32") // 2, SourceTypeError, "T.floor"),
        (lambda a, b: a.astype("float32") % 2, SourceTypeError, "T.fmod"),
        (lambda a, b: a.astype("float32") << 1, SourceTypeError, "operator <<"),
        (lambda a, b: a.astype("float16") + 10**10, SourceValueError, "operator +"),
        (lambda a, b: T.max(a.astype("uint64"), -3), SourceValueError, "never negative"),
        (lambda a, b: -(a > 0), SourceTypeError, "unary minus"),
        (lambda a, b: a**2, UnsupportedError, "T.pow"),
        (lambda a, b: a @ b, UnsupportedError, "T.gemm"),
        (lambda a, b: a + "x", TypeError, "unsupported operand"),
        (lambda a, b: T.uint8(300), SourceValueError, "does not fit"),
        (lambda a, b: T.infinity("int32"), UnsupportedError, "T.max_value"),
        (lambda a, b: T.Select(a > 0, a, 1.0), SourceTypeError, "T.Select"),
        (lambda a, b: T.reinterpret(a, "int8"), SourceValueError, 'widths must be equal: .* "uint8"'),
        (lambda a, b: float(a), SourceTypeError, "Python float"),
        (lambda a, b: range(a), SourceTypeError, "Python integer"),
        (lambda a, b: a in {b: 1} or a == b in [a], SourceValueError, "truth value"),
        (lambda a, b: T.round(a, "up"), SourceValueError, "rounding mode"),
        (lambda a, b: T.cast(a, "float8_e5m2", round="rs", rbits=1), UnsupportedError, "stochastic"),
    ],
)
def test_refused_operations(make, kind, match):
    with pytest.raises(kind, match=match):
        dtype_of(make, "int32", "int32")


# Values ---------------------------------------------------------------------------------------------------

X = np.array([-2.75], np.float32)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda a, b: T.abs(a), 2.75),
        (lambda a, b: abs(a) + T.fabs(a), 5.5),
        (lambda a, b: T.floor(a), -3),
        (lambda a, b: T.ceil(a), -2),
        (lambda a, b: T.trunc(a), -2),
        (lambda a, b: T.round(a - 0.75), -4),
        (lambda a, b: T.round(a + 0.25, "ties-away-from-zero"), -3),
        (lambda a, b: T.exp2(T.floor(a)), 0.125),
        (lambda a, b: T.exp(a), math.exp(-2.75)),
        (lambda a, b: T.log(-a), math.log(2.75)),
        (lambda a, b: T.log2(T.abs(a)), math.log2(2.75)),
        (lambda a, b: T.sqrt(-a), math.sqrt(2.75)),
        (lambda a, b: T.rsqrt(-a), 1 / math.sqrt(2.75)),
        (lambda a, b: T.sigmoid(a), 1 / (1 + math.exp(2.75))),
        (lambda a, b: T.tanh(a), math.tanh(-2.75)),
        (lambda a, b: T.erf(a), math.erf(-2.75)),
        (lambda a, b: T.pow(-a, 3), 2.75**3),
        (lambda a, b: T.pow(-a, 0), 1),
        (lambda a, b: T.pow(-a, 0.5), math.sqrt(2.75)),
        (lambda a, b: T.clamp(a, -1.0, 1.0), -1),
        (lambda a, b: T.max(a, T.min(b, 5)), 0),
        (lambda a, b: T.if_then_else(a > b, 1.0, a), -2.75),
        (lambda a, b: T.Select(a > 0, a, -a), 2.75),
        (lambda a, b: T.cast(a, "int32") + T.Cast("int32", 0.9), -2),
        (lambda a, b: T.int32(2.7) + T.float32(1), 3),
        (lambda a, b: T.truncdiv(b - 7, 2) * 10 + T.truncmod(b - 7, 3), -31),
        (lambda a, b: (b - 7) // 2 * 10 + (b - 7) % 3, -38),
        (lambda a, b: T.floordiv(b - 7, 2) + T.floormod(b - 7, 3), -2),
        (lambda a, b: ~b + (b - 3 >> 1) + (1 << b), -2),
        (lambda a, b: T.bitwise_or(b | 6, T.bitwise_xor(b ^ 1, 8)) & T.bitwise_not(b), 15),
        (lambda a, b: T.popcount(b + 7) + T.clz(b + 1), 34),
        (lambda a, b: T.isnan(a / a * 0.0) | T.isfinite(a), 1),
        (lambda a, b: T.isinf(-T.infinity("float32")), 1),
        (lambda a, b: T.reinterpret(T.float32(1.0), "int32") >> 23, 127),
        (lambda a, b: T.reinterpret("int32", T.float32(1.0)) >> 23, 127),
        (lambda a, b: T.fma(a, 2.0, 1.0) + T.fmul(a, 0.0), -4.5),
        (lambda a, b: T.copysign(1.0, a) + T.hypot(T.float32(3.0), 4.0), 4),
        (lambda a, b: T.fast_rcp(a * 0.0 + 4.0) + T.__exp2(T.float32(1.0)), 2.25),
        (lambda a, b: T.align_up(b + 5, 4) + T.ceildiv(b + 5, 4) + T.cdiv(9, 4), 13),
        (lambda a, b: T.atan2(a * 0.0, a), math.pi),
        (lambda a, b: T.max_value("int8") + T.min_value("int16"), 127 - 32768),
        (lambda a, b: T.likely(a < 0), 1),
        (lambda a, b: T.ldexp(a, 2), -11),
        (lambda a, b: -a, 2.75),
    ],
)
def test_functions(make, expected):
    got, _ = evaluate(make, a=X)
    assert got == pytest.approx(expected, rel=1e-6)


def test_python_numbers_stay_numbers():
    assert T.ceildiv(100, 32) == 4
    assert T.max(3, 4) == 4
    assert T.truncdiv(-7, 2) == -3
    assert T.truncmod(-7, 2) == -1
    assert T.abs(-3) == 3
    assert T.if_then_else(True, "a", "b") == "a"
    assert T.bitwise_not(4) == -5


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (2.9, "int32", 2),
        (-2.9, "int32", -2),
        (300, "uint8", 44),
        (200, "int8", -56),
        (2.5, "bool", True),
        (0, "bool", False),
    ],
)
def test_stores_of_numbers_cast(value, dtype, expected):
    got, _ = evaluate(lambda a, b: value, dtype, a=X)
    assert got == expected


def test_stores_of_expressions_cast():
    assert evaluate(lambda a, b: T.cast(a, "int32"), "int32", a=X)[0] == -2
    assert evaluate(lambda a, b: a, "bool", a=X)[0]
    assert evaluate(lambda a, b: a > 0, "float32", a=X)[0] == 0.0
    assert evaluate(lambda a, b: b + 300, "uint8", a=X)[0] == 44


def test_minus_infinity_is_kept():
    got, value = evaluate(lambda a, b: T.if_then_else(b > 0, a, -T.infinity("float32")), a=X)
    assert got == -np.inf
    assert "inf" in str(value)


def test_numbers_that_expressions_come_to_are_compared():
    def made(a, b):
        return T.if_then_else(b % 1 == 0, 1.0, 2.0) + T.if_then_else(b % 1 != 0, 10.0, 20.0)

    assert evaluate(made, a=X)[0] == 21.0


def test_equality_is_never_a_python_bool():
    def check(a, b):
        assert not isinstance(a == b, bool)
        assert (a == None) is False  # noqa: E711
        with pytest.raises(TypeError, match="does not take an expression"):
            a != "x"  # noqa: B015
        assert len({a: 1, b: 2}) == 2
        return T.cast((a == b) | (a != a), "int32")

    assert evaluate(check, a=X)[0] == 0


# Dimensions -----------------------------------------------------------------------------------------------


def test_pinned_dims_remember_their_spelling():
    k = Dim(64, "K")
    assert (k // 2).text == "K // 2"
    assert ((k + 1) * 2).text == "(K + 1) * 2"
    assert (2 * k - 1 + 0 * k).text == "((2 * K) - 1) + (0 * K)"
    assert T.ceildiv(k, 48).text == "(K + 47) // 48"
    assert T.ceildiv(k, 48) == 2
    assert T.min(k, 16).text == "min(K, 16)"
    assert (k * Dim(2, "N")).text == "K * N"
    assert type(k / 2) is float
    assert type(k << 1) is int
    assert f"{k}" == "64"


NAMED = {"M": 96, "N": 7, "K": 64}
LEAVES = st.one_of(st.integers(1, 40), st.sampled_from([Dim(value, name) for name, value in NAMED.items()]))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "ceildiv"]), inner, inner
    ),
    max_leaves=12,
)


def compute(tree):
    """The value of a random tree of operations, by the language's own functions."""
    if not isinstance(tree, tuple):
        return tree
    symbol, left, right = tree[0], compute(tree[1]), compute(tree[2])
    if (symbol in ("//", "%") and right == 0) or (symbol == "ceildiv" and right <= 0):
        return left
    return T.ceildiv(left, right) if symbol == "ceildiv" else apply(symbol, left, right)


@given(TREES)
def test_the_spelling_of_a_dimension_has_its_value(tree):
    value = compute(tree)
    if isinstance(value, Dim):
        assert eval(value.text, {"min": min, "max": max}, NAMED) == int(value)


def test_integers_of_the_host():
    assert (tilec.cdiv(10, 4), tilec.next_power_of_2(65), tilec.next_power_of_2(64)) == (3, 128, 64)


def test_symbols_made_at_import_wait_for_a_kernel():
    half = T.dynamic("q") // 2
    with pytest.raises(SourceRuntimeError, match="no value outside a kernel"):
        bool(half > 3)


def test_powers_write_no_lines(capfd: pytest.CaptureFixture[str]) -> None:
    result, _ = evaluate(lambda a, b: T.pow(a, 3.0), a=np.array([-2.0], np.float32))
    assert (result, capfd.readouterr().err) == (-8.0, "")
