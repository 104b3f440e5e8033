"""Attention whose state is a matrix: chunks of a sequence meet each other as products, and the state carries
what came before. Plain, decayed (retention), gated delta rule, and their gradients."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import wide

import tilec
import tilec.language as T

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilec.jit(
    out_idx=[4],
    pass_configs={
        tilec.PassConfigKey.TL_DISABLE_TMA_LOWER: True,
        tilec.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
    },
)
def chunk_linear_fwd(B, S, H, DK, DV, dtype="float16", scale=None, chunk=16, BK=32, BV=32):
    """O (added to what the caller zeroed) and the state at the end; blocks of keys add up with atomics."""
    accum_dtype = "float"
    assert S % chunk == 0, "S must be divisible by the chunk"
    NK, NV, NT = tilec.cdiv(DK, BK), tilec.cdiv(DV, BV), tilec.cdiv(S, chunk)
    if scale is None:
        scale = DK**-0.5

    @T.prim_func
    def fused_chunk_linear_attn_fwd(
        Q: T.Tensor([B, S, H, DK], dtype),
        K: T.Tensor([B, S, H, DK], dtype),
        V: T.Tensor([B, S, H, DV], dtype),
        O: T.Tensor([B, S, H, DV], accum_dtype),
        final_state: T.Tensor([B, H, DK, DV], accum_dtype),
    ):
        with T.Kernel(NV, NK, B * H) as (i_v, i_k, i_bh):
            i_b = i_bh // H
            i_h = i_bh % H
            q = T.alloc_shared([chunk, BK], dtype)
            k = T.alloc_shared([chunk, BK], dtype)
            v = T.alloc_shared([chunk, BV], dtype)
            h = T.alloc_fragment([BK, BV], accum_dtype)
            h_shared = T.alloc_shared([BK, BV], dtype)
            s = T.alloc_fragment([chunk, chunk], accum_dtype)
            s_shared = T.alloc_shared([chunk, chunk], dtype)
            o = T.alloc_fragment([chunk, BV], accum_dtype)
            o_shared = T.alloc_shared([chunk, BV], accum_dtype)
            T.annotate_layout({o_shared: tilec.layout.make_swizzled_layout(o_shared)})
            T.use_swizzle(10)
            T.clear(h)
            for i in T.Pipelined(0, NT):
                for row, col in T.Parallel(chunk, BK):
                    q[row, col] = Q[i_b, i * chunk + row, i_h, i_k * BK + col] * scale
                T.copy(K[i_b, i * chunk : (i + 1) * chunk, i_h, i_k * BK : (i_k + 1) * BK], k)
                T.copy(V[i_b, i * chunk : (i + 1) * chunk, i_h, i_v * BV : (i_v + 1) * BV], v)
                T.gemm(q, k, s, clear_accum=True, transpose_B=True)
                for row, col in T.Parallel(chunk, chunk):
                    s_shared[row, col] = T.if_then_else(row >= col, s[row, col], 0)
                T.gemm(s_shared, v, o, clear_accum=True)
                T.copy(h, h_shared)
                T.gemm(k, v, h, transpose_A=True)
                T.gemm(q, h_shared, o)
                T.copy(o, o_shared)
                T.atomic_add(O[i_b, i * chunk : (i + 1) * chunk, i_h, i_v * BV : (i_v + 1) * BV], o_shared)
            T.copy(h, final_state[i_b, i_h, i_k * BK : (i_k + 1) * BK, i_v * BV : (i_v + 1) * BV])

    return fused_chunk_linear_attn_fwd


@tilec.jit(pass_configs=FAST)
def chunk_linear_bwd(B, S, H, DK, DV, dtype="float16", chunk=16, BK=32, BV=32):
    """dQ, dK and dV (float32, added to zeros): forward in time for dQ, backward for the others."""
    accum_dtype = "float"
    NK, NV, NT = tilec.cdiv(DK, BK), tilec.cdiv(DV, BV), tilec.cdiv(S, chunk)
    scale = DK**-0.5

    @T.prim_func
    def main(
        Q: T.Tensor([B, S, H, DK], dtype),
        K: T.Tensor([B, S, H, DK], dtype),
        V: T.Tensor([B, S, H, DV], dtype),
        dO: T.Tensor([B, S, H, DV], dtype),
        dQ: T.Tensor([B, S, H, DK], accum_dtype),
        dK: T.Tensor([B, S, H, DK], accum_dtype),
        dV: T.Tensor([B, S, H, DV], accum_dtype),
    ):
        with T.Kernel(NV, NK, B * H) as (i_v, i_k, i_bh):
            i_b, i_h = i_bh // H, i_bh % H
            ds = T.alloc_fragment([chunk, chunk], accum_dtype)
            ds_shared = T.alloc_shared([chunk, chunk], dtype)
            dq, dk = (T.alloc_fragment([chunk, BK], accum_dtype) for _ in range(2))
            dv = T.alloc_fragment([chunk, BV], accum_dtype)
            q, k = (T.alloc_shared([chunk, BK], dtype) for _ in range(2))
            v, do = (T.alloc_shared([chunk, BV], dtype) for _ in range(2))
            h, dh = T.alloc_fragment([BV, BK], accum_dtype), T.alloc_fragment([BK, BV], accum_dtype)
            h_shared, dh_shared = T.alloc_shared([BV, BK], dtype), T.alloc_shared([BK, BV], dtype)
            T.use_swizzle(10)
            T.clear(h)
            T.clear(dh)
            for i in T.Pipelined(0, NT):
                T.copy(K[i_b, i * chunk : (i + 1) * chunk, i_h, i_k * BK : (i_k + 1) * BK], k)
                T.copy(V[i_b, i * chunk : (i + 1) * chunk, i_h, i_v * BV : (i_v + 1) * BV], v)
                T.copy(dO[i_b, i * chunk : (i + 1) * chunk, i_h, i_v * BV : (i_v + 1) * BV], do)
                T.gemm(do, v, ds, transpose_B=True, clear_accum=True)
                for row, col in T.Parallel(chunk, chunk):
                    ds_shared[row, col] = T.if_then_else(row >= col, ds[row, col], 0)
                T.gemm(ds_shared, k, dq, clear_accum=True)
                T.copy(h, h_shared)
                T.gemm(v, k, h, transpose_A=True)
                T.gemm(do, h_shared, dq)
                for row, col in T.Parallel(chunk, BK):
                    dq[row, col] *= scale
                T.atomic_add(dQ[i_b, i * chunk : (i + 1) * chunk, i_h, i_k * BK : (i_k + 1) * BK], dq)
            for i in T.Pipelined(0, NT, num_stages=1):
                start = S - (i + 1) * chunk
                for row, col in T.Parallel(chunk, BK):
                    q[row, col] = Q[i_b, start + row, i_h, i_k * BK + col] * scale
                T.copy(K[i_b, start : start + chunk, i_h, i_k * BK : (i_k + 1) * BK], k)
                T.copy(V[i_b, start : start + chunk, i_h, i_v * BV : (i_v + 1) * BV], v)
                T.copy(dO[i_b, start : start + chunk, i_h, i_v * BV : (i_v + 1) * BV], do)
                T.copy(dh, dh_shared)
                T.gemm(v, do, ds, transpose_B=True, clear_accum=True)
                for row, col in T.Parallel(chunk, chunk):
                    ds_shared[row, col] = T.if_then_else(row <= col, ds[row, col], 0)
                T.gemm(ds_shared, q, dk, clear_accum=True)
                T.gemm(v, dh_shared, dk, transpose_B=True)
                T.gemm(k, q, ds, transpose_B=True, clear_accum=True)
                for row, col in T.Parallel(chunk, chunk):
                    ds_shared[row, col] = T.if_then_else(row <= col, ds[row, col], 0)
                T.gemm(ds_shared, do, dv, clear_accum=True)
                T.gemm(k, dh_shared, dv)
                T.gemm(q, do, dh, transpose_A=True)
                T.atomic_add(dK[i_b, start : start + chunk, i_h, i_k * BK : (i_k + 1) * BK], dk)
                T.atomic_add(dV[i_b, start : start + chunk, i_h, i_v * BV : (i_v + 1) * BV], dv)

    return main


@tilec.jit(out_idx=[3], pass_configs=FAST)
def retention(batch, heads, seq_len, dim_qk, dim_v, block_M=32, block_N=32, dtype="float16"):
    """sum_j gamma[h]^(i - j) (q_i k_j) v_j over the past, divided by the largest absolute row sum (or 1)."""
    accum_dtype = "float"

    @T.macro
    def decayed(S, log_gamma, row0, col0):
        for i, j in T.Parallel(block_M, block_N):
            distance = row0 + i - col0 - j
            S[i, j] = T.if_then_else(
                distance >= 0, S[i, j] * T.exp2(log_gamma * T.cast(distance, accum_dtype)), 0
            )

    @T.prim_func
    def main(
        Q: T.Tensor([batch, seq_len, heads, dim_qk], dtype),
        K: T.Tensor([batch, seq_len, heads, dim_qk], dtype),
        V: T.Tensor([batch, seq_len, heads, dim_v], dtype),
        Output: T.Tensor([batch, seq_len, heads, dim_v], dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            q, k = T.alloc_shared([block_M, dim_qk], dtype), T.alloc_shared([block_N, dim_qk], dtype)
            v = T.alloc_shared([block_N, dim_v], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim_v], accum_dtype)
            part, total = (T.alloc_fragment([block_M], accum_dtype) for _ in range(2))
            log_gamma = T.alloc_var(accum_dtype)
            log_gamma = T.log2(1.0 - T.exp2(-5.0 - by.astype(accum_dtype)))
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], q)
            T.clear(acc_o)
            T.clear(total)
            for t in T.Pipelined(T.ceildiv((bx + 1) * block_M, block_N), num_stages=2):
                T.copy(K[bz, t * block_N : (t + 1) * block_N, by, :], k)
                T.clear(acc_s)
                T.gemm(q, k, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                decayed(acc_s, log_gamma, bx * block_M, t * block_N)
                T.reduce_abssum(acc_s, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] += part[i]
                T.copy(acc_s, acc_s_cast)
                T.copy(V[bz, t * block_N : (t + 1) * block_N, by, :], v)
                T.gemm(acc_s_cast, v, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim_v):
                acc_o[i, j] /= T.max(total[i], 1.0)
            T.copy(acc_o, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


# ---- gated delta rule in chunks: S_t = exp(g_t) S_{t-1} (1 - beta_t k_t k_t^T) + beta_t k_t v_t^T ----


@tilec.jit(out_idx=[-1])
def chunk_cumsum(B, S, H, chunk=16, reverse=False, block_h=2, threads=64):
    """Running sums of log decays within each chunk."""

    @T.prim_func
    def main(G: T.Tensor((B, S, H), "float32"), G_new: T.Tensor((B, S, H), "float32")):
        with T.Kernel(T.ceildiv(S, chunk), T.ceildiv(H, block_h), B, threads=threads) as (bs, bh, bb):
            g = T.alloc_shared((chunk, block_h), "float32", scope="shared")
            T.copy(G[bb, bs * chunk : (bs + 1) * chunk, bh * block_h : (bh + 1) * block_h], g)
            T.cumsum(g, dim=0, reverse=reverse)
            T.copy(g, G_new[bb, bs * chunk : (bs + 1) * chunk, bh * block_h : (bh + 1) * block_h])

    return main


@tilec.jit(out_idx=[-1])
def chunk_kkt(B, S, H, DK, chunk=16, block_DK=32, use_g=True, threads=64, num_stages=0):
    """A[i, j] = beta_i (k_i k_j) exp(g_i - g_j) below the diagonal of each chunk."""
    input_dtype, accum_dtype = "bfloat16", "float32"

    @T.prim_func
    def main(
        K: T.Tensor((B, S, H, DK), input_dtype),
        Beta: T.Tensor((B, S, H), input_dtype),
        G: T.Tensor((B, S, H), accum_dtype),
        A: T.Tensor((B, S, H, chunk), accum_dtype),
    ):
        with T.Kernel(T.ceildiv(S, chunk), B * H, threads=threads) as (bs, bbh):
            bb, bh = bbh // H, bbh % H
            Beta_shared = T.alloc_shared((chunk,), input_dtype, scope="shared")
            K_shared = T.alloc_shared((chunk, block_DK), input_dtype)
            A_shared = T.alloc_shared((chunk, chunk), accum_dtype)
            Beta_K_fragment = T.alloc_fragment((chunk, block_DK), input_dtype)
            A_fragment = T.alloc_fragment((chunk, chunk), accum_dtype)
            G_shared = T.alloc_shared((chunk,), accum_dtype, scope="shared")
            G_diff_local = T.alloc_fragment((chunk, chunk), accum_dtype)
            T.annotate_layout({K_shared: tilec.layout.make_swizzled_layout(K_shared)})
            T.fill(A_fragment, 0)
            T.no_set_max_nreg()
            for i_s in T.Parallel(chunk):
                Beta_shared[i_s] = Beta[bb, bs * chunk + i_s, bh]
            for i_k in T.Pipelined(T.ceildiv(DK, block_DK), num_stages=num_stages):
                T.copy(
                    K[bb, bs * chunk : (bs + 1) * chunk, bh, i_k * block_DK : (i_k + 1) * block_DK], K_shared
                )
                for i_s, i_k2 in T.Parallel(chunk, block_DK):
                    Beta_K_fragment[i_s, i_k2] = K_shared[i_s, i_k2] * Beta_shared[i_s]
                T.gemm(Beta_K_fragment, K_shared, A_fragment, transpose_B=True)
            if use_g:
                for i_s in T.Parallel(chunk):
                    G_shared[i_s] = G[bb, bs * chunk + i_s, bh]
                for i_s1, i_s2 in T.Parallel(chunk, chunk):
                    G_diff_local[i_s1, i_s2] = G_shared[i_s1] - G_shared[i_s2]
                for i_s1, i_s2 in T.Parallel(chunk, chunk):
                    with T.If(G_diff_local[i_s1, i_s2] <= 0 and i_s1 > i_s2):
                        with T.Then():
                            A_fragment[i_s1, i_s2] = A_fragment[i_s1, i_s2] * T.exp(G_diff_local[i_s1, i_s2])
                        with T.Else():
                            A_fragment[i_s1, i_s2] = 0
            else:
                for i_s1, i_s2 in T.Parallel(chunk, chunk):
                    A_fragment[i_s1, i_s2] = T.if_then_else(i_s1 > i_s2, A_fragment[i_s1, i_s2], 0)
            T.copy(A_fragment, A_shared)
            T.copy(A_shared, A[bb, bs * chunk : (bs + 1) * chunk, bh, :])

    return main


@tilec.jit(out_idx=[-1])
def chunk_solve(B, S, H, chunk=16, threads=64):
    """(1 + A)^-1 of each chunk's strictly lower triangle, by forward substitution."""

    @T.prim_func
    def main(A: T.Tensor((B, S, H, chunk), "float32"), Inverse: T.Tensor((B, S, H, chunk), "bfloat16")):
        with T.Kernel(T.ceildiv(S, chunk), H, B, threads=threads) as (bs, bh, bb):
            a, x = T.alloc_shared((chunk, chunk), "float32"), T.alloc_shared((chunk, chunk), "float32")
            line = T.alloc_fragment((chunk, chunk), "float32")
            row = T.alloc_fragment((chunk,), "float32")
            T.copy(A[bb, bs * chunk : (bs + 1) * chunk, bh, :], a)
            for i, j in T.Parallel(chunk, chunk):
                x[i, j] = T.if_then_else(i == j, 1.0, 0.0)
            for r in T.serial(1, chunk):
                for k, j in T.Parallel(chunk, chunk):
                    line[k, j] = T.if_then_else(k < r, a[r, k] * x[k, j], 0.0)
                T.reduce_sum(line, row, dim=0)
                for j in T.Parallel(chunk):
                    if j < r:
                        x[r, j] = -row[j]
            T.copy(x, Inverse[bb, bs * chunk : (bs + 1) * chunk, bh, :])

    return main


