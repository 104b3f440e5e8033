"""Conditions on integers whose range goes to an end of their type: what is read, bounded on one side."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T


def test_what_is_read_may_be_less_than_its_bound():
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32"), Z: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            first = T.min(X[0], 5)
            for i in T.Parallel(64):
                own = T.min(X[i], 5)
                Y[i] = 1 if own > 1 else 0
                Z[i] = 0
            if first > 1:
                for i in T.Parallel(64):
                    Z[i] = 1

    given = np.resize(np.array([0, 3, -9, 1], np.int32), 64)
    agree(main, given, expected=[(given > 1).astype(np.int32), np.zeros(64, np.int32)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_numbers_of_few_bits_have_their_whole_range(dtype):
    """Ranges of more numbers than their type counts, and those that end with it."""

    @T.prim_func
    def main(X: T.Tensor((64,), dtype), Y: T.Tensor((64,), "int32"), Z: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                least = T.min(X[i], T.Cast(dtype, 5))
                most = T.max(X[i], T.Cast(dtype, 3))
                Y[i] = 1 if least > 1 else 0
                if most > 126:
                    Z[i] = 1
                else:
                    Z[i] = 0

    info = np.iinfo(dtype)
    given = np.resize(np.array([0, 1, 2, 5, 6, 126, info.max, info.min], dtype), 64)
    agree(main, given, expected=[(given > 1).astype(np.int32), (given > 126).astype(np.int32)])


def test_no_unsigned_number_is_below_zero():
    @T.prim_func
    def main(X: T.Tensor((64,), "uint32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                own = X[i] >> T.uint32(2)
                if own < T.uint32(0):
                    Y[i] = 1
                else:
                    Y[i] = 2
                if X[i] >= T.uint32(0):
                    Y[i] += 4
                else:
                    Y[i] += 8

    agree(main, np.arange(64, dtype=np.uint32), np.zeros(64, np.int32), expected=np.full(64, 6, np.int32))
