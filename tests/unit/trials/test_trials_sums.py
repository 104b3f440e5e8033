"""Sums that overflow: what every order of their terms gives is compared, the rest is not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilec.language as T
from tilec.language.frontend.elaborate import elaborate
from tilec.trials.facts import facts_of
from tilec.trials.oracle import Author, Oracle

HUGE = 3e38


@T.prim_func
def product(A: T.Tensor((16, 64), "bfloat16"), B: T.Tensor((64, 16), "bfloat16"), C: T.Tensor((16, 16))):
    with T.Kernel(1, threads=32):
        a, b = T.alloc_shared((16, 64), "bfloat16"), T.alloc_shared((64, 16), "bfloat16")
        c = T.alloc_fragment((16, 16), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.clear(c)
        T.gemm(a, b, c)
        T.copy(c, C)


@T.prim_func
def sums(A: T.Tensor((16, 64)), C: T.Tensor((16,))):
    with T.Kernel(1, threads=32):
        a, c = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16,), "float32")
        T.copy(A, a)
        T.reduce_sum(a, c, dim=1)
        T.copy(c, C)


@T.prim_func
def running(A: T.Tensor((16, 64)), C: T.Tensor((16, 64))):
    with T.Kernel(1, threads=32):
        a = T.alloc_shared((16, 64), "float32")
        T.copy(A, a)
        T.cumsum(a, dim=1)
        T.copy(a, C)


@T.prim_func
def kept(A: T.Tensor((16, 64)), C: T.Tensor((16,))):
    """Rows that sum up to something, positive elements alone."""
    with T.Kernel(1, threads=32):
        a, c = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16,), "float32")
        T.copy(A, a)
        T.reduce_sum(a, c, dim=1)
        for i in T.Parallel(16):
            c[i] = T.if_then_else(A[i, 0] > 0, 1.0, c[i])
        T.copy(c, C)


def expected(kernel, first_row: dict[int, float]):
    """What the oracle says of a kernel whose first input has these elements, ones elsewhere."""

    def inputs(dims, rng):
        a = np.ones((16, 64), np.float32)
        a[0, list(first_row)] = list(first_row.values())
        return [a, np.ones((64, 16), ml_dtypes.bfloat16)][: 2 if kernel is product else 1]

    facts = facts_of(elaborate(kernel, name="kernel", dims={}, args={}, config={}), "sm_80")
    return Oracle(facts, Author(inputs=inputs)).expect(facts.variants[0], {}, 0)


BOTH = {3: HUGE, 5: HUGE, 40: -HUGE, 41: -HUGE}
BACK = {3: HUGE, 5: HUGE, 40: -HUGE}
UP = {3: HUGE, 5: HUGE, 40: -2.0}


@pytest.mark.parametrize("kernel", [product, sums, running])
@pytest.mark.parametrize("row", [BOTH, BACK])
def test_sums_that_the_order_decides_are_compared_with_nothing(kernel, row):
    assert "sums overflow in one order of their terms and not in another" in expected(kernel, row).problem


@pytest.mark.parametrize("kernel", [product, sums, running])
@pytest.mark.parametrize(
    "row", [UP, {3: np.inf, 5: -2.0}, {3: HUGE, 4: -HUGE}, {3: np.nan, 5: HUGE, 6: HUGE}]
)
def test_sums_that_overflow_in_every_order_are_compared(kernel, row):
    found = expected(kernel, row)
    assert not found.problem
    ends = found.outputs["C"].reshape(16, -1)[:, -1]
    assert (ends[1:] == 64).all()
    assert np.isfinite(ends[0]) == (sum(row.values()) == 0)


def test_doubtful_sums_that_reach_no_output_are_no_matter():
    assert not expected(kept, {0: 1.0, **BOTH}).problem
    assert expected(kept, {0: -1.0, **BOTH}).problem