@tilec.jit(out_idx=[-2, -1], pass_configs={"tl.disable_tma_lower": True})
def recompute_w_u(B, S, H, DK, DV, chunk=16, block_DK=32, block_DV=32, threads=64, num_stages=1):
    """W = A (beta exp(g) K) and U = A (beta V) of each chunk."""
    input_dtype, gate_dtype, accum_dtype = "bfloat16", "float32", "float32"

    @T.prim_func
    def main(
        K: T.Tensor((B, S, H, DK), input_dtype),
        V: T.Tensor((B, S, H, DV), input_dtype),
        Beta: T.Tensor((B, S, H), input_dtype),
        G: T.Tensor((B, S, H), gate_dtype),
        A: T.Tensor((B, S, H, chunk), input_dtype),
        W: T.Tensor((B, S, H, DK), input_dtype),
        U: T.Tensor((B, S, H, DV), input_dtype),
    ):
        with T.Kernel(T.ceildiv(S, chunk), B * H, threads=threads) as (bs, bbh):
            bb, bh = bbh // H, bbh % H
            Beta_shared = T.alloc_shared((chunk,), input_dtype, scope="shared")
            K_shared, V_shared = (
                T.alloc_shared((chunk, block_DK), input_dtype),
                T.alloc_shared((chunk, block_DV), input_dtype),
            )
            G_shared = T.alloc_shared((chunk,), gate_dtype, scope="shared")
            A_shared = T.alloc_shared((chunk, chunk), input_dtype)
            W_fragment, U_fragment = (
                T.alloc_fragment((chunk, block_DK), accum_dtype),
                T.alloc_fragment((chunk, block_DV), accum_dtype),
            )
            W_Beta_shared, U_Beta_shared = (
                T.alloc_shared((chunk, block_DK), input_dtype),
                T.alloc_shared((chunk, block_DV), input_dtype),
            )
            T.disable_warp_group_reg_alloc()
            for i_s in T.Parallel(chunk):
                Beta_shared[i_s] = Beta[bb, bs * chunk + i_s, bh]
                G_shared[i_s] = T.exp(G[bb, bs * chunk + i_s, bh])
            T.copy(A[bb, bs * chunk : (bs + 1) * chunk, bh, :], A_shared)
            for i_v in T.Pipelined(T.ceildiv(DV, block_DV), num_stages=num_stages):
                T.copy(
                    V[bb, bs * chunk : (bs + 1) * chunk, bh, i_v * block_DV : (i_v + 1) * block_DV], V_shared
                )
                for i_s, i_v2 in T.Parallel(chunk, block_DV):
                    U_Beta_shared[i_s, i_v2] = V_shared[i_s, i_v2] * Beta_shared[i_s]
                T.gemm(A_shared, U_Beta_shared, U_fragment, clear_accum=True)
                T.copy(
                    U_fragment,
                    U[bb, bs * chunk : (bs + 1) * chunk, bh, i_v * block_DV : (i_v + 1) * block_DV],
                )
            for i_k in T.Pipelined(T.ceildiv(DK, block_DK), num_stages=num_stages):
                T.copy(
                    K[bb, bs * chunk : (bs + 1) * chunk, bh, i_k * block_DK : (i_k + 1) * block_DK], K_shared
                )
                for i_s, i_k2 in T.Parallel(chunk, block_DK):
                    W_Beta_shared[i_s, i_k2] = K_shared[i_s, i_k2] * Beta_shared[i_s] * G_shared[i_s]
                T.gemm(A_shared, W_Beta_shared, W_fragment, clear_accum=True)
                T.copy(
                    W_fragment,
                    W[bb, bs * chunk : (bs + 1) * chunk, bh, i_k * block_DK : (i_k + 1) * block_DK],
                )

    return main


