"""Vectors of elements whose place is a quotient that the author names beside them, on an emulated sm_80."""

from __future__ import annotations

import numpy as np

import tilec.language as T
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target


def rows_of_images():
    """Rows of 32 to images of H lines of W: the author names line and place in front of the store."""
    N, H, W = T.dynamic("N"), T.dynamic("H"), T.dynamic("W")

    @T.prim_func
    def main(X: T.Tensor((N * H * W, 32), "float32"), Y: T.Tensor((N, H, W, 32), "float32")):
        with T.Kernel(T.ceildiv(N * H * W, 16), threads=64) as bx:
            for i, j in T.Parallel(16, 32):
                line, x = (bx * 16 + i) // W, (bx * 16 + i) % W
                Y[line // H, line % H, x, j] = X[bx * 16 + i, j] * 2

    return main


def test_vectors_are_stored_where_the_names_say():
    dims = {"N": 2, "H": 3, "W": 5}
    guards = {name: Guard(min=1) for name in dims}
    kernel = elaborate(rows_of_images(), name="kernel", dims=guards, args={}, config={})
    x = np.arange(30 * 32, dtype=np.float32).reshape(30, 32)
    y = np.full((2, 3, 5, 32), np.nan, np.float32)
    EmulatedKernel(kernel, parse_target("sm_80"))([x, y], dims)
    np.testing.assert_array_equal(y, (2 * x).reshape(y.shape))
