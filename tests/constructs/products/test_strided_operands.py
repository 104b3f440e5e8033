"""Operands whose neighbours in memory lie along either axis."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T


def multiplied(dtype, sums, left, right):
    """Two products of a batch; ``left``, ``right``: whether neighbours of that operand lie down columns."""
    M, N, K = 72, 80, 96
    a_steps = (M * K, *((1, M) if left else (K, 1)))
    b_steps = (K * N, *((1, K) if right else (N, 1)))

    @T.prim_func
    def main(A: T.StridedTensor((2, M, K), a_steps, dtype), B: T.StridedTensor((2, K, N), b_steps, dtype),
             C: T.Tensor((2, M, N), sums)):  # fmt: skip
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), 2, threads=128) as (bx, by, bz):
            a, b = T.alloc_shared((64, 32), dtype), T.alloc_shared((32, 64), dtype)
            acc = T.alloc_fragment((64, 64), sums)
            T.clear(acc)
            for k in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[bz, by * 64, k * 32], a)
                T.copy(B[bz, k * 32, bx * 64], b)
                T.gemm(a, b, acc)
            T.copy(acc, C[bz, by * 64 : (by + 1) * 64, bx * 64 : (bx + 1) * 64])

    return main


@pytest.mark.parametrize(
    ("dtype", "sums", "left", "right"),
    [("float16", "float32", True, False), ("float16", "float32", False, True), ("int8", "int32", True, True)],
)
def test_operands_lie_along_either_axis(dtype, sums, left, right):
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((2, 72, 96), (2, 96, 80)))
    wanted = A.astype(int) @ B.astype(int)
    A = np.ascontiguousarray(A.transpose(0, 2, 1)).transpose(0, 2, 1) if left else A
    B = np.ascontiguousarray(B.transpose(0, 2, 1)).transpose(0, 2, 1) if right else B
    agree(multiplied(dtype, sums, left, right), A, B, expected=wanted)
    losses = [road for road in roads(multiplied(dtype, sums, left, right), A, B) if road.loss is not None]
    assert dtype == "int8" or not losses
