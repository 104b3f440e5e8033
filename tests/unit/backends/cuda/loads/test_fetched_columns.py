"""Elements of tensors that stand for rows and columns of tiles which threads make in each trip."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, walk
from tilec.targets import parse_target


def dequantised(pack: int):
    """A product with weights (K, N) of 4 bits, ``pack`` to a word, a scale and a zero point for each column
    of a group of 32 rows."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 64), "float16"),
        W: T.Tensor((64, 128 // pack), "int32"),
        Z: T.Tensor((2, 128 // pack), "int32"),
        S: T.Tensor((2, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a, w = T.alloc_shared((128, 32), "float16"), T.alloc_shared((32, 128 // pack), "int32")
            made, c = T.alloc_shared((32, 128), "float16"), T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(W[k * 32, 0], w)
                for i, j in T.Parallel(32, 128):
                    q = (w[i, j // pack] >> (j % pack * 4)) & 15
                    z = (Z[k, j // pack] >> (j % pack * 4)) & 15
                    made[i, j] = T.cast(q - z, "float16") * S[k, j]
                T.gemm(a, made, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize("pack", [8, 4])
def test_scales_and_zero_points_of_columns_come_a_trip_ahead(pack):
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (128, 64)).astype(np.float16)
    words, zeros = (rng.integers(0, 1 << 4 * pack, (rows, 128 // pack)) for rows in (64, 2))
    scales = rng.integers(1, 4, (2, 128)).astype(np.float16)
    places = 4 * (np.arange(128) % pack)
    q, z = ((each.repeat(pack, 1) >> places) & 15 for each in (words, zeros))
    weights = (q - z.repeat(32, 0)) * scales.repeat(32, 0)
    arguments = (a, *(each.astype(np.uint32).view(np.int32) for each in (words, zeros)), scales)
    agree(dequantised(pack), *arguments, expected=(a.astype(np.float32) @ weights.astype(np.float32)))
    kernel = lower(elaborated(dequantised(pack), arguments, None, {}, {}), parse_target("sm_90a"))
    names = {stmt.buffer.name for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Alloc)}
    assert {"S_ahead", "Z_ahead"} <= names


def test_one_warpgroup_reads_few_scales_a_trip_ahead_and_others_as_the_trip_begins():
    @T.prim_func
    def main(
        Q: T.Tensor((16, 64), "float16"),
        K: T.Tensor((128, 64), "int8"),
        KS: T.Tensor((128,), "float16"),
        V: T.Tensor((128, 64), "int8"),
        VS: T.Tensor((128,), "float16"),
        C: T.Tensor((16, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q, k8, v8 = (T.alloc_shared(shape, dtype) for shape, dtype in
                         (((16, 64), "float16"), ((64, 64), "int8"), ((64, 64), "int8")))  # fmt: skip
            k, v = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            s, p = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16, 64), "float16")
            c = T.alloc_fragment((16, 64), "float32")
            T.copy(Q, q)
            T.clear(c)
            for t in T.Pipelined(2, num_stages=2):
                T.copy(K[t * 64, 0], k8)
                for i, j in T.Parallel(64, 64):
                    k[i, j] = T.cast(k8[i, j], "float16") * KS[t * 64 + i]
                T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(s, p)
                T.copy(V[t * 64, 0], v8)
                for i, j in T.Parallel(64, 64):
                    v[i, j] = T.cast(v8[i, j], "float16") * VS[t * 64 + i]
                T.gemm(p, v, c, policy=T.GemmWarpPolicy.FullCol)
            T.copy(c, C)

    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-1, 2, (rows, 64)) for rows in (16, 128, 128))
    scales = rng.integers(1, 3, (2, 128))
    products = (q @ (k * scales[0, :, None]).T) @ (v * scales[1, :, None])
    arguments = (
        q.astype(np.float16), k.astype(np.int8), scales[0].astype(np.float16),
        v.astype(np.int8), scales[1].astype(np.float16),
    )  # fmt: skip
    agree(main, *arguments, expected=products.astype(np.float32))
    kernel = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_90a"))
    names = {stmt.buffer.name for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Alloc)}
    assert {"KS_ahead", "KS_row", "VS_row"} <= names
    assert "VS_ahead" not in names
