"""Reductions of shared tiles that are something else, too: operands of products, tiles that convert what they
load and are seen in another shape; numbers of iterations that fall, as unsigned ones."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T

TARGETS = ("cpu", "sm_80", "sm_90a", "gfx942")


@T.prim_func
def of_an_operand(
    A: T.Tensor((16, 48), "bfloat16"), C: T.Tensor((16, 48), "float32"), S: T.Tensor((16,), "float32")
):
    with T.Kernel(1, threads=128):
        a, b = T.alloc_shared((16, 16), "float16"), T.alloc_shared((16, 48), "float16")
        acc, sums = T.alloc_fragment((16, 48), "float32"), T.alloc_fragment((16,), "float32")
        T.clear(acc)
        T.fill(a, 0.5)
        T.copy(A, b)
        T.gemm(a, b, acc)
        T.reduce_sum(b, sums, dim=1)
        T.copy(acc, C)
        T.copy(sums, S)


@T.prim_func
def of_a_view(A: T.Tensor((24, 4), "float16"), S: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=128):
        tile, sums = T.alloc_shared((24, 4), "float32"), T.alloc_fragment((8,), "float32")
        T.copy(A, tile)
        T.reduce_sum(T.view(tile, (12, 8)), sums, dim=0)
        T.copy(sums, S)


def of_a_stage(stages, inner):
    """The largest element of each row of tiles that a pipeline loads, read in the loop or in one inside."""

    @T.prim_func
    def kernel(A: T.Tensor((32, 128), "float32"), S: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=128):
            tile, top = T.alloc_shared((32, 32), "float32"), T.alloc_fragment((32,), "float32")
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 32], tile)
                for _ in T.serial(inner):
                    T.reduce_max(tile, top, dim=1)
                for i in T.Parallel(32):
                    S[i, k] = top[i]

    return kernel


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("inner", [1, 2])
def test_a_reduction_of_a_tile_of_several_stages(stages, inner):
    a = np.random.default_rng(6).standard_normal((32, 128)).astype(np.float32)
    agree(of_a_stage(stages, inner), a, expected=a.reshape(32, 4, 32).max(2), targets=TARGETS)


@T.prim_func
def of_a_fragment(A: T.Tensor((4, 64), "float32"), S: T.Tensor((4,), "float32")):
    """A mean, whose only element is updated in a kernel with code of threads."""
    with T.Kernel(4, threads=64) as row:
        tx = T.get_thread_binding()
        x, mean = T.alloc_fragment((64,), "float32"), T.alloc_fragment((1,), "float32")
        T.copy(A[row, 0], x)
        T.reduce_sum(x, mean)
        mean[0] = mean[0] / 64.0
        if tx == 0:
            S[row] = mean[0]


def test_a_reduction_of_an_operand():
    import ml_dtypes

    a = (np.random.default_rng(1).integers(-8, 9, (16, 48)) / 4).astype(ml_dtypes.bfloat16)
    wide = a.astype(np.float32)
    expected = [np.broadcast_to(wide.sum(0) / 2, (16, 48)), wide.sum(1)]
    agree(of_an_operand, a, expected=expected, targets=TARGETS)


def test_a_reduction_of_a_view_of_what_is_converted():
    a = (np.random.default_rng(2).integers(-8, 9, (24, 4)) / 4).astype(np.float16)
    agree(of_a_view, a, expected=a.astype(np.float32).reshape(12, 8).sum(0), targets=TARGETS)


def test_an_element_of_a_fragment_is_one_value_for_all_threads():
    a = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    agree(of_a_fragment, a, expected=a.mean(1), targets=TARGETS)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_falling_numbers_as_unsigned_ones(dtype):
    @T.prim_func
    def falling(Y: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                Y[i] = 100 - 3 * i

    agree(falling, expected=(100 - 3 * np.arange(64)).astype(dtype), targets=TARGETS)
