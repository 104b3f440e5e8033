"""Iterations whose sums share what they read: how many run at a time, and that results are those of any
order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from memory_ends import at_the_end

import tilec
import tilec.language as T
from tilec.backends.cpu.emit.loops.sums.joined import joined_iterations, joined_vectors
from tilec.ir.nodes import Alloc, For, Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

RANDOM = np.random.default_rng(5)


def convolution(rows, channels=16):
    """Sums of windows with a rim of zeros, channels last."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, rows, 8), "float32"),
        W: T.Tensor((3, 3, 8, channels), "float32"),
        Y: T.Tensor((rows, rows, channels), "float32"),
    ):
        with T.Kernel(rows, threads=32) as y:
            for x, o in T.Parallel(rows, channels):
                total = T.alloc_var("float32", init=0.0)
                for ky, kx in T.grid(3, 3):
                    if y + ky >= 1 and y + ky <= rows and x + kx >= 1 and x + kx <= rows:
                        for c in T.serial(8):
                            total += X[y + ky - 1, x + kx - 1, c] * W[ky, kx, c, o]
                Y[y, x, o] = total

    return main


def strided(length, step=2):
    """Every second window of a row, or others, in blocks whose last one is not whole."""

    @T.prim_func
    def main(
        X: T.Tensor((step * (length - 1) + 5,), "float32"),
        W: T.Tensor((16, 5), "float32"),
        Y: T.Tensor((16, length), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, 64), 16, threads=32) as (bx, o):
            for i in T.Parallel(64):
                total = T.alloc_var("float32", init=0.0)
                for _, k in T.grid(2, 5):
                    if bx * 64 + i < length:
                        total += X[(bx * 64 + i) * step + k] * W[o, k]
                if bx * 64 + i < length:
                    Y[o, bx * 64 + i] = total

    return main


def of_channels(length):
    """Windows of a row times the weights of several channels, under a test of whether there is a window."""

    @T.prim_func
    def main(
        X: T.Tensor((2 * length + 5,), "float32"),
        W: T.Tensor((8, 5), "float32"),
        Y: T.Tensor((8, length), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, 64), threads=32) as bx:
            for o, i in T.Parallel(8, 64):
                if bx * 64 + i < length:
                    total = T.alloc_var("float32", init=0.0)
                    for k in T.serial(5):
                        total += X[(bx * 64 + i) * 2 + k] * W[o, k]
                    Y[o, bx * 64 + i] = total

    return main


