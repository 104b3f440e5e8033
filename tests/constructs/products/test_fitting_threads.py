"""Blocks whose threads cannot share a product evenly, or not hold its sums."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.targets import parse_target


def product(threads, rows=128, columns=128, numbered=False):
    @T.prim_func
    def kernel(
        A: T.Tensor((rows, 64), "float16"),
        B: T.Tensor((columns, 64), "float16"),
        C: T.Tensor((rows, columns), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((rows, 32), "float16")
            b = T.alloc_shared((columns, 32), "float16")
            c = T.alloc_fragment((rows, columns), "float32")
            T.clear(c)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            for i, j in T.Parallel(rows, columns):
                c[i, j] = T.exp2(c[i, j])
            T.copy(c, C)
            if numbered and T.get_thread_binding() == threads - 1:
                C[0, 0] = 1.0

    return kernel


def threads_of(kernel, inputs, target):
    (launch,) = lower(
        elaborated(kernel, inputs, {}, {}, {}), parse_target(target), until="fit_threads"
    ).launches
    return launch.threads[0]


@pytest.mark.parametrize(
    ("threads", "rows", "sm_80", "sm_90a"),
    [(384, 128, 256, 256), (384, 192, 384, 384), (256, 128, 256, 256), (128, 64, 128, 128)],
)
def test_blocks_have_the_most_warpgroups_that_share_a_product(threads, rows, sm_80, sm_90a):
    rng = np.random.default_rng(8)
    inputs = [(rng.standard_normal((size, 64)) / 4).astype(np.float16) for size in (rows, 128)]
    kernel = product(threads, rows)
    assert (threads_of(kernel, inputs, "sm_80"), threads_of(kernel, inputs, "sm_90a")) == (sm_80, sm_90a)
    agree(kernel, *inputs, dims={}, rtol=2e-2, atol=2e-2)


def test_threads_that_have_numbers_stay():
    inputs = [np.zeros((128, 64), np.float16)] * 2
    assert threads_of(product(384, numbered=True), inputs, "sm_90a") == 384


def promoted(threads, columns):
    """Sums that are added to others after every second trip."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), "float16"),
        B: T.Tensor((columns, 128), "float16"),
        C: T.Tensor((128, columns), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((columns, 32), "float16")
            part, c = (T.alloc_fragment((128, columns), "float32") for _ in range(2))
            T.clear(part)
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, part, transpose_B=True)
                if k % 2 == 1:
                    for i, j in T.Parallel(128, columns):
                        c[i, j] += part[i, j]
                    T.clear(part)
            T.copy(c, C)

    return kernel


@pytest.mark.parametrize(("columns", "found"), [(128, 256), (64, 128)])
def test_blocks_have_the_threads_that_hold_what_trips_hand_on(columns, found):
    rng = np.random.default_rng(9)
    inputs = [(rng.standard_normal((size, 128)) / 4).astype(np.float16) for size in (128, columns)]
    kernel = promoted(128, columns)
    assert [threads_of(kernel, inputs, target) for target in ("sm_80", "sm_90a")] == [found] * 2
    agree(kernel, *inputs, dims={}, rtol=2e-2, atol=2e-2)
