"""Matrix products with fused epilogues, in the factory form.

``weight`` is stored as frameworks store it: (N, K), one output feature a row. 16-bit operands accumulate in
float32, int8 operands in int32.
"""

from __future__ import annotations

from tile_math import activation as activation_of
from tile_math import f32, gelu_reference, silu, silu_reference

import tilec
import tilec.language as T


@T.macro
def product(A, W, acc, row, col, steps, bM, bN, bK, dtype, num_stages):
    """``acc = A[row:, :] @ W[col:, :].T`` over ``steps`` slices of K."""
    As = T.alloc_shared((bM, bK), dtype)
    Ws = T.alloc_shared((bN, bK), dtype)
    T.clear(acc)
    for ko in T.Pipelined(steps, num_stages=num_stages):
        T.copy(A[row, ko * bK], As)
        T.copy(W[col, ko * bK], Ws)
        T.gemm(As, Ws, acc, transpose_B=True)


@T.macro
def two_products(A, G, U, gate, up, row, col, steps, bM, bN, bK, dtype, num_stages):
    """``gate = A[row:, :] @ G[col:, :].T`` and ``up = A[row:, :] @ U[col:, :].T`` over ``steps`` slices of K,
    each slice of A brought once."""
    As = T.alloc_shared((bM, bK), dtype)
    Gs, Us = T.alloc_shared((bN, bK), dtype), T.alloc_shared((bN, bK), dtype)
    T.clear(gate)
    T.clear(up)
    for ko in T.Pipelined(steps, num_stages=num_stages):
        T.copy(A[row, ko * bK], As)
        T.copy(G[col, ko * bK], Gs)
        T.copy(U[col, ko * bK], Us)
        T.gemm(As, Gs, gate, transpose_B=True)
        T.gemm(As, Us, up, transpose_B=True)


@tilec.jit(out_idx=[-1])
def matmul(M, N, K, dtype="float32", trans_B=False, bM=128, bN=128, bK=64, num_stages=2, threads=128):
    """C = A @ B with B stored (K, N), or (N, K) where ``trans_B``."""
    stored, tile = ((N, K), (bN, bK)) if trans_B else ((K, N), (bK, bN))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(stored, dtype), C: T.Tensor((M, N), dtype)):
        """C = A @ B, row-major."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As = T.alloc_shared((bM, bK), dtype)
            Bs = T.alloc_shared(tile, dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                if trans_B:
                    T.copy(B[bx * bN, ko * bK], Bs)
                else:
                    T.copy(B[ko * bK, bx * bN], Bs)
                T.gemm(As, Bs, acc, transpose_B=trans_B)
            T.copy(acc, C[by * bM, bx * bN])

    return main


def matmul_reference(A, B):
    """NumPy twin of :func:`matmul`."""
    return f32(A) @ f32(B)


def matmul_nt_reference(A, B):
    """NumPy twin of :func:`matmul` with ``trans_B``."""
    return f32(A) @ f32(B).T


@tilec.jit(out_idx=[-1])
def linear(M, N, K, activation="none", dtype="float32", bM=128, bN=128, bK=64, num_stages=2, threads=128):
    """C = activation(A @ W.T + bias)."""
    act = activation_of(activation)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = activation(A @ W.T + bias); W is (N, K)."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            acc = T.alloc_fragment((bM, bN), "float32")
            product(A, W, acc, by * bM, bx * bN, T.ceildiv(K, bK), bM, bN, bK, dtype, num_stages)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = act(acc[i, j] + bias[bx * bN + j])

    return main


@tilec.jit(out_idx=[-1])
def linear_residual(M, N, K, dtype="float32", bM=128, bN=128, bK=64, num_stages=2, threads=128):
    """C = A @ W.T + bias + R."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), dtype),
        R: T.Tensor((M, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T + bias + R; W is (N, K)."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            acc = T.alloc_fragment((bM, bN), "float32")
            product(A, W, acc, by * bM, bx * bN, T.ceildiv(K, bK), bM, bN, bK, dtype, num_stages)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = acc[i, j] + bias[bx * bN + j] + R[by * bM + i, bx * bN + j]

    return main


@tilec.jit(out_idx=[-1])
def linear_silu_mul(M, N, K, dtype="float32", bM=128, bN=128, bK=64, num_stages=2, threads=256):
    """C = silu(A @ G.T) * (A @ U.T): both products of a gated layer, and what joins them."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        G: T.Tensor((N, K), dtype),
        U: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = silu(A @ G.T) * (A @ U.T); G and U are (N, K)."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            gate = T.alloc_fragment((bM, bN), "float32")
            up = T.alloc_fragment((bM, bN), "float32")
            steps = T.ceildiv(K, bK)
            two_products(A, G, U, gate, up, by * bM, bx * bN, steps, bM, bN, bK, dtype, num_stages)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = silu(gate[i, j]) * up[i, j]

    return main


@tilec.jit(out_idx=[-1])
def linear_int8(M, N, K, bM=128, bN=128, bK=64, num_stages=2, threads=128):
    """C = (A @ W.T) scaled per row of A and per row of W; int8 in, float32 out."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        W: T.Tensor((N, K), "int8"),
        a_scale: T.Tensor((M,), "float32"),
        w_scale: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        """C[m, n] = a_scale[m] * w_scale[n] * (A @ W.T)[m, n]."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            acc = T.alloc_fragment((bM, bN), "int32")
            product(A, W, acc, by * bM, bx * bN, T.ceildiv(K, bK), bM, bN, bK, "int8", num_stages)
            for i, j in T.Parallel(bM, bN):
                scale = a_scale[by * bM + i] * w_scale[bx * bN + j]
                C[by * bM + i, bx * bN + j] = acc[i, j].astype("float32") * scale

    return main


def linear_reference(A, W, bias):
    """NumPy twin of :func:`linear` without activation."""
    return f32(A) @ f32(W).T + f32(bias)


def linear_gelu_reference(A, W, bias):
    """NumPy twin of :func:`linear` with GELU."""
    return gelu_reference(linear_reference(A, W, bias))


def linear_silu_reference(A, W, bias):
    """NumPy twin of :func:`linear` with SiLU."""
    return silu_reference(linear_reference(A, W, bias))


def linear_residual_reference(A, W, bias, R):
    """NumPy twin of :func:`linear_residual`."""
    return linear_reference(A, W, bias) + f32(R)


def linear_silu_mul_reference(A, G, U):
    """NumPy twin of :func:`linear_silu_mul`."""
    return silu_reference(matmul_nt_reference(A, G)) * matmul_nt_reference(A, U)


def linear_int8_reference(A, W, a_scale, w_scale):
    """NumPy twin of :func:`linear_int8`; exact, since the sums stay below 2**31."""
    return (A.astype("int32") @ W.astype("int32").T) * a_scale[:, None] * w_scale[None, :]