@tilec.jit(out_idx=[-3, -2, -1])
def chunk_delta_h(B, S, H, DK, DV, chunk=16, block_DV=32, use_initial_state=True, threads=128, num_stages=1):
    """The state before each chunk, the corrected values of each chunk, and the last state."""
    input_dtype, accum_dtype = "bfloat16", "float32"
    BS = S // chunk

    @T.prim_func
    def main(
        K: T.Tensor((B, S, H, DK), input_dtype),
        W: T.Tensor((B, S, H, DK), input_dtype),
        U: T.Tensor((B, S, H, DV), input_dtype),
        G: T.Tensor((B, S, H), accum_dtype),
        initial_state: T.Tensor((B, H, DK, DV), accum_dtype),
        h: T.Tensor((B, BS, H, DK, DV), input_dtype),
        final_state: T.Tensor((B, H, DK, DV), accum_dtype),
        V_new: T.Tensor((B, S, H, DV), input_dtype),
    ):
        with T.Kernel(T.ceildiv(DV, block_DV), B * H, threads=threads) as (bv, bbh):
            bb, bh = bbh // H, bbh % H
            b_h_shared = T.alloc_shared((DK, block_DV), input_dtype)
            b_h_fragment = T.alloc_fragment((DK, block_DV), accum_dtype)
            U_shared = T.alloc_shared((chunk, block_DV), input_dtype)
            U_fragment = T.alloc_fragment((chunk, block_DV), accum_dtype)
            W_shared, K_shared = (T.alloc_shared((chunk, DK), input_dtype) for _ in range(2))
            V_new_fragment = T.alloc_fragment((chunk, block_DV), accum_dtype)
            V_new_shared = T.alloc_shared((chunk, block_DV), input_dtype)
            G_last_local = T.alloc_local((1), accum_dtype)
            G_shared = T.alloc_shared((chunk, block_DV), accum_dtype)
            G_fragment = T.alloc_fragment((chunk, block_DV), accum_dtype)
            T.use_swizzle(10)
            if use_initial_state:
                T.copy(initial_state[bb, bh, 0:DK, bv * block_DV : (bv + 1) * block_DV], b_h_shared)
                T.copy(b_h_shared, b_h_fragment)
            else:
                T.clear(b_h_fragment)
            for i_s in T.Pipelined(T.ceildiv(S, chunk), num_stages=num_stages):
                T.copy(b_h_fragment, b_h_shared)
                T.copy(b_h_shared, h[bb, i_s, bh, 0:DK, bv * block_DV : (bv + 1) * block_DV])
                T.copy(W[bb, i_s * chunk : (i_s + 1) * chunk, bh, 0:DK], W_shared)
                T.gemm(W_shared, b_h_shared, V_new_fragment, clear_accum=True)
                T.copy(
                    U[bb, i_s * chunk : (i_s + 1) * chunk, bh, bv * block_DV : (bv + 1) * block_DV], U_shared
                )
                T.copy(U_shared, U_fragment)
                for i_s2, i_v in T.Parallel(chunk, block_DV):
                    V_new_fragment[i_s2, i_v] = -V_new_fragment[i_s2, i_v] + U_fragment[i_s2, i_v]
                T.copy(V_new_fragment, dst=V_new_shared)
                T.copy(
                    V_new_shared,
                    V_new[bb, i_s * chunk : (i_s + 1) * chunk, bh, bv * block_DV : (bv + 1) * block_DV],
                )
                T.copy(K[bb, i_s * chunk : (i_s + 1) * chunk, bh, 0:DK], K_shared)
                G_last_local[0] = G[bb, (i_s + 1) * chunk - 1, bh]
                for i_s2, i_v in T.Parallel(chunk, block_DV):
                    G_shared[i_s2, i_v] = G[bb, i_s * chunk + i_s2, bh]
                T.copy(G_shared, G_fragment)
                for i_s2, i_v in T.Parallel(chunk, block_DV):
                    with T.If(G_last_local[0] - G_fragment[i_s2, i_v] <= 0):
                        with T.Then():
                            V_new_fragment[i_s2, i_v] = V_new_fragment[i_s2, i_v] * T.exp2(
                                (G_last_local[0] - G_fragment[i_s2, i_v]) * 1.442695
                            )
                        with T.Else():
                            V_new_fragment[i_s2, i_v] = 0
                G_last_local[0] = T.exp2(G_last_local[0] * 1.442695)
                for i_k, i_v in T.Parallel(DK, block_DV):
                    b_h_fragment[i_k, i_v] *= G_last_local[0]
                T.copy(V_new_fragment, V_new_shared)
                T.gemm(K_shared, V_new_shared, b_h_fragment, transpose_A=True)
            T.copy(b_h_fragment, final_state[bb, bh, 0:DK, bv * block_DV : (bv + 1) * block_DV])

    return main


