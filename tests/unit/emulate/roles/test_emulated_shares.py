"""Blocks that take whole tiles and then shares of what is left, on an emulated sm_90a: a launch for each, the
tiles in bands."""

from __future__ import annotations

import numpy as np
import pytest

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
UNITS, TILE, DEPTH = 2, (128, 64), 64


def shares(M, N, K):
    """C += A B^T: whole waves of tiles, and the trips of the others in equal shares."""
    rows, columns = TILE

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(UNITS, threads=256) as block:
            a, b = T.alloc_shared((rows, DEPTH), "float16"), T.alloc_shared((columns, DEPTH), "float16")
            acc = T.alloc_fragment(TILE, "float32")
            at = T.alloc_var("int32")
            wide, trips = T.ceildiv(N, columns), T.ceildiv(K, DEPTH)
            tiles = T.ceildiv(M, rows) * wide
            whole = tiles // UNITS * UNITS
            for wave in T.serial(whole // UNITS):
                tile = wave * UNITS + block
                T.clear(acc)
                for k in T.Pipelined(trips, num_stages=2):
                    T.copy(A[tile // wide * rows, k * DEPTH], a)
                    T.copy(B[tile % wide * columns, k * DEPTH], b)
                    T.gemm(a, b, acc, transpose_B=True)
                T.copy(acc, C[tile // wide * rows, tile % wide * columns])
            at = block
            while at < (tiles - whole) * trips:
                left = whole + at // trips
                T.copy(A[left // wide * rows, at % trips * DEPTH], a)
                T.copy(B[left % wide * columns, at % trips * DEPTH], b)
                T.gemm(a, b, acc, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(rows, columns):
                    T.atomic_add(C[left // wide * rows + i, left % wide * columns + j], acc[i, j])
                at += UNITS

    return main


@pytest.mark.parametrize(("M", "N"), [(300, 136), (100, 328), (1100, 72), (100, 40)])
def test_whole_tiles_and_shares_agree_with_numpy(M, N):
    kernel = elaborate(shares(M, N, 72), name="kernel", dims={}, args={}, config={})
    assert len(lower(kernel, SM90A).launches) == 2
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, 72)).astype(np.float16) for size in (M, N))
    c = np.zeros((M, N), np.float32)
    EmulatedKernel(kernel, SM90A)([a, b, c], {})
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-4, atol=1e-4)
