"""Kernels whose schedules are chosen for them, and one that has nothing to choose."""

from __future__ import annotations

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def sums(M, N, rows=8, columns=128, taps=4, scale=2):
    """y[m] = scale * sum of x[m, n] * (n % taps): ``rows`` and ``columns`` alone change no result."""

    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M,), "float32")):
        """Weighted sums of rows."""
        with T.Kernel(T.ceildiv(M, rows), threads=128) as by:
            tile = T.alloc_fragment((rows, columns), "float32")
            part = T.alloc_fragment((rows,), "float32")
            acc = T.alloc_fragment((rows,), "float32")
            weights = T.alloc_fragment((taps,), "float32")
            for t in T.Parallel(taps):
                weights[t] = T.cast(t, "float32")
            T.clear(acc)
            for no in T.serial(T.ceildiv(N, columns)):
                T.copy(x[by * rows, no * columns], tile)
                for i, j in T.Parallel(rows, columns):
                    tile[i, j] = tile[i, j] * T.cast((no * columns + j) % taps, "float32")
                T.reduce_sum(tile, part, dim=1)
                for i in T.Parallel(rows):
                    acc[i] = acc[i] + part[i] * scale + weights[0]
            T.copy(acc, y[by * rows])

    return main


def fixed(n):
    """y = x, with nothing to choose."""

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        """y = x."""
        with T.Kernel(T.ceildiv(n, 256), threads=128) as bx:
            for i in T.Parallel(256):
                y[bx * 256 + i] = x[bx * 256 + i]

    return main
