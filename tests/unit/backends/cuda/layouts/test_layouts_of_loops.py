"""Where loops that nothing decides lie: windows of neighbours, and fragments that turn others."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.analysis.layouts.sectors import run_of_warp
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.pipeline import lower
from tilec.ir.layout import Digit, Layout
from tilec.ir.nodes import Alloc, Launch, walk
from tilec.lowering.analysis.accesses import accesses
from tilec.targets import parse_target

REG, LANE, WARP = "reg", "lane", "warp"


def launch_of(main, *arguments) -> Launch:
    (launch,) = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_80")).launches
    return launch


def turned(rows, columns, dtype="float32"):
    @T.prim_func
    def main(X: T.Tensor((rows, columns), dtype), Y: T.Tensor((columns, rows), dtype)):
        with T.Kernel(1, threads=128):
            x, y = T.alloc_fragment((rows, columns), dtype), T.alloc_fragment((columns, rows), dtype)
            T.copy(X, x)
            for i, j in T.Parallel(columns, rows):
                y[i, j] = x[j, i] + x[j, i]
            T.copy(y, Y)

    return main


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "vector"),
    [(64, 32, "float32", 4), (32, 64, "float16", 8), (40, 24, "float32", 4)],
)
def test_a_turned_fragment_is_stored_along_rows(rows, columns, dtype, vector):
    x = np.arange(rows * columns).reshape(rows, columns).astype(dtype)
    main = turned(rows, columns, dtype)
    agree(main, x, expected=2 * x.T)
    loops = [stmt for stmt in walk(launch_of(main, x).body) if isinstance(stmt, ThreadLoop)]
    stores = [loop for loop in loops if any(item.buffer.name == "Y" for item in accesses(loop.body))]
    assert [loop.vector for loop in stores] == [vector]


def test_what_a_loop_overwrites_is_not_brought_first():
    x = np.arange(64 * 32).reshape(64, 32).astype(np.float32)
    (made,) = [
        stmt
        for stmt in walk(launch_of(turned(64, 32), x).body)
        if isinstance(stmt, Alloc) and stmt.buffer.name == "y"
    ]
    assert made.init is None


@pytest.mark.parametrize("taps", [1, 3])
def test_threads_have_neighbours_whose_windows_overlap(taps):
    rows, columns = 32, 64

    @T.prim_func
    def main(X: T.Tensor((rows + 2, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, threads=128):
            x, y = (
                T.alloc_shared((rows + 2, columns), "float32"),
                T.alloc_fragment((rows, columns), "float32"),
            )
            T.copy(X, x)
            T.clear(y)
            for tap in T.unroll(taps):
                for i, j in T.Parallel(rows, columns):
                    y[i, j] += x[i + tap, j]
            T.copy(y, Y)

    x = np.random.default_rng(0).integers(-9, 10, (rows + 2, columns)).astype(np.float32)
    agree(main, x, expected=sum(x[tap : tap + rows] for tap in range(taps)))
    (made,) = [
        stmt for stmt in walk(launch_of(main, x).body) if isinstance(stmt, Alloc) and stmt.buffer.name == "y"
    ]
    assert made.layout is not None
    assert (made.layout.digits[0][0].space == REG) is (taps > 1)


@pytest.mark.parametrize(
    ("digits", "shape", "run"),
    [
        (((Digit(8, 1, WARP),), (Digit(4, 1, REG), Digit(32, 1, LANE))), (8, 128), 128),
        (((Digit(4, 1, REG), Digit(32, 1, LANE)), (Digit(8, 1, WARP),)), (128, 8), 1),
        (((Digit(32, 1, LANE),), (Digit(3, 1, REG),)), (32, 3), 96),
        (((Digit(8, 4, LANE),), (Digit(2, 1, REG), Digit(4, 1, LANE), Digit(8, 2, REG))), (8, 64), 512),
        (((Digit(16, 1, REG),), (Digit(32, 1, LANE),)), (16, 20), 320),
    ],
)
def test_what_a_warp_has_side_by_side(digits, shape, run):
    assert run_of_warp(Layout(digits), shape) == run
