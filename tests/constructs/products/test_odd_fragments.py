"""Sums of products whose rows end inside of a vector, read by other threads than those that hold them."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T


@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (16, 13), (33, 33)])
def test_sums_of_odd_rows_that_other_threads_read(rows, columns):
    @T.prim_func
    def main(
        A: T.Tensor((rows, 32), "int8"),
        B: T.Tensor((32, columns), "int8"),
        C: T.Tensor((rows, columns), "int32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((rows, 32), "int8"), T.alloc_shared((32, columns), "int8")
            acc, turned = T.alloc_fragment((rows, columns), "int32"), T.alloc_shared((rows, columns), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, acc, clear_accum=True)
            for i, j in T.Parallel(rows, columns):
                turned[i, j] = acc[rows - 1 - i, columns - 1 - j]
            T.copy(turned, C)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-5, 6, shape).astype(np.int8) for shape in ((rows, 32), (32, columns)))
    expected = (a.astype(np.int32) @ b.astype(np.int32))[::-1, ::-1]
    agree(main, a, b, expected=expected, targets=("cpu", "sm_80", "sm_90a", "gfx942"))
