"""Running sums along rows of any length, in the factory form: a carry joins the chunks of a row."""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T


@T.macro
def chunks_of_block(X, Y, row, N, rows, bN):
    """Running sums of the rows of a block, which takes one chunk after the other."""
    x = T.alloc_shared((rows, bN), "float32")
    carry = T.alloc_fragment((rows,), "float32")
    T.clear(carry)
    for c in T.serial(T.ceildiv(N, bN)):
        T.copy(X[row, c * bN], x)
        T.cumsum(x, dim=1)
        for i, j in T.Parallel(rows, bN):
            Y[row + i, c * bN + j] = x[i, j] + carry[i]
        for i in T.Parallel(rows):
            carry[i] = carry[i] + x[i, bN - 1]


@T.macro
def chunks_of_cluster(X, Y, row, part, N, rows, bN, parts):
    """The same by a cluster, whose blocks take neighbouring chunks and tell each other what they come to. Two
    tiles take turns for that, so that blocks meet once for each chunk."""
    x = T.alloc_shared((rows, bN), "float32")
    ends = T.alloc_shared((2, parts, rows), "float32")
    carry, before, end = [T.alloc_fragment((rows,), "float32") for _ in range(3)]
    T.clear(carry)
    for c in T.serial(T.ceildiv(N, bN * parts)):
        T.copy(X[row, (c * parts + part) * bN], x)
        T.cumsum(x, dim=1)
        for i in T.Parallel(rows):
            end[i] = x[i, bN - 1]
        for block in T.serial(parts):
            T.copy_cluster(end, ends[c % 2, part, 0], dst_block=block)
        T.cluster_sync()
        T.copy(carry, before)
        for p in T.unroll(parts):
            for i in T.Parallel(rows):
                before[i] = before[i] + T.if_then_else(p < part, ends[c % 2, p, i], 0.0)
                carry[i] = carry[i] + ends[c % 2, p, i]
        for i, j in T.Parallel(rows, bN):
            Y[row + i, (c * parts + part) * bN + j] = x[i, j] + before[i]


@tilec.jit(out_idx=[-1])
def cumsum(M, N, ldx, dtype="float32", rows=4, bN=256, parts=1, threads=128):
    """Y[m, n] = X[m, 0] + ... + X[m, n]; rows of X are ldx elements apart. ``parts``: a cluster of so many
    blocks takes the rows of one."""

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M, N), dtype)):
        """Inclusive running sums along each row, in float32."""
        clusters = {"cluster_dims": parts} if parts > 1 else {}
        with T.Kernel(T.ceildiv(M, rows) * parts, threads=threads, **clusters) as n:
            if parts > 1:
                chunks_of_cluster(X, Y, n // parts * rows, n % parts, N, rows, bN, parts)
            else:
                chunks_of_block(X, Y, n * rows, N, rows, bN)

    return main


def cumsum_reference(X):
    """NumPy twin of :func:`cumsum`."""
    return np.cumsum(f32(X).astype(np.float64), axis=1).astype(np.float32)
