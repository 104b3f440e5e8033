"""Scalar functions: every one on every dtype that it takes, with zeros, infinities and NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from agree import agree, elaborated
from breadth import diagonal, parametrized
from device_kernels import require_compiler
from variant_code import compile_variant

import tilec.language as T
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.interp.values import cast, numpy_dtype
from tilec.targets import parse_target

_ERF = np.vectorize(math.erf, otypes=[float])

#: What has one form on all GPUs is emulated for one of them.
FEW = ("cpu", "sm_80")

#: Name -> the function in NumPy.
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: 10.0**x, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "erf": _ERF, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "nearbyint": np.rint, "round": np.rint, "abs": np.abs, "fabs": np.abs,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}  # fmt: skip
VALUES = np.array([0.125, 0.5, -0.5, 1, 2, 3.75, -2.5, 2.5, 0, -0.0, np.inf, -np.inf, np.nan, 10, -10, 0.875])


def applied(functions, kind, result, count):
    """A kernel that gives row ``j`` of its output to function ``j``."""

    @T.prim_func
    def main(A: T.Tensor((count,), kind), C: T.Tensor((len(functions), count), result)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                for j, function in enumerate(functions):
                    C[j, i] = function(A[i])

    return main


def _rows(functions, a, kind):
    with np.errstate(all="ignore"):
        rows = [np.asarray(function(a.astype(np.float64)), np.float64) for function in functions]
        return cast(np.stack(rows), numpy_dtype(kind))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_functions_of_floats(kind):
    a = VALUES.astype(numpy_dtype(kind))
    functions = [getattr(T, name) for name in UNARY]
    bound = {"float32": 1e-5, "float64": 1e-12}.get(kind)
    targets = ("cpu",) if kind == "float64" else FEW
    expected = _rows(UNARY.values(), a, kind)
    agree(applied(functions, kind, kind, 16), a, expected=expected, rtol=bound, targets=targets)


def test_functions_of_integers_are_computed_in_float32():
    names = ("exp", "sqrt", "sin", "tanh", "log1p", "isfinite", "fabs")
    a = np.array([0, 1, 2, 5, 9, 16, 30, 64], np.int32)
    expected = np.stack([UNARY[name](a.astype(np.float64)) for name in names])
    agree(
        applied([getattr(T, name) for name in names], "int32", "float32", 8), a, expected=expected, rtol=1e-5
    )


def test_rounding_leaves_integers_alone():
    a = np.array([0, -7, 5, 2**24 + 1], np.int32)
    functions = [T.floor, T.ceil, T.trunc, T.nearbyint, T.round, lambda x: T.round(x, "ties-away-from-zero")]
    agree(applied(functions, "int32", "int32", 4), a, expected=np.stack([a] * 6))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_rounding_modes(kind):
    a = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.25, -3.75]).astype(numpy_dtype(kind))
    functions = [T.round, lambda x: T.round(x, rounding_mode="ties-away-from-zero")]
    away = [-3, -2, -1, 1, 2, 3, 3, -4]
    agree(applied(functions, kind, "float32", 8), a, expected=np.array([np.rint(a.astype(np.float64)), away]))


def test_an_unknown_rounding_mode_is_an_error():
    with pytest.raises(ValueError, match="ties-away-from-zero"):
        elaborated(applied([lambda x: T.round(x, "up")], "float32", "float32", 4), (), None, {}, {})


# ---- two arguments ----


def paired(functions, kind, result, count, other=None):
    @T.prim_func
    def main(
        A: T.Tensor((count,), kind),
        B: T.Tensor((count,), other or kind),
        C: T.Tensor((len(functions), count), result),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                for j, function in enumerate(functions):
                    C[j, i] = function(A[i], B[i])

    return main


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_functions_of_two_floats(kind):
    names = {"atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmod": np.fmod,
             "pow": np.power, "max": np.fmax, "min": np.fmin}  # fmt: skip
    a = np.array([0.5, 2, 3, -1.5, 8, 5.25, 0, 7, np.nan, 1]).astype(numpy_dtype(kind))
    b = np.array([0.25, 3, -2, 2, 0.5, 2, 1, -3, 1, np.nan]).astype(numpy_dtype(kind))
    with np.errstate(all="ignore"):
        rows = [function(a.astype(np.float64), b.astype(np.float64)) for function in names.values()]
    functions = [getattr(T, name) for name in names]
    expected = cast(np.stack(rows), numpy_dtype(kind))
    targets = ("cpu",) if kind == "float64" else FEW
    agree(
        paired(functions, kind, kind, 10),
        a,
        b,
        expected=expected,
        targets=targets,
        rtol=2e-2 if a.itemsize == 2 else 1e-6,
    )


def test_nextafter_and_ldexp():
    a, b = np.array([1, 0, -2.5, 3e38], np.float32), np.array([2, -1, np.inf, np.inf], np.float32)
    e = np.array([3, -2, 0, -100], np.int32)

    @T.prim_func
    def main(
        A: T.Tensor((4,), "float32"),
        B: T.Tensor((4,), "float32"),
        E: T.Tensor((4,), "int32"),
        C: T.Tensor((2, 4), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                C[0, i] = T.nextafter(A[i], B[i])
                C[1, i] = T.ldexp(A[i], E[i])

    agree(main, a, b, e, expected=np.stack([np.nextafter(a, b), np.ldexp(a, e)]), rtol=0, atol=0)


def test_pow_with_a_python_integer_multiplies():
    a = np.array([-1.5, 0, 2, 3], np.float32)
    functions = [lambda x: T.pow(x, 0), lambda x: T.pow(x, 1), lambda x: T.pow(x, 3), lambda x: T.pow(x, 2.0)]
    agree(applied(functions, "float32", "float32", 4), a, expected=np.stack([a**0, a, a**3, a**2.0]))
    i = np.array([-3, 0, 2, 5], np.int32)
    agree(applied(functions[:3], "int32", "int32", 4), i, expected=np.stack([i**0, i, i**3]))


def test_pow_with_a_half_is_no_square_root():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                B[i] = T.pow(A[i], 0.5)

    a = np.array([-np.inf, 2.25, np.inf, -1], "float32")
    agree(main, a, expected=np.array([np.inf, 1.5, np.inf, np.nan], "float32"), targets=FEW)


def test_fused_and_plain_products():
    a = np.linspace(-2, 2, 8, dtype=np.float32)
    functions = [lambda x: T.fma(x, x, 1.0), lambda x: T.fmul(x, 3.0), lambda x: T.clamp(x, -1.0, 1.0)]
    expected = np.stack([a * a + 1, a * 3, np.clip(a, -1, 1)])
    agree(applied(functions, "float32", "float32", 8), a, expected=expected)


# ---- fast functions ----


def test_fast_functions_are_the_ordinary_ones_up_to_their_accuracy():
    names = ("exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tan")
    a = np.linspace(0.1, 3, 16, dtype=np.float32)
    functions = [*(getattr(T, f"__{name}") for name in names), T.fast_rcp]
    expected = np.stack([*(UNARY[name](a.astype(np.float64)) for name in names), 1 / a])
    agree(applied(functions, "float32", "float32", 16), a, expected=expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["__exp", "__log2", "__tan", "fast_rcp"])
def test_fast_functions_take_floats_alone(name):
    with pytest.raises(TypeError, match=f"T.{name} takes a float, not int32"):
        elaborated(applied([getattr(T, name)], "int32", "float32", 4), (), None, {}, {})


# ---- limits ----


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_limits_of_floats(kind):
    import ml_dtypes

    @T.prim_func
    def main(C: T.Tensor((5,), kind)):
        with T.Kernel(1, threads=32):
            C[0] = T.infinity(kind)
            C[1] = -T.infinity(kind)
            C[2] = T.max_value(kind)
            C[3] = T.min_value(kind)
            C[4] = T.infinity(kind) * -1

    limits = ml_dtypes.finfo(numpy_dtype(kind)) if kind == "bfloat16" else np.finfo(kind)
    expected = np.array([np.inf, -np.inf, limits.max, limits.min, -np.inf]).astype(numpy_dtype(kind))
    agree(main, expected=expected, rtol=0, atol=0, targets=FEW)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_limits_of_8_bit_floats(kind):
    import ml_dtypes

    @T.prim_func
    def main(C: T.Tensor((2,), kind), D: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            C[0] = T.max_value(kind)
            C[1] = T.min_value(kind)
            D[0] = T.max_value(kind)

    largest = float(ml_dtypes.finfo(kind).max)
    agree(main, expected=[np.array([largest, -largest]).astype(numpy_dtype(kind)), [largest]], rtol=0, atol=0)


def test_limits_of_integers():
    @T.prim_func
    def main(C: T.Tensor((6,), "int64")):
        with T.Kernel(1, threads=32):
            C[0] = T.max_value("int8")
            C[1] = T.min_value("int8")
            C[2] = T.max_value("uint16")
            C[3] = T.min_value("int32")
            C[4] = T.max_value("int64")
            C[5] = T.min_value("int64")

    agree(main, expected=np.array([127, -128, 65535, -(2**31), 2**63 - 1, -(2**63)]))


@pytest.mark.nvrtc
def test_lowest_numbers_go_beside_others_of_their_type() -> None:
    """To C++ the lowest int32 is the negative of a number that only a long has."""

    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), C: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                C[i] = T.max(T.min(A[i], 7), T.int32(-(2**31)))

    require_compiler("sm_90a")
    a = np.array([-(2**31), -5, 7, 8], np.int32)
    compile_variant(elaborated(main, [a], None, {}, {}), parse_target("sm_90a"), "p")
    agree(main, a, targets=FEW, expected=np.minimum(a, 7))


def test_an_integer_has_no_infinity():
    with pytest.raises(UnsupportedError, match=r"T\.infinity of int32"):
        T.infinity("int32")


def test_minus_infinity_masks():
    """-inf is folded, kept through sums, and gives 0 in exp2."""

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), C: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                masked = T.if_then_else(i < 4, A[i], -T.infinity("float32"))
                C[0, i] = masked + A[i]
                C[1, i] = T.exp2((masked - 1.0) * 0.5)
                C[2, i] = T.exp(masked)
                C[3, i] = T.max(masked, -T.infinity("float32"))

    a = np.linspace(-1, 1, 8, dtype=np.float32)
    masked = np.where(np.arange(8) < 4, a, -np.inf)
    expected = np.stack([masked + a, np.exp2((masked - 1) * 0.5), np.exp(masked), masked])
    agree(main, a, expected=expected)
    agree(main, a, expected=expected, config={"pass_configs": {"tl.enable_fast_math": True}}, rtol=1e-5)


# ---- choices ----


def test_if_then_else_is_lazy_and_select_is_not():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), C: T.Tensor((2, 8), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[0, i] = T.if_then_else(i < 4, 100 // A[i], -1)
                C[1, i] = T.Select(i % 2 == 0, i, -i)

    a = np.array([1, 2, 3, 4], np.int32)
    i = np.arange(8)
    expected = np.stack([np.concatenate([100 // a, [-1] * 4]), np.where(i % 2 == 0, i, -i)])
    agree(main, a, expected=expected)


def test_select_wants_one_dtype():
    with pytest.raises(TypeError, match=r"T\.Select of float32 and int32"):
        elaborated(applied([lambda x: T.Select(x > 0, x, 1)], "float32", "float32", 4), (), None, {}, {})


def test_hints_change_nothing():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                T.assume(A[i] >= 0)
                if T.likely(A[i] > 2):
                    C[i] = A[i]
                else:
                    C[i] = 0

    a = np.arange(8, dtype=np.int32)
    agree(main, a, expected=np.where(a > 2, a, 0))


def test_a_literal_zero_times_anything_is_zero():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0, 1e-42], np.float32)

    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8, 5), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                Y[i, 0] = X[i] * 0.0
                Y[i, 1] = 0 * X[i]
                Y[i, 2] = 0.0 / X[i]
                Y[i, 3] = X[i] - X[i]
                Y[i, 4] = X[i] / X[i]

    zeros = np.zeros(8, np.float32)
    with np.errstate(all="ignore"):
        agree(main, x, expected=np.stack([zeros, zeros, zeros, x - x, x / x], 1), targets=FEW)


def test_python_numbers_stay_numbers():
    assert (T.max(3, 5), T.min(3, 5), T.abs(-2), T.ceildiv(7, 2), T.cdiv(7, 2)) == (5, 3, 2, 4, 4)
    assert (T.align_up(7, 4), T.floordiv(-7, 2), T.floormod(-7, 2), T.truncdiv(-7, 2)) == (8, -4, 1, -3)


# ---- integers ----


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "int8", "uint16"])
def test_functions_of_integers(kind):
    bits = np.dtype(kind).itemsize * 8
    mask = (1 << bits) - 1
    a = np.array([0, 1, 5, 64, 100, 127, 80, 2], kind)
    if kind.startswith("i"):
        a[4:7] *= -1
    raw = [int(value) & mask for value in a]
    counts = {
        T.popcount: [bin(value).count("1") for value in raw],
        T.clz: [bits - value.bit_length() for value in raw],
        T.__ffs: [(value & -value).bit_length() for value in raw],
    }
    rows = [*counts.values(), (a // 3).tolist(), (a % 3).tolist(), ((a.astype(np.int64) + 2) // 3).tolist()]
    rows.append([value & 6 | 1 for value in a.tolist()])
    functions = [*counts, lambda x: x // T.cast(3, kind), lambda x: x % T.cast(3, kind)]
    functions += [lambda x: T.ceildiv(T.cast(x, "int64"), 3), lambda x: T.bitwise_or(T.bitwise_and(x, 6), 1)]
    agree(applied(functions, kind, "int64", 8), a, expected=np.array(rows), targets=FEW)


def test_fns_finds_the_nth_set_bit():
    mask = np.array([0b1011_0110, 0, 0xFFFFFFFF, 0x80000001, 0b1011_0110, 0b1011_0110], np.uint32)
    base = np.array([0, 0, 5, 1, 7, 1], np.int32)
    offset = np.array([2, 1, -3, 1, -2, 0], np.int32)

    @T.prim_func
    def main(
        A: T.Tensor((6,), "uint32"),
        B: T.Tensor((6,), "int32"),
        E: T.Tensor((6,), "int32"),
        C: T.Tensor((6,), "int64"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(6):
                C[i] = T.__fns(A[i], B[i], E[i])

    agree(main, mask, base, offset, expected=np.array([2, 0xFFFFFFFF, 3, 31, 5, 1]))


# ---- IEEE ----


def test_ieee_functions_round_to_nearest():
    a, b = np.linspace(0.1, 3, 8, dtype=np.float32), np.linspace(1, 7, 8, dtype=np.float32)
    functions = [T.ieee_add, T.ieee_sub, T.ieee_mul, T.ieee_fdiv, lambda x, y: T.ieee_fmaf(x, y, x)]
    functions += [lambda x, y, f=f: f(x) for f in (T.ieee_frcp, T.ieee_fsqrt, T.ieee_frsqrt)]
    wide = a.astype(np.float64)
    expected = np.stack(
        [a + b, a - b, a * b, a / b, wide * b + wide, 1 / wide, np.sqrt(wide), 1 / np.sqrt(wide)]
    )
    agree(paired(functions, "float32", "float32", 8), a, b, expected=expected, rtol=2e-7)


def test_ieee_functions_round_in_other_directions_on_gpus():
    a, b = np.full(4, 1, np.float32), np.full(4, 2.0**-30, np.float32)
    functions = [lambda x, y, mode=mode: T.ieee_add(x, y, mode) for mode in ("rn", "rz", "ru", "rd")]
    functions += [lambda x, y, mode=mode: T.ieee_fdiv(x, T.ieee_add(y, 3.0), mode) for mode in ("ru", "rd")]
    kernel = paired(functions, "float32", "float32", 4)
    third = np.float32(1) / np.float32(3)
    above = third if third >= 1 / 3 else np.nextafter(third, np.float32(1))
    below = np.nextafter(above, np.float32(0))
    rows = [1, 1, np.nextafter(np.float32(1), np.float32(2)), 1, above, below]
    agree(kernel, a, b, expected=np.array(rows, np.float32)[:, None], targets=("sm_80",), rtol=0, atol=0)
    with pytest.raises(UnsupportedError, match=r'rounding mode "r[zud]"'):
        agree(kernel, a, b, targets=("cpu",))


def test_an_unknown_ieee_mode_is_an_error():
    with pytest.raises(ValueError, match='"rn", "rz", "ru" or "rd"'):
        elaborated(paired([lambda x, y: T.ieee_add(x, y, "up")], "float32", "float32", 4), (), None, {}, {})


# ---- not offered ----


@pytest.mark.parametrize(
    "name",
    ["q_multiply_shift", "call_packed", "call_llvm_intrin", "anylist_getitem", "TVMBackendAllocWorkspace"],
)
def test_names_that_are_not_offered_exist_and_refuse(name):
    with pytest.raises(UnsupportedError, match=f"T.{name}"):
        getattr(T, name)(1, 2)


# ---- maximum and minimum of what may be NaN ----

_MAYBE = np.array([1, np.nan, 3, np.nan, -2, np.inf, -np.inf, np.nan])
_OTHER = np.array([2, 5, np.nan, np.nan, -7, np.nan, np.nan, -np.inf])


KINDS = ("float8_e5m2", "float16", "bfloat16", "float32", "float64")


@parametrized(
    ("kind", "keeps"),
    [(kind, keeps) for kind in KINDS for keeps in (False, True)],
    fast=diagonal(KINDS, (False, True)),
)
def test_extremes_drop_nan_or_keep_it(kind, keeps):
    a, b = (values.astype(numpy_dtype(kind)) for values in (_MAYBE, _OTHER))
    functions = [
        lambda x, y: T.max(x, y, nan_propagate=keeps),
        lambda x, y: T.min(x, y, nan_propagate=keeps),
        lambda x, y: T.clamp(x, -1.0, y, nan_propagate=keeps),
        lambda x, y: T.max(x, 0.5, keeps),
    ]
    most, least = (np.maximum, np.minimum) if keeps else (np.fmax, np.fmin)
    x, y = a.astype(np.float64), b.astype(np.float64)
    rows = np.stack([most(x, y), least(x, y), least(most(x, -1.0), y), most(x, 0.5)])
    expected = cast(rows, numpy_dtype(kind))  # 8-bit floats saturate
    targets = ("cpu",) if kind == "float64" else FEW
    agree(paired(functions, kind, kind, 8), a, b, expected=expected, targets=targets)


def test_extremes_of_integers_and_numbers_know_no_nan():
    a = np.array([1, -7, 5, 3], np.int32)
    functions = [lambda x: T.max(x, 2, nan_propagate=True), lambda x: T.clamp(x, -1, 4, nan_propagate=True)]
    agree(
        applied(functions, "int32", "int32", 4), a, expected=np.stack([np.maximum(a, 2), np.clip(a, -1, 4)])
    )
    assert T.max(1, 2, nan_propagate=True) == 2
    assert math.isnan(T.min(math.nan, 2.0, nan_propagate=True))


@parametrized("kind", KINDS, fast=("bfloat16", "float32"))
def test_comparisons_with_nan_are_false_but_for_unequal(kind):
    functions = [
        lambda x, y: x != y,
        lambda x, y: T.Not(x == y),
        lambda x, y: T.Not(x < y),
        lambda x, y: T.Or(x < y, x >= y),
        lambda x, y: T.cast(x, "bool"),
        lambda x, y: x - x == 0.0,
    ]
    a, b = (values.astype(numpy_dtype(kind)) for values in (_MAYBE, _OTHER))
    x, y = a.astype(np.float64), b.astype(np.float64)
    rows = [x != y, ~(x == y), ~(x < y), (x < y) | (x >= y), x != 0, np.isfinite(x)]
    targets = ("cpu",) if kind == "float64" else FEW
    agree(paired(functions, kind, "bool", 8), a, b, expected=np.stack(rows), targets=targets)


def test_loops_and_branches_by_comparisons_with_nan():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((2, 8), "int32")):
        with T.Kernel(8, threads=32) as i:
            steps = T.alloc_var("int32")
            while A[i] != B[i] and steps < 3:
                steps += 1
            C[0, i] = steps
            if not (A[i] < B[i]):
                C[1, i] = 1
            else:
                C[1, i] = 0

    a, b = _MAYBE.astype(np.float32), _OTHER.astype(np.float32)
    agree(main, a, b, expected=np.stack([np.where(a != b, 3, 0), ~(a < b)]).astype(np.int32), targets=FEW)


@pytest.mark.parametrize("keeps", [False, True])
def test_extremes_of_packed_pairs(keeps):
    @T.prim_func
    def main(A: T.Tensor((16,), "float16"), C: T.Tensor((16,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                left, right = T.float16x2(A[2 * i], A[2 * i + 1]), T.float16x2(A[8 + 2 * i], A[9 + 2 * i])
                most = T.max2(left, right, nan_propagate=keeps)
                least = T.min2(left, right, nan_propagate=keeps)
                C[2 * i], C[2 * i + 1] = T.extract_lane(most, 0), T.extract_lane(most, 1)
                C[8 + 2 * i], C[9 + 2 * i] = T.extract_lane(least, 0), T.extract_lane(least, 1)

    a = np.concatenate([_MAYBE, _OTHER]).astype(np.float16)
    most, least = (np.maximum, np.minimum) if keeps else (np.fmax, np.fmin)
    agree(main, a, expected=np.concatenate([most(a[:8], a[8:]), least(a[:8], a[8:])]), targets=FEW)


@pytest.mark.parametrize("keeps", [False, True])
def test_accumulated_extremes_keep_nan(keeps):
    @T.prim_func
    def main(A: T.Tensor((6, 40), "float32"), C: T.Tensor((3, 6), "float32")):
        with T.Kernel(1, threads=32):
            f, m = T.alloc_fragment((6, 40), "float32"), T.alloc_fragment((6,), "float32")
            down = T.alloc_fragment((40,), "float32")
            T.copy(A, f)
            T.fill(m, -T.infinity("float32"))
            T.fill(down, T.infinity("float32"))
            for i, j in T.Parallel(6, 40):
                m[i] = T.max(m[i], f[i, j], nan_propagate=keeps)
            for i, j in T.Parallel(6, 40):
                down[j] = T.min(f[i, j], down[j], nan_propagate=keeps)
            T.copy(m, C[0, 0:6])
            for i in T.Parallel(6):
                C[1, i] = down[i]
            for i in T.Parallel(6):
                own = T.alloc_local((4,), "float32")
                for k in T.serial(4):
                    own[k] = A[i, k]
                best = T.alloc_var("float32", 0.0)
                for k in T.serial(4):
                    best = T.max(best, own[k], nan_propagate=keeps)
                C[2, i] = best

    a = np.random.default_rng(3).standard_normal((6, 40)).astype(np.float32)
    a[1, 2], a[4, 39], a[5, 3] = np.nan, np.nan, np.nan
    most, least = (np.maximum, np.minimum) if keeps else (np.fmax, np.fmin)
    rows = [most.reduce(a, 1), least.reduce(a, 0)[:6], most(most.reduce(a[:, :4], 1), 0)]
    agree(main, a, expected=np.stack(rows), targets=FEW)


def test_functions_of_float64_keep_its_digits():
    """The emulator's, too: it had rounded them to float32, of which 1e300 is infinite."""
    values = np.array([1 / 3, -1e300, 2.0**53 + 2, 7.2500000001, -1 / 7])
    found = [T.abs, T.floor, T.trunc, lambda x: T.sqrt(T.abs(x)), lambda x: T.copysign(x, -1 / x)]
    wanted = [np.abs, np.floor, np.trunc, lambda x: np.sqrt(np.abs(x)), lambda x: np.copysign(x, -1 / x)]
    expected = np.stack([function(values) for function in wanted])
    kernel = applied(found, "float64", "float64", len(values))
    agree(kernel, values, expected=expected, targets=("cpu", "sm_80"), rtol=1e-15, atol=0)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_products_and_quotients_of_a_masked_zero_keep_nan(kind):
    def convolution(L):
        @T.prim_func
        def main(x: T.Tensor((L, 32), kind), w: T.Tensor((32,), kind), y: T.Tensor((L, 32), "float32")):
            with T.Kernel(T.ceildiv(L, 8), threads=32) as b:
                acc = T.alloc_fragment((8, 32), "float32")
                T.clear(acc)
                for k in T.serial(2):
                    for i, j in T.Parallel(8, 32):
                        acc[i, j] += T.if_then_else(b * 8 + i + k >= 3, x[b * 8 + i + k - 3, j], 0.0) * w[j]
                for i, j in T.Parallel(8, 32):
                    acc[i, j] += T.if_then_else(b * 8 + i >= 9, x[b * 8 + i, j], 0.0) / w[j]
                T.copy(acc, y[b * 8, 0])

        return main

    w = np.repeat([0, np.inf, -np.inf, np.nan, 1.5, -2, 4, np.inf], 4).astype(numpy_dtype(kind))
    x, i, wide = np.ones((12, 32), w.dtype), np.arange(12)[:, None], w.astype("float32")
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = (i >= 3) * wide + (i >= 2) * wide + (i >= 9) / wide
    agree(convolution, x, w, dims={"L": Guard()}, expected=[expected.astype("float32")], targets=FEW)


