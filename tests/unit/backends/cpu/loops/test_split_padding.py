"""Windows that reach beyond an image at its rims: which loops are split, and that results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.passes.loops.split_padding import SplitPadding
from tilec.ir.nodes import Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

RANDOM = np.random.default_rng(11)


def windows(rows: int, columns: int, size: int, step: int = 1, nested: bool = False) -> Any:
    """Sums of windows of an image with a rim of zeros, every one or every few, and how many of their taps are
    beyond the first columns."""
    rim, high, wide = size // 2, (rows - 1) * step + 1, (columns - 1) * step + 1

    @T.prim_func
    def main(
        X: T.Tensor((high, wide), "float32"),
        W: T.Tensor((size, size), "float32"),
        Y: T.Tensor((rows, columns), "float32"),
        Z: T.Tensor((rows, columns), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for y, x in T.Parallel(rows, columns):
                total = T.alloc_var("float32", init=0.0)
                left = T.alloc_var("int32", init=0)
                for a, b in T.grid(size, size):
                    v, u = y * step + a, x * step + b
                    if nested:
                        if u >= rim:
                            if v >= rim and v < high + rim and u < wide + rim:
                                total += X[v - rim, u - rim] * W[a, b]
                        else:
                            left += 1
                    else:
                        if v >= rim and v < high + rim and u >= rim and u < wide + rim:
                            total += X[v - rim, u - rim] * W[a, b]
                Y[y, x] = total
                Z[y, x] = left

    return main


def extents(function: Any) -> list[tuple[int, ...]]:
    """The extents of the Parallel loops that the pass leaves."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = SplitPadding().apply(kernel, parse_target("x86-64-v3"))
    return [tuple(map(int, stmt.extents)) for stmt in walk(made.body) if isinstance(stmt, Parallel)]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (windows(16, 40, 3), [(1, 40), (14, 8), (14, 24), (14, 8), (1, 40)]),
        (windows(16, 12, 3), [(1, 12), (14, 12), (1, 12)]),
        (windows(5, 12, 3), [(5, 12)]),
        (windows(16, 40, 1), [(16, 40)]),
        (windows(16, 40, 3, step=2), [(1, 40), (14, 8), (14, 24), (14, 8), (1, 40)]),
    ],
)
def test_which_loops_are_split(function: Any, found: list[tuple[int, ...]]) -> None:
    assert extents(function) == found


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("rows", "columns", "size", "step"), [(16, 40, 3, 1), (9, 41, 7, 1), (8, 37, 3, 2)])
def test_sums_of_windows(rows: int, columns: int, size: int, step: int, nested: bool) -> None:
    rim, high, wide = size // 2, (rows - 1) * step + 1, (columns - 1) * step + 1
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((high, wide), (size, size)))
    Y, Z = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), np.int32)
    tilec.compile(windows(rows, columns, size, step, nested), target="cpu")(X, W, Y, Z)
    padded = np.lib.stride_tricks.sliding_window_view(np.pad(X, rim), (size, size))[::step, ::step]
    np.testing.assert_allclose(Y, np.einsum("yxab,ab->yx", padded, W), rtol=1e-4, atol=1e-4)
    taps = np.maximum(rim - np.arange(columns) * step, 0) * size if nested else np.zeros(columns)
    np.testing.assert_array_equal(Z, np.broadcast_to(taps, (rows, columns)))
