"""What loops over results read for whole rows or columns is read in front of the products."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Gemm, Kernel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


def scaled(columns=128, threads=256, reads="both") -> Kernel:
    """Y = A B in sums of float16, which no strategy takes, with rows and columns scaled in a loop behind."""

    def build(M, N, K):
        @T.prim_func
        def main(
            A: T.Tensor((M, K), "float16"),
            B: T.Tensor((K, N), "float16"),
            rows: T.Tensor((M,), "float32"),
            cols: T.Tensor((N,), "float32"),
            table: T.Tensor((N,), "int32"),
            Y: T.Tensor((M, N), "float32"),
        ):
            with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, 64), threads=threads) as (bx, by):
                As, Bs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, columns), "float16")
                acc = T.alloc_fragment((64, columns), "float16")
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                    T.copy(A[by * 64, k * 64], As)
                    T.copy(B[k * 64, bx * columns], Bs)
                    T.gemm(As, Bs, acc)
                for i, j in T.Parallel(64, columns):
                    if reads == "both":
                        Y[by * 64 + i, bx * columns + j] = (
                            T.cast(acc[i, j], "float32") * rows[by * 64 + i] + cols[bx * columns + j]
                        )
                    elif reads == "same":
                        Y[by * 64 + i, bx * columns + j] = (
                            T.cast(acc[i, j], "float32") + cols[bx * columns + j] * cols[bx * columns + j]
                        )
                    elif reads == "looked up":
                        Y[by * 64 + i, bx * columns + j] = (
                            T.cast(acc[i, j], "float32") + cols[table[bx * columns + j]]
                        )
                    else:
                        Y[by * 64 + i, bx * columns + j] = (
                            T.cast(acc[i, j], "float32") + Y[by * 64 + i, bx * columns + j]
                        )

        return main

    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    return elaborate(build, name="kernel", dims=dims, args={}, config={})


def read(kernel: Kernel) -> list[tuple[str, tuple[int, ...]]]:
    """The fragments that are read in front of the first product, by name and extents."""
    stmts = list(walk(lower(kernel, SM90A, until="read_for_results").launches[0].body))
    front = itertools.takewhile(lambda stmt: not isinstance(stmt, Gemm), stmts)
    tiles = [stmt.buffer for stmt in front if isinstance(stmt, Alloc)]
    found = [tile for tile in tiles if str(tile.name).endswith("_read") and tile.scope() == "local.fragment"]
    return [(str(tile.name), tuple(map(int, tile.shape))) for tile in found]


def test_rows_and_columns_are_read_once_in_front():
    assert read(scaled()) == [("rows_read", (64,)), ("cols_read", (128,))]


def test_an_element_that_is_named_twice_is_read_once():
    assert read(scaled(reads="same")) == [("cols_read", (128,))]


def test_what_is_looked_up_stays_where_it_is():
    assert read(scaled(reads="looked up")) == [("table_read", (128,))]


def test_what_the_launch_writes_stays_where_it_is():
    assert read(scaled(reads="own")) == []


@pytest.mark.parametrize(("M", "N", "K"), [(200, 264, 136), (64, 128, 64), (130, 40, 200)])
def test_results_stay_the_same(M, N, K):
    """Rows and columns behind the ends of their tensors are not read."""
    rng = np.random.default_rng(3)
    A, B = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    rows, cols = (rng.integers(-8, 9, size).astype(np.float32) for size in (M, N))
    table, Y = np.zeros(N, np.int32), np.zeros((M, N), np.float32)
    EmulatedKernel(scaled(), SM90A)([A, B, rows, cols, table, Y], {"M": M, "N": N, "K": K})
    np.testing.assert_array_equal(Y, (A @ B).astype(np.float32) * rows[:, None] + cols)
