"""What `explain` says of a load that is no box of TMA."""

from __future__ import annotations

from agree import roads

import tilec.language as T


@T.prim_func
def scaled(
    A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), S: T.Tensor((2, 6), "int32"),
    C: T.Tensor((64, 64), "float32"),
):  # fmt: skip
    with T.Kernel(1, threads=128):
        a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
        s, acc = T.alloc_shared((1, 6), "int32"), T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 64], a)
            T.copy(B[k * 64, 0], b)
            T.copy(S[k, 0], s)
            T.gemm(a, b, acc)
            for i, j in T.Parallel(64, 64):
                acc[i, j] += s[0, j // 16]
        T.copy(acc, C)


def test_a_tile_that_no_box_fills_is_told_by_its_bytes():
    (lost,) = (road.loss.condition for road in roads(scaled, None, None, None, target="sm_90a") if road.loss)
    assert lost == "rows of 6 int32 are no multiple of 16 bytes"
