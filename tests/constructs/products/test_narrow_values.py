"""Attention whose keys or values have rows of no whole 128 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T


def chosen(width, columns):
    """Rows of scores of ``width`` channels that select rows of ``columns`` values."""

    @T.prim_func
    def main(Q: T.Tensor((70, width), "float16"), K: T.Tensor((100, width), "float16"),
             V: T.Tensor((100, columns), "float16"), Y: T.Tensor((70, columns), "float16")):  # fmt: skip
        with T.Kernel(T.ceildiv(70, 64), threads=128) as bx:
            q, k = T.alloc_shared((64, width), "float16"), T.alloc_shared((64, width), "float16")
            v, p = T.alloc_shared((64, columns), "float16"), T.alloc_fragment((64, 64), "float16")
            s, o = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, columns), "float32")
            T.copy(Q[bx * 64, 0], q)
            T.clear(o)
            for t in T.Pipelined(2, num_stages=2):
                T.copy(K[t * 64, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for i, j in T.Parallel(64, 64):
                    p[i, j] = T.if_then_else(s[i, j] > 4, 1, 0)
                T.copy(V[t * 64, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Y[bx * 64, 0])

    return main


@pytest.mark.parametrize(("width", "columns"), [(64, 32), (64, 80), (128, 96), (96, 96), (72, 72), (32, 64)])
def test_rows_that_end_within_a_box(width, columns):
    """TMA brings whole boxes of 128 bytes, which tiles have room for."""
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, (rows, wide)).astype("float16")
             for rows, wide in ((70, width), (100, width), (100, columns))]  # fmt: skip
    agree(chosen(width, columns), *given)
    found = roads(chosen(width, columns), *given, target="sm_90a")
    assert any("rows in registers" in road.instruction for road in found if road.kind == "warp_roles")
