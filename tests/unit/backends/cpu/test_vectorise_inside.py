"""Loops inside of a T.Parallel that take the lanes: which do, and that results are those of any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.passes.vectorise_inside import VectoriseInside
from tilec.ir.nodes import Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

ROWS = 24
RANDOM = np.random.default_rng(3)


def dots(kind=T.serial, dtype="float32"):
    """A row's product with a vector, and the most of the row."""
    k = T.dynamic("k")

    @T.prim_func
    def main(W: T.Tensor((ROWS, k), dtype), x: T.Tensor((k,), dtype), y: T.Tensor((ROWS,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(ROWS):
                total = T.alloc_var("float32", init=0.0)
                most = T.alloc_var("float32", init=-T.infinity("float32"))
                for j in kind(k):
                    total += T.cast(W[i, j], "float32") * T.cast(x[j], "float32")
                    most = T.max(most, T.cast(W[i, j], "float32"))
                y[i] = total + most

    return main


def runs(step=1):
    """Runs of 8, each trip of its own elements; one of them in place."""

    @T.prim_func
    def main(x: T.Tensor((512,), "float32"), y: T.Tensor((512,), "float32"), z: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                for v in T.vectorized(8):
                    at = i * 8 + v
                    y[at] = x[i * 8 + v] + 1.0
                    z[i * 8 + v * step] = z[i * 8 + v * step] * 2.0

    return main


def carried():
    """A prefix sum: each trip reads what the last one wrote."""

    @T.prim_func
    def main(x: T.Tensor((64, 16), "float32"), y: T.Tensor((64, 16), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                y[i, 0] = x[i, 0]
                for v in T.serial(16):
                    if v > 0:
                        y[i, v] = y[i, v - 1] + x[i, v]

    return main


def columns():
    """Sums of columns: the iterations are the neighbours."""

    @T.prim_func
    def main(x: T.Tensor((64, 64), "float32"), y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                total = T.alloc_var("float32", init=0.0)
                for v in T.serial(64):
                    total += x[v, i]
                y[i] = total

    return main


def warps():
    """Each warp has a row of its own, of which its threads take turns: threads are the neighbours."""
    n = T.dynamic("n")

    @T.prim_func
    def main(first: T.Tensor((9,), "int32"), x: T.Tensor((n,), "float32"), y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                total = T.alloc_var("float32", init=0.0)
                row = i // 32
                for k in T.serial(T.ceildiv(first[row + 1] - first[row], 32)):
                    if first[row] + k * 32 + i % 32 < first[row + 1]:
                        total += x[first[row] + k * 32 + i % 32]
                y[i] = total

    return main


def groups():
    """Bytes in groups of 32 behind the bits of their scale: addresses are most of what is computed."""

    @T.prim_func
    def main(W: T.Tensor((16, 340), "uint8"), x: T.Tensor((320,), "float32"), y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                total = T.alloc_var("float32", init=0.0)
                for g in T.serial(10):
                    low, high = T.cast(W[i, g * 34], "uint16"), T.cast(W[i, g * 34 + 1], "uint16")
                    scale = T.cast(T.reinterpret(low | (high << T.uint16(8)), "float16"), "float32")
                    part = T.alloc_var("float32", init=0.0)
                    for j in T.serial(32):
                        part += T.cast(T.cast(W[i, g * 34 + 2 + j], "int8"), "float32") * x[g * 32 + j]
                    total += scale * part
                y[i] = total

    return main


def small_products(depth):
    """A product of small matrices for each iteration."""

    @T.prim_func
    def main(
        A: T.Tensor((24, depth, depth), "float32"),
        B: T.Tensor((24, depth, depth), "float32"),
        C: T.Tensor((24, depth, depth), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for g in T.Parallel(24):
                for i in T.serial(depth):
                    for j in T.serial(depth):
                        total = T.alloc_var("float32", init=0.0)
                        for k in T.serial(depth):
                            total += A[g, i, k] * B[g, k, j]
                        C[g, i, j] = total

    return main


def short_dots(length):
    """Sums of a few: up to four lie near to those of the next iteration, which are read along with them."""

    @T.prim_func
    def main(
        x: T.Tensor((64, length), "float32"),
        w: T.Tensor((64, length), "float32"),
        y: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                total = T.alloc_var("float32", init=0.0)
                for k in T.serial(length):
                    total += x[i, k] * w[i, k]
                y[i] = total

    return main


def halves(reads=False):
    """Rows of nibbles, each half of a byte added up by a statement of its own, or read between."""

    @T.prim_func
    def main(W: T.Tensor((24, 32), "uint8"), x: T.Tensor((64,), "float32"), y: T.Tensor((24,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(24):
                total = T.alloc_var("float32", init=0.0)
                last = T.alloc_var("float32", init=0.0)
                for j in T.serial(32):
                    both = T.cast(W[i, j], "int32")
                    total += T.cast(both & 15, "float32") * x[j]
                    so_far = total + 0.0 if reads else 0.0
                    high = T.cast(both >> 4, "float32")
                    total += high * x[32 + j]
                    if reads:
                        last = so_far
                y[i] = total - last

    return main


def lanes(function: Any) -> list[str]:
    """The variables of the Parallel loops that the pass leaves."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = VectoriseInside().apply(kernel, parse_target("x86-64-v3"))
    return [stmt.vars[-1].name for stmt in walk(made.body) if isinstance(stmt, Parallel)]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (dots(), ["j"]),
        (runs(), ["v"]),
        (runs(step=0), ["i"]),
        (carried(), ["i"]),
        (columns(), ["i"]),
        (warps(), ["i"]),
        (groups(), ["j"]),
        (small_products(3), ["j"]),
        (small_products(6), ["j"]),
        (short_dots(4), ["i"]),
        (short_dots(6), ["k"]),
        (halves(), ["j"]),
        (halves(reads=True), ["i"]),
    ],
)
def test_which_loops_take_the_lanes(function, found):
    assert lanes(function) == found


@pytest.mark.parametrize("kind", [T.serial, T.unroll])
@pytest.mark.parametrize("depth", [1, 7, 50, 200])
def test_sums_of_rows(kind, depth):
    W, x = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((ROWS, depth), (depth,)))
    y = np.zeros(ROWS, np.float32)
    tilec.compile(dots(kind), target="cpu")(W, x, y)
    np.testing.assert_allclose(y, W @ x + W.max(1), rtol=1e-4, atol=1e-4)


def test_runs():
    x, z = (RANDOM.standard_normal(512, dtype=np.float32) for _ in range(2))
    y, was = np.zeros(512, np.float32), z.copy()
    tilec.compile(runs(), target="cpu")(x, y, z)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(z, was * 2)


def test_what_trips_hand_on():
    x = RANDOM.standard_normal((64, 16), dtype=np.float32)
    y = np.zeros_like(x)
    tilec.compile(carried(), target="cpu")(x, y)
    np.testing.assert_allclose(y, np.cumsum(x, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [3, 6, 7])
def test_small_products(depth):
    A, B = (RANDOM.standard_normal((24, depth, depth), dtype=np.float32) for _ in range(2))
    C = np.zeros_like(A)
    tilec.compile(small_products(depth), target="cpu")(A, B, C)
    np.testing.assert_allclose(C, A @ B, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reads", [False, True])
def test_halves(reads):
    W, x = RANDOM.integers(0, 256, (24, 32), dtype=np.uint8), RANDOM.standard_normal(64, dtype=np.float32)
    y = np.zeros(24, np.float32)
    tilec.compile(halves(reads), target="cpu")(W, x, y)
    low, high = (half.astype(np.float32) for half in (W & 15, W >> 4))
    wanted = high[:, 31] * x[63] if reads else low @ x[:32] + high @ x[32:]
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)


def test_groups():
    W = RANDOM.integers(0, 256, (16, 10, 34), dtype=np.uint8)
    scales = RANDOM.random((16, 10)).astype(np.float16)
    W[:, :, :2] = scales.view(np.uint8).reshape(16, 10, 2)
    x, y = RANDOM.standard_normal(320, dtype=np.float32), np.zeros(16, np.float32)
    tilec.compile(groups(), target="cpu")(W.reshape(16, 340), x, y)
    numbers = W[:, :, 2:].view(np.int8).astype(np.float32) * scales.astype(np.float32)[:, :, None]
    np.testing.assert_allclose(y, numbers.reshape(16, 320) @ x, rtol=1e-4, atol=1e-2)
