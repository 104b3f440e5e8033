"""Softmax over rows of any length, in the factory form: online maximum and sum, then a pass to write."""

from __future__ import annotations

import numpy as np
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@T.macro
def load_row(X, x, row, start, N, rows, bN):
    """x = X[row:, start:] as float32; columns from N on are -inf and count for nothing."""
    for i, j in T.Parallel(rows, bN):
        value = T.cast(X[row + i, start + j], "float32")
        x[i, j] = T.if_then_else(start + j < N, value, -T.infinity("float32"))


@T.macro
def add_chunk(x, top, old, total, part, rows, bN):
    """Takes a chunk into the running maximum and sum of each row; x becomes exp(x - maximum so far)."""
    T.copy(top, old)
    T.reduce_max(x, top, dim=1, clear=False)
    for i, j in T.Parallel(rows, bN):
        x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
    T.reduce_sum(x, part, dim=1)
    for i in T.Parallel(rows):
        total[i] = total[i] * T.exp2((old[i] - top[i]) * LOG2_E) + part[i]


@tilec.jit(out_idx=[-1])
def softmax(M, N, ldx, dtype="float32", rows=4, bN=1024, one_chunk=False, threads=128):
    """Y = softmax(X) per row; rows of X are ldx elements apart, N may be a runtime value.

    ``one_chunk`` promises N <= bN (a guard of the manifest): the row is then read and exponentiated once.
    """

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M, N), dtype)):
        """Y = softmax(X) over each row."""
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            x = T.alloc_fragment((rows, bN), "float32")
            top, total = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
            if one_chunk:
                load_row(X, x, b * rows, 0, N, rows, bN)
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(rows, bN):
                    x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
                T.reduce_sum(x, total, dim=1)
                for i in T.Parallel(rows):
                    total[i] = 1.0 / total[i]
                for i, j in T.Parallel(rows, bN):
                    Y[b * rows + i, j] = x[i, j] * total[i]
            else:
                old, part = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
                T.fill(top, -T.infinity("float32"))
                T.clear(total)
                for c in T.serial(T.ceildiv(N, bN)):
                    load_row(X, x, b * rows, c * bN, N, rows, bN)
                    add_chunk(x, top, old, total, part, rows, bN)
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
