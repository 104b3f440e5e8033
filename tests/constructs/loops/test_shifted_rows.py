"""Neighbours that begin between two vectors: taps along rows, in tensors and in shared tiles."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, halves, numbers, roads

import tilec.language as T


def by_elements(kernel, *given):
    return [str(road) for road in roads(kernel, *given) if "element by element" in str(road)]


@T.prim_func
def causal(
    X: T.Tensor((6, 512), "float16"), W: T.Tensor((6, 4), "float16"), Y: T.Tensor((6, 512), "float16")
):
    """A causal filter of each channel, whose taps go along the rows."""
    with T.Kernel(2, T.ceildiv(6, 4), threads=64) as (bx, by):
        for d, t in T.Parallel(4, 256):
            acc = T.alloc_var("float32")
            acc = 0
            for k in T.serial(4):
                at = bx * 256 + t - 3 + k
                acc += T.if_then_else(at >= 0, X[by * 4 + d, at], 0) * W[by * 4 + d, k]
            Y[by * 4 + d, bx * 256 + t] = acc


def test_taps_along_the_rows_of_a_tensor():
    given = halves(6, 512), halves(6, 4, seed=1)
    agree(causal, *given)
    assert not by_elements(causal, *given)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_neighbours_in_a_shared_tile(dtype):
    @T.prim_func
    def main(X: T.Tensor((40, 256), dtype), Y: T.Tensor((32, 240), "float32")):
        with T.Kernel(2, threads=64) as bx:
            s = T.alloc_shared((20, 256), dtype)
            T.copy(X[bx * 16, 0], s)
            for i, j in T.Parallel(16, 240):
                Y[bx * 16 + i, j] = (
                    T.cast(s[i + 1, j], "float32") + s[i + 1, j + 1] * 2 - s[i, j + 5] + s[i, j + 15]
                )

    given = numbers(40, 256, dtype=dtype)
    agree(main, given)
    assert not by_elements(main, given)


def test_rows_from_a_run_time_place_on():
    @T.prim_func
    def main(X: T.Tensor((32, 256), "float16"), first: T.int32, Y: T.Tensor((32, 64), "float16")):
        with T.Kernel(2, threads=32) as bx:
            s = T.alloc_shared((16, 256), "float16")
            T.copy(X[bx * 16, 0], s)
            for i, j in T.Parallel(16, 64):
                Y[bx * 16 + i, j] = s[i, first + j] * 2

    for first in (0, 5, 129, 250, -3):
        agree(main, halves(32, 256), first)
    assert not by_elements(main, halves(32, 256), 5)


def test_pairs_that_begin_between_vectors_are_told():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"),
             mask: T.Tensor((64, 128), "uint8"), n: T.int32, C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                c[i, j] = T.if_then_else(mask[i, j + n] != 0, c[i, j], -1)
            T.copy(c, C)

    mask = np.random.default_rng(2).integers(0, 2, (64, 128)).astype(np.uint8)
    given = halves(64, 64), halves(64, 64, seed=1), mask, 7
    agree(main, *given)
    (told,) = by_elements(main, *given)
    assert "begins between two vectors" in told
