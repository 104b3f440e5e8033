"""Conversion between element types, in the factory form."""

from __future__ import annotations

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def convert(n, source="float32", dtype="float16", block=4096, threads=128):
    """Y = X in another type."""

    @T.prim_func
    def main(X: T.Tensor((n,), source), Y: T.Tensor((n,), dtype)):
        """Y = X, rounded to nearest."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                Y[b * block + i] = T.cast(X[b * block + i], dtype)

    return main


def convert_reference(X):
    """NumPy twin of :func:`convert`."""
    return X
