"""Fragments of which an iteration has a row to itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, Bind, Launch, walk
from tilec.targets import parse_target


def shared_tiles(main: Any, *arguments: np.ndarray) -> int:
    """How many tiles of shared memory a kernel's launch has."""
    kernel = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_80"))
    (launch,) = [stmt for stmt in kernel.body if isinstance(stmt, Launch)]
    return sum(isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn" for stmt in walk(launch.body))


def moments(rows: int, threads: int):
    """Sums, sums of squares and largest elements of rows, one iteration each."""

    @T.prim_func
    def main(A: T.Tensor((rows, 16), "float32"), C: T.Tensor((rows, 3), "float32")):
        with T.Kernel(1, threads=threads):
            found = T.alloc_fragment((rows, 3), "float32")
            T.fill(found, -1000)
            for i in T.Parallel(rows):
                found[i, 0] = 0
                found[i, 1] = 0
            for k in T.serial(2):
                for i in T.Parallel(rows):
                    for j in T.serial(8):
                        found[i, 0] += A[i, k * 8 + j]
                        found[i, 1] += A[i, k * 8 + j] * A[i, k * 8 + j]
                        found[i, 2] = T.max(found[i, 2], A[i, k * 8 + j])
            T.copy(found, C)

    return main


@pytest.mark.parametrize(("rows", "threads"), [(64, 64), (32, 64), (256, 64), (40, 32)])
def test_rows_lie_in_the_registers_of_their_iterations(rows, threads):
    a = np.random.default_rng(0).integers(-9, 10, (rows, 16)).astype(np.float32)
    wanted = np.stack([a.sum(1), (a * a).sum(1), a.max(1)], 1)
    agree(moments(rows, threads), a, expected=wanted)
    assert shared_tiles(moments(rows, threads), a) == 0


def test_columns_that_trips_choose_pass_through_shared_memory():
    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float32"), C: T.Tensor((32, 4), "float32"), D: T.Tensor((32,), "float32")
    ):
        with T.Kernel(1, threads=64):
            x, largest = T.alloc_fragment((32, 64), "float32"), T.alloc_fragment((32,), "float32")
            found, total = T.alloc_fragment((32, 4), "float32"), T.alloc_fragment((32,), "float32")
            T.copy(A, x)
            T.clear(total)
            for k in T.serial(4):
                T.reduce_max(x, largest, dim=1)
                for i in T.Parallel(32):
                    found[i, k] = largest[i] * 2
                    total[i] += found[i, k]
                for i, j in T.Parallel(32, 64):
                    x[i, j] = T.if_then_else(x[i, j] == largest[i], -1000.0, x[i, j])
            T.copy(found, C)
            T.copy(total, D)

    a = np.stack([np.random.default_rng(i).permutation(64) for i in range(32)]).astype(np.float32)
    largest = -np.sort(-a, 1)[:, :4] * 2
    agree(main, a, expected=[largest, largest.sum(1)])
    kernel = lower(elaborated(main, (a,), None, {}, {}), parse_target("sm_80"))
    names = [stmt.var.name for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Bind)]
    assert "found_stored" in names


def test_rows_of_a_product_stay_where_it_leaves_them():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), C: T.Tensor((64, 8), "float32")):
        with T.Kernel(1, threads=128):
            a, c = T.alloc_shared((64, 32), "float16"), T.alloc_fragment((64, 8), "float32")
            T.copy(A, a)
            T.gemm(a, a[0:8, :], c, transpose_B=True, clear_accum=True)
            for i in T.Parallel(64):
                c[i, 0] = c[i, 0] + c[i, 7]
            T.copy(c, C)

    a = np.random.default_rng(0).integers(-3, 4, (64, 32)).astype(np.float16)
    wanted = a.astype(np.float32) @ a[:8].astype(np.float32).T
    wanted[:, 0] += wanted[:, 7]
    agree(main, a, expected=wanted)
