"""Sums of other tiles' rows that loops add up beside a product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import BlockReduce, EachTile, JoinReduce, OwnReduce
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, Launch, Pipelined, walk
from tilec.targets import parse_target


def corrected(added: str):
    """A product of bytes less zero points of columns, times sums of rows that a loop adds up."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "int8"),
        B: T.Tensor((64, 128), "int8"),
        zero: T.Tensor((64,), "int32"),
        C: T.Tensor((64, 64), "int32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "int8"), T.alloc_shared((64, 32), "int8")
            c, rows = T.alloc_fragment((64, 64), "int32"), T.alloc_fragment((64, 32), "int32")
            part, total = T.alloc_fragment((64,), "int32"), T.alloc_fragment((64,), "int32")
            T.clear(c)
            T.fill(total, 1)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                if added == "elements":
                    for i, j in T.Parallel(64, 32):
                        total[i] += a[i, j]
                else:
                    T.copy(a, rows)
                if added == "rows":
                    T.reduce_sum(rows, total, dim=1, clear=False)
                if added == "parts":
                    T.reduce_sum(rows, part, dim=1)
                    for i in T.Parallel(64):
                        total[i] = total[i] + part[i]
                if added == "largest":
                    T.reduce_max(rows, total, dim=1, clear=False)
                T.gemm(a, b, c, transpose_B=True)
            for i, j in T.Parallel(64, 64):
                C[i, j] = c[i, j] - zero[j] * total[i]

    return main


def reductions_in_loops(main: Any, *arguments: np.ndarray) -> tuple[int, int]:
    """How many reductions across threads loops have in a trip, and how many a launch has outside of them."""
    kernel = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_80"))
    (launch,) = [stmt for stmt in kernel.body if isinstance(stmt, Launch)]
    every = [stmt for stmt in walk(launch.body) if _crosses_threads(stmt)]
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, (For, Pipelined, EachTile))]
    inside = {stmt for loop in loops for stmt in walk(loop.body) if _crosses_threads(stmt)}
    return len(inside), len(every) - len(inside)


def _crosses_threads(stmt: Any) -> bool:
    return isinstance(stmt, (BlockReduce, JoinReduce)) and not isinstance(stmt, OwnReduce)


@pytest.mark.parametrize("added", ["rows", "parts", "elements", "largest"])
def test_totals_beside_a_product_are_taken_behind_its_loop(added):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (64, 128)).astype(np.int8) for _ in "ab")
    zero = rng.integers(-9, 10, 64).astype(np.int32)
    wide = a.astype(np.int32)
    total = np.maximum(1, wide.max(1)) if added == "largest" else 1 + wide.sum(1)
    agree(corrected(added), a, b, zero, expected=wide @ b.T.astype(np.int32) - zero * total[:, None])
    assert reductions_in_loops(corrected(added), a, b, zero) == (0, 1)


def test_a_total_that_trips_read_is_taken_in_each():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32"), D: T.Tensor((2, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a, c = T.alloc_shared((64, 32), "float16"), T.alloc_fragment((64, 64), "float32")
            rows, total = T.alloc_fragment((64, 32), "float32"), T.alloc_fragment((64,), "float32")
            T.clear(c)
            T.clear(total)
            for k in T.serial(2):
                T.copy(A[0, k * 32], a)
                T.copy(a, rows)
                T.reduce_sum(rows, total, dim=1, clear=False)
                T.copy(total, D[k, :])
                T.gemm(a, a, c, transpose_B=True)
            for i, j in T.Parallel(64, 64):
                C[i, j] = c[i, j] + total[i]

    a = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float16)
    wide = a.astype(np.float32)
    sums = np.stack([wide[:, :32].sum(1), wide.sum(1)])
    agree(main, a, expected=[wide @ wide.T + sums[1][:, None], sums])
    assert reductions_in_loops(main, a)[0] == 1
