"""Where the largest element of each row stands, in the factory form."""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def argmax(M, N, ldx, dtype="float32", rows=4, threads=128):
    """Y[m] = the lowest n with the largest X[m, n]; rows of X are ldx elements apart. NaN does not count: a
    row of nothing else gives N."""

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M,), "int32")):
        """The place of the first largest element of each row."""
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            best = T.alloc_fragment((rows,), "float32")
            place = T.alloc_fragment((rows,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.fill(place, N)
            for i, j in T.Parallel(rows, N):
                best[i] = T.max(best[i], T.cast(X[b * rows + i, j], "float32"))
            for i, j in T.Parallel(rows, N):
                found = T.cast(X[b * rows + i, j], "float32") == best[i]
                place[i] = T.min(place[i], T.if_then_else(found, j, N))
            T.copy(place, Y[b * rows])

    return main


def argmax_reference(X):
    """NumPy twin of :func:`argmax`."""
    return np.argmax(f32(X), axis=1).astype(np.int32)
