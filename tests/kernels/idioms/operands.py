"""Products by their operands: types, layouts, sizes of tiles, several products of what was brought once."""

from __future__ import annotations

from family_math import silu, wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def product(
    M, N, K, layout="nn", bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16",
    accum="float32", out="float16", swizzle=False,
):  # fmt: skip
    """C = op(A) op(B); ``layout`` has an n or a t for each operand, as BLAS names them with rows first."""
    trans_A, trans_B = layout[0] == "t", layout[1] == "t"
    A_shape, B_shape = (K, M) if trans_A else (M, K), (N, K) if trans_B else (K, N)
    A_tile, B_tile = (bK, bM) if trans_A else (bM, bK), (bN, bK) if trans_B else (bK, bN)

    @T.prim_func
    def main(A: T.Tensor(A_shape, dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared, B_shared = T.alloc_shared(A_tile, dtype), T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((bM, bN), accum)
            T.use_swizzle(panel_size=8, enable=swizzle)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                if trans_A:
                    T.copy(A[ko * bK, by * bM], A_shared)
                else:
                    T.copy(A[by * bM, ko * bK], A_shared)
                if trans_B:
                    T.copy(B[bx * bN, ko * bK], B_shared)
                else:
                    T.copy(B[ko * bK, bx * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=trans_A, transpose_B=trans_B)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def gated(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="bfloat16"):
    """silu(A G) * (A U): two products of one tile of A, one after the other."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        G: T.Tensor((N, K), dtype),
        U: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            G_shared, U_shared = (T.alloc_shared((bN, bK), dtype) for _ in range(2))
            gate, up = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            T.clear(gate)
            T.clear(up)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(G[bx * bN, ko * bK], G_shared)
                T.gemm(A_shared, G_shared, gate, transpose_B=True)
                T.copy(U[bx * bN, ko * bK], U_shared)
                T.gemm(A_shared, U_shared, up, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                gate[i, j] = gate[i, j] / (1.0 + T.exp(-gate[i, j])) * up[i, j]
            T.copy(gate, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-3, -2, -1])
def three_heads(M, N, K, bM=128, bN=64, bK=64, num_stages=3, dtype="float16"):
    """Queries, keys and values of the same rows: three products in each trip, three results."""

    @T.prim_func
    def main(
        X: T.Tensor((M, K), dtype),
        Wq: T.Tensor((K, N), dtype),
        Wk: T.Tensor((K, N), dtype),
        Wv: T.Tensor((K, N), dtype),
        Q: T.Tensor((M, N), dtype),
        Keys: T.Tensor((M, N), dtype),
        V: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            X_shared = T.alloc_shared((bM, bK), dtype)
            q_shared, k_shared, v_shared = (T.alloc_shared((bK, bN), dtype) for _ in range(3))
            q, k, v = (T.alloc_fragment((bM, bN), "float32") for _ in range(3))
            for acc in (q, k, v):
                T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(X[by * bM, ko * bK], X_shared)
                T.copy(Wq[ko * bK, bx * bN], q_shared)
                T.copy(Wk[ko * bK, bx * bN], k_shared)
                T.copy(Wv[ko * bK, bx * bN], v_shared)
                T.gemm(X_shared, q_shared, q)
                T.gemm(X_shared, k_shared, k)
                T.gemm(X_shared, v_shared, v)
            T.copy(q, Q[by * bM, bx * bN])
            T.copy(k, Keys[by * bM, bx * bN])
            T.copy(v, V[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def chained(M, N, K, P, bM=128, bN=64, bK=64, num_stages=2, dtype="float16"):
    """C = relu(A B) D with P columns: each strip of the middle stays in the block."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        D: T.Tensor((N, P), dtype),
        C: T.Tensor((M, P), dtype),
    ):
        with T.Kernel(T.ceildiv(M, bM), threads=256) as by:
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            D_shared = T.alloc_shared((bN, P), dtype)
            middle, half = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, bN), dtype)
            C_local = T.alloc_fragment((bM, P), "float32")
            T.clear(C_local)
            for n in T.serial(T.ceildiv(N, bN)):
                T.clear(middle)
                for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                    T.copy(A[by * bM, ko * bK], A_shared)
                    T.copy(B[ko * bK, n * bN], B_shared)
                    T.gemm(A_shared, B_shared, middle)
                for i, j in T.Parallel(bM, bN):
                    half[i, j] = T.max(middle[i, j], 0.0)
                T.copy(D[n * bN, 0], D_shared)
                T.gemm(half, D_shared, C_local)
            T.copy(C_local, C[by * bM, 0])

    return main


@tilec.jit(out_idx=[-1])
def batched(batch, M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """A product for each number of a batch, an axis of the grid."""

    @T.prim_func
    def main(
        A: T.Tensor((batch, M, K), dtype),
        B: T.Tensor((batch, N, K), dtype),
        C: T.Tensor((batch, M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), batch, threads=256) as (bx, by, bz):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[bz, by * bM : (by + 1) * bM, ko * bK : (ko + 1) * bK], A_shared)
                T.copy(B[bz, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[bz, by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])

    return main


# ---- references ----


def _oriented(A, B, layout):
    A, B = (A.astype("int64"), B.astype("int64")) if A.dtype.kind == "i" else (wide(A), wide(B))
    return (A.T if layout[0] == "t" else A) @ (B.T if layout[1] == "t" else B)


def nn_reference(A, B):
    return _oriented(A, B, "nn")


def nt_reference(A, B):
    return _oriented(A, B, "nt")


def tn_reference(A, B):
    return _oriented(A, B, "tn")


def tt_reference(A, B):
    return _oriented(A, B, "tt")


def gated_reference(A, G, U):
    return silu(wide(A) @ wide(G).T) * (wide(A) @ wide(U).T)


def three_heads_reference(X, Wq, Wk, Wv):
    return tuple(wide(X) @ wide(W) for W in (Wq, Wk, Wv))


def chained_reference(A, B, D):
    return wide((wide(A) @ wide(B)).clip(0).astype(A.dtype)) @ wide(D)


def batched_reference(A, B):
    return wide(A) @ wide(B).transpose(0, 2, 1)
