"""Kernels of doors.toml beside the shipped ones: with a gradient, in place, with a workspace, with an extent
that no input shows. Each is so simple that torch says in one line what it gives."""

from __future__ import annotations

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def product(n, dtype="float32", block=1024, threads=128):
    """Y = a * X * W over n elements."""

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), W: T.Tensor((n,), dtype), a: T.float32, Y: T.Tensor((n,), dtype)):
        """Y = a * X * W."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                Y[b * block + i] = a * X[b * block + i] * W[b * block + i]

    return main


@tilec.jit(out_idx=[-2, -1])
def product_backward(n, dtype="float32", block=1024, threads=128):
    """The gradients of :func:`product` by X and by W."""

    @T.prim_func
    def main(
        dY: T.Tensor((n,), dtype),
        X: T.Tensor((n,), dtype),
        W: T.Tensor((n,), dtype),
        a: T.float32,
        dX: T.Tensor((n,), dtype),
        dW: T.Tensor((n,), dtype),
    ):
        """dX = a * dY * W, dW = a * dY * X."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                dX[b * block + i] = a * dY[b * block + i] * W[b * block + i]
                dW[b * block + i] = a * dY[b * block + i] * X[b * block + i]

    return main


@tilec.jit
def doubled(n, dtype="float32", block=1024, threads=128):
    """X = 2 * X in place."""

    @T.prim_func
    def main(X: T.Tensor((n,), dtype)):
        """X = 2 * X."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                X[b * block + i] = 2 * X[b * block + i]

    return main


@tilec.jit(out_idx=[-1])
def column_sums(M, N, dtype="float32", parts=8, bN=128, threads=128):
    """S[j] = sum of X[:, j]: each of ``parts`` blocks adds a share of the rows, and a second launch what they
    left in the workspace."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), S: T.Tensor((N,), dtype)):
        """S = the sums of the columns of X."""
        room = T.alloc_global((parts, N), dtype)
        with T.Kernel(T.ceildiv(N, bN), parts, threads=threads) as (bx, part):
            acc = T.alloc_fragment((bN,), dtype)
            T.clear(acc)
            for k in T.serial(T.ceildiv(M, parts)):
                for j in T.Parallel(bN):
                    acc[j] += T.if_then_else(k * parts + part < M, X[k * parts + part, bx * bN + j], 0.0)
            T.copy(acc, room[part, bx * bN])
        with T.Kernel(T.ceildiv(N, bN), threads=threads) as bx:
            acc = T.alloc_fragment((bN,), dtype)
            T.clear(acc)
            for part in T.serial(parts):
                for j in T.Parallel(bN):
                    acc[j] += room[part, bx * bN + j]
            T.copy(acc, S[bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def repeated(n, m, dtype="float32", block=1024, threads=128):
    """m copies of n elements one after the other; the caller says m."""

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype)):
        """Y[i] = X for all i."""
        with T.Kernel(T.ceildiv(n, block), m, threads=threads) as (b, row):
            for i in T.Parallel(block):
                Y[row, b * block + i] = X[b * block + i]

    return main
