"""Attention to some blocks of the keys: masks, lists of blocks, windows with sinks, selections per query."""

from __future__ import annotations

import argparse
import math

import numpy as np
from family_math import LOG2_E, attend, visible, wide

import tilec
import tilec.language as T

FAST = {"tl.enable_fast_math": True}


@tilec.jit(out_idx=[4], pass_configs=FAST)
def block_mask_attn(
    batch, heads, seq_len, dim, downsample_len, is_causal=True, block_M=32, block_N=32, num_stages=1
):
    """A mask with one byte per block of queries and keys says what is computed at all."""
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    shape = [batch, heads, seq_len, dim]
    block_mask_shape = [batch, heads, downsample_len, downsample_len]
    dtype, accum_dtype, block_mask_dtype = "float16", "float", "int8"

    @T.macro
    def MMA0(
        K: T.Tensor(shape, dtype),
        Q_shared: T.SharedBuffer([block_M, dim], dtype),
        K_shared: T.SharedBuffer([block_N, dim], dtype),
        acc_s: T.FragmentBuffer([block_M, block_N], accum_dtype),
        k: T.int32,
        bx: T.int32,
        by: T.int32,
        bz: T.int32,
    ):
        T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
        if is_causal:
            for i, j in T.Parallel(block_M, block_N):
                acc_s[i, j] = T.if_then_else(bx * block_M + i >= k * block_N + j, 0, -T.infinity(acc_s.dtype))
        else:
            T.clear(acc_s)
        T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def MMA1(
        V: T.Tensor(shape, dtype),
        V_shared: T.SharedBuffer([block_M, dim], dtype),
        acc_s_cast: T.FragmentBuffer([block_M, block_N], dtype),
        acc_o: T.FragmentBuffer([block_M, dim], accum_dtype),
        k: T.int32,
        by: T.int32,
        bz: T.int32,
    ):
        T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
        T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum):
        T.copy(scores_max, scores_max_prev)
        T.fill(scores_max, -T.infinity(accum_dtype))
        T.reduce_max(acc_s, scores_max, dim=1, clear=False)
        for i in T.Parallel(block_M):
            scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
        for i in T.Parallel(block_M):
            scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
        for i, j in T.Parallel(block_M, block_N):
            acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
        T.reduce_sum(acc_s, scores_sum, dim=1)
        for i in T.Parallel(block_M):
            logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
        T.copy(acc_s, acc_s_cast)

    @T.macro
    def Rescale(acc_o: T.FragmentBuffer([block_M, dim], accum_dtype), scores_scale):
        for i, j in T.Parallel(block_M, dim):
            acc_o[i, j] *= scores_scale[i]

    @T.prim_func
    def blocksparse_flashattn(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        BlockSparseMask: T.Tensor(block_mask_shape, block_mask_dtype),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            O_shared = T.alloc_shared([block_M, dim], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_M], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_M], accum_dtype)
            scores_scale = T.alloc_fragment([block_M], accum_dtype)
            scores_sum = T.alloc_fragment([block_M], accum_dtype)
            logsum = T.alloc_fragment([block_M], accum_dtype)
            block_mask = T.alloc_local([downsample_len], block_mask_dtype)

            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            for vj in T.serial(downsample_len):
                block_mask[vj] = BlockSparseMask[bz, by, bx, vj]
            loop_range = (
                T.min(T.ceildiv(seq_len, block_N), T.ceildiv((bx + 1) * block_M, block_N))
                if is_causal
                else T.ceildiv(seq_len, block_N)
            )
            for k in T.Pipelined(loop_range, num_stages=num_stages):
                if block_mask[k] != 0:
                    MMA0(K, Q_shared, K_shared, acc_s, k, bx, by, bz)
                    Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum)
                    Rescale(acc_o, scores_scale)
                    MMA1(V, V_shared, acc_s_cast, acc_o, k, by, bz)
            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return blocksparse_flashattn


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def native_sparse_fwd(
    batch, heads, seq_len, dim, is_causal, scale=None, block_size=16, groups=16, selected_blocks=4
):
    """One query per block of threads; its group of heads attends to ``selected_blocks`` blocks of keys."""
    if scale is None:
        scale = (1.0 / dim) ** 0.5 * 1.44269504
    else:
        scale = scale * 1.44269504
    head_kv = heads // groups
    q_shape, kv_shape = [batch, seq_len, heads, dim], [batch, seq_len, head_kv, dim]
    block_indices_shape = [batch, seq_len, head_kv, selected_blocks]
    block_indices_dtype = T.int32
    dtype, accum_dtype = T.float16, T.float32
    block_S = block_size
    block_T = min(128, tilec.math.next_power_of_2(dim))
    NK, NV = tilec.cdiv(dim, block_T), tilec.cdiv(dim, block_T)
    assert NK == 1, "The key dimension can not be larger than 256"
    S, BS, BK, BV, G = selected_blocks, block_S, block_T, block_T, groups

    @T.prim_func
    def native_sparse_attention(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        BlockIndices: T.Tensor(block_indices_shape, block_indices_dtype),
        Output: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(seq_len, NV, batch * head_kv, threads=32) as (bx, by, bz):
            Q_shared = T.alloc_shared([G, BK], dtype)
            K_shared = T.alloc_shared([BS, BK], dtype)
            V_shared = T.alloc_shared([BS, BV], dtype)
            O_shared = T.alloc_shared([G, BV], dtype)
            acc_s = T.alloc_fragment([G, BS], accum_dtype)
            acc_s_cast = T.alloc_fragment([G, BS], dtype)
            acc_o = T.alloc_fragment([G, BV], accum_dtype)
            scores_max, scores_max_prev, scores_scale, scores_sum, logsum = [
                T.alloc_fragment([G], accum_dtype) for _ in range(5)
            ]
            i_t, i_v, i_bh = bx, by, bz
            i_b, i_h = i_bh // head_kv, i_bh % head_kv
            NS = S
            T.copy(Q[i_b, i_t, i_h * G : (i_h + 1) * G, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            for i in T.Pipelined(NS, num_stages=2):
                i_s = BlockIndices[i_b, i_t, i_h, i] * BS
                if i_s <= i_t and i_s >= 0:
                    T.copy(K[i_b, i_s : i_s + BS, i_h, :], K_shared)
                    if is_causal:
                        for i_, j in T.Parallel(G, BS):
                            acc_s[i_, j] = T.if_then_else(i_t >= (i_s + j), 0, -T.infinity(acc_s.dtype))
                    else:
                        T.clear(acc_s)
                    T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(scores_max, scores_max_prev)
                    T.fill(scores_max, -T.infinity(accum_dtype))
                    T.reduce_max(acc_s, scores_max, dim=1, clear=True)
                    for i_ in T.Parallel(G):
                        scores_max[i_] = T.max(scores_max[i_], scores_max_prev[i_])
                        scores_scale[i_] = T.exp2(scores_max_prev[i_] * scale - scores_max[i_] * scale)
                    for i_, j in T.Parallel(G, BS):
                        acc_s[i_, j] = T.exp2(acc_s[i_, j] * scale - scores_max[i_] * scale)
                    T.reduce_sum(acc_s, scores_sum, dim=1)
                    for i_ in T.Parallel(G):
                        logsum[i_] = logsum[i_] * scores_scale[i_] + scores_sum[i_]
                    T.copy(acc_s, acc_s_cast)
                    for i_, j in T.Parallel(G, BV):
                        acc_o[i_, j] *= scores_scale[i_]
                    T.copy(V[i_b, i_s : i_s + BS, i_h, i_v * BV : (i_v + 1) * BV], V_shared)
                    T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(G, BV):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[i_b, i_t, i_h * G : (i_h + 1) * G, i_v * BV : (i_v + 1) * BV])

    return native_sparse_attention


@tilec.jit
def window_sinks(
    Q, K, V, Sinks, window_size: int = 24, block_M: int = 32, block_N: int = 32, num_stages: int = 2
):
    """Causal attention to the latest keys; each head's sink takes part of the weight."""
    B, H, Sq, D = T.const("B, H, Sq, D")
    Sk, Hkv = T.const("Sk, Hkv")
    Q: T.Tensor[[B, H, Sq, D], T.bfloat16]
    K: T.Tensor[[B, Hkv, Sk, D], T.bfloat16]
    V: T.Tensor[[B, Hkv, Sk, D], T.bfloat16]
    Sinks: T.Tensor[[H], T.bfloat16]
    O = T.empty([B, H, Sq, D], T.bfloat16)
    if window_size is not None:
        assert window_size % 8 == 0, "window_size must be divisible by 8"
    sm_scale = math.sqrt(1.0 / D)
    scale = sm_scale * 1.44269504
    groups = H // Hkv
    past_len = Sk - Sq
    assert past_len >= 0, "Sk must be greater than or equal to Sq"
    with T.Kernel(T.ceildiv(Sq, block_M), H, B, threads=128) as (bx, by, bz):
        Q_shared = T.alloc_shared([block_M, D], T.bfloat16)
        K_shared, V_shared = (
            T.alloc_shared([block_N, D], T.bfloat16),
            T.alloc_shared([block_N, D], T.bfloat16),
        )
        acc_s = T.alloc_fragment([block_M, block_N], T.float32)
        acc_s_cast = T.alloc_fragment([block_M, block_N], T.bfloat16)
        acc_o = T.alloc_fragment([block_M, D], T.float32)
        m_i, m_prev, alpha, rowsum, logsum, sinks = [T.alloc_fragment([block_M], T.float32) for _ in range(6)]
        T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
        T.fill(acc_o, 0)
        T.fill(logsum, 0)
        T.fill(m_i, -T.infinity(T.float32))
        for i in T.Parallel(block_M):
            sinks[i] = Sinks[by]
        end = T.min(T.ceildiv(Sk, block_N), T.ceildiv((bx + 1) * block_M + past_len, block_N))
        start = T.max(0, (bx * block_M + past_len - window_size) // block_N) if window_size is not None else 0
        for k in T.Pipelined(start, end, num_stages=num_stages):
            T.copy(K[bz, by // groups, k * block_N : (k + 1) * block_N, :], K_shared)
            for i, j in T.Parallel(block_M, block_N):
                q_idx = bx * block_M + i + past_len
                k_idx = k * block_N + j
                if window_size is not None:
                    acc_s[i, j] = T.if_then_else(
                        q_idx >= k_idx and q_idx < k_idx + window_size, 0, -T.infinity(acc_s.dtype)
                    )
                else:
                    acc_s[i, j] = T.if_then_else(q_idx >= k_idx, 0, -T.infinity(acc_s.dtype))
            T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(m_i, m_prev)
            T.fill(m_i, -T.infinity(T.float32))
            T.reduce_max(acc_s, m_i, dim=1, clear=False)
            for i in T.Parallel(block_M):
                m_i[i] = T.max(m_i[i], m_prev[i])
            # rows without a key so far stay at zero
            for i in T.Parallel(block_M):
                m_i[i] = T.if_then_else(m_i[i] == -T.infinity(T.float32), 0, m_i[i])
            for i in T.Parallel(block_M):
                alpha[i] = T.exp2(m_prev[i] * scale - m_i[i] * scale)
            for i, j in T.Parallel(block_M, block_N):
                acc_s[i, j] = T.exp2(acc_s[i, j] * scale - m_i[i] * scale)
            T.reduce_sum(acc_s, rowsum, dim=1)
            for i in T.Parallel(block_M):
                logsum[i] = logsum[i] * alpha[i] + rowsum[i]
            T.copy(acc_s, acc_s_cast)
            for i, j in T.Parallel(block_M, D):
                acc_o[i, j] *= alpha[i]
            T.copy(V[bz, by // groups, k * block_N : (k + 1) * block_N, :], V_shared)
            T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
        for i in T.Parallel(block_M):
            logsum[i] += T.exp2(sinks[i] * 1.44269504 - m_i[i] * scale)
        for i, j in T.Parallel(block_M, D):
            acc_o[i, j] /= logsum[i]
        T.copy(acc_o, O[bz, by, bx * block_M : (bx + 1) * block_M, :])
    return O


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def block_list_decode(
    batch, heads, heads_kv, max_cache_seqlen, dim, dim_v, block_N=16, block_H=16, num_split=2
):
    """One query per sequence over lists of blocks (-1 ends one), split among blocks of threads and joined."""
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    dtype, accum_dtype = "float16", "float"
    kv_group_num = heads // heads_kv
    valid_block_H = min(block_H, kv_group_num)
    max_selected_blocks = T.dynamic("max_selected_blocks")

    @T.macro
    def flash_attn_split(Q, K, V, block_indices, cache_seqlens, glse, Output_partial):
        with T.Kernel(batch, heads // valid_block_H, num_split, threads=128) as (bx, by, bz):
            Q_shared, K_shared = T.alloc_shared([block_H, dim], dtype), T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim_v], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_H, block_N], dtype)
            acc_o = T.alloc_fragment([block_H, dim_v], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)
            has_valid_block = T.alloc_var("bool")

            bid, hid, sid = bx, by, bz
            cur_kv_head = hid // (kv_group_num // valid_block_H)
            T.copy(Q[bid, hid * valid_block_H : hid * valid_block_H + block_H, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            blocks_per_split = T.floordiv(max_selected_blocks, num_split)
            remaining_blocks = T.floormod(max_selected_blocks, num_split)
            loop_range = blocks_per_split + T.if_then_else(sid < remaining_blocks, 1, 0)
            start = blocks_per_split * sid + T.min(sid, remaining_blocks)
            has_valid_block = False
            for k in T.Pipelined(loop_range, num_stages=2):
                i_s = block_indices[bid, cur_kv_head, start + k]
                if i_s >= 0:
                    has_valid_block = True
                    T.copy(K[bid, i_s * block_N : (i_s + 1) * block_N, cur_kv_head, :], K_shared)
                    T.clear(acc_s)
                    T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    if k == 0:  # the list begins with the last block, which may be part full
                        for i, j in T.Parallel(block_H, block_N):
                            acc_s[i, j] = T.if_then_else(
                                i_s * block_N + j >= cache_seqlens[bid], -T.infinity(accum_dtype), acc_s[i, j]
                            )
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
                    for i in T.Parallel(block_H):
                        logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                    T.copy(acc_s, acc_s_cast)
                    for i, j in T.Parallel(block_H, dim_v):
                        acc_o[i, j] *= scores_scale[i]
                    T.copy(V[bid, i_s * block_N : (i_s + 1) * block_N, cur_kv_head, :], V_shared)
                    T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            if has_valid_block:
                for i, j in T.Parallel(block_H, dim_v):
                    acc_o[i, j] /= logsum[i]
                for i in T.Parallel(block_H):
                    logsum[i] = T.log2(logsum[i]) + scores_max[i] * scale
            for i in T.Parallel(block_H):
                if i < valid_block_H:
                    glse[bid, hid * valid_block_H + i, sid] = T.if_then_else(
                        has_valid_block, logsum[i], -T.infinity(accum_dtype)
                    )
            for i, j in T.Parallel(block_H, dim_v):
                if i < valid_block_H:
                    Output_partial[bid, hid * valid_block_H + i, sid, j] = acc_o[i, j]

    @T.macro
    def combine(glse, Output_partial, Output):
        with T.Kernel(heads, batch, threads=128) as (by, bz):
            o_accum_local = T.alloc_fragment([dim_v], accum_dtype)
            lse_max, lse_sum = T.alloc_var(accum_dtype), T.alloc_var(accum_dtype)
            lse_max = -T.infinity(accum_dtype)
            lse_sum = 0.0
            T.clear(o_accum_local)
            for k in T.serial(num_split):
                lse_max = T.max(lse_max, glse[bz, by, k])
            for k in T.serial(num_split):
                lse_sum += T.exp2(glse[bz, by, k] - lse_max)
            for k in T.serial(num_split):
                share = T.exp2(glse[bz, by, k] - lse_max) / lse_sum
                for i in T.Parallel(dim_v):
                    o_accum_local[i] += Output_partial[bz, by, k, i] * share
            for i in T.Parallel(dim_v):
                Output[bz, by, i] = o_accum_local[i]

    @T.prim_func
    def main(
        Q: T.Tensor([batch, heads, dim], dtype),
        K: T.Tensor([batch, max_cache_seqlen, heads_kv, dim], dtype),
        V: T.Tensor([batch, max_cache_seqlen, heads_kv, dim_v], dtype),
        block_indices: T.Tensor([batch, heads_kv, max_selected_blocks], "int32"),
        cache_seqlens: T.Tensor([batch], "int32"),
        Output: T.Tensor([batch, heads, dim_v], dtype),
    ):
        glse = T.alloc_global([batch, heads, num_split], accum_dtype)
        Output_partial = T.alloc_global([batch, heads, num_split, dim_v], accum_dtype)
        flash_attn_split(Q, K, V, block_indices, cache_seqlens, glse, Output_partial)
        combine(glse, Output_partial, Output)

    return main


@tilec.jit(out_idx=[-1])
def vertical_slash(heads, dim, block_M=16, block_N=16, num_stages=1):
    """Causal attention to whole blocks (starts in block_offset) and to single columns (column_index)."""
    batch, seq_len = T.dynamic("batch"), T.dynamic("seq_len")
    nnz_s, nnz_v, rows = T.dynamic("nnz_s"), T.dynamic("nnz_v"), T.dynamic("row_blocks")
    scale = dim**-0.5 * LOG2_E
    shape = [batch, heads, seq_len, dim]
    dtype, accum = "bfloat16", "float32"

    @T.macro
    def step(S, P, o, m, m_old, corr, part, total, V_s):
        T.copy(m, m_old)
        T.reduce_max(S, m, dim=1, clear=False)
        for i in T.Parallel(block_M):
            corr[i] = T.exp2((m_old[i] - m[i]) * scale)
        for i, j in T.Parallel(block_M, block_N):
            S[i, j] = T.exp2((S[i, j] - m[i]) * scale)
        T.reduce_sum(S, part, dim=1)
        for i in T.Parallel(block_M):
            total[i] = total[i] * corr[i] + part[i]
        for i, d in T.Parallel(block_M, dim):
            o[i, d] *= corr[i]
        T.copy(S, P)
        T.gemm(P, V_s, o, policy=T.GemmWarpPolicy.FullRow)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        block_count: T.Tensor([batch, heads, rows], "int32"),
        block_offset: T.Tensor([batch, heads, rows, nnz_s], "int32"),
        column_count: T.Tensor([batch, heads, rows], "int32"),
        column_index: T.Tensor([batch, heads, rows, nnz_v], "int32"),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(rows, heads, batch, threads=128) as (bx, by, bz):
            Qs = T.alloc_shared([block_M, dim], dtype)
            Ks, Vs = T.alloc_shared([block_N, dim], dtype), T.alloc_shared([block_N, dim], dtype)
            S = T.alloc_fragment([block_M, block_N], accum)
            P = T.alloc_fragment([block_M, block_N], dtype)
            o = T.alloc_fragment([block_M, dim], accum)
            m, m_old, corr, part, total = [T.alloc_fragment([block_M], accum) for _ in range(5)]
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Qs)
            T.clear(o)
            T.clear(total)
            T.fill(m, -(2.0**30))
            for k in T.Pipelined(block_count[bz, by, bx], num_stages=num_stages):
                first = block_offset[bz, by, bx, k]
                T.copy(K[bz, by, first : first + block_N, :], Ks)
                T.copy(V[bz, by, first : first + block_N, :], Vs)
                for i, j in T.Parallel(block_M, block_N):
                    S[i, j] = T.if_then_else(bx * block_M + i >= first + j, 0, -T.infinity(accum))
                T.gemm(Qs, Ks, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                step(S, P, o, m, m_old, corr, part, total, Vs)
            columns = column_count[bz, by, bx]
            for k in T.serial(T.ceildiv(columns, block_N)):
                for j, d in T.Parallel(block_N, dim):
                    n = k * block_N + j
                    Ks[j, d] = T.if_then_else(n < columns, K[bz, by, column_index[bz, by, bx, n], d], 0)
                    Vs[j, d] = T.if_then_else(n < columns, V[bz, by, column_index[bz, by, bx, n], d], 0)
                for i, j in T.Parallel(block_M, block_N):
                    n = k * block_N + j
                    seen = (n < columns) & (column_index[bz, by, bx, T.min(n, nnz_v - 1)] <= bx * block_M + i)
                    S[i, j] = T.if_then_else(seen, 0, -T.infinity(accum))
                T.gemm(Qs, Ks, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                step(S, P, o, m, m_old, corr, part, total, Vs)
            for i, d in T.Parallel(block_M, dim):
                o[i, d] /= total[i]
            T.copy(o, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


@tilec.jit(out_idx=[-1])
def block_means(batch, heads, seq_len, dim, block=16, dtype="float16"):
    """Mean-pooled queries and keys, and their scores: what blocks are chosen by. -inf above the diagonal."""
    blocks = tilec.cdiv(seq_len, block)

    @T.prim_func
    def main(
        Q: T.Tensor([batch, heads, seq_len, dim], dtype),
        K: T.Tensor([batch, heads, seq_len, dim], dtype),
        Scores: T.Tensor([batch, heads, blocks, blocks], "float32"),
    ):
        q_mean = T.alloc_global([batch, heads, blocks, dim], "float32")
        k_mean = T.alloc_global([batch, heads, blocks, dim], "float32")
        with T.Kernel(blocks, heads, batch, threads=64) as (bx, by, bz):
            x, total = T.alloc_fragment([block, dim], "float32"), T.alloc_fragment([dim], "float32")
            count = T.min(block, seq_len - bx * block)
            for source, target in ((Q, q_mean), (K, k_mean)):
                T.copy(source[bz, by, bx * block : (bx + 1) * block, :], x)
                T.reduce_sum(x, total, dim=0)
                for d in T.Parallel(dim):
                    target[bz, by, bx, d] = total[d] / count
        with T.Kernel(blocks, heads, batch, threads=64) as (bx, by, bz):
            k, s = T.alloc_fragment([blocks, dim], "float32"), T.alloc_fragment([blocks], "float32")
            for j, d in T.Parallel(blocks, dim):
                k[j, d] = k_mean[bz, by, j, d] * q_mean[bz, by, bx, d]
            T.reduce_sum(k, s, dim=1)
            for j in T.Parallel(blocks):
                Scores[bz, by, bx, j] = s[j] if j <= bx else -T.infinity("float32")

    return main


# ---- references and inputs ----


def _masked(Q, K, V, seen):
    """Heads first; ``seen(b, h)`` gives a mask."""
    out = np.zeros((*Q.shape[:3], V.shape[3]), np.float32)
    for b, h in np.ndindex(Q.shape[:2]):
        out[b, h] = attend(Q[b, h], K[b, h], V[b, h], seen(b, h))[0]
    return out


def block_mask_attn_reference(Q, K, V, BlockSparseMask, block=32):
    S = Q.shape[2]
    big = BlockSparseMask.repeat(block, 2).repeat(block, 3)[:, :, :S, :S] != 0
    return _masked(Q, K, V, lambda b, h: big[b, h] & visible(S, S, causal=True))


def block_mask_attn_inputs(dims, rng):
    """Every row of blocks has its diagonal block."""
    B, H, S, D, N = (dims[name] for name in ("batch", "heads", "seq_len", "dim", "downsample_len"))
    mask = (rng.uniform(size=(B, H, N, N)) < 0.5) | np.eye(N, dtype=bool)
    return [*(rng.standard_normal((B, H, S, D)) for _ in range(3)), mask.astype(np.int8)]


def native_sparse_fwd_reference(Q, K, V, BlockIndices, block=16):
    B, S, H, _ = Q.shape
    groups = H // K.shape[2]
    out = np.zeros(Q.shape, np.float32)
    for b, t, g in np.ndindex(B, S, K.shape[2]):
        starts = BlockIndices[b, t, g] * block
        rows = np.concatenate([np.arange(s, min(s + block, S)) for s in starts if 0 <= s <= t])
        rows = rows[rows <= t]
        heads = slice(g * groups, (g + 1) * groups)
        out[b, t, heads] = attend(Q[b, t, heads], K[b, rows, g], V[b, rows, g])[0]
    return out


def native_sparse_fwd_inputs(dims, rng, block=16, groups=16, selected=4):
    B, S, H, D = (dims[name] for name in ("batch", "seq_len", "heads", "dim"))
    indices = np.full((B, S, H // groups, selected), -1, np.int32)
    for b, t, g in np.ndindex(B, S, H // groups):
        others = rng.permutation(t // block)[: selected - 1]
        chosen = [t // block, *others]
        indices[b, t, g, : len(chosen)] = rng.permutation(chosen)
    kv = (B, S, H // groups, D)
    return [*(rng.standard_normal(shape) for shape in ((B, S, H, D), kv, kv)), indices]


def window_sinks_reference(Q, K, V, Sinks):
    groups = Q.shape[1] // K.shape[1]
    seen = visible(Q.shape[2], K.shape[2], causal=True, window=24)
    out = np.zeros(Q.shape, np.float32)
    for b, h in np.ndindex(Q.shape[:2]):
        g = h // groups
        out[b, h] = attend(Q[b, h], K[b, g], V[b, g], seen, sink=float(Sinks[h]))[0]
    return out


def block_list_decode_reference(Q, K, V, block_indices, cache_seqlens, block=16):
    out = np.zeros((*Q.shape[:2], V.shape[3]), np.float32)
    groups = Q.shape[1] // K.shape[2]
    for b, g in np.ndindex(Q.shape[0], K.shape[2]):
        rows = np.concatenate([np.arange(n * block, (n + 1) * block) for n in block_indices[b, g] if n >= 0])
        rows = rows[rows < cache_seqlens[b]]
        heads = slice(g * groups, (g + 1) * groups)
        out[b, heads] = attend(Q[b, heads], K[b, rows, g], V[b, rows, g])[0]
    return out


def block_list_decode_inputs(dims, rng, block=16):
    """The block of the last key first, then others; -1 in some places."""
    names = ("batch", "heads", "heads_kv", "max_cache_seqlen", "dim", "dim_v", "max_selected_blocks")
    B, H, G, S, D, Dv, M = (dims[name] for name in names)
    lengths = rng.integers(1, S + 1, B).astype(np.int32)
    indices = np.full((B, G, M), -1, np.int32)
    for b, g in np.ndindex(B, G):
        last = (lengths[b] - 1) // block
        others = rng.permutation(last)[: M // 2]
        indices[b, g, 0] = last
        indices[b, g, rng.permutation(np.arange(1, M))[: len(others)]] = others
    shapes = ((B, H, D), (B, S, G, D), (B, S, G, Dv))
    return [*(rng.standard_normal(shape) for shape in shapes), indices, lengths]


def vertical_slash_reference(Q, K, V, block_count, block_offset, column_count, column_index, block=16):
    S = Q.shape[2]

    def seen(b, h):
        mask = np.zeros((S, S), bool)
        for r in range(block_count.shape[2]):
            rows = slice(r * block, (r + 1) * block)
            for first in block_offset[b, h, r, : block_count[b, h, r]]:
                mask[rows, first : first + block] = True
            mask[rows, column_index[b, h, r, : column_count[b, h, r]]] = True
        return mask & visible(S, S, causal=True)

    return _masked(Q, K, V, seen)


def vertical_slash_inputs(dims, rng, block=16):
    """Columns lie in no block of their row, so that no key counts twice."""
    B, S, nnz_s, nnz_v = (dims[name] for name in ("batch", "seq_len", "nnz_s", "nnz_v"))
    H, D, R = dims["heads"], dims["dim"], dims["row_blocks"]
    assert -(-S // block) == R, "one row of blocks per 16 queries"
    counts, column_counts = (np.zeros((B, H, R), np.int32) for _ in range(2))
    offsets, columns = np.zeros((B, H, R, nnz_s), np.int32), np.zeros((B, H, R, nnz_v), np.int32)
    for b, h, r in np.ndindex(B, H, R):
        chosen = [r, *rng.permutation(r)[: nnz_s - 1][: int(rng.integers(0, nnz_s))]]
        free = [n for n in range(r * block) if n // block not in chosen]
        picked = rng.permutation(free)[: int(rng.integers(0, nnz_v + 1))].astype(np.int32)
        counts[b, h, r], offsets[b, h, r, : len(chosen)] = len(chosen), np.array(chosen) * block
        column_counts[b, h, r], columns[b, h, r, : len(picked)] = len(picked), picked
    floats = [wide(rng.standard_normal((B, H, S, D))) for _ in range(3)]
    return [*floats, counts, offsets, column_counts, columns]


def block_means_reference(Q, K, block=16):
    starts = np.arange(0, Q.shape[2], block)
    sizes = np.diff([*starts, Q.shape[2]])[:, None]
    q, k = (np.add.reduceat(wide(x), starts, axis=2) / sizes for x in (Q, K))
    scores = q @ k.swapaxes(-1, -2)
    return np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)


def main(argv=None):
    """Masked attention beside torch."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--seq_len", type=int, default=128)
    args = parser.parse_args(argv)
    B, H, S, D, BLOCK = 1, args.heads, args.seq_len, 64, 32
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(B, H, S, D, device=device, dtype=torch.float16) for _ in range(3))
    blocks = S // BLOCK
    chosen = torch.rand(B, H, blocks, blocks, device=device).topk(2, -1).indices
    mask = torch.zeros(B, H, blocks, blocks, dtype=torch.bool, device=device).scatter_(-1, chosen, True)
    mask[..., torch.arange(blocks), torch.arange(blocks)] = True
    kernel = block_mask_attn(B, H, S, D, blocks)
    out = kernel(q, k, v, mask.to(torch.int8))
    full = torch.kron(mask.float(), torch.ones(BLOCK, BLOCK, device=device)).bool().tril()
    scores = (q.float() @ k.float().transpose(-1, -2) * D**-0.5).masked_fill(~full, float("-inf"))
    torch.testing.assert_close(out, (scores.softmax(-1) @ v.float()).half(), atol=1e-2, rtol=1e-2)
    print("Pass topk sparse attention test with qlen == klen")


if __name__ == "__main__":
    main()
