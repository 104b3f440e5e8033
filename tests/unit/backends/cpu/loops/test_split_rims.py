"""Reads at indices that are kept inside a row, or go round at its ends: loops between the rims have no
bounds; results are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.passes.loops.split_rims import SplitRims
from tilec.ir.nodes import If, Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

RANDOM = np.random.default_rng(11)
FORMS = ("taps", "names", "back", "second", "around", "shifted", "mirrored")


def rows(form: str, width: int, block: int, taps: int = 5, dtype: str = "uint8", dynamic: bool = False):
    """Windows of rows whose ends are repeated; ``block`` columns for each block."""
    size = T.dynamic("size") if dynamic else width

    @T.prim_func
    def main(X: T.Tensor((3, size), dtype), Y: T.Tensor((3, size), "int32")):
        with T.Kernel(T.ceildiv(size, block), 3, threads=32) as (bx, y):
            for i in T.Parallel(block):
                x = bx * block + i
                if x < size:
                    total = T.alloc_var("int32", init=0)
                    if form == "taps":
                        for d in T.serial(taps):
                            total += T.cast(X[y, T.clamp(x + d - taps // 2, 0, size - 1)], "int32")
                    elif form == "names":
                        left = T.max(x - 1, 0)
                        right = T.min(x + 1, size - 1)
                        total = T.cast(X[y, left], "int32") * left + T.cast(X[y, right], "int32")
                    elif form == "back":
                        total = T.cast(X[y, T.max(size - 3 - x, 0)], "int32")
                    elif form == "around":
                        for d in T.serial(taps):
                            total += T.cast(X[(y + d) % 3, (x + d - taps // 2 + size) % size], "int32")
                    elif form == "shifted":
                        total = T.cast(X[y, (x + size // 2) % size], "int32")
                    elif form == "mirrored":
                        total = T.cast(X[y, (7 - x) % size], "int32")
                    elif form == "few":
                        total = T.cast(X[y, x * 3 % 20], "int32")
                    else:
                        total = T.cast(X[y, T.min(x * 2, size - 1)], "int32")
                    Y[y, x] = total

    return main


def wanted(form: str, X: np.ndarray, taps: int) -> np.ndarray:
    """What the rows come to."""
    X, x = X.astype(np.int32), np.arange(X.shape[1])
    last = X.shape[1] - 1
    if form == "taps":
        return np.sum([X[:, np.clip(x + d - taps // 2, 0, last)] for d in range(taps)], 0)
    around = {"shifted": x + X.shape[1] // 2, "mirrored": 7 - x}
    if form == "around":
        return np.sum([np.roll(np.roll(X, taps // 2 - d, 1), -d, 0) for d in range(taps)], 0)
    if form in around:
        return X[:, around[form] % X.shape[1]]
    if form == "names":
        return X[:, np.maximum(x - 1, 0)] * np.maximum(x - 1, 0) + X[:, np.minimum(x + 1, last)]
    return X[:, np.maximum(last - 2 - x, 0)] if form == "back" else X[:, np.minimum(x * 2, last)]


def parts(function: Any) -> tuple[list[int], int]:
    """How long the loops are that the pass leaves, and how many tests stand around them."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = SplitRims().apply(kernel, parse_target("x86-64-v3"))
    found = list(walk(made.body))
    extents = [int(stmt.extents[-1]) for stmt in found if isinstance(stmt, Parallel)]
    tests = [stmt for stmt in found if isinstance(stmt, If) and isinstance(stmt.then[0], Parallel)]
    return extents, len(tests)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (rows("taps", 100, 100), ([2, 96, 2], 0)),
        (rows("names", 100, 100), ([1, 98, 1], 0)),
        (rows("back", 100, 100), ([98, 2], 0)),
        (rows("second", 100, 100), ([50, 50], 0)),
        (rows("taps", 100, 48), ([48, 48], 1)),
        (rows("taps", 100, 64, dynamic=True), ([64, 64], 1)),
        (rows("taps", 100, 16), ([16], 0)),
        (rows("around", 100, 100), ([2, 96, 2], 0)),
        (rows("around", 100, 48), ([48, 48], 1)),
        (rows("around", 100, 64, dynamic=True), ([64, 64], 1)),
        (rows("around", 33, 33), ([33], 0)),
        (rows("shifted", 100, 100), ([50, 50], 0)),
        (rows("mirrored", 100, 100), ([8, 92], 0)),
        (rows("few", 100, 100), ([100], 0)),
        (rows("taps", 33, 33), ([33], 0)),
    ],
)
def test_which_loops_are_split(function, found):
    assert parts(function) == found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("width", "block", "dynamic"), [(100, 100, False), (203, 48, False), (171, 64, True)]
)
def test_results(form, width, block, dynamic):
    X = RANDOM.integers(0, 200, (3, width)).astype(np.uint8)
    Y = np.full((3, width), -1, np.int32)
    tilec.compile(rows(form, width, block, 7, dynamic=dynamic), target="cpu")(X, Y)
    np.testing.assert_array_equal(Y, wanted(form, X, 7))


@pytest.mark.parametrize("side", ["least", "most"])
def test_bounds_of_bounds_that_do_not_count_everywhere(side):
    """Of which the inner one is another for each row, and so stays: the outer one holds what that is."""

    @T.prim_func
    def main(X: T.Tensor((100,), "int32"), Y: T.Tensor((9, 100), "int32")):
        with T.Kernel(1, threads=32):
            for i, x in T.Parallel(9, 100):
                if side == "least":
                    Y[i, x] = X[T.max(T.min(x - 2, i - 5), 0)]
                else:
                    Y[i, x] = X[T.min(T.max(x + 2, i * 25), 99)]

    X, Y = RANDOM.integers(0, 200, 100).astype(np.int32), np.full((9, 100), -1, np.int32)
    tilec.compile(main, target="cpu")(X, Y)
    i, x = np.ogrid[:9, :100]
    found = np.minimum(x - 2, i - 5) if side == "least" else np.maximum(x + 2, i * 25)
    np.testing.assert_array_equal(Y, X[np.clip(found, 0, 99)])
