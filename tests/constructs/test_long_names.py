"""Chains of names that each read the one in front twice, whose values double with every link when they are
written out: they are computed link by link on every road, and building them takes no time to speak of."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T

LINKS = 40


def test_rounds_of_a_hash():
    @T.prim_func
    def main(A: T.Tensor((32,), "uint32"), B: T.Tensor((32,), "uint32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                h = A[i]
                n = T.cast(A[i], "int32")
                for _ in list(range(LINKS)):
                    h = (h ^ (h >> 3)) + (h << 2)
                    n = (n ^ (n >> 3)) + (n & 255)
                B[i] = h
                C[i] = n

    a = np.arange(32, dtype="uint32") * 77
    h, n = a.copy(), a.astype("int32")
    for _ in range(LINKS):
        h = (h ^ (h >> np.uint32(3))) + (h << np.uint32(2))
        n = (n ^ (n >> 3)) + (n & 255)
    agree(main, a, expected=[h, n])


@pytest.mark.parametrize("of_threads", [False, True])
def test_steps_of_newtons(of_threads):
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            if of_threads:
                tx = T.get_thread_binding()
                B[tx] = inverse(A[tx])
            else:
                for i in T.Parallel(32):
                    B[i] = inverse(A[i])

    a = np.linspace(0.5, 3, 32, dtype="float32")
    agree(main, a, expected=1 / a)


def inverse(x):
    """1 / ``x``, for numbers from 0 to 3."""
    y = T.float32(0.3)
    for _ in range(LINKS):
        y = T.bind(y * (2.0 - x * y))
    return y
