"""Chains of names that each read the one in front twice, whose values double with every link when they are
written out: they are computed link by link on every road, and building them takes no time to speak of."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T
from tilec.ir.guards import Guard

LINKS = 40


def test_rounds_of_a_hash():
    @T.prim_func
    def main(A: T.Tensor((32,), "uint32"), B: T.Tensor((32,), "uint32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                h = A[i]
                n = T.cast(A[i], "int32")
                for _ in list(range(LINKS)):
                    h = (h ^ (h >> 3)) + (h << 2)
                    n = (n ^ (n >> 3)) + (n & 255)
                B[i] = h
                C[i] = n

    a = np.arange(32, dtype="uint32") * 77
    h, n = a.copy(), a.astype("int32")
    for _ in range(LINKS):
        h = (h ^ (h >> np.uint32(3))) + (h << np.uint32(2))
        n = (n ^ (n >> 3)) + (n & 255)
    agree(main, a, expected=[h, n])


@pytest.mark.parametrize("of_threads", [False, True])
def test_steps_of_newtons(of_threads):
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            if of_threads:
                tx = T.get_thread_binding()
                B[tx] = inverse(A[tx])
            else:
                for i in T.Parallel(32):
                    B[i] = inverse(A[i])

    a = np.linspace(0.5, 3, 32, dtype="float32")
    agree(main, a, expected=1 / a)


def inverse(x):
    """1 / ``x``, for numbers from 0 to 3."""
    y = T.float32(0.3)
    for _ in range(LINKS):
        y = T.bind(y * (2.0 - x * y))
    return y


def test_extremes_of_extremes():
    """On CPUs an operand that may be NaN is asked for its value twice."""

    def nested(a, i):
        value = a[i, 0]
        for link in list(range(1, LINKS)):
            value = (T.max if link % 3 else T.min)(a[i, link], value)
        return value

    @T.prim_func
    def main(A: T.Tensor((32, LINKS), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = nested(A, i)

    a = np.random.default_rng(3).standard_normal((32, LINKS)).astype(np.float32)
    a[4, 7] = a[9, LINKS - 1] = np.nan
    agree(main, a)


def test_values_that_are_rounded_twice():
    """A float64 that becomes bfloat16, of an element outside of its tile for most numbers of the loop: TVM
    fails on a name that it meets with two values."""
    K = T.dynamic("K")

    def rounded(tile, a, i, by):
        return T.clamp(T.cast(tile[i, i + 1, i // 2], "float16") + a[by * 64 + i, i], -8.0, 8.0)

    @T.prim_func
    def main(A: T.Tensor((64, K), "uint8"), B: T.Tensor((64,), "bfloat16")):
        with T.Kernel(1, 1, threads=64) as (bx, by):
            tile = T.alloc_shared((2, 64, 32), "float64")
            made = T.alloc_fragment((64,), "bfloat16")
            T.fill(tile, bx)
            T.fill(made, 1)
            for i in T.Parallel(64):
                made[i] = T.min(T.cast(rounded(tile, A, i, by), "int32"), 1)
            T.copy(made, B[0:64])

    agree(main, np.ones((64, 16), np.uint8), dims={"K": Guard(min=6)})


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_numbers_that_are_rounded_again_and_again(dtype):
    """GPUs without instructions for 8-bit floats round by arithmetic, which reads a number many times."""

    def rounded(value):
        for _ in list(range(LINKS)):
            value = T.cast(T.cast(value, dtype), "float32") * 1.5
        return value

    @T.prim_func
    def main(A: T.Tensor((32,), dtype), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = rounded(T.cast(A[i], "float32"))

    agree(main, (np.arange(32) - 16).astype(np.float32), targets=("cpu", "sm_80"))


def test_truths_that_are_rounded():
    N = T.dynamic("N")

    @T.prim_func
    def main(A: T.Tensor((N, 64), "bool"), B: T.Tensor((N, 64), "bfloat16")):
        with T.Kernel(2, T.ceildiv(N, 16), threads=128) as (bx, by):
            tile = T.alloc_shared((16, 32), "bfloat16")
            T.copy(A[by * 16, bx * 32], tile)
            for i, j in T.Parallel(16, 32):
                B[by * 16 + i, bx * 32 + j] = tile[i, j]

    agree(main, np.arange(64)[None] % 3 > 0)


@pytest.mark.parametrize(
    "deeper",
    [
        pytest.param(lambda value, other: value // (other | 1), id="quotient"),
        pytest.param(lambda value, other: value % (other | 1) + 7, id="rest", marks=pytest.mark.slow),
        pytest.param(lambda value, other: value // -3 + other, id="by a number", marks=pytest.mark.slow),
        pytest.param(lambda value, other: T.pow(value, 3) + other, id="power", marks=pytest.mark.slow),
    ],
)
def test_operands_that_are_read_several_times(deeper):
    """Of an operation that the machine does not have, in each other."""

    def nested(a, i):
        value = a[i, 0]
        for link in list(range(1, LINKS)):
            value = deeper(value, a[i, link])
        return value

    @T.prim_func
    def main(A: T.Tensor((32, LINKS), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = nested(A, i)

    agree(main, np.random.default_rng(4).integers(-3, 9, (32, LINKS)).astype(np.int32))


@pytest.mark.parametrize("deeper", [T.isnan, lambda value: T.fmod(value, 3.0) > 0], ids=["nan", "rest"])
def test_floats_that_are_read_several_times(deeper):
    def nested(a, i):
        value = a[i, 0]
        for link in list(range(1, LINKS)):
            value = T.if_then_else(deeper(value), a[i, link], 0.5)
        return value

    @T.prim_func
    def main(A: T.Tensor((32, LINKS), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = nested(A, i)

    a = np.random.default_rng(5).standard_normal((32, LINKS)).astype(np.float32)
    a[:, 3] = np.nan
    agree(main, a)


def test_integers_that_are_chosen_by_choices():
    def nested(a, i):
        value = a[i, 0]
        for link in list(range(1, LINKS)):
            value = T.if_then_else(value > 3, a[i, link], 5)
        return value

    @T.prim_func
    def main(A: T.Tensor((32, LINKS), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = nested(A, i)

    agree(main, np.random.default_rng(6).integers(0, 7, (32, LINKS)).astype(np.int32))


def test_functions_of_functions_in_one_side_of_a_choice():
    """By a name, and written into it; the other side reads what the choice guards."""

    @T.prim_func
    def main(
        X: T.Tensor((7, 3), "float32"), At: T.Tensor((7,), "int32"), Y: T.Tensor((7,), "float32"),
        Z: T.Tensor((7,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=1):
            for i in T.serial(7):
                x, y, z = X[i, 0] + 1, X[i, 1] + 1, X[i, 2] + 1
                m = T.max(T.max(x, y), z)
                total = T.log(T.exp(x - m) + T.exp(y - m) + T.exp(z - m)) + m
                Y[i] = T.if_then_else(At[i] >= 0, total * T.tanh(X[At[i], 0]), -T.infinity("float32"))
                Z[i] = T.if_then_else(At[i] < 0, X[i, 0], T.log(T.exp(T.sin(T.tanh(X[At[i], 1])))))

    x = np.random.default_rng(0).standard_normal((7, 3)).astype("float32")
    at = np.array([3, -1, 0, 6, -5, 2, 2], dtype="int32")
    totals = np.log(np.exp(x + 1).sum(1)) * np.tanh(x[at, 0])
    agree(
        main, x, at,
        expected=[np.where(at >= 0, totals, -np.inf), np.where(at < 0, x[:, 0], np.sin(np.tanh(x[at, 1])))],
    )  # fmt: skip


def test_quotients_of_quotients_in_a_condition_and_in_one_side_of_a_choice():
    @T.prim_func
    def main(
        X: T.Tensor((9,), "int32"), D: T.Tensor((9,), "int32"), Y: T.Tensor((9,), "int32"),
        Z: T.Tensor((9,), "int32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=1):
            for i in T.serial(9):
                if X[i] > 0 and (X[i] // D[i] % D[i] + X[i]) // D[i] > 2:
                    Y[i] = 1
                else:
                    Y[i] = 0
                nested = ((X[i] // D[i] * 3 + X[i] % D[i]) // D[i] + X[i]) % (D[i] + 5) * 9 // D[i]
                Z[i] = T.if_then_else(D[i] > 3, nested, (X[i] // D[i] * 3 + X[i] % D[i]) // D[i] % D[i])

    draw = np.random.default_rng(0)
    x, d = draw.integers(-99, 100, 9).astype("int32"), draw.integers(1, 9, 9).astype("int32")
    nested = ((x // d * 3 + x % d) // d + x) % (d + 5) * 9 // d
    agree(
        main, x, d,
        expected=[(x > 0) & ((x // d % d + x) // d > 2),
                  np.where(d > 3, nested, (x // d * 3 + x % d) // d % d)],
    )  # fmt: skip


@T.macro
def by_axes(tile, X):
    for i, j in T.Parallel(64, 64):
        tile[i, j] = chained(X[i, j])


@T.macro
def on_a_condition(tile, X):
    T.fill(tile, 0)
    for i, j in T.Parallel(64, 64):
        if X[i, j] > 0:
            tile[i, j] = chained(X[i, j])


@T.macro
def by_places(tile, X):
    for p in T.Parallel(64 * 64):
        tile[p // 64, p % 64] = chained(X[p // 64, p % 64])


@T.macro
def by_threads(tile, X):
    tx = T.get_thread_binding()
    for r in T.serial(4):
        row = r * 16 + tx // 8
        for v in T.vectorized(8):
            tile[row, tx % 8 * 8 + v] = chained(X[row, tx % 8 * 8 + v])


@T.macro
def by_arrays_of_threads(tile, X):
    own, again = T.alloc_local((8,), "float32"), T.alloc_local((8,), "float32")
    tx = T.get_thread_binding()
    for r in T.serial(4):
        row = r * 16 + tx // 8
        for v in T.vectorized(8):
            own[v] = chained(X[row, tx % 8 * 8 + v])
        for v in T.vectorized(8):
            again[v] = chained(own[v] + own[v])
        for v in T.vectorized(8):
            tile[row, tx % 8 * 8 + v] = again[v] - own[v]


def chained(x):
    """``x``, by way of its doubles."""
    y = T.cast(x, "float32")
    for _ in range(LINKS):
        y = T.bind((y + y) * 0.5)
    return y


FILLED = {
    "axes": by_axes,
    "condition": on_a_condition,
    "places": by_places,
    "threads": by_threads,
    "arrays": by_arrays_of_threads,
}


@pytest.mark.parametrize("way", FILLED)
def test_operands_of_a_product(way):
    filled = FILLED[way]

    @T.prim_func
    def main(
        X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16"), Z: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((64, 64), "float32")
            filled(a, X)
            T.copy(Y, b)
            T.gemm(a, b, sums, clear_accum=True)
            T.copy(sums, Z)

    x, y = np.random.default_rng(7).integers(0, 5, (2, 64, 64)).astype(np.float16)
    agree(main, x, y, expected=x.astype(np.float32) @ y.astype(np.float32))
