"""Multi-head latent attention: one compressed row per key serves every head, with a rotary part beside it."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import attend, visible, wide

import tilec
import tilec.language as T

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilec.jit(out_idx=[6], pass_configs=FAST)
def mla_decode(
    batch, heads, kv_head_num, seqlen_kv, dim, pe_dim, block_N=32, block_H=16, num_split=1, dtype="float16"
):
    """One query per sequence: the latent part is key and value at once. With num_split > 1 blocks leave parts
    and their log-sum-exp to a second launch."""
    scale = float(1.0 / ((dim + pe_dim) ** 0.5)) * 1.44269504  # log2(e)
    accum_dtype = "float"
    kv_group_num = heads // kv_head_num
    VALID_BLOCK_H = min(block_H, kv_group_num)
    assert kv_head_num == 1, "kv_head_num must be 1"

    @T.macro
    def flash_attn(Q, Q_pe, KV, K_pe, Output):
        with T.Kernel(heads // min(block_H, kv_group_num), batch, threads=256) as (hid, bid):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            S_shared = T.alloc_shared([block_H, block_N], dtype)
            Q_pe_shared = T.alloc_shared([block_H, pe_dim], dtype)
            KV_shared = T.alloc_shared([block_N, dim], dtype)
            K_pe_shared = T.alloc_shared([block_N, pe_dim], dtype)
            O_shared = T.alloc_shared([block_H, dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)

            cur_kv_head = hid // (kv_group_num // block_H)
            T.annotate_layout({O_shared: tilec.layout.make_swizzled_layout(O_shared)})
            T.copy(Q[bid, hid * VALID_BLOCK_H : (hid + 1) * VALID_BLOCK_H, :], Q_shared)
            T.copy(Q_pe[bid, hid * VALID_BLOCK_H : (hid + 1) * VALID_BLOCK_H, :], Q_pe_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            loop_range = T.ceildiv(seqlen_kv, block_N)
            for k in T.Pipelined(loop_range, num_stages=2):
                T.copy(KV[bid, k * block_N : (k + 1) * block_N, cur_kv_head, :], KV_shared)
                T.copy(K_pe[bid, k * block_N : (k + 1) * block_N, cur_kv_head, :], K_pe_shared)
                T.gemm(
                    Q_shared,
                    KV_shared,
                    acc_s,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullCol,
                    clear_accum=True,
                )
                T.gemm(Q_pe_shared, K_pe_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                if seqlen_kv % block_N != 0:
                    for i, j in T.Parallel(block_H, block_N):
                        if k * block_N + j >= seqlen_kv:
                            acc_s[i, j] = -T.infinity(accum_dtype)
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity(accum_dtype))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
                for i in T.Parallel(block_H):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                T.copy(acc_s, S_shared)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.gemm(S_shared, KV_shared, acc_o, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bid, hid * VALID_BLOCK_H : (hid + 1) * VALID_BLOCK_H, :])

    @T.macro
    def flash_attn_split(Q, Q_pe, KV, K_pe, glse, Output_partial):
        with T.Kernel(batch, heads // min(block_H, kv_group_num), num_split, threads=256) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            S_shared = T.alloc_shared([block_H, block_N], dtype)
            Q_pe_shared = T.alloc_shared([block_H, pe_dim], dtype)
            KV_shared = T.alloc_shared([block_N, dim], dtype)
            K_pe_shared = T.alloc_shared([block_N, pe_dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_H, block_N], dtype)
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max, scores_max_prev, scores_scale, scores_sum, logsum = (
                T.alloc_fragment([block_H], accum_dtype) for _ in range(5)
            )
            cur_kv_head = by // (kv_group_num // block_H)
            T.use_swizzle(10)
            T.copy(Q[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, :], Q_shared)
            T.copy(Q_pe[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, :], Q_pe_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            loop_range = T.ceildiv((seqlen_kv // num_split), block_N)
            for k in T.Pipelined(loop_range, num_stages=2):
                kv_start = (seqlen_kv // num_split) * bz + k * block_N
                kv_end = (seqlen_kv // num_split) * bz + (k + 1) * block_N
                T.copy(KV[bx, kv_start:kv_end, cur_kv_head, :], KV_shared)
                T.copy(K_pe[bx, kv_start:kv_end, cur_kv_head, :], K_pe_shared)
                T.clear(acc_s)
                T.gemm(Q_shared, KV_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(Q_pe_shared, K_pe_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity(accum_dtype))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                T.copy(acc_s, S_shared)
                T.copy(S_shared, acc_s_cast)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.gemm(acc_s_cast, KV_shared, acc_o, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            for i in T.Parallel(block_H):
                logsum[i] = T.log2(logsum[i]) + scores_max[i] * scale
            T.copy(logsum, glse[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, bz])
            T.copy(acc_o, Output_partial[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, bz, :])

    @T.macro
    def combine(glse, Output_partial, Output):
        with T.Kernel(heads, batch, threads=128) as (by, bz):
            po_local = T.alloc_fragment([dim], dtype)
            o_accum_local = T.alloc_fragment([dim], accum_dtype)
            lse_local_split = T.alloc_local([1], accum_dtype)
            lse_logsum_local = T.alloc_local([1], accum_dtype)
            lse_max_local = T.alloc_local([1], accum_dtype)
            scale_local = T.alloc_local([1], accum_dtype)
            T.annotate_layout({lse_logsum_local: T.Fragment(lse_logsum_local.shape, lambda i: (0, i))})
            T.clear(lse_logsum_local)
            T.clear(o_accum_local)
            lse_max_local[0] = -T.infinity(accum_dtype)
            for k in T.serial(num_split):
                lse_max_local[0] = T.max(lse_max_local[0], glse[bz, by, k])
            for k in T.Pipelined(num_split, num_stages=1):
                lse_local_split[0] = glse[bz, by, k]
                lse_logsum_local[0] += T.exp2(lse_local_split[0] - lse_max_local[0])
            lse_logsum_local[0] = T.log2(lse_logsum_local[0]) + lse_max_local[0]
            for k in T.serial(num_split):
                for i in T.Parallel(dim):
                    po_local[i] = Output_partial[bz, by, k, i]
                lse_local_split[0] = glse[bz, by, k]
                scale_local[0] = T.exp2(lse_local_split[0] - lse_logsum_local[0])
                for i in T.Parallel(dim):
                    o_accum_local[i] += po_local[i] * scale_local[0]
            for i in T.Parallel(dim):
                Output[bz, by, i] = o_accum_local[i]

    @T.prim_func
    def main_split(
        Q: T.Tensor([batch, heads, dim], dtype),
        Q_pe: T.Tensor([batch, heads, pe_dim], dtype),
        KV: T.Tensor([batch, seqlen_kv, kv_head_num, dim], dtype),
        K_pe: T.Tensor([batch, seqlen_kv, kv_head_num, pe_dim], dtype),
        glse: T.Tensor([batch, heads, num_split], dtype),
        Output_partial: T.Tensor([batch, heads, num_split, dim], dtype),
        Output: T.Tensor([batch, heads, dim], dtype),
    ):
        flash_attn_split(Q, Q_pe, KV, K_pe, glse, Output_partial)
        combine(glse, Output_partial, Output)

    @T.prim_func
    def main_no_split(
        Q: T.Tensor([batch, heads, dim], dtype),
        Q_pe: T.Tensor([batch, heads, pe_dim], dtype),
        KV: T.Tensor([batch, seqlen_kv, kv_head_num, dim], dtype),
        K_pe: T.Tensor([batch, seqlen_kv, kv_head_num, pe_dim], dtype),
        glse: T.Tensor([batch, heads, num_split], dtype),
        Output_partial: T.Tensor([batch, heads, num_split, dim], dtype),
        Output: T.Tensor([batch, heads, dim], dtype),
    ):
        flash_attn(Q, Q_pe, KV, K_pe, Output)

    if num_split > 1:
        return main_split
    return main_no_split


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def mla_paged(batch, h_q, h_kv, max_seqlen_pad, dv, dpe, block_N=16, block_H=16, block_size=16):
    """Keys in pages: row block_table[b, n // block_size] * block_size + n % block_size of the cache."""
    scale = (1.0 / (dv + dpe)) ** 0.5 * 1.44269504
    dtype, accum_dtype = "bfloat16", "float"
    kv_group_num = h_q // h_kv
    VALID_BLOCK_H = min(block_H, kv_group_num)
    assert block_size >= block_N and block_size % block_N == 0, "a tile of keys lies in one page"

    @T.prim_func
    def main(
        Q: T.Tensor([batch, h_q, dv], dtype),
        Q_pe: T.Tensor([batch, h_q, dpe], dtype),
        KV: T.Tensor([batch * max_seqlen_pad, h_kv, dv], dtype),
        K_pe: T.Tensor([batch * max_seqlen_pad, h_kv, dpe], dtype),
        block_table: T.Tensor([batch, max_seqlen_pad // block_size], "int32"),
        cache_seqlens: T.Tensor([batch], "int32"),
        Output: T.Tensor([batch, h_q, dv], dtype),
    ):
        with T.Kernel(batch, h_q // VALID_BLOCK_H, threads=256) as (bx, by):
            Q_shared = T.alloc_shared([block_H, dv], dtype)
            S_shared = T.alloc_shared([block_H, block_N], dtype)
            Q_pe_shared = T.alloc_shared([block_H, dpe], dtype)
            KV_shared = T.alloc_shared([block_N, dv], dtype)
            K_pe_shared = T.alloc_shared([block_N, dpe], dtype)
            O_shared = T.alloc_shared([block_H, dv], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_o = T.alloc_fragment([block_H, dv], accum_dtype)
            m, m_prev, corr, rowsum, logsum = [T.alloc_fragment([block_H], accum_dtype) for _ in range(5)]

            cur_kv_head = by // (kv_group_num // VALID_BLOCK_H)
            T.use_swizzle(10)
            T.annotate_layout(
                {
                    O_shared: tilec.layout.make_swizzled_layout(O_shared),
                    S_shared: tilec.layout.make_swizzled_layout(S_shared),
                }
            )
            T.copy(Q[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, :], Q_shared)
            T.copy(Q_pe[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, :], Q_pe_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(m, -T.infinity(accum_dtype))
            loop_range = T.ceildiv(cache_seqlens[bx], block_N)
            for kr in T.Pipelined(loop_range, num_stages=2):
                k = loop_range - 1 - kr
                kv_start = (
                    block_table[bx, (k * block_N) // block_size] * block_size + (k * block_N) % block_size
                )
                T.copy(KV[kv_start : kv_start + block_N, cur_kv_head, :], KV_shared)
                T.copy(K_pe[kv_start : kv_start + block_N, cur_kv_head, :], K_pe_shared)
                T.clear(acc_s)
                T.gemm(Q_shared, KV_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(Q_pe_shared, K_pe_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(m, m_prev)
                T.fill(m, -T.infinity(accum_dtype))
                if kr == 0:
                    for i, j in T.Parallel(block_H, block_N):
                        acc_s[i, j] = T.if_then_else(
                            k * block_N + j >= cache_seqlens[bx], -T.infinity(accum_dtype), acc_s[i, j]
                        )
                T.reduce_max(acc_s, m, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    m[i] = T.max(m[i], m_prev[i])
                for i in T.Parallel(block_H):
                    corr[i] = T.exp2(m_prev[i] * scale - m[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - m[i] * scale)
                T.reduce_sum(acc_s, rowsum, dim=1)
                T.copy(acc_s, S_shared)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * corr[i] + rowsum[i]
                for i, j in T.Parallel(block_H, dv):
                    acc_o[i, j] *= corr[i]
                T.gemm(S_shared, KV_shared, acc_o, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, dv):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bx, by * VALID_BLOCK_H : (by + 1) * VALID_BLOCK_H, :])

    return main


@tilec.jit(
    out_idx=[-2, -1],
    pass_configs={
        tilec.PassConfigKey.TL_DISABLE_TMA_LOWER: True,
        tilec.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
    },
)
def sparse_mla_fwd(
    heads, dim, tail_dim, topk, kv_group=1, sm_scale=None, is_causal=True, block_I=16, threads=64
):
    """Each query attends to the keys of its own list; -1 and keys after the query count for nothing."""
    assert dim == tilec.math.next_power_of_2(dim), f"{dim} is no power of two"
    assert topk % block_I == 0, "otherwise it will load some index=0 thus causing wrong kv to be loaded"
    sm_scale = (1.0 / (dim + tail_dim)) ** 0.5 * 1.44269504 if sm_scale is None else sm_scale * 1.44269504
    batch = T.dynamic("batch")
    seq_len = T.dynamic("seq_len")
    seq_len_kv = T.dynamic("seq_len_kv")
    head_kv = heads // kv_group
    q_shape = [batch, seq_len, heads, dim + tail_dim]
    kv_shape = [batch, seq_len_kv, kv_group, dim + tail_dim]
    o_shape = [batch, seq_len, heads, dim]
    indices_shape = [batch, seq_len, kv_group, topk]
    lse_shape = [batch, seq_len, heads]
    dtype, accum_dtype, indices_dtype = T.bfloat16, T.float32, T.int32
    H = padded_H = max(tilec.math.next_power_of_2(head_kv), 16)
    BI, NI, D, D_tail = block_I, tilec.cdiv(topk, block_I), dim, tail_dim

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        KV: T.Tensor(kv_shape, dtype),
        Indices: T.Tensor(indices_shape, indices_dtype),
        Output: T.Tensor(o_shape, dtype),
        Lse: T.Tensor(lse_shape, accum_dtype),
    ):
        with T.Kernel(seq_len, batch, kv_group, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([H, D], dtype)
            Q_tail_shared = T.alloc_shared([H, D_tail], dtype)
            KV_shared = T.alloc_shared([BI, D], dtype)
            K_tail_shared = T.alloc_shared([BI, D_tail], dtype)
            mask = T.alloc_fragment([BI], "bool")
            acc_o = T.alloc_fragment([H, D], accum_dtype)
            acc_s = T.alloc_fragment([H, BI], accum_dtype)
            S_shared = T.alloc_shared([H, BI], dtype)
            sumexp = T.alloc_fragment([H], accum_dtype)
            sumexp_i = T.alloc_fragment([H], accum_dtype)
            alpha = T.alloc_fragment([H], accum_dtype)
            m_i = T.alloc_fragment([H], accum_dtype)
            m_i_prev = T.alloc_fragment([H], accum_dtype)

            T.fill(acc_o, 0)
            T.fill(sumexp, 0)
            T.fill(m_i, -(2**30))  # avoid -inf - inf to cause nan
            b_i, g_i = by, bz
            s_i = bx
            q_i = s_i
            max_kv_i = q_i
            H0 = g_i * padded_H
            H1 = H0 + padded_H
            T.copy(Q[b_i, s_i, H0:H1, :D], Q_shared)
            T.copy(Q[b_i, s_i, H0:H1, D:], Q_tail_shared)
            for i_i in T.Pipelined(NI, num_stages=2):
                for bi_i in T.Parallel(BI):
                    if is_causal:
                        mask[bi_i] = (Indices[b_i, s_i, g_i, i_i * BI + bi_i] <= max_kv_i) & (
                            Indices[b_i, s_i, g_i, i_i * BI + bi_i] >= 0
                        )
                    else:
                        mask[bi_i] = Indices[b_i, s_i, g_i, i_i * BI + bi_i] >= 0
                for bi_i, d_i in T.Parallel(BI, D):
                    KV_shared[bi_i, d_i] = KV[b_i, Indices[b_i, s_i, g_i, i_i * BI + bi_i], g_i, d_i]
                for bi_i, d_i in T.Parallel(BI, D_tail):
                    K_tail_shared[bi_i, d_i] = KV[b_i, Indices[b_i, s_i, g_i, i_i * BI + bi_i], g_i, D + d_i]
                for h_i, bi_i in T.Parallel(H, BI):
                    acc_s[h_i, bi_i] = T.if_then_else(mask[bi_i], 0, -T.infinity(acc_s.dtype))
                T.gemm(Q_shared, KV_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.gemm(Q_tail_shared, K_tail_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m_i, m_i_prev)
                T.reduce_max(acc_s, m_i, dim=1, clear=False)
                for h_i in T.Parallel(H):
                    m_i[h_i] = T.max(m_i[h_i], m_i_prev[h_i])
                for h_i in T.Parallel(H):
                    alpha[h_i] = T.exp2((m_i_prev[h_i] - m_i[h_i]) * sm_scale)
                for h_i, bi_i in T.Parallel(H, BI):
                    acc_s[h_i, bi_i] = T.exp2(acc_s[h_i, bi_i] * sm_scale - m_i[h_i] * sm_scale)
                T.reduce_sum(acc_s, sumexp_i, dim=1)
                for h_i in T.Parallel(H):
                    sumexp[h_i] = sumexp[h_i] * alpha[h_i] + sumexp_i[h_i]
                for h_i, d_i in T.Parallel(H, D):
                    acc_o[h_i, d_i] = acc_o[h_i, d_i] * alpha[h_i]
                T.copy(acc_s, S_shared)
                T.gemm(S_shared, KV_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for h_i, d_i in T.Parallel(H, D):
                acc_o[h_i, d_i] /= sumexp[h_i]
            for h_i in T.Parallel(H):
                sumexp[h_i] = T.log2(sumexp[h_i]) + m_i[h_i] * sm_scale
            T.copy(acc_o, Output[b_i, s_i, H0:H1, :])
            T.copy(sumexp, Lse[b_i, s_i, H0:H1])

    return main


@tilec.jit
def mla_prefill(Q, K, V, is_causal: bool = True, block_M: int = 32, block_N: int = 32, num_stages: int = 2):
    """Prefill after decompression: keys are wider than values, queries are the last of the keys."""
    B, Sq, Sk, H = T.dynamic("B"), T.dynamic("Sq"), T.dynamic("Sk"), T.const("H")
    D, Dv = T.const("D, Dv")
    Q: T.Tensor[[B, Sq, H, D], T.float16]
    K: T.Tensor[[B, Sk, H, D], T.float16]
    V: T.Tensor[[B, Sk, H, Dv], T.float16]
    O = T.empty((B, Sq, H, Dv), T.float16)
    scale = D**-0.5 * 1.44269504
    with T.Kernel(T.ceildiv(Sq, block_M), H, B, threads=128) as (bx, by, bz):
        q, o_s = T.alloc_shared((block_M, D), T.float16), T.alloc_shared((block_M, Dv), T.float16)
        k_s, v_s = T.alloc_shared((block_N, D), T.float16), T.alloc_shared((block_N, Dv), T.float16)
        s, p = (
            T.alloc_fragment((block_M, block_N), T.float32),
            T.alloc_fragment((block_M, block_N), T.float16),
        )
        o = T.alloc_fragment((block_M, Dv), T.float32)
        m, m_prev, corr, total, part = [T.alloc_fragment((block_M,), T.float32) for _ in range(5)]
        T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], q)
        T.clear(o)
        T.clear(total)
        T.fill(m, -T.infinity(T.float32))
        past = Sk - Sq
        limit = T.min(Sk, past + (bx + 1) * block_M) if is_causal else Sk
        for k in T.Pipelined(T.ceildiv(limit, block_N), num_stages=num_stages):
            T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], k_s)
            for i, j in T.Parallel(block_M, block_N):
                seen = k * block_N + j < Sk
                if is_causal:
                    seen = seen and (past + bx * block_M + i >= k * block_N + j)
                s[i, j] = 0.0 if seen else -T.infinity(T.float32)
            T.gemm(q, k_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(m, m_prev)
            T.reduce_max(s, m, dim=1, clear=False)
            for i in T.Parallel(block_M):
                corr[i] = T.exp2((m_prev[i] - m[i]) * scale)
            for i, j in T.Parallel(block_M, block_N):
                s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
            T.reduce_sum(s, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * corr[i] + part[i]
            for i, j in T.Parallel(block_M, Dv):
                o[i, j] *= corr[i]
            T.copy(s, p)
            T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], v_s)
            T.gemm(p, v_s, o, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(block_M, Dv):
            o[i, j] /= total[i]
        T.copy(o, o_s)
        T.copy(o_s, O[bz, bx * block_M : (bx + 1) * block_M, by, :])
    return O


@tilec.jit
def mla_append(Latent, Rope, cos, sin, slots, Cache, CachePe, blk: int = 8, eps: float = 1e-6):
    """Normalises new latent rows, rotates their rotary part in pairs and puts both at slots of the cache."""
    N, C = T.dynamic("N"), T.const("C")
    P, rows = T.const("P"), T.dynamic("rows")
    Latent: T.Tensor[[N, C], T.float16]
    Rope: T.Tensor[[N, P], T.float16]
    cos: T.Tensor[[N, P // 2], T.float32]
    sin: T.Tensor[[N, P // 2], T.float32]
    slots: T.Tensor[[N], T.int64]
    Cache: T.Tensor[[rows, C], T.bfloat16]
    CachePe: T.Tensor[[rows, P], T.bfloat16]
    with T.Kernel(T.ceildiv(N, blk), threads=128) as bx:
        x, sq = T.alloc_fragment((blk, C), T.float32), T.alloc_fragment((blk, C), T.float32)
        ss = T.alloc_fragment((blk,), T.float32)
        pe = T.alloc_shared((blk, P), T.float16)
        T.copy(Latent[bx * blk, 0], x)
        T.copy(Rope[bx * blk : (bx + 1) * blk, :], pe)
        for i, j in T.Parallel(blk, C):
            sq[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(sq, ss)
        for i, j in T.Parallel(blk, C):
            row = bx * blk + i
            if row < N and slots[row] >= 0:
                Cache[slots[row], j] = x[i, j] * T.rsqrt(ss[i] / C + eps)
        for i, j in T.Parallel(blk, P // 2):
            row = bx * blk + i
            if row < N and slots[row] >= 0:
                a, b = pe[i, 2 * j].astype(T.float32), pe[i, 2 * j + 1].astype(T.float32)
                CachePe[slots[row], 2 * j] = a * cos[row, j] - b * sin[row, j]
                CachePe[slots[row], 2 * j + 1] = a * sin[row, j] + b * cos[row, j]


# ---- references and inputs ----


def _latent(q, q_pe, kv, k_pe):
    """Heads (H, D) on one latent row per key."""
    q, keys = np.concatenate([wide(q), wide(q_pe)], -1), np.concatenate([wide(kv), wide(k_pe)], -1)
    return attend(q, keys, kv)


def mla_decode_reference(Q, Q_pe, KV, K_pe, *unused):
    rows = zip(Q, Q_pe, KV[:, :, 0], K_pe[:, :, 0], strict=True)
    return np.stack([_latent(*row)[0] for row in rows])


def mla_split_reference(Q, Q_pe, KV, K_pe, glse, Output_partial):
    out = mla_decode_reference(Q, Q_pe, KV, K_pe)
    glse, part = np.zeros(glse.shape, np.float32), np.zeros(Output_partial.shape, np.float32)
    num_split = glse.shape[2]
    span = KV.shape[1] // num_split
    for b in range(len(Q)):
        for s in range(num_split):
            rows = slice(s * span, (s + 1) * span)
            o, lse, _ = _latent(Q[b], Q_pe[b], KV[b, rows, 0], K_pe[b, rows, 0])
            glse[b, :, s], part[b, :, s] = lse * 1.44269504, o
    return glse, part, out


def mla_paged_reference(Q, Q_pe, KV, K_pe, block_table, cache_seqlens):
    out = np.zeros(Q.shape, np.float32)
    page = KV.shape[0] // block_table.size
    for b, length in enumerate(cache_seqlens):
        rows = (block_table[b][:, None] * page + np.arange(page)).reshape(-1)[:length]
        out[b] = _latent(Q[b], Q_pe[b], KV[rows, 0], K_pe[rows, 0])[0]
    return out


def mla_paged_inputs(dims, rng, block_size=16):
    B, H, S, D, P = (dims[name] for name in ("batch", "h_q", "max_seqlen_pad", "dv", "dpe"))
    table = rng.permutation(B * S // block_size).reshape(B, -1).astype(np.int32)
    shapes = ((B, H, D), (B, H, P), (B * S, 1, D), (B * S, 1, P))
    floats = [wide(rng.standard_normal(shape)) for shape in shapes]
    return [*floats, table, rng.integers(1, S + 1, B).astype(np.int32)]


def sparse_mla_fwd_reference(Q, KV, Indices, dim=64):
    out = np.zeros((*Q.shape[:3], dim), np.float32)
    lse = np.zeros(Q.shape[:3], np.float32)
    for b, s in np.ndindex(*Q.shape[:2]):
        chosen = Indices[b, s, 0]
        rows = chosen[(chosen >= 0) & (chosen <= s)]
        o, l, _ = attend(Q[b, s], KV[b, rows, 0], KV[b, rows, 0, :dim])
        out[b, s], lse[b, s] = o, l * 1.44269504
    return out, lse


def sparse_mla_fwd_inputs(dims, rng, heads=16, dim=64, tail_dim=32, topk=32):
    B, S, Sk = dims["batch"], dims["seq_len"], dims["seq_len_kv"]
    indices = np.full((B, S, 1, topk), -1, np.int32)
    for b, s in np.ndindex(B, S):
        found = rng.permutation(min(s + 1, Sk))[:topk]
        indices[b, s, 0, : len(found)] = found
    shapes = ((B, S, heads, dim + tail_dim), (B, Sk, 1, dim + tail_dim))
    return [*(wide(rng.standard_normal(shape)) for shape in shapes), indices]


def mla_prefill_reference(Q, K, V):
    seen = visible(Q.shape[1], K.shape[1], causal=True)
    out = np.zeros((*Q.shape[:3], V.shape[3]), np.float32)
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        out[b, :, h] = attend(Q[b, :, h], K[b, :, h], V[b, :, h], seen)[0]
    return out


def mla_prefill_inputs(dims, rng):
    """At least as many keys as queries."""
    B, Sq, Sk, H, D, Dv = (dims[name] for name in ("B", "Sq", "Sk", "H", "D", "Dv"))
    assert Sq <= Sk, "queries are the last keys"
    return [rng.standard_normal(shape) for shape in ((B, Sq, H, D), (B, Sk, H, D), (B, Sk, H, Dv))]


def mla_append_reference(Latent, Rope, cos, sin, slots):
    x, pe, rows = wide(Latent), wide(Rope), int((slots >= 0).sum())
    cache, cache_pe = np.zeros((rows, x.shape[1]), np.float32), np.zeros((rows, pe.shape[1]), np.float32)
    for n, slot in enumerate(slots):
        if slot >= 0:
            cache[slot] = x[n] / np.sqrt((x[n] ** 2).mean() + 1e-6)
            cache_pe[slot, 0::2] = pe[n, 0::2] * cos[n] - pe[n, 1::2] * sin[n]
            cache_pe[slot, 1::2] = pe[n, 0::2] * sin[n] + pe[n, 1::2] * cos[n]
    return cache, cache_pe


def mla_append_inputs(dims, rng):
    """Every row of the cache gets one of the new rows; the others are padding."""
    N, rows, C, P = (dims[name] for name in ("N", "rows", "C", "P"))
    assert N >= rows, "rows that nobody writes are unknown"
    slots = np.full(N, -1, np.int64)
    slots[rng.permutation(N)[:rows]] = rng.permutation(rows)
    turn = rng.uniform(0, 6, (N, P // 2)).astype(np.float32)
    return [*(rng.standard_normal(shape) for shape in ((N, C), (N, P))), np.cos(turn), np.sin(turn), slots]


def main(argv=None):
    """Decode beside torch."""
    import torch
    import torch.nn.functional as F

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv_ctx", type=int, default=256)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--pe_dim", type=int, default=64)
    args = parser.parse_args(argv)
    batch, heads, kv_ctx, dim, pe_dim = args.batch, args.heads, args.kv_ctx, args.dim, args.pe_dim
    num_split = 4

    def ref_program(q, q_pe, kv, pe_cache, glse, Output_partial):
        query = torch.concat([q, q_pe], dim=-1).float()
        key = torch.concat([kv, pe_cache], dim=-1).float()[:, :, 0]
        scores = torch.einsum("bhd,bsd->bhs", query, key) / (dim + pe_dim) ** 0.5
        return torch.einsum("bhs,bsd->bhd", F.softmax(scores, dim=-1), kv[:, :, 0].float()).half()

    qk_flops = 2 * batch * heads * kv_ctx * (dim + pe_dim)
    total_flops = qk_flops + 2 * batch * heads * kv_ctx * dim
    kernel = mla_decode(batch, heads, 1, kv_ctx, dim, pe_dim, num_split=num_split)
    profiler = kernel.get_profiler(tensor_supply_type=tilec.TensorSupplyType.Randn)
    profiler.assert_allclose(ref_program, rtol=1e-2, atol=1e-2)
    latency = profiler.do_bench(warmup=1)
    print(f"Latency: {latency} ms, {total_flops / latency * 1e-9} TFlops")


if __name__ == "__main__":
    main()
