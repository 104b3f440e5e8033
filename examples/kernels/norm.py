"""RMSNorm and LayerNorm over the rows of a matrix, plain and with a residual, in the eager form.

A block takes ``rows`` rows; N is compiled in. Statistics are float32 and two passes over the row that the
block holds, so large means cost no digits. Row strides are arguments, so that a slice can be normalised in
place of a copy.
"""

from __future__ import annotations

from tile_math import f32, normalise_reference

import tilec
import tilec.language as T


@T.macro
def inverse_rms(x, sq, scale, rows, N, eps):
    """scale[i] = 1 / sqrt(mean(x[i]**2) + eps); ``sq`` is scratch of x's shape."""
    for i, j in T.Parallel(rows, N):
        sq[i, j] = x[i, j] * x[i, j]
    T.reduce_sum(sq, scale, dim=1)
    for i in T.Parallel(rows):
        scale[i] = T.rsqrt(scale[i] / N + eps)


@T.macro
def center(x, mean, rows, N):
    """Takes its mean from each row of x."""
    T.reduce_sum(x, mean, dim=1)
    for i, j in T.Parallel(rows, N):
        x[i, j] = x[i, j] - mean[i] / N


@tilec.jit
def rmsnorm(X, G, eps: float = 1e-6, dtype: str = "float32", rows: int = 8, threads: int = 128):
    """Y = X / rms(X) * G per row."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    G: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
        x = T.alloc_fragment((rows, N), "float32")
        sq = T.alloc_fragment((rows, N), "float32")
        scale = T.alloc_fragment((rows,), "float32")
        T.copy(X[b * rows, 0], x)
        inverse_rms(x, sq, scale, rows, N, eps)
        for i, j in T.Parallel(rows, N):
            Y[b * rows + i, j] = x[i, j] * scale[i] * G[j]
    return Y


@tilec.jit
def rmsnorm_residual(X, R, G, eps: float = 1e-6, dtype: str = "float32", rows: int = 8, threads: int = 128):
    """H = X + R, Y = H / rms(H) * G per row: one step of a pre-norm residual stream."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    R: T.Tensor[[M, N], dtype]
    G: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    H = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
        x = T.alloc_fragment((rows, N), "float32")
        sq = T.alloc_fragment((rows, N), "float32")
        scale = T.alloc_fragment((rows,), "float32")
        for i, j in T.Parallel(rows, N):
            x[i, j] = T.cast(X[b * rows + i, j], "float32") + T.cast(R[b * rows + i, j], "float32")
        T.copy(x, H[b * rows, 0])
        inverse_rms(x, sq, scale, rows, N, eps)
        for i, j in T.Parallel(rows, N):
            Y[b * rows + i, j] = x[i, j] * scale[i] * G[j]
    return Y, H


@tilec.jit
def layernorm(X, G, B, eps: float = 1e-5, dtype: str = "float32", rows: int = 8, threads: int = 128):
    """Y = (X - mean) / std * G + B per row."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    G: T.Tensor[[N], dtype]
    B: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
        x = T.alloc_fragment((rows, N), "float32")
        sq = T.alloc_fragment((rows, N), "float32")
        stat = T.alloc_fragment((rows,), "float32")
        T.copy(X[b * rows, 0], x)
        center(x, stat, rows, N)
        inverse_rms(x, sq, stat, rows, N, eps)
        for i, j in T.Parallel(rows, N):
            Y[b * rows + i, j] = x[i, j] * stat[i] * G[j] + B[j]
    return Y


@tilec.jit
def layernorm_residual(
    X, R, G, B, eps: float = 1e-5, dtype: str = "float32", rows: int = 8, threads: int = 128
):
    """Y = layernorm(X + R) per row: the post-norm step of a BERT encoder."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    R: T.Tensor[[M, N], dtype]
    G: T.Tensor[[N], dtype]
    B: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
        x = T.alloc_fragment((rows, N), "float32")
        sq = T.alloc_fragment((rows, N), "float32")
        stat = T.alloc_fragment((rows,), "float32")
        for i, j in T.Parallel(rows, N):
            x[i, j] = T.cast(X[b * rows + i, j], "float32") + T.cast(R[b * rows + i, j], "float32")
        center(x, stat, rows, N)
        inverse_rms(x, sq, stat, rows, N, eps)
        for i, j in T.Parallel(rows, N):
            Y[b * rows + i, j] = x[i, j] * stat[i] * G[j] + B[j]
    return Y


def rmsnorm_reference(X, G, eps=1e-6):
    """NumPy twin of :func:`rmsnorm`."""
    return normalise_reference(f32(X), eps, center=False) * f32(G)


def rmsnorm_residual_reference(X, R, G, eps=1e-6):
    """NumPy twin of :func:`rmsnorm_residual`: (Y, H)."""
    H = f32(X) + f32(R)
    return rmsnorm_reference(H, G, eps), H


def layernorm_reference(X, G, B, eps=1e-5):
    """NumPy twin of :func:`layernorm`."""
    return normalise_reference(f32(X), eps, center=True) * f32(G) + f32(B)


def layernorm_residual_reference(X, R, G, B, eps=1e-5):
    """NumPy twin of :func:`layernorm_residual`."""
    return layernorm_reference(f32(X) + f32(R), G, B, eps)