EQUAL_PRODUCTS = {
    "in one expression": lambda s, m, scaled, c: T.exp2(s * c - m * c),
    "with a negative term": lambda s, m, scaled, c: T.exp(-(c * m) + s * c),
    "of one that is stored": lambda s, m, scaled, c: T.exp2(s * c - scaled),
    "in front of the exponent": lambda s, m, scaled, c: s * c - m * c,
}


@pytest.mark.parametrize("form", EQUAL_PRODUCTS)
def test_equal_products_have_no_difference_on_cpus(form):
    difference = EQUAL_PRODUCTS[form]

    @T.prim_func
    def main(x: T.Tensor((4, 24), "float32"), y: T.Tensor((4, 24), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_fragment((4, 24), "float32")
            m, scaled = T.alloc_fragment((4,), "float32"), T.alloc_fragment((4,), "float32")
            T.copy(x, s)
            T.reduce_max(s, m, dim=1)
            for i in T.Parallel(4):
                scaled[i] = m[i] * 0.180337
            for i, j in T.Parallel(4, 24):
                s[i, j] = difference(s[i, j], m[i], scaled[i], 0.180337)
            T.copy(s, y)

    x = np.full((4, 24), -1.3e30, "float32")
    expected = np.zeros_like(x) if "front" in form else np.ones_like(x)
    agree(main, x, expected=[expected], targets=("cpu",))
