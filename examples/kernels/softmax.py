"""Softmax over rows, in the factory form, three ways: rows of any length by running maxima and sums, rows
that fit a fragment in one pass, and long rows of known length kept in shared memory."""

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


@T.macro
def online(X, Y, row, N, rows, bN):
    """Reads a row twice: for its maximum and sum, and to write."""
    x = T.alloc_fragment((rows, bN), "float32")
    top, total, old, part = [T.alloc_fragment((rows,), "float32") for _ in range(4)]
    T.fill(top, -T.infinity("float32"))
    T.clear(total)
    for c in T.serial(T.ceildiv(N, bN)):
        load_row(X, x, row, c * bN, N, rows, bN)
        add_chunk(x, top, old, total, part, rows, bN)
    for i in T.Parallel(rows):
        total[i] = 1.0 / total[i]
    for c in T.serial(T.ceildiv(N, bN)):
        for i, j in T.Parallel(rows, bN):
            value = T.cast(X[row + i, c * bN + j], "float32")
            Y[row + i, c * bN + j] = T.exp2((value - top[i]) * LOG2_E) * total[i]


@T.macro
def one_pass(X, Y, row, N, rows, bN):
    """Reads and exponentiates a row once; it stays in a fragment."""
    x = T.alloc_fragment((rows, bN), "float32")
    top, total = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
    load_row(X, x, row, 0, N, rows, bN)
    T.reduce_max(x, top, dim=1)
    for i, j in T.Parallel(rows, bN):
        x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
    T.reduce_sum(x, total, dim=1)
    for i in T.Parallel(rows):
        total[i] = 1.0 / total[i]
    for i, j in T.Parallel(rows, bN):
        Y[row + i, j] = x[i, j] * total[i]


@T.macro
def staged(X, Y, row, N, bN, dtype):
    """Reads and exponentiates a row once; it stays in shared memory, in chunks of bN, as elements of dtype.

    Every thread keeps maxima and sums of its own columns of all chunks, so that a row takes two reductions.
    """
    x = T.alloc_shared((T.ceildiv(N, bN), bN), dtype)
    tops, sums = [T.alloc_fragment((bN,), "float32") for _ in range(2)]
    top, total = [T.alloc_fragment((1,), "float32") for _ in range(2)]
    T.fill(tops, -T.infinity("float32"))
    T.clear(sums)
    for c in T.unroll(T.ceildiv(N, bN)):
        for j in T.Parallel(bN):
            value = T.cast(X[row, c * bN + j], "float32")
            tops[j] = T.max(tops[j], T.if_then_else(c * bN + j < N, value, -T.infinity("float32")))
            x[c, j] = X[row, c * bN + j]
    T.reduce_max(tops, top, dim=0)
    for j in T.Parallel(1):
        top[j] = top[j] * LOG2_E
    for c in T.unroll(T.ceildiv(N, bN)):
        for j in T.Parallel(bN):
            power = T.exp2(T.cast(x[c, j], "float32") * LOG2_E - top[0])
            sums[j] = sums[j] + T.if_then_else(c * bN + j < N, power, 0.0)
            x[c, j] = power
    T.reduce_sum(sums, total, dim=0)
    for j in T.Parallel(1):
        total[j] = 1.0 / total[j]
    for c in T.unroll(T.ceildiv(N, bN)):
        for j in T.Parallel(bN):
            Y[row, c * bN + j] = T.cast(x[c, j], "float32") * total[0]


@tilec.jit(out_idx=[-1])
def softmax(M, N, ldx, dtype="float32", rows=4, bN=1024, one_chunk=False, keep_row=False, threads=128):
    """Y = softmax(X) per row; rows of X are ldx elements apart, N may be a runtime value.

    ``one_chunk`` promises N <= bN (a guard of the manifest): the row is then read and exponentiated once.
    ``keep_row`` does that for longer rows, where N is compiled in and a row fits shared memory; a block then
    takes one row, and powers are rounded to ``dtype`` once more than otherwise.
    """

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M, N), dtype)):
        """Y = softmax(X) over each row."""
        if keep_row:
            with T.Kernel(M, threads=threads) as b:
                staged(X, Y, b, N, bN, dtype)
        else:
            with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
                if one_chunk:
                    one_pass(X, Y, b * rows, N, rows, bN)
                else:
                    online(X, Y, b * rows, N, rows, bN)

    return main


def softmax_reference(X):
    """NumPy twin of :func:`softmax`."""
    x = f32(X)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
