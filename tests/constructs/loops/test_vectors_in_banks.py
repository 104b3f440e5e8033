"""Shared tiles of float32 that loops move in whole vectors, two for each vector of 16-bit elements."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T


def staged(dtype, wide):
    """Y = X + its row's largest element, by way of ``wide`` elements in shared memory."""

    @T.prim_func
    def kernel(X: T.Tensor((8, 512), dtype), Y: T.Tensor((8, 512), "float16")):
        with T.Kernel(2, threads=64) as bx:
            x, most = T.alloc_shared((4, 512), wide), T.alloc_fragment((4,), "float32")
            own = T.alloc_fragment((4, 512), "float32")
            T.copy(X[bx * 4, 0], x)
            T.copy(x, own)
            T.reduce_max(own, most, dim=1)
            for i, j in T.Parallel(4, 512):
                Y[bx * 4 + i, j] = x[i, j] + most[i]

    return kernel


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_tiles_of_wider_elements_meet_no_bank_twice(dtype):
    inputs = np.random.default_rng(3).integers(-9, 10, (8, 512)).astype(dtype)
    agree(staged(dtype, "float32"), inputs, targets=("sm_80", "sm_90a"))
    assert not [str(road) for road in roads(staged(dtype, "float32"), inputs) if road.loss]
