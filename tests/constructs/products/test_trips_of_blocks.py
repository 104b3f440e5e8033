"""Attention whose blocks have as many trips as their place in the grid tells."""

from __future__ import annotations

import numpy as np
from agree import agree, roads

import tilec.language as T


def parts():
    """Weighted sums of 300 values of two heads, by three blocks of 128 keys each for each of two sequences,
    which read the same ones."""

    @T.prim_func
    def main(
        Q: T.Tensor((2, 2, 64, 64), "float16"),
        K: T.Tensor((300, 2, 64), "float16"),
        V: T.Tensor((300, 2, 64), "float16"),
        Y: T.Tensor((2, 2, 3, 64, 64), "float32"),
    ):
        with T.Kernel(2, 2, 3, threads=128) as (h, b, z):
            q = T.alloc_shared((64, 64), "float16")
            k, v = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            s, o = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            T.copy(Q[b, h, :, :], q)
            T.clear(o)
            for t in T.Pipelined(T.ceildiv(T.min(300 - z * 128, 128), 64), num_stages=2):
                at = z * 128 + t * 64
                T.copy(K[at : at + 64, h, :], k)
                T.copy(V[at : at + 64, h, :], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(64, 64):
                    p[i, j] = T.if_then_else(s[i, j] > 4, 1, 0)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            T.copy(o, Y[b, h, z, :, :])

    return main


def test_blocks_that_have_other_numbers_of_trips():
    rng = np.random.default_rng(0)
    given = [
        rng.integers(-3, 4, shape).astype("float16") for shape in ((2, 2, 64, 64), (300, 2, 64), (300, 2, 64))
    ]
    agree(parts(), *given)
    found = roads(parts(), *given, target="sm_90a")
    assert any("rows in registers" in road.instruction for road in found if road.kind == "warp_roles")
