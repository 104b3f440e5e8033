"""The harness of these tests: right kernels of every form agree, wrong expectations are found."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec
import tilec.language as T


@T.prim_func
def doubled(X: T.Tensor((T.dynamic("n"),), "float32"), Y: T.Tensor((T.dynamic("n"),), "float32")):
    with T.Kernel(T.ceildiv(X.shape[0], 32), threads=32) as bx:
        for i in T.Parallel(32):
            Y[bx * 32 + i] = 2 * X[bx * 32 + i]


@tilec.jit(out_idx=[-1])
def scaled(n, factor=3.0):
    @T.prim_func
    def main(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = X[bx * 32 + i] * factor

    return main


@tilec.jit
def shifted(X, by: T.int32, block: int = 32):
    N = T.const("N")
    X: T.Tensor[[N], T.int32]
    Y = T.empty((N,), T.int32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = X[bx * block + i] + by
    return Y


def test_a_prim_func_with_a_run_time_size():
    x = np.arange(45, dtype=np.float32)
    agree(doubled, x, expected=2 * x)


def test_a_factory_with_arguments():
    x = np.arange(45, dtype=np.float16)
    agree(scaled, x, args={"n": 45, "factor": 2.0}, expected=2 * x)


def test_an_eager_kernel_reads_its_constants_from_the_arrays():
    x = np.arange(45, dtype=np.int32)
    assert agree(shifted, x, 5)[0].tolist() == (x + 5).tolist()


def test_a_wrong_expectation_is_found():
    x = np.arange(45, dtype=np.int32)
    with pytest.raises(AssertionError, match="the interpreter: Y: 45 of 45 elements are wrong"):
        agree(shifted, x, 5, expected=x)
