"""Products with weights packed ahead, in the eager form.

``pack`` turns a weight (N, K) into panels (N // P, K, P): panel n holds features n * P to n * P + P - 1, one
contiguous line of P numbers per k, which is what a register-blocked inner loop reads. Packing is linear in N:
several weights packed one behind the other are one weight (a fused Q, K, V), and a bias packed as a weight
with K = 1 is the bias itself. N is a multiple of P.

``dtype`` is what activations are stored in, ``weight_dtype`` (default: the same) what panels are stored in
and what both operands of the product are rounded to; sums are float32.

Blocks go down the rows first: neighbours share their panels, so that a weight comes from memory once.
"""

from __future__ import annotations

from tile_math import activation as activation_of
from tile_math import f32, gelu_reference, silu_reference

import tilec
import tilec.language as T


@tilec.jit
def pack(W, P: int = 32, dtype: str = "float32", weight_dtype: str = "", bK: int = 64):
    """Panels (N // P, K, P) of a weight (N, K) whose rows are ldw elements apart; W is of ``dtype``."""
    N, K, ldw = T.const("N K ldw")
    W: T.StridedTensor[[N, K], [ldw, 1], dtype]
    panels = T.empty((N // P, K, P), weight_dtype or dtype)
    with T.Kernel(N // P, T.ceildiv(K, bK), threads=128) as (n, kb):
        for k, p in T.Parallel(bK, P):
            panels[n, kb * bK + k, p] = W[n * P + p, kb * bK + k]
    return panels


def pack_reference(W, P=32):
    """NumPy twin of :func:`pack`."""
    N, K = W.shape
    return W.reshape(N // P, P, K).transpose(0, 2, 1)


@T.macro
def product(A, W, acc, row, panel, steps, bM, bN, bK, P, dtype, num_stages):
    """``acc = A[row:, :] @ (panels panel, panel + 1, ...)`` over ``steps`` slices of K."""
    As = T.alloc_shared((bM, bK), dtype)
    Ws = T.alloc_shared((bN // P, bK, P), dtype)
    T.clear(acc)
    for ko in T.Pipelined(steps, num_stages=num_stages):
        T.copy(A[row, ko * bK], As)
        T.copy(W[panel, ko * bK, 0], Ws)
        for p in T.unroll(bN // P):
            T.gemm(As, Ws[p, :, :], acc[:, p * P : (p + 1) * P])


@tilec.jit
def linear(
    A,
    W,
    bias,
    activation: str = "none",
    P: int = 32,
    dtype: str = "float32",
    weight_dtype: str = "",
    bM: int = 64,
    bN: int = 128,
    bK: int = 128,
    num_stages: int = 2,
):
    """C = activation(A @ W.T + bias) with W packed into panels of P features."""
    M, K, N = T.const("M K N")
    A: T.Tensor[[M, K], dtype]
    W: T.Tensor[[N // P, K, P], weight_dtype or dtype]
    bias: T.Tensor[[N], dtype]
    C = T.empty((M, N), dtype)
    act = activation_of(activation)
    with T.Kernel(T.ceildiv(M, bM), T.ceildiv(N, bN), threads=128) as (bx, by):
        acc = T.alloc_fragment((bM, bN), "float32")
        panel = by * (bN // P)
        product(A, W, acc, bx * bM, panel, T.ceildiv(K, bK), bM, bN, bK, P, weight_dtype or dtype, num_stages)
        for i, j in T.Parallel(bM, bN):
            C[bx * bM + i, by * bN + j] = act(acc[i, j] + bias[by * bN + j])
    return C


@tilec.jit
def linear_residual(
    A,
    W,
    bias,
    R,
    P: int = 32,
    dtype: str = "float32",
    weight_dtype: str = "",
    bM: int = 64,
    bN: int = 128,
    bK: int = 128,
    num_stages: int = 2,
):
    """C = A @ W.T + bias + R with W packed into panels of P features."""
    M, K, N = T.const("M K N")
    A: T.Tensor[[M, K], dtype]
    W: T.Tensor[[N // P, K, P], weight_dtype or dtype]
    bias: T.Tensor[[N], dtype]
    R: T.Tensor[[M, N], dtype]
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, bM), T.ceildiv(N, bN), threads=128) as (bx, by):
        acc = T.alloc_fragment((bM, bN), "float32")
        panel = by * (bN // P)
        product(A, W, acc, bx * bM, panel, T.ceildiv(K, bK), bM, bN, bK, P, weight_dtype or dtype, num_stages)
        for i, j in T.Parallel(bM, bN):
            C[bx * bM + i, by * bN + j] = acc[i, j] + bias[by * bN + j] + R[bx * bM + i, by * bN + j]
    return C


def unpack_reference(panels):
    """The weight (N, K) that packing turned into ``panels``."""
    blocks, K, P = panels.shape
    return panels.transpose(0, 2, 1).reshape(blocks * P, K)


def linear_reference(A, W, bias):
    """NumPy twin of :func:`linear` without activation."""
    return f32(A.astype(W.dtype)) @ unpack_reference(f32(W)).T + f32(bias)


def linear_gelu_reference(A, W, bias):
    """NumPy twin of :func:`linear` with GELU."""
    return gelu_reference(linear_reference(A, W, bias))


def linear_silu_reference(A, W, bias):
    """NumPy twin of :func:`linear` with SiLU."""
    return silu_reference(linear_reference(A, W, bias))


def linear_residual_reference(A, W, bias, R):
    """NumPy twin of :func:`linear_residual`."""
    return linear_reference(A, W, bias) + f32(R)
