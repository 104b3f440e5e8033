"""Kernels of several products in one loop."""

from __future__ import annotations

import tilec.language as T


def gated(M, N, K, dtype="float16", bM=64, bN=64, bK=64, along=True, num_stages=2, threads=128):
    """C = relu(A @ G) * (A @ U + b), of weights stored along K or across it."""
    stored, tile = ((N, K), (bN, bK)) if along else ((K, N), (bK, bN))

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        G: T.Tensor(stored, dtype),
        U: T.Tensor(stored, dtype),
        b: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As = T.alloc_shared((bM, bK), dtype)
            Gs, Us = T.alloc_shared(tile, dtype), T.alloc_shared(tile, dtype)
            gate, up = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, bN), "float32")
            T.clear(gate)
            T.clear(up)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                if along:
                    T.copy(G[bx * bN, ko * bK], Gs)
                    T.copy(U[bx * bN, ko * bK], Us)
                else:
                    T.copy(G[ko * bK, bx * bN], Gs)
                    T.copy(U[ko * bK, bx * bN], Us)
                T.gemm(As, Gs, gate, transpose_B=along)
                T.gemm(As, Us, up, transpose_B=along)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = T.max(gate[i, j], 0.0) * (up[i, j] + b[bx * bN + j])

    return main


def two_results(M, N, L, K, dtype="float16", bM=64, bN=128, bL=64, bK=64, num_stages=2, threads=128):
    """C = A @ W.T + R and D = A @ V.T + S of other widths, of loads that stand where they are needed."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        V: T.Tensor((L, K), dtype),
        R: T.Tensor((M, N), dtype),
        S: T.Tensor((M, L), dtype),
        C: T.Tensor((M, N), dtype),
        D: T.Tensor((M, L), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As = T.alloc_shared((bM, bK), dtype)
            Ws, Vs = T.alloc_shared((bN, bK), dtype), T.alloc_shared((bL, bK), dtype)
            q, v = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, bL), "float32")
            T.clear(q)
            T.clear(v)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(W[bx * bN, ko * bK], Ws)
                T.gemm(As, Ws, q, transpose_B=True)
                T.copy(V[bx * bL, ko * bK], Vs)
                T.gemm(As, Vs, v, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = q[i, j] + R[by * bM + i, bx * bN + j]
            for i, j in T.Parallel(bM, bL):
                D[by * bM + i, bx * bL + j] = v[i, j] + S[by * bM + i, bx * bL + j]

    return main


def complex_parts(M, N, K, dtype="float16", bM=64, bN=64, bK=64, num_stages=2, threads=128):
    """The real and the imaginary part of a product; two products add to one accumulator."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        Ai: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        Bi: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), "float32"),
        Ci: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As, Ais = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bM, bK), dtype)
            Bs, Bis = T.alloc_shared((bK, bN), dtype), T.alloc_shared((bK, bN), dtype)
            real, less = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, bN), "float32")
            imaginary = T.alloc_fragment((bM, bN), "float32")
            T.clear(real)
            T.clear(less)
            T.clear(imaginary)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(Ai[by * bM, ko * bK], Ais)
                T.copy(B[ko * bK, bx * bN], Bs)
                T.copy(Bi[ko * bK, bx * bN], Bis)
                T.gemm(As, Bs, real)
                T.gemm(Ais, Bis, less)
                T.gemm(As, Bis, imaginary)
                T.gemm(Ais, Bs, imaginary)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = real[i, j] - less[i, j]
                Ci[by * bM + i, bx * bN + j] = imaginary[i, j]

    return main
