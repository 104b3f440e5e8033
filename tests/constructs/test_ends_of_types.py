"""Conditions on integers whose range goes to an end of their type: what is read, bounded on one side."""

from __future__ import annotations

import numpy as np
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
