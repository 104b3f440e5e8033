"""Dtypes: names, what dtype objects do, promotion, operators, stores, 8-bit floats."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from agree import agree, elaborated
from breadth import parametrized

import tilec
import tilec.language as T
from tilec import dtypes
from tilec.errors import SourceValueError, UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.interp.values import cast, numpy_dtype

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


def seen(a, b, *functions):
    """The dtype of what each function makes of an element of ``a`` and one of ``b``, while a kernel is
    built."""
    found = []

    @T.prim_func
    def main(A: T.Tensor((1,), a), B: T.Tensor((1,), b), out: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            for function in functions:
                found.append(function(A[0], B[0]).dtype)
            out[0] = 0

    elaborated(main, (), None, {}, {})
    return found


def dtype_of(a, b, function):
    return seen(a, b, function)[0]


# ---- names and objects ----


@pytest.mark.parametrize(
    "name", [*INTEGERS, *FLOATS, "bool", "int4", "tfloat32", "float8_e8m0fnu", "float4_e2m1fn"]
)
def test_a_dtype_is_the_string_of_its_name(name):
    kind = getattr(T, name)
    assert kind == name
    assert hash(kind) == hash(name)
    assert T.dtype(name) is not None
    assert T.dtype(kind) is kind


def test_aliases_are_the_dtypes_they_stand_for():
    aliases = {"short": "int16", "int": "int32", "uint": "uint32", "long": "int64", "half": "float16"}
    aliases |= {"float": "float32", "double": "float64", "float8_e4m3": "float8_e4m3fn"}
    for alias, name in aliases.items():
        assert getattr(T, alias) == name
        assert T.dtype(alias) == name
    assert T.dtype("ulong") == "uint64"


def test_vector_names_carry_their_lanes():
    for lanes in (2, 4, 8, 16, 32, 64):
        assert getattr(T, f"float16x{lanes}").lanes == lanes
    assert (T.float32x4.bits, T.float32x4.bytes, T.uint8x16.itemsize) == (32, 16, 16)
    assert T.bfloat16x2 == "bfloat16x2"


def test_dtypes_come_from_python_numpy_and_torch_types():
    torch = pytest.importorskip("torch")
    assert [T.dtype(kind) for kind in (bool, int, float)] == ["bool", "int32", "float32"]
    assert [T.dtype(kind) for kind in (np.float16, np.dtype("uint8"))] == ["float16", "uint8"]
    assert T.dtype(torch.bfloat16) == "bfloat16"
    assert T.float16.as_torch() is torch.float16
    assert getattr(torch, T.float16) is torch.float16
    assert T.float16 != torch.float16


def test_unknown_and_unstored_dtypes_say_so():
    with pytest.raises(SourceValueError, match="did you mean 'float16'"):
        T.dtype("floot16")
    with pytest.raises(SourceValueError, match="did you mean 'float8_e4m3fn' or 'float8_e5m2'"):
        T.dtype("float8")
    with pytest.raises(SourceValueError, match="unknown dtype 'complex64'"):
        T.dtype("complex64")
    with pytest.raises(TypeError, match="is no dtype"):
        T.dtype(3.5)
    with pytest.raises(UnsupportedError, match="float8_e4m3fnuz"):
        T.dtype("float8_e4m3fnuz")


def test_calling_a_dtype_casts_and_checks_numbers():
    whole = []

    def cut(x, y):
        whole.append(int(T.int32(2.7)))
        return T.int32(2.7)

    found = seen("float32", "int32", lambda x, y: T.float16(x), cut, lambda x, y: T.uint8(7))
    assert found == ["float16", "int32", "uint8"]
    assert whole == [2]
    with pytest.raises(ValueError, match="300 does not fit uint8"):
        seen("float32", "int32", lambda x, y: T.uint8(300))


# ---- promotion ----


def _promoted(a, b):
    """The common dtype of two operands, as the language has it."""
    if "bool" in (a, b):
        return b if a == "bool" else a
    rows = {name: dtypes.DTYPES[name] for name in (a, b)}
    if rows[a].is_float != rows[b].is_float:
        return a if rows[a].is_float else b
    if rows[a].bits != rows[b].bits:
        return a if rows[a].bits > rows[b].bits else b
    if rows[a].is_float:
        return a if a == b else "float16"
    return a if a.startswith("u") else b


_OTHER_FLOAT8 = {("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "float8_e4m3fn")}


@pytest.mark.parametrize("a", [*INTEGERS, *FLOATS, "bool"])
def test_operands_are_promoted(a):
    for b in (*INTEGERS, *FLOATS, "bool"):
        if (a, b) in {*_OTHER_FLOAT8, ("bool", "bool")}:
            continue
        found = seen(a, b, lambda x, y: x + y, lambda x, y: x * y, T.max, T.min,
                     lambda x, y: T.if_then_else(x == x, x, y), lambda x, y: x < y)  # fmt: skip
        assert found == [_promoted(a, b)] * 5 + ["bool"], (a, b)


@pytest.mark.parametrize(
    ("kind", "function", "result"),
    [
        ("float16", lambda x: x + 1, "float16"),
        ("float16", lambda x: x * 0.5, "float32"),
        ("int8", lambda x: x + 1, "int32"),
        ("uint8", lambda x: x - 1, "int32"),
        ("int32", lambda x: x * 0.5, "float32"),
        ("int64", lambda x: x * 0.5, "float32"),
        ("int32", lambda x: x + 5_000_000_000, "int64"),
        ("bool", lambda x: x + 1, "int32"),
        ("int8", lambda x: x + True, "int8"),
        ("float64", lambda x: x * 0.5, "float64"),
        ("bfloat16", lambda x: 2 * x, "bfloat16"),
    ],
)
def test_python_numbers_are_int32_float32_and_bool(kind, function, result):
    assert dtype_of(kind, "int32", lambda x, y: function(x)) == result


def test_an_integer_that_a_float_cannot_hold_is_an_error():
    with pytest.raises(ValueError, match="operator \\+ does not take float16 and 10000000000"):
        seen("float16", "int32", lambda x, y: x + 10**10)


@pytest.mark.parametrize(
    ("a", "b", "function", "error", "remedy"),
    [
        ("int32", "int32", lambda x, y: x / y, RuntimeError, "use // or T.truncdiv"),
        ("float32", "float32", lambda x, y: x // y, TypeError, "T.floor"),
        ("float32", "float32", lambda x, y: x % y, TypeError, "T.fmod"),
        ("float32", "int32", lambda x, y: x & y, TypeError, "T.cast"),
        ("float16", "int32", lambda x, y: x << y, TypeError, "T.cast"),
        ("bool", "bool", lambda x, y: -x, TypeError, "cast to an integer"),
        ("float32", "int32", lambda x, y: ~x, TypeError, "T.reinterpret"),
        ("float8_e4m3fn", "float8_e5m2", lambda x, y: x + y, TypeError, "T.cast"),
        ("float32", "int32", lambda x, y: x**2, UnsupportedError, "T.pow"),
    ],
)
def test_operators_refuse_what_they_do_not_take(a, b, function, error, remedy):
    with pytest.raises(error, match=remedy):
        seen(a, b, function)


def test_integer_operators_floor_truncate_and_shift():
    names = ("//", "%", "truncdiv", "truncmod", "<<", ">>", "&", "|", "^", "~", "u/")

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32"), C: T.Tensor((len(names), 8), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                a, b = A[i], B[i]
                C[0, i] = a // b
                C[1, i] = a % b
                C[2, i] = T.truncdiv(a, b)
                C[3, i] = T.truncmod(a, b)
                C[4, i] = a << (b & 3)
                C[5, i] = a >> (b & 3)
                C[6, i] = a & b
                C[7, i] = a | b
                C[8, i] = a ^ b
                C[9, i] = ~a
                C[10, i] = T.cast(T.cast(a, "uint32") / T.cast(b & 7 | 1, "uint32"), "int32")

    a = np.array([-7, 7, -7, 7, 2**31 - 1, -(2**31), 0, 100], np.int32)
    b = np.array([2, 2, -2, -3, 3, 7, 5, -9], np.int32)
    quotient = np.trunc(a / b).astype(np.int64)
    unsigned = (a.view(np.uint32) // (b & 7 | 1).view(np.uint32)).view(np.int32)
    expected = [
        a // b,
        a % b,
        quotient,
        a - quotient * b,
        a << (b & 3),
        a >> (b & 3),
        a & b,
        a | b,
        a ^ b,
        ~a,
    ]
    agree(main, a, b, expected=np.stack([*expected, unsigned]).astype(np.int32))


@pytest.mark.parametrize("kind", ["uint8", "uint32", "uint64"])
def test_the_negative_of_an_unsigned_number_wraps_around(kind):
    @T.prim_func
    def main(A: T.Tensor((8,), kind), C: T.Tensor((3, 8), kind), D: T.Tensor((8,), "bool")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[0, i] = -A[i]
                C[1, i] = (-A[i]) // T.cast(3, kind)
                C[2, i] = T.cast(0, kind) - A[i]
                D[i] = -A[i] > A[i]

    a = np.array([0, 1, 2, 3, 100, np.iinfo(kind).max, np.iinfo(kind).max // 2 + 1, 7], kind)
    minus = np.zeros(8, kind) - a
    agree(main, a, expected=[np.stack([minus, minus // np.array(3, kind), minus]), minus > a])


@pytest.mark.parametrize("kind", ["uint8", "uint32", "uint64"])
def test_unsigned_literals_are_compared_where_elements_end(kind):
    """What lies behind a tile is 0 to a test and to a choice of which both sides are it."""

    @T.prim_func
    def main(A: T.Tensor((4,), kind), C: T.Tensor((2, 32), "int32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_local((4,), kind)
            for i in T.serial(4):
                a[i] = A[i]
            for i in T.Parallel(32):
                C[0, i] = T.if_then_else((a[i] > 2) and (a[i] < 14), 5, 7)
                none = T.if_then_else(A[i] > 2, T.cast(0, kind), T.cast(0, kind))
                C[1, i] = T.if_then_else(none < T.cast(5, kind), 5, 7)

    expected = np.full((2, 32), 7)
    expected[0, 1:3] = expected[1] = 5
    agree(main, np.array([2, 3, 13, 14], kind), expected=expected.astype(np.int32))


def test_integers_wrap_around():
    @T.prim_func
    def main(
        A: T.Tensor((4,), "int8"),
        B: T.Tensor((4,), "uint32"),
        C: T.Tensor((4,), "int8"),
        D: T.Tensor((4,), "uint32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                C[i] = A[i] + A[i]
                D[i] = B[i] * B[i]

    a, b = np.array([100, -100, 127, 1], np.int8), np.array([70000, 2**31, 3, 2**32 - 1], np.uint32)
    agree(main, a, b, expected=[a + a, b * b])


# ---- stores ----


NUMBERS = np.array([0.0, -0.0, 0.4, -1.5, 2.5, 3.49, 100.7, -77.9, 0.001, 1.0625])
KEPT = ("int8", "int32", "int64", "bool", "float16", "bfloat16", "float8_e5m2", "float64")


def _stored(source, kinds):
    """A kernel that stores the elements of one tensor to tensors of eight dtypes."""

    @T.prim_func
    def main(
        A: T.Tensor((10,), source),
        B: T.Tensor((10,), kinds[0]),
        C: T.Tensor((10,), kinds[1]),
        D: T.Tensor((10,), kinds[2]),
        E: T.Tensor((10,), kinds[3]),
        F: T.Tensor((10,), kinds[4]),
        G: T.Tensor((10,), kinds[5]),
        H: T.Tensor((10,), kinds[6]),
        K: T.Tensor((10,), kinds[7]),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(10):
                for tensor in (B, C, D, E, F, G, H, K):
                    tensor[i] = A[i]

    return main


@pytest.mark.filterwarnings("ignore:.*truncates")
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_floats_truncate_and_round_when_they_are_stored(source):
    a = NUMBERS.astype(numpy_dtype(source))
    expected = [cast(a, numpy_dtype(kind)) for kind in KEPT]
    agree(_stored(source, KEPT), a, expected=expected, targets=("cpu", "sm_80"), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*truncates")
@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64"])
def test_floats_fill_unsigned_integers(kind):
    @T.prim_func
    def main(X: T.Tensor((64,), "float64"), Y: T.Tensor((64,), kind)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                Y[i] = X[i]

    x = np.ldexp(np.arange(256 - 64, 256) / 256, 8 * np.dtype(kind).itemsize)
    agree(main, x, expected=np.trunc(x).astype(kind))


def test_integers_wrap_when_they_are_stored():
    kinds = ("int8", "uint8", "uint16", "uint32", "int64", "bool", "float32", "bfloat16")
    a = np.array([0, 1, -1, 127, 128, 255, 256, -129, 65537, 2**31 - 1], np.int32)
    expected = [cast(a, numpy_dtype(kind)) for kind in kinds]
    agree(_stored("int32", kinds), a, expected=expected, targets=("cpu", "sm_80"))


def test_a_bool_is_stored_as_0_or_1():
    kinds = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    a = np.array([True, False] * 5)
    agree(_stored("bool", kinds), a, expected=[a.astype(numpy_dtype(kind)) for kind in kinds])


def test_the_extremes_of_truths_are_conditions():
    @T.prim_func
    def main(A: T.Tensor((64,), "bool"), B: T.Tensor((64,), "bool"), C: T.Tensor((2, 64), "bool"),
             D: T.Tensor((2,), "bool")):  # fmt: skip
        with T.Kernel(1, threads=64):
            some, every = T.alloc_fragment((1,), "bool"), T.alloc_fragment((1,), "bool")
            T.clear(some)
            T.fill(every, True)
            for i in T.Parallel(64):
                C[0, i] = T.max(A[i], B[i])
                C[1, i] = T.min(A[i], B[i])
                some[0] = T.max(some[0], A[i])
                every[0] = T.min(every[0], A[i])
            T.copy(some, D[0])
            T.copy(every, D[1])

    a, b = (np.random.default_rng(seed).random(64) < 0.3 for seed in (0, 1))
    agree(main, a, b, expected=[np.stack([a | b, a & b]), [a.any(), a.all()]])


@pytest.mark.parametrize("count", [1, 66, 130])
def test_tiles_of_truths_end_where_rows_do(count):
    @T.prim_func
    def main(A: T.Tensor((3, count), "bool"), B: T.Tensor((3, count), "bool")):
        with T.Kernel(3, threads=64) as b:
            tile = T.alloc_fragment((64,), "bool")
            for k in T.serial(3):
                T.copy(A[b, k * 64], tile)
                for i in T.Parallel(64):
                    tile[i] = tile[i] ^ (i % 3 == 0)
                T.copy(tile, B[b, k * 64])

    a = np.random.default_rng(0).random((3, count)) < 0.5
    agree(main, a, expected=a ^ (np.arange(count) % 64 % 3 == 0))


@pytest.mark.parametrize("narrow", ["float8_e4m3fn", "int8", "bool"])
@pytest.mark.parametrize("wide", ["float16", "bfloat16"])
def test_fragments_of_16_bits_take_16_elements_of_8_at_once(narrow, wide):
    @T.prim_func
    def main(A: T.Tensor((32, 32), narrow), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            rows, sums = T.alloc_fragment((32, 32), wide), T.alloc_fragment((32,), "float32")
            T.copy(A, rows)
            T.reduce_sum(rows, sums, dim=1)
            T.copy(sums, B)

    a = np.random.default_rng(0).integers(0, 5, (32, 32)).astype(numpy_dtype(narrow))
    targets = ("cpu", "sm_80", "sm_90a", "gfx942", "metal3")
    agree(main, a, expected=a.astype(np.float32).sum(1), targets=targets)


def test_a_store_that_truncates_warns():
    with pytest.warns(UserWarning, match="truncates float32 to int32"):
        elaborated(_stored("float32", ("int32",) * 8), (), None, {}, {})


@pytest.mark.parametrize(
    ("kind", "made", "warns"),
    [
        ("int8", lambda x, n: T.clamp(T.round(x), -127, 127), False),
        ("int8", lambda x, n: T.max(-128, T.min(T.round(x, "ties-away-from-zero"), 127.0)), False),
        ("uint8", lambda x, n: T.if_then_else(x > 0, T.clamp(T.floor(x), 0, 255), T.float32(n)), False),
        ("int32", lambda x, n: T.Select(x > 0, T.float64(T.clamp(T.ceil(x), -2, 2)), T.float64(3)), False),
        ("int8", lambda x, n: T.clamp(x, -127, 127), True),
        ("int8", lambda x, n: T.round(x), True),
        ("int8", lambda x, n: T.clamp(T.round(x), -127, 128), True),
        ("int32", lambda x, n: T.clamp(T.trunc(x), -1.0, 2147483647.0), True),
        ("int8", lambda x, n: T.clamp(T.round(x), -127, 127, nan_propagate=True), True),
        ("int8", lambda x, n: T.clamp(T.round(x), -127, 127) * 0.5, True),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_whole_numbers_in_the_range_of_the_type_are_stored_without_a_warning(kind, made, warns, named):
    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), N: T.Tensor((8,), "uint8"), out: T.Tensor((8,), kind)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                if named:
                    value = made(X[i], N[i])
                    out[i] = value
                else:
                    out[i] = made(X[i], N[i])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        elaborated(main, (), None, {}, {})
    assert [f"truncates float32 to {kind}" in str(each.message) for each in caught] == [True] * warns


@pytest.mark.parametrize(
    ("kind", "number", "kept"),
    [("uint8", 300, 44), ("int32", 1 << 40, 0), ("int32", 1.5, 1), ("int8", -1000, 24)],
)
def test_numbers_that_an_integer_type_does_not_hold_warn(kind, number, kept):
    @T.prim_func
    def main(out: T.Tensor((8,), kind)):
        with T.Kernel(1):
            first = T.alloc_var(kind, number)
            T.fill(out, number)
            out[0] = number
            out[1] = first

    with pytest.warns(UserWarning, match="does not hold") as caught:
        agree(main, expected=np.full(8, kept, kind))
    told = [str(each.message) for each in caught]
    lost = f"makes {kept} of {number}, which {kind} does not hold"
    assert told == [f"{what} {lost}" for what in ("T.alloc_var", "T.fill", "a store to out")]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("kind", "number"), [("uint8", -1), ("int32", 0x80000000), ("int32", 3.0)])
def test_numbers_that_the_bits_of_an_integer_hold_do_not_warn(kind, number):
    @T.prim_func
    def main(out: T.Tensor((8,), kind)):
        with T.Kernel(1):
            T.fill(out, number)

    elaborated(main, (), None, {}, {})


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_casts_to_8_bit_floats_saturate(kind):
    a = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 0.3, 1e-9, 450.0], np.float32)
    largest = float(ml_dtypes.finfo(kind).max)
    with np.errstate(invalid="ignore"):
        expected = np.clip(a, -largest, largest).astype(numpy_dtype(kind))

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), C: T.Tensor((8,), kind)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[i] = T.cast(A[i], kind)

    agree(main, a, expected=expected)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_casts_without_saturation_overflow(kind):
    a = np.array([1e9, -1e9, 0.3, 464, -61440, 61439, 448, np.nan], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = a.astype(numpy_dtype(kind))

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), C: T.Tensor((8,), kind)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[i] = T.cast(A[i], kind, round="rn", sat=False)

    agree(main, a, expected=expected, targets=("cpu", "sm_80"))


def test_roundings_of_casts():
    with pytest.raises(UnsupportedError, match="stochastic rounding"):
        seen("float32", "int32", lambda x, y: T.cast(x, "float16", round="rs", rbits=y))
    with pytest.raises(ValueError, match="no rounding 'up'"):
        seen("float32", "int32", lambda x, y: T.cast(x, "float16", round="up"))
    found = seen(
        "float32", "int32", *(lambda x, y, r=r: T.cast(x, "float16", r) for r in ("rn", "rz", "rp", "rm"))
    )
    assert found == ["float16"] * 4


@parametrized("kind", ["float8_e4m3fn", "float8_e5m2"], fast=["float8_e4m3fn"])
def test_8_bit_floats_are_computed_in_float32_and_rounded_per_operation(kind):
    @T.prim_func
    def main(A: T.Tensor((16,), kind), B: T.Tensor((16,), kind), C: T.Tensor((6, 16), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                C[0, i] = A[i] + B[i] + B[i]
                C[1, i] = A[i] * B[i] - A[i]
                C[2, i] = T.max(A[i], B[i]) / T.abs(B[i])
                C[3, i] = T.exp(A[i])
                C[4, i] = -A[i] + 2
                C[5, i] = T.if_then_else(A[i] < B[i], A[i], B[i])

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(16).astype(np.float32).astype(numpy_dtype(kind)) for _ in range(2))

    def small(value):
        return cast(np.asarray(value, np.float32), numpy_dtype(kind)).astype(np.float32)

    x, y = a.astype(np.float32), b.astype(np.float32)
    rows = [small(small(x + y) + y), small(small(x * y) - x), small(small(np.maximum(x, y)) / np.abs(y))]
    rows += [small(np.exp(x)), small(2 - x), np.minimum(x, y)]
    agree(main, a, b, expected=np.stack(rows), rtol=0, atol=0, targets=("cpu", "sm_80"))


def test_float64_is_computed_in_float64():
    @T.prim_func
    def main(A: T.Tensor((8,), "float64"), C: T.Tensor((3, 8), "float64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[0, i] = A[i] * A[i] + 1
                C[1, i] = T.exp(A[i]) / T.sqrt(T.abs(A[i]))
                C[2, i] = A[i] + T.float64(1e-12)

    a = np.linspace(-2, 3, 8)
    expected = np.stack([a * a + 1, np.exp(a) / np.sqrt(np.abs(a)), a + 1e-12])
    agree(main, a, expected=expected, rtol=1e-14, atol=0, targets=("cpu",))


def test_tfloat32_is_an_operand_of_products_stored_as_float32():
    @T.prim_func
    def main(
        A: T.Tensor((32, 32), "tfloat32"),
        B: T.Tensor((32, 32), "float32"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((32, 32), T.tfloat32), T.alloc_shared((32, 32), T.tfloat32)
            acc = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(acc)
            T.gemm(a, b, acc)
            T.copy(acc, C)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float32) for _ in range(2))
    agree(main, a, b, expected=a @ b)


# ---- truth values ----


def test_an_expression_has_no_truth_value_in_python():
    def choose(x, y):
        return 1 if bool(x > 0) else 2

    with pytest.raises(SourceValueError, match="truth value of an expression"):
        seen("int32", "int32", choose)


def test_a_condition_that_the_guards_decide_has_one():
    @tilec.jit
    def kernel(A):
        M = T.dynamic("M")
        A: T.Tensor[[M], T.float32]
        assert M % 16 == 0
        with T.Kernel(M // 16, threads=32) as bx:
            for i in T.Parallel(16):
                A[bx * 16 + i] = 1.0

    elaborated(kernel, (), {"M": Guard(div=16)}, {}, {})


@T.prim_func
def rotated_bits(A: T.Tensor((256,), "uint8"), B: T.Tensor((256,), "int8"), C: T.Tensor((256, 6), "int32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(256):
            C[i, 0] = A[i] << 5
            C[i, 1] = (A[i] >> 3) | (A[i] << 5)
            C[i, 2] = (A[i] << 8) | B[i]
            C[i, 3] = B[i] >> 3
            C[i, 4] = B[i] & 15
            C[i, 5] = T.cast(B[i] & 255, "uint8")


def test_a_literal_beside_bits_is_an_int32():
    a, b = np.arange(256, dtype=np.uint8), np.arange(-128, 128).astype(np.int8)
    wide, signed = a.astype(np.int32), b.astype(np.int32)
    parts = (wide << 5, wide >> 3 | wide << 5, wide << 8 | signed, signed >> 3, signed & 15, signed & 255)
    agree(rotated_bits, a, b, expected=np.stack(parts, -1))


@T.prim_func
def seeded(seed: T.uint64, Y: T.Tensor((2,), "uint64")):
    with T.Kernel(1, threads=32):
        Y[0] = seed
        Y[1] = seed >> T.uint64(63)


@pytest.mark.parametrize("seed", [5, 2**63 + 1, 2**64 - 1])
def test_a_scalar_has_all_of_64_bits(seed):
    agree(seeded, np.uint64(seed), expected=np.array([seed, seed >> 63], np.uint64), targets=("cpu",))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_negative_numbers_beside_unsigned_ones(dtype):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((3, 64), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[0, i] = A[i] + (-3)
                B[1, i] = -3 + A[i]
                B[2, i] = A[i] - (-3)

    a = np.arange(64, dtype=dtype)
    three = np.array(3, dtype)
    agree(main, a, expected=[np.stack([a - three, a - three, a + three])])
