"""Rings on sm_90a: how many stages they have, and how lanes read what comes by them."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

ROWS, WIDE, TILE = 128, 64, 64
SM90A = parse_target("sm_90a")


def product(depth, outer=1):
    """C = R + sum over ``outer`` of A B^T by tiles of K, and its row sums; R passes through a fragment."""

    @T.prim_func
    def kernel(
        A: T.Tensor((ROWS, depth), "float16"),
        B: T.Tensor((WIDE, depth), "float16"),
        R: T.Tensor((ROWS, WIDE), "float16"),
        C: T.Tensor((ROWS, WIDE), "float32"),
        total: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(ROWS // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((WIDE, TILE), "float16")
            r, own = T.alloc_shared((TILE, WIDE), "float16"), T.alloc_fragment((TILE, WIDE), "float32")
            acc, sums = T.alloc_fragment((TILE, WIDE), "float32"), T.alloc_fragment((TILE,), "float32")
            T.clear(acc)
            for _ in T.serial(outer):
                for k in T.Pipelined(depth // TILE, num_stages=3):
                    T.copy(A[bx * TILE, k * TILE], a)
                    T.copy(B[0, k * TILE], b)
                    T.gemm(a, b, acc, transpose_B=True)
            T.copy(R[bx * TILE, 0], r)
            T.copy(r, own)
            for i, j in T.Parallel(TILE, WIDE):
                acc[i, j] += own[i, j]
            T.reduce_sum(acc, sums, dim=1)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    return kernel


def operands(depth):
    rng = np.random.default_rng(2)
    return [(rng.standard_normal(shape) / 4).astype(np.float16)
            for shape in ((ROWS, depth), (WIDE, depth), (ROWS, WIDE))]  # fmt: skip


def roads(kernel, inputs):
    return [str(road) for road in lower(elaborated(kernel, inputs, None, {}, {}), SM90A).launches[0].roads]


@pytest.mark.parametrize(("trips", "outer", "stages"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (6, 1, 4)])
def test_no_ring_has_more_stages_than_a_block_fills(trips, outer, stages):
    inputs = operands(trips * TILE)
    said = roads(product(trips * TILE, outer), inputs)
    assert f"ring of {stages} stages" in "".join(said), said
    a, b, r = (each.astype(np.float32) for each in inputs)
    found = outer * (a @ b.T) + r
    agree(product(trips * TILE, outer), *inputs, expected=(found, found.sum(1)), targets=("sm_90a",),
          rtol=2e-2, atol=2e-2)  # fmt: skip


def test_lanes_read_a_tile_that_goes_into_sums_without_conflicts():
    said = roads(product(4 * TILE), operands(4 * TILE))
    assert any("R -> r" in road and "TMA" in road for road in said), said
    assert not any("of a bank" in road for road in said), said
