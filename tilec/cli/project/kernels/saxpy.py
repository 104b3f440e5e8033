"""The kernels of this library."""

from __future__ import annotations

import numpy as np

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def saxpy(n, block=4096, dtype="float32"):
    """out = a * x + y over n elements."""

    @T.prim_func
    def main(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), a: T.float32, out: T.Tensor((n,), dtype)):
        """out = a * x + y."""
        with T.Kernel(T.ceildiv(n, block), threads=128) as b:
            for i in T.Parallel(block):
                out[b * block + i] = a * x[b * block + i] + y[b * block + i]

    return main


def saxpy_reference(x, y, a):
    """What `tilec verify` compares with."""
    return np.float32(a) * x + y
