"""Loops of which a condition that never holds leaves nothing, and launches of no blocks."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.ir.nodes import Fill, For, Parallel, walk

SIZE, TILE = 128, 64


@T.prim_func
def product(
    A: T.Tensor((SIZE, SIZE), "float16"),
    B: T.Tensor((SIZE, SIZE), "float16"),
    C: T.Tensor((SIZE, SIZE), "float32"),
):
    with T.Kernel(SIZE // TILE, threads=128) as bx:
        a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((TILE, SIZE), "float16")
        c = T.alloc_fragment((TILE, SIZE), "float32")
        T.clear(c)
        for k in T.Pipelined(SIZE // TILE, num_stages=2):
            T.copy(A[bx * TILE, k * TILE], a)
            T.copy(B[k * TILE, 0], b)
            T.gemm(a, b, c)
        for i, j in T.Parallel(TILE, SIZE):
            if i >= TILE:
                c[i, j] = 0
        for k in T.serial(4):
            for i in range(TILE):
                if k > 4:
                    T.fill(c, i)
        for i, j in T.Parallel(TILE, SIZE):
            C[bx * TILE + i, j] = c[i, j]


def test_loops_without_statements_are_none():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in range(2))
    made = elaborated(product, [a, b], None, {}, {})
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, (For, Parallel))]
    assert len(loops) == 1
    assert sum(isinstance(stmt, Fill) for stmt in walk(made.launches[0].body)) == 1
    expected = a.astype(np.float32) @ b.astype(np.float32)
    agree(product, a, b, expected=expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("M", "N"), [(0, 0), (0, 5), (5, 0)])
def test_a_tensor_known_to_be_empty_leaves_no_blocks(M, N):
    def plus_one(M, N):
        @T.prim_func
        def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
            with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
                for i, j in T.Parallel(32, 32):
                    B[by * 32 + i, bx * 32 + j] = A[by * 32 + i, bx * 32 + j] + 1.0

        return main

    empty = np.zeros((M, N), "float32")
    agree(plus_one, empty, dims={"M": M, "N": N}, expected=[empty], targets=("cpu", "sm_80"))
