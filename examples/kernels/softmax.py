"""Softmax over rows of any length, in the factory form: online maximum and sum, then a pass to write."""

from __future__ import annotations

import numpy as np
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def softmax(M, N, ldx, dtype="float32", rows=4, bN=1024):
    """Y = softmax(X) per row; rows of X are ldx elements apart, N may be a runtime value."""

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M, N), dtype)):
        """Y = softmax(X) over each row."""
        with T.Kernel(T.ceildiv(M, rows), threads=128) as b:
            x = T.alloc_fragment((rows, bN), "float32")
            top, old, total, part = [T.alloc_fragment((rows,), "float32") for _ in range(4)]
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for c in T.serial(T.ceildiv(N, bN)):
                for i, j in T.Parallel(rows, bN):
                    x[i, j] = T.if_then_else(
                        c * bN + j < N, T.cast(X[b * rows + i, c * bN + j], "float32"), -T.infinity("float32")
                    )
                T.copy(top, old)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(rows, bN):
                    x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp2((old[i] - top[i]) * LOG2_E) + part[i]
            for i in T.Parallel(rows):
                total[i] = 1.0 / total[i]
            for c in T.serial(T.ceildiv(N, bN)):
                for i, j in T.Parallel(rows, bN):
                    value = T.cast(X[b * rows + i, c * bN + j], "float32")
                    Y[b * rows + i, c * bN + j] = T.exp2((value - top[i]) * LOG2_E) * total[i]

    return main


def softmax_reference(X):
    """NumPy twin of :func:`softmax`."""
    x = f32(X)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