@tilec.jit(out_idx=[-1])
def chunk_o(B, S, H, DK, DV, chunk=16, block_DK=32, block_DV=32, threads=128, num_stages=1):
    """Outputs of each chunk: exp(g_i) q_i h + sum_{j <= i} exp(g_i - g_j) (q_i k_j) v_j."""
    input_dtype, accum_dtype = "bfloat16", "float32"
    scale = 1.0 / DK**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, DK), input_dtype),
        K: T.Tensor((B, S, H, DK), input_dtype),
        V: T.Tensor((B, S, H, DV), input_dtype),
        HIDDEN: T.Tensor((B, S // chunk, H, DK, DV), input_dtype),
        G: T.Tensor((B, S, H), accum_dtype),
        O: T.Tensor((B, S, H, DV), input_dtype),
    ):
        with T.Kernel(T.ceildiv(DV, block_DV), T.ceildiv(S, chunk), B * H, threads=threads) as (bv, bs, bbh):
            bb, bh = bbh // H, bbh % H
            Q_shared, K_shared = (T.alloc_shared((chunk, block_DK), input_dtype) for _ in range(2))
            V_shared = T.alloc_shared((chunk, block_DV), input_dtype)
            H_shared = T.alloc_shared((block_DK, block_DV), input_dtype)
            A_shared = T.alloc_shared((chunk, chunk), input_dtype)
            A_fragment = T.alloc_fragment((chunk, chunk), accum_dtype)
            O_fragment = T.alloc_fragment((chunk, block_DV), accum_dtype)
            G_shared = T.alloc_shared((chunk,), accum_dtype, scope="shared")
            G_diff = T.alloc_fragment((chunk, chunk), accum_dtype)
            T.clear(A_fragment)
            T.clear(O_fragment)
            for i_k in T.Pipelined(T.ceildiv(DK, block_DK), num_stages=num_stages):
                T.copy(
                    Q[bb, bs * chunk : (bs + 1) * chunk, bh, i_k * block_DK : (i_k + 1) * block_DK], Q_shared
                )
                T.copy(
                    K[bb, bs * chunk : (bs + 1) * chunk, bh, i_k * block_DK : (i_k + 1) * block_DK], K_shared
                )
                T.copy(
                    HIDDEN[
                        bb, bs, bh, i_k * block_DK : (i_k + 1) * block_DK, bv * block_DV : (bv + 1) * block_DV
                    ],
                    H_shared,
                )
                T.gemm(Q_shared, H_shared, O_fragment)
                T.gemm(Q_shared, K_shared, A_fragment, transpose_B=True)
            for i_s in T.Parallel(chunk):
                G_shared[i_s] = G[bb, bs * chunk + i_s, bh]
            for i_s, i_v in T.Parallel(chunk, block_DV):
                O_fragment[i_s, i_v] = O_fragment[i_s, i_v] * T.exp(G_shared[i_s])
            for i_s1, i_s2 in T.Parallel(chunk, chunk):
                G_diff[i_s1, i_s2] = G_shared[i_s1] - G_shared[i_s2]
            for i_s1, i_s2 in T.Parallel(chunk, chunk):
                if i_s1 < i_s2:
                    A_fragment[i_s1, i_s2] = 0
                elif G_diff[i_s1, i_s2] <= 0:
                    A_fragment[i_s1, i_s2] *= T.exp(G_diff[i_s1, i_s2])
            T.copy(V[bb, bs * chunk : (bs + 1) * chunk, bh, bv * block_DV : (bv + 1) * block_DV], V_shared)
            T.copy(A_fragment, A_shared)
            for i_s, i_v in T.Parallel(chunk, block_DV):
                O_fragment[i_s, i_v] *= scale
            for i_s1, i_s2 in T.Parallel(chunk, chunk):
                A_shared[i_s1, i_s2] = A_shared[i_s1, i_s2] * scale
            T.gemm(A_shared, V_shared, O_fragment)
            T.copy(O_fragment, O[bb, bs * chunk : (bs + 1) * chunk, bh, bv * block_DV : (bv + 1) * block_DV])

    return main


# ---- references and inputs ----


def _linear(q, k, v):
    """Causal linear attention of one head in float64, and its state."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.tril(q @ k.T)
    return scores @ v, k.T @ v


def chunk_linear_fwd_reference(Q, K, V, O):
    B, S, H, DK = Q.shape
    out, state = np.zeros((B, S, H, V.shape[3])), np.zeros((B, H, DK, V.shape[3]))
    for b, h in np.ndindex(B, H):
        out[b, :, h], state[b, h] = _linear(wide(Q[b, :, h]) * DK**-0.5, K[b, :, h], V[b, :, h])
    return out, state


def _zeroed(dims, rng, outputs):
    B, S, H, DK, DV = (dims[name] for name in ("B", "S", "H", "DK", "DV"))
    size = {"k": (B, S, H, DK), "v": (B, S, H, DV)}
    random = [rng.standard_normal(size[kind]) * 0.5 for kind in outputs[0]]
    return [*random, *(np.zeros(size[kind]) for kind in outputs[1])]


def chunk_linear_fwd_inputs(dims, rng):
    return _zeroed(dims, rng, ("kkv", "v"))


def chunk_linear_bwd_inputs(dims, rng):
    return _zeroed(dims, rng, ("kkvv", "kkv"))


def chunk_linear_bwd_reference(Q, K, V, dO, *zeros):
    dQ, dK, dV = (np.zeros(x.shape) for x in (Q, K, V))
    scale = Q.shape[3] ** -0.5
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        q, k, v, do = (np.asarray(x[b, :, h], np.float64) for x in (Q, K, V, dO))
        ds = np.tril(do @ v.T) * scale
        dQ[b, :, h], dK[b, :, h], dV[b, :, h] = ds @ k, ds.T @ q, np.tril(q @ k.T).T @ do * scale
    return dQ, dK, dV


def retention_reference(Q, K, V):
    B, S, H, _ = Q.shape
    out = np.zeros((B, S, H, V.shape[3]))
    distance = np.arange(S)[:, None] - np.arange(S)[None, :]
    for b, h in np.ndindex(B, H):
        decay = np.where(distance >= 0, (1 - 2.0 ** (-5 - h)) ** np.maximum(distance, 0), 0)
        scores = wide(Q[b, :, h]) @ wide(K[b, :, h]).T * decay
        out[b, :, h] = scores @ wide(V[b, :, h]) / np.maximum(np.abs(scores).sum(1, keepdims=True), 1.0)
    return out


def _chunks(array, chunk=16):
    return array.reshape(array.shape[0], -1, chunk, *array.shape[2:])


def chunk_cumsum_reference(G, chunk=16):
    return _chunks(G, chunk).cumsum(2, dtype=np.float64).reshape(G.shape)


def _gates(dims, rng):
    """Log decays summed within chunks: falling, as they are negative."""
    B, S, H = (dims[name] for name in ("B", "S", "H"))
    return chunk_cumsum_reference(-rng.uniform(0.01, 0.3, (B, S, H)), dims.get("chunk", 16))


def _keys(dims, rng, width="DK"):
    shape = tuple(dims[name] for name in ("B", "S", "H", width))
    drawn = rng.standard_normal(shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True) if width == "DK" else drawn


def _strict(K, Beta, G, chunk=16):
    """(B, chunks, H, chunk, chunk) of chunk_kkt."""
    k, beta, g = (_chunks(wide(x), chunk).swapaxes(2, 3) for x in (K, Beta, G))
    product = (k * beta[..., None]) @ k.swapaxes(-1, -2) * np.exp(g[..., :, None] - g[..., None, :])
    return np.tril(product, -1)


def chunk_kkt_reference(K, Beta, G, chunk=16):
    found = _strict(K, Beta, G, chunk).swapaxes(2, 3)
    return found.reshape(*K.shape[:3], found.shape[-1])


def chunk_kkt_inputs(dims, rng):
    beta = rng.uniform(0.2, 0.9, [dims[name] for name in ("B", "S", "H")])
    return [_keys(dims, rng), beta, _gates(dims, rng)]


def chunk_solve_reference(A):
    a = _chunks(A, A.shape[-1]).swapaxes(2, 3)
    inverse = np.linalg.inv(np.eye(a.shape[-1]) + np.tril(a, -1))
    return inverse.swapaxes(2, 3).reshape(A.shape)


def chunk_solve_inputs(dims, rng):
    return [chunk_kkt_reference(*chunk_kkt_inputs({**dims, "DK": 32}, rng))]


def recompute_w_u_reference(K, V, Beta, G, A):
    k, v, beta, g, a = (_chunks(wide(x), A.shape[-1]).swapaxes(2, 3) for x in (K, V, Beta, G, A))
    w = a @ (k * (beta * np.exp(g))[..., None])
    u = a @ (v * beta[..., None])
    return tuple(x.swapaxes(2, 3).reshape(like.shape) for x, like in ((w, K), (u, V)))


def recompute_w_u_inputs(dims, rng):
    K, beta, G = chunk_kkt_inputs(dims, rng)
    strict = chunk_kkt_reference(K, beta, G, dims.get("chunk", 16))
    return [K, _keys(dims, rng, "DV"), beta, G, chunk_solve_reference(strict)]


def chunk_delta_h_reference(K, W, U, G, initial_state, chunk=16):
    k, w, u, g = (_chunks(wide(x), chunk).swapaxes(2, 3) for x in (K, W, U, G))
    B, N, H, _, DK = k.shape
    state = wide(initial_state).copy()
    hidden, fresh = np.zeros((B, N, H, DK, u.shape[-1])), np.zeros(u.shape)
    for n in range(N):
        hidden[:, n] = state
        fresh[:, n] = u[:, n] - w[:, n] @ state
        last = g[:, n, :, -1]
        decayed = fresh[:, n] * np.exp(last[..., None] - g[:, n])[..., None]
        state = state * np.exp(last)[..., None, None] + k[:, n].swapaxes(-1, -2) @ decayed
    return hidden, state, fresh.swapaxes(2, 3).reshape(U.shape)


def chunk_delta_h_inputs(dims, rng):
    made = recompute_w_u_inputs(dims, rng)
    W, U = recompute_w_u_reference(*made)
    B, H, DK, DV = (dims[name] for name in ("B", "H", "DK", "DV"))
    return [made[0], W, U, made[3], rng.standard_normal((B, H, DK, DV)) * 0.5]


def chunk_o_reference(Q, K, V, HIDDEN, G):
    chunk = Q.shape[1] // HIDDEN.shape[1]
    q, k, v, g = (_chunks(wide(x), chunk).swapaxes(2, 3) for x in (Q, K, V, G))
    past = (q * np.exp(g)[..., None]) @ wide(HIDDEN)
    scores = np.tril(q @ k.swapaxes(-1, -2) * np.exp(np.minimum(g[..., :, None] - g[..., None, :], 0)))
    out = (past + scores @ v) * Q.shape[3] ** -0.5
    return out.swapaxes(2, 3).reshape(V.shape)


def chunk_o_inputs(dims, rng):
    K, W, U, G, state = chunk_delta_h_inputs(dims, rng)
    hidden, _, fresh = chunk_delta_h_reference(K, W, U, G, state, dims.get("chunk", 16))
    return [_keys(dims, rng), K, fresh, hidden, G]


def main(argv=None):
    """The gated delta rule, chunk by chunk, beside its recurrence in torch."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--B", type=int, default=1)
    parser.add_argument("--S", type=int, default=64)
    parser.add_argument("--H", type=int, default=2)
    parser.add_argument("--D", type=int, default=64)
    args = parser.parse_args(argv)
    B, S, H, D = args.B, args.S, args.H, args.D
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k = (torch.nn.functional.normalize(torch.randn(B, S, H, D, device=device), dim=-1) for _ in range(2))
    q, k, v = q.bfloat16(), k.bfloat16(), torch.randn(B, S, H, D, device=device).bfloat16()
    beta = torch.rand(B, S, H, device=device).bfloat16()
    g = torch.nn.functional.logsigmoid(torch.randn(B, S, H, device=device) + 2)
    state = torch.zeros(B, H, D, D, device=device)

    sums = chunk_cumsum(B, S, H)(g)
    inverse = chunk_solve(B, S, H)(chunk_kkt(B, S, H, D)(k, beta, sums))
    w, u = recompute_w_u(B, S, H, D, D)(k, v, beta, sums, inverse)
    hidden, last, v_new = chunk_delta_h(B, S, H, D, D)(k, w, u, sums, state)
    out = chunk_o(B, S, H, D, D)(q, k, v_new, hidden, sums)

    for t in range(S):
        kt, vt, bt = k[:, t].float(), v[:, t].float(), beta[:, t].float()
        state = state * g[:, t].exp()[..., None, None]
        state = (
            state
            + (bt[..., None] * kt)[..., None] * (vt - torch.einsum("bhkv,bhk->bhv", state, kt))[:, :, None]
        )
        want = torch.einsum("bhk,bhkv->bhv", q[:, t].float(), state) * D**-0.5
        torch.testing.assert_close(out[:, t].float(), want, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(last, state, rtol=3e-2, atol=3e-2)
    print("All checks passed.")


if __name__ == "__main__":
    main()
