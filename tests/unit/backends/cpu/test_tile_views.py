"""Kernels on other shapes of a memory, compiled and compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

import tilec.language as T
from tilec.ir.guards import Guard
from tilec.ir.interp import interpreter
from tilec.language.frontend.elaborate import elaborate


def convolution(N, H, W, C=4, F=8, k=3, pad=1):
    """A convolution through image columns; weights and result are seen as matrices."""

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), "float32"),
        K: T.Tensor((k, k, C, F), "float32"),
        Y: T.Tensor((N, H, W, F), "float32"),
    ):
        with T.Kernel(T.ceildiv(N * H * W, 16)) as b:
            cols, taps = T.alloc_shared((16, C), "float32"), T.alloc_shared((C, F), "float32")
            acc = T.alloc_fragment((16, F), "float32")
            weights = T.Tensor((k * k * C, F), "float32", K.data)
            out = T.Tensor((N * H * W, F), "float32", Y.data)
            T.clear(acc)
            for t in T.Pipelined(k * k, num_stages=2):
                T.im2col(X, cols, b, t, k, 1, 1, pad)
                T.copy(weights[t * C, 0], taps)
                T.gemm(cols, taps, acc)
            T.copy(acc, out[b * 16, 0])

    return main


def groups(M, N=48):
    """Rows divided by the largest magnitude of each group of 16, through a reshaped fragment."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 4)) as b:
            x, top = T.alloc_fragment((4, N), "float32"), T.alloc_fragment((4, N // 16), "float32")
            T.copy(X[b * 4, 0], x)
            parts = T.reshape(x, (4, N // 16, 16))
            T.reduce_absmax(parts, top, dim=2)
            for i, g, j in T.Parallel(4, N // 16, 16):
                parts[i, g, j] = parts[i, g, j] / top[i, g]
            T.copy(x, Y[b * 4, 0])

    return main


CASES = {
    "convolution": (convolution, {"N": 2, "H": 5, "W": 7}, ((2, 5, 7, 4), (3, 3, 4, 8), (2, 5, 7, 8))),
    "groups": (groups, {"M": 8}, ((8, 48), (8, 48))),
}


@pytest.mark.parametrize("name", CASES)
def test_views(name):
    factory, dims, shapes = CASES[name]
    kernel = elaborate(factory, name=name, dims=dict.fromkeys(dims, Guard()), args={}, config={})
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected, found = ([arg.copy() for arg in args] for _ in range(2))
    interpreter.run(kernel, expected, dims)
    Library({name: kernel}, "x86-64-v3").run(name, found, dims)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-5, atol=1e-5)
