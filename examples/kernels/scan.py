"""Running sums along rows of any length, in the factory form: a carry joins the chunks of a row."""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def cumsum(M, N, ldx, dtype="float32", rows=4, bN=256, threads=128):
    """Y[m, n] = X[m, 0] + ... + X[m, n]; rows of X are ldx elements apart."""

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M, N), dtype)):
        """Inclusive running sums along each row, in float32."""
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            x = T.alloc_shared((rows, bN), "float32")
            carry = T.alloc_fragment((rows,), "float32")
            T.clear(carry)
            for c in T.serial(T.ceildiv(N, bN)):
                T.copy(X[b * rows, c * bN], x)
                T.cumsum(x, dim=1)
                for i, j in T.Parallel(rows, bN):
                    Y[b * rows + i, c * bN + j] = x[i, j] + carry[i]
                for i in T.Parallel(rows):
                    carry[i] = carry[i] + x[i, bN - 1]

    return main


def cumsum_reference(X):
    """NumPy twin of :func:`cumsum`."""
    return np.cumsum(f32(X).astype(np.float64), axis=1).astype(np.float32)
