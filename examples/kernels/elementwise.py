"""Elementwise kernels: any length, and gated activations on strided rows."""

from __future__ import annotations

from tile_math import f32, silu, silu_reference

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def scale_add(n, dtype="float32", block=4096, threads=128):
    """Y = a * X + B over n elements; n is a runtime value unless the manifest pins it."""

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), a: T.float32, Y: T.Tensor((n,), dtype)):
        """Y = a * X + B."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                Y[b * block + i] = a * X[b * block + i] + B[b * block + i]

    return main


@tilec.jit(out_idx=[-1])
def copy(n, dtype="float32", block=4096, threads=128):
    """Y = X over n elements: what memory-bound kernels are measured against."""

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        """Y = X."""
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            T.copy(X[b * block : (b + 1) * block], Y[b * block : (b + 1) * block])

    return main


@tilec.jit
def silu_mul(
    gate,
    up,
    dtype: str = "float32",
    rows: int = 4,
    bN: int = 1024,
    ahead: bool = False,
    threads: int = 128,
):
    """Y = silu(gate) * up; both may be slices of one fused product, so their rows are ldg and ldu apart.
    ``ahead``: a block asks for all of both first, for rows that begin anywhere, of which no vector brings
    more than one element."""
    M, N, ldg, ldu = T.const("M N ldg ldu")
    gate: T.StridedTensor[[M, N], [ldg, 1], dtype]
    up: T.StridedTensor[[M, N], [ldu, 1], dtype]
    Y = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, rows), threads=threads) as (bx, by):
        if ahead:
            g, u = [T.alloc_fragment((rows, bN), dtype) for _ in range(2)]
            T.copy(gate[by * rows, bx * bN], g)
            T.copy(up[by * rows, bx * bN], u)
            for i, j in T.Parallel(rows, bN):
                value = silu(T.cast(g[i, j], "float32")) * T.cast(u[i, j], "float32")
                Y[by * rows + i, bx * bN + j] = value
        else:
            for i, j in T.Parallel(rows, bN):
                g = T.cast(gate[by * rows + i, bx * bN + j], "float32")
                Y[by * rows + i, bx * bN + j] = silu(g) * T.cast(up[by * rows + i, bx * bN + j], "float32")
    return Y


def copy_reference(X):
    """NumPy twin of :func:`copy`."""
    return X


def scale_add_reference(X, B, a):
    """NumPy twin of :func:`scale_add`."""
    return a * f32(X) + f32(B)


def silu_mul_reference(gate, up):
    """NumPy twin of :func:`silu_mul`."""
    return silu_reference(f32(gate)) * f32(up)
