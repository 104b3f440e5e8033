"""Few sums of a loop: trips that they take in turns, and that results are those of any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.emit.loops.sums.turns import in_turns
from tilec.ir.nodes import Alloc, Parallel, walk
from tilec.language.frontend.elaborate import elaborate

RANDOM = np.random.default_rng(7)


def planes(channels, step=1, kind="sum", dtype="float32", reads=False, leaves=False):
    """One row of a convolution for each block: a sum for each of its columns, and what it was on the way."""

    @T.prim_func
    def main(
        X: T.Tensor((channels, 24), dtype), W: T.Tensor((channels, 3), dtype), Y: T.Tensor((22,), dtype)
    ):
        with T.Kernel(1, threads=32):
            for x in T.Parallel(22):
                total = T.alloc_var(dtype, init=1)
                first = T.alloc_var(dtype, init=0)
                for c in T.serial(0, channels, step):
                    if leaves and W[c, 0] == 9:
                        break
                    for k in T.serial(3):
                        if kind == "sum":
                            total += X[c, x + k] * W[c, k]
                        else:
                            total = T.max(total, X[c, x + k] * W[c, k])
                    if reads:
                        first = T.max(first, total)
                Y[x] = total + first

    return main


def sums(function: Any) -> int:
    """How many variables an iteration has."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    (loop,) = (stmt for stmt in walk(kernel.body) if isinstance(stmt, Parallel))
    return sum(isinstance(stmt, Alloc) for stmt in walk(in_turns(loop, 0).body))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (planes(16), 5),
        (planes(10), 3),
        (planes(9), 4),
        (planes(11), 2),
        (planes(4), 2),
        (planes(32, step=2), 5),
        (planes(16, kind="max"), 2),
        (planes(16, dtype="int32"), 2),
        (planes(16, reads=True), 2),
        (planes(16, leaves=True), 2),
    ],
)
def test_how_many_take_turns(function, found):
    assert sums(function) == found


@pytest.mark.parametrize(
    ("channels", "options"),
    [(16, {}), (9, {}), (10, {}), (32, {"step": 2}), (16, {"kind": "max"}), (16, {"reads": True})],
)
def test_results(channels, options):
    X, W = (RANDOM.integers(-5, 6, (channels, n)).astype(np.float32) for n in (24, 3))
    Y = np.full(22, np.nan, np.float32)
    tilec.compile(planes(channels, **options), target="cpu")(X, W, Y)
    terms = np.stack([X[:, k : k + 22] * W[:, k, None] for k in range(3)], 1)[:: options.get("step", 1)]
    most = options.get("kind") == "max"
    wanted = np.maximum(terms.max((0, 1)), 1) if most else 1 + terms.sum((0, 1))
    if options.get("reads"):
        wanted = wanted + np.maximum((1 + terms.sum(1).cumsum(0)).max(0), 0)
    np.testing.assert_array_equal(Y, wanted)