def spread(length, channels=5):
    """Windows over places with zeros between, which names tell: every second tap meets an element."""

    @T.prim_func
    def main(
        X: T.Tensor((6, length), "float32"),
        W: T.Tensor((6, channels, 3), "float32"),
        Y: T.Tensor((channels, 2 * length - 1), "float32"),
    ):
        with T.Kernel(T.ceildiv(2 * length - 1, 8), threads=32) as bx:
            for o, i in T.Parallel(channels, 8):
                at = bx * 8 + i
                total = T.alloc_var("float32", init=0.0)
                for k in T.serial(3):
                    place = at + 1 - k
                    if place % 2 == 0:
                        for c in T.serial(6):
                            is_inside = (place // 2 >= 0) & (place // 2 < length)
                            total += T.if_then_else(is_inside, X[c, place // 2], 0.0) * W[c, o, k]
                if at < 2 * length - 1:
                    Y[o, at] = total

    return main


def rows(kind):
    """Sums of rows times a tile, whose loops are as long as the iteration says by its number, a variable or a
    tensor; or all alike."""

    @T.prim_func
    def main(
        X: T.Tensor((12, 32), "float32"),
        W: T.Tensor((32, 16), "float32"),
        ends: T.Tensor((12,), "int32"),
        Y: T.Tensor((12, 16), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i, o in T.Parallel(12, 16):
                total = T.alloc_var("float32", init=0.0)
                end = T.alloc_var("int32", init=0)
                end = ends[i]
                stop = {"alike": 32, "number": i + 1, "variable": end, "tensor": ends[i]}[kind]
                for k in T.serial(stop):
                    total += X[i, k] * W[k, o]
                Y[i, o] = total

    return main


def parts_of(function: Any, target: str) -> list[Parallel]:
    """The loops that do together what the first Parallel does, on a target."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    (loop,) = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Parallel)]
    return joined_iterations(loop, len(loop.vars) - 1, context(target))


def context(target: str) -> Any:
    """What of a context the number of iterations depends on."""
    return SimpleNamespace(target=parse_target(target))


def joined(function: Any, target: str = "x86-64-v4") -> list[int]:
    """How many variables for sums each loop of the first Parallel has."""
    found = []
    for part in parts_of(function, target):
        wide, _ = joined_vectors(part, len(part.vars) - 1, context(target)) or (part, [])
        sums = [stmt for stmt in walk(wide.body) if isinstance(stmt, Alloc)]
        found.append(sum(str(stmt.buffer.dtype) == "float32" for stmt in sums))
    return found


@pytest.mark.parametrize(
    ("function", "target", "found"),
    [
        (convolution(13), "x86-64-v4", [7, 6]),
        (convolution(13, 32), "x86-64-v4", [14, 12]),
        (convolution(16), "x86-64-v3", [8]),
        (strided(100), "x86-64-v4", [4]),
        (rows("alike"), "x86-64-v4", [6]),
        (rows("number"), "x86-64-v4", [1]),
        (rows("variable"), "x86-64-v4", [1]),
        (rows("tensor"), "x86-64-v4", [1]),
    ],
)
def test_how_many_run_at_a_time(function, target, found):
    assert joined(function, target) == found


def test_a_branch_of_all_iterations_has_one_loop():
    (part,) = parts_of(of_channels(100), "x86-64-v3")
    assert sum(isinstance(stmt, For) for stmt in walk(part.body)) == 1
    assert sum(isinstance(stmt, Alloc) for stmt in walk(part.body)) == 8


def test_a_branch_on_names_that_iterations_share_has_one_loop():
    (part,) = parts_of(spread(9), "x86-64-v3")
    assert sum(isinstance(stmt, For) for stmt in walk(part.body)) == 2
    assert sum(isinstance(stmt, Alloc) for stmt in walk(part.body)) == 5


@pytest.mark.parametrize("length", [1, 9, 20])
def test_windows_over_spread_places(length):
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((6, length), (6, 5, 3)))
    Y = at_the_end(np.zeros((5, 2 * length - 1), np.float32))
    tilec.compile(spread(length), target="cpu")(X, W, Y)
    wide = np.zeros((5, 2 * length + 1), np.float32)
    for place, values in enumerate(np.einsum("cl,cok->lok", X, W)):
        wide[:, 2 * place : 2 * place + 3] += values
    np.testing.assert_allclose(Y, wide[:, 1:-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [64, 101])
def test_windows_of_channels_behind_a_test(length):
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((2 * length + 5,), (8, 5)))
    Y = at_the_end(np.zeros((8, length), np.float32))
    tilec.compile(of_channels(length), target="cpu")(X, W, Y)
    windows = np.lib.stride_tricks.sliding_window_view(X, 5)[: 2 * length : 2]
    np.testing.assert_allclose(Y, W @ windows.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "channels"), [(13, 32), (16, 20)])
def test_windows_with_a_rim(size, channels):
    X, W = (
        RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((size, size, 8), (3, 3, 8, channels))
    )
    Y = np.zeros((size, size, channels), np.float32)
    tilec.compile(convolution(size, channels), target="cpu")(X, W, Y)
    padded = np.pad(X, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))
    np.testing.assert_allclose(Y, np.einsum("yxckl,klco->yxo", windows, W), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("length", "step"), [(64, 2), (100, 2), (65, 1), (127, 4)])
def test_windows_of_every_second_place(length, step):
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((step * length + 5,), (16, 5)))
    X, Y = at_the_end(X[: step * (length - 1) + 5]), at_the_end(np.zeros((16, length), np.float32))
    tilec.compile(strided(length, step), target="cpu")(X, W, Y)
    windows = np.lib.stride_tricks.sliding_window_view(X, 5)[::step]
    np.testing.assert_allclose(Y, 2 * W @ windows.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("columns", "dtype"), [(14, "float32"), (28, "int32"), (24, "float16")])
def test_columns_that_fill_no_vector(columns, dtype):
    X = at_the_end(RANDOM.integers(-9, 9, (4, columns + 8)).astype(dtype))
    W = at_the_end(RANDOM.integers(-9, 9, (4, 9)).astype(dtype))
    Y = at_the_end(np.zeros((2, columns), np.float32))

    @T.prim_func
    def main(
        X: T.Tensor((4, columns + 8), dtype),
        W: T.Tensor((4, 9), dtype),
        Y: T.Tensor((2, columns), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(2, columns):
                total = T.alloc_var("float32", init=0.0)
                for c, k in T.grid(4, 9):
                    total += T.cast(X[c, j + k], "float32") * T.cast(W[c, k], "float32")
                Y[i, j] = total

    tilec.compile(main, target="cpu")(X, W, Y)
    windows = np.lib.stride_tricks.sliding_window_view(X.astype(np.float32), 9, 1)
    expected = np.einsum("cjk,ck->j", windows, W.astype(np.float32))
    np.testing.assert_array_equal(Y, np.stack([expected, expected]))


def test_what_else_tells_lanes_apart():
    X, Y = RANDOM.standard_normal((100, 9), dtype=np.float32)[:, 0].copy(), np.zeros(100, np.float32)

    @T.prim_func
    def main(X: T.Tensor((100,), "float32"), Y: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(64):
                total = T.alloc_var("float32", init=1.0)
                for k in T.serial(16):
                    if bx * 64 + i < 100 and X[bx * 64 + i] > 0.0:
                        total += X[k] * X[bx * 64 + i]
                if bx * 64 + i < 100:
                    Y[bx * 64 + i] = total

    tilec.compile(main, target="cpu")(X, Y)
    np.testing.assert_allclose(Y, 1 + np.maximum(X, 0) * X[:16].sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["alike", "number", "variable", "tensor"])
def test_rows_of_any_length(kind):
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((12, 32), (32, 16)))
    ends, Y = RANDOM.integers(0, 33, 12, dtype=np.int32), np.zeros((12, 16), np.float32)
    tilec.compile(rows(kind), target="cpu")(X, W, ends, Y)
    stops = {"alike": np.full(12, 32), "number": np.arange(12) + 1}.get(kind, ends)
    wanted = np.where(np.arange(32) < stops[:, None], X, 0) @ W
    np.testing.assert_allclose(Y, wanted, rtol=1e-4, atol=1e-4)
