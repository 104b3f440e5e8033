"""Attention of one query per sequence: heads that share keys are rows of one tile."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import LOG2_E, attend, wide

import tilec
import tilec.language as T

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}


def get_heuristic_config(kv_group_num):
    return dict(
        block_N=32,
        block_H=max(16, tilec.next_power_of_2(kv_group_num)),
        num_split=4,
        num_stages=2,
        threads=128,
    )


@tilec.jit(out_idx=[6], pass_configs=FAST)
def gqa_decode(
    batch, heads, groups, seqlen_kv, dim, block_N=32, block_H=16, num_split=4, num_stages=2, threads=128
):
    """A mask per key; parts and their log-sum-exp pass through tensors of the caller."""
    scale = (1.0 / dim) ** 0.5 * 1.44269504  # log2(e)
    shape_q = [batch, heads, dim]
    shape_k = [batch, seqlen_kv, groups, dim]
    shape_v = [batch, seqlen_kv, groups, dim]
    shape_o = [batch, heads, dim]
    dtype = "float16"
    accum_dtype = "float"
    kv_group_num = heads // groups
    part_shape = [batch, heads, num_split, dim]
    valid_block_H = min(block_H, kv_group_num)
    valid_block_N = min(block_N, seqlen_kv // num_split)

    @T.macro
    def flash_attn_split(
        Q: T.Tensor(shape_q, dtype),
        K: T.Tensor(shape_k, dtype),
        V: T.Tensor(shape_v, dtype),
        mask: T.Tensor([batch, seqlen_kv, groups], "uint8"),
        glse: T.Tensor([batch, heads, num_split], dtype),
        Output_partial: T.Tensor(part_shape, dtype),
    ):
        with T.Kernel(batch, heads // valid_block_H, num_split, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            O_shared = T.alloc_shared([valid_block_H, dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_H, block_N], dtype)
            mask_local = T.alloc_fragment([block_N], "uint8")
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)

            bid, hid, sid = bx, by, bz
            cur_kv_head = hid // (kv_group_num // valid_block_H)
            T.copy(Q[bid, hid * valid_block_H : hid * valid_block_H + block_H, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            loop_range = T.ceildiv((seqlen_kv // num_split), block_N)
            T.fill(K_shared, 0)
            T.fill(V_shared, 0)
            for k in T.Pipelined(loop_range, num_stages=num_stages):
                first = (seqlen_kv // num_split) * sid + k * valid_block_N
                T.copy(K[bid, first : first + valid_block_N, cur_kv_head, :], K_shared)
                T.copy(mask[bid, first : first + valid_block_N, cur_kv_head], mask_local)
                T.clear(acc_s)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.if_then_else(
                        (mask_local[j] != 0) & (j < seqlen_kv // num_split),
                        acc_s[i, j],
                        -T.infinity(accum_dtype),
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
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.copy(V[bid, first : first + valid_block_N, cur_kv_head, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            for i in T.Parallel(block_H):
                logsum[i] = T.log2(logsum[i]) + scores_max[i] * scale
            for i in T.Parallel(block_H):
                if i < valid_block_H:
                    glse[bid, hid * valid_block_H + i, sid] = logsum[i]
            T.copy(acc_o[:valid_block_H, :], O_shared)
            T.copy(O_shared, Output_partial[bid, hid * valid_block_H : (hid + 1) * valid_block_H, sid, :])

    @T.macro
    def combine(
        glse: T.Tensor([batch, heads, num_split], dtype),
        Output_partial: T.Tensor(part_shape, dtype),
        Output: T.Tensor(shape_o, dtype),
    ):
        with T.Kernel(heads, batch, threads=128) as (by, bz):
            po_local = T.alloc_fragment([dim], dtype)
            o_accum_local = T.alloc_fragment([dim], accum_dtype)
            lse_local = T.alloc_fragment([num_split, 128], dtype)
            lse_logsum_local = T.alloc_fragment([128], accum_dtype)
            lse_max_local = T.alloc_fragment([128], accum_dtype)
            scale_local = T.alloc_fragment([128], accum_dtype)
            T.annotate_layout(
                {
                    lse_logsum_local: T.Fragment(lse_logsum_local.shape, forward_thread_fn=lambda i: i),
                    lse_max_local: T.Fragment(lse_max_local.shape, forward_thread_fn=lambda i: i),
                    lse_local: T.Fragment(lse_local.shape, forward_thread_fn=lambda i, j: j),
                }
            )
            T.clear(lse_logsum_local)
            T.clear(o_accum_local)
            for k, j in T.Parallel(num_split, 128):
                lse_local[k, j] = glse[bz, by, k]
            T.reduce_max(lse_local, lse_max_local, dim=0, clear=True)
            for k in T.serial(num_split):
                for j in T.Parallel(128):
                    lse_logsum_local[j] += T.exp2(lse_local[k, j] - lse_max_local[j])
            for j in T.Parallel(128):
                lse_logsum_local[j] = T.log2(lse_logsum_local[j]) + lse_max_local[j]
            for k in T.serial(num_split):
                for i in T.Parallel(dim):
                    po_local[i] = Output_partial[bz, by, k, i]
                for j in T.Parallel(128):
                    scale_local[j] = T.exp2(lse_local[k, j] - lse_logsum_local[j])
                for i in T.Parallel(dim):
                    o_accum_local[i] += po_local[i] * scale_local[i]
            for i in T.Parallel(dim):
                Output[bz, by, i] = o_accum_local[i]

    @T.prim_func
    def main(
        Q: T.Tensor(shape_q, dtype),
        K: T.Tensor(shape_k, dtype),
        V: T.Tensor(shape_v, dtype),
        mask: T.Tensor([batch, seqlen_kv, groups], "uint8"),
        glse: T.Tensor([batch, heads, num_split], dtype),
        Output_partial: T.Tensor(part_shape, dtype),
        Output: T.Tensor(shape_o, dtype),
    ):
        flash_attn_split(Q, K, V, mask, glse, Output_partial)
        combine(glse, Output_partial, Output)

    return main


@tilec.jit(out_idx=[-2, -1], pass_configs=FAST)
def paged_decode(heads, groups, dim, block_size=16, block_N=16, block_H=16, dtype="bfloat16"):
    """Pages by a table; sinks join the sum; the largest score of each block of keys comes out beside O."""
    batch, blocks = T.dynamic("batch"), T.dynamic("num_blocks")
    longest = T.dynamic("max_blocks_per_seq")
    accum = "float"
    per = heads // groups
    scale = dim**-0.5 * LOG2_E
    assert block_size % block_N == 0

    @T.prim_func
    def main(
        Q: T.Tensor([batch, heads, dim], dtype),
        K_cache: T.Tensor([blocks, block_size, groups, dim], dtype),
        V_cache: T.Tensor([blocks, block_size, groups, dim], dtype),
        block_table: T.Tensor([batch, longest], "int32"),
        context_lens: T.Tensor([batch], "int32"),
        sinks: T.Tensor([heads], "float32"),
        O: T.Tensor([batch, heads, dim], dtype),
        S: T.Tensor([batch, heads, longest], dtype),
    ):
        with T.Kernel(batch, groups, threads=128) as (bx, by):
            q = T.alloc_shared([block_H, dim], dtype)
            k_s, v_s = T.alloc_shared([block_N, dim], dtype), T.alloc_shared([block_N, dim], dtype)
            s, p = T.alloc_fragment([block_H, block_N], accum), T.alloc_fragment([block_H, block_N], dtype)
            o = T.alloc_fragment([block_H, dim], accum)
            m, m_old, corr, rowsum, total = [T.alloc_fragment([block_H], accum) for _ in range(5)]
            best = T.alloc_fragment([block_H], accum)
            n = context_lens[bx]
            T.clear(q)
            for i, d in T.Parallel(per, dim):
                q[i, d] = Q[bx, by * per + i, d]
            T.clear(o)
            T.clear(total)
            T.fill(m, -T.infinity(accum))
            for t in T.serial(longest):
                for i in T.Parallel(per):
                    S[bx, by * per + i, t] = -T.infinity(accum)
            for t in T.Pipelined(T.ceildiv(n, block_N), num_stages=2):
                page, row = block_table[bx, t * block_N // block_size], t * block_N % block_size
                T.copy(K_cache[page, row : row + block_N, by, :], k_s)
                T.clear(s)
                T.gemm(q, k_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(block_H, block_N):
                    s[i, j] = T.if_then_else(t * block_N + j < n, s[i, j], -T.infinity(accum))
                T.reduce_max(s, best, dim=1)
                T.copy(m, m_old)
                for i in T.Parallel(block_H):
                    m[i] = T.max(m_old[i], best[i])
                    corr[i] = T.exp2((m_old[i] - m[i]) * scale)
                for i in T.Parallel(per):
                    S[bx, by * per + i, t * block_N // block_size] = T.max(
                        S[bx, by * per + i, t * block_N // block_size], best[i]
                    )
                for i, j in T.Parallel(block_H, block_N):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
                T.reduce_sum(s, rowsum, dim=1)
                for i in T.Parallel(block_H):
                    total[i] = total[i] * corr[i] + rowsum[i]
                T.copy(s, p)
                for i, d in T.Parallel(block_H, dim):
                    o[i, d] *= corr[i]
                T.copy(V_cache[page, row : row + block_N, by, :], v_s)
                T.gemm(p, v_s, o, policy=T.GemmWarpPolicy.FullCol)
            for i, d in T.Parallel(per, dim):
                sink = T.exp2(sinks[by * per + i] * LOG2_E - m[i] * scale)
                O[bx, by * per + i, d] = o[i, d] / (total[i] + sink)

    return main


@tilec.jit
def mha_decode_appended(Q, Kn, Vn, Kc, Vc, length: T.int32, block_N: int = 32):
    """Writes the new key and value behind ``length`` of them, then attends to all length + 1, in one call."""
    B, H, Smax, D = T.const("B H Smax D")
    Q: T.Tensor[[B, H, D], T.float16]
    Kn: T.Tensor[[B, H, D], T.float16]
    Vn: T.Tensor[[B, H, D], T.float16]
    Kc: T.Tensor[[B, H, Smax, D], T.float16]
    Vc: T.Tensor[[B, H, Smax, D], T.float16]
    O = T.empty((B, H, D), T.float16)
    with T.Kernel(H, B, threads=64) as (h, b):
        for d in T.Parallel(D):
            Kc[b, h, length, d] = Kn[b, h, d]
            Vc[b, h, length, d] = Vn[b, h, d]
    with T.Kernel(H, B, threads=64) as (h, b):
        q, o = T.alloc_fragment((D,), T.float32), T.alloc_fragment((D,), T.float32)
        part, prod = T.alloc_fragment((D,), T.float32), T.alloc_fragment((block_N, D), T.float32)
        s = T.alloc_fragment((block_N,), T.float32)
        top, new, total, here = [T.alloc_fragment((1,), T.float32) for _ in range(4)]
        T.copy(Q[b, h, :], q)
        T.clear(o)
        T.clear(total)
        T.fill(top, -T.infinity(T.float32))
        for k in T.serial(T.ceildiv(length + 1, block_N)):
            for j, d in T.Parallel(block_N, D):
                prod[j, d] = q[d] * Kc[b, h, k * block_N + j, d]
            T.reduce_sum(prod, s, dim=1)
            for j in T.Parallel(block_N):
                s[j] = T.if_then_else(k * block_N + j <= length, s[j] * (D**-0.5), -T.infinity(T.float32))
            T.reduce_max(s, here, dim=0)
            new[0] = T.max(top[0], here[0])
            for j in T.Parallel(block_N):
                s[j] = T.exp(s[j] - new[0])
            T.reduce_sum(s, here, dim=0)
            total[0] = total[0] * T.exp(top[0] - new[0]) + here[0]
            for j, d in T.Parallel(block_N, D):
                prod[j, d] = T.if_then_else(k * block_N + j <= length, s[j] * Vc[b, h, k * block_N + j, d], 0)
            T.reduce_sum(prod, part, dim=0)
            for d in T.Parallel(D):
                o[d] = o[d] * T.exp(top[0] - new[0]) + part[d]
            top[0] = new[0]
        for d in T.Parallel(D):
            O[b, h, d] = o[d] / total[0]
    return O


@tilec.jit(out_idx=[-1])
def varlen_decode(heads, groups, dim, block_N=32, block_H=16, dtype="float16"):
    """Keys of all sequences lie one behind the other; cu_seqlens says where each begins."""
    batch_size, total = T.dynamic("batch_size"), T.dynamic("total")
    accum = "float"
    per = heads // groups
    scale = (1.0 / dim) ** 0.5 * LOG2_E

    @T.macro
    def online(s, p, m, m_old, corr, rowsum, total_f, o):
        T.copy(m, m_old)
        T.reduce_max(s, m, dim=1, clear=False)
        for i in T.Parallel(block_H):
            corr[i] = T.exp2((m_old[i] - m[i]) * scale)
        for i, j in T.Parallel(block_H, block_N):
            s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
        T.reduce_sum(s, rowsum, dim=1)
        for i in T.Parallel(block_H):
            total_f[i] = total_f[i] * corr[i] + rowsum[i]
        for i, d in T.Parallel(block_H, dim):
            o[i, d] *= corr[i]
        T.copy(s, p)

    @T.prim_func
    def main(
        Q: T.Tensor([batch_size, heads, dim], dtype),
        K: T.Tensor([total, groups, dim], dtype),
        V: T.Tensor([total, groups, dim], dtype),
        cu_seqlens: T.Tensor([batch_size + 1], "int32"),
        O: T.Tensor([batch_size, heads, dim], dtype),
    ):
        with T.Kernel(batch_size, groups, threads=128) as (bx, by):
            q, o_s = T.alloc_shared([block_H, dim], dtype), T.alloc_shared([block_H, dim], dtype)
            k_s, v_s = (T.alloc_shared([block_N, dim], dtype) for _ in range(2))
            s, p = T.alloc_fragment([block_H, block_N], accum), T.alloc_fragment([block_H, block_N], dtype)
            o = T.alloc_fragment([block_H, dim], accum)
            m, m_old, corr, rowsum, total_f = [T.alloc_fragment([block_H], accum) for _ in range(5)]
            begin, end = cu_seqlens[bx], cu_seqlens[bx + 1]
            T.copy(Q[bx, by * per : by * per + block_H, :], q)
            T.clear(o)
            T.clear(total_f)
            T.fill(m, -T.infinity(accum))
            for t in T.Pipelined(T.ceildiv(end - begin, block_N), num_stages=2):
                at = begin + t * block_N
                T.copy(K[at : at + block_N, by, :], k_s)
                for i, j in T.Parallel(block_H, block_N):
                    s[i, j] = T.if_then_else(at + j < end, 0, -T.infinity(accum))
                T.gemm(q, k_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                online(s, p, m, m_old, corr, rowsum, total_f, o)
                T.copy(V[at : at + block_N, by, :], v_s)
                T.gemm(p, v_s, o, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(block_H, dim):
                o[i, d] /= total_f[i]
            T.copy(o, o_s)
            for i, d in T.Parallel(per, dim):
                O[bx, by * per + i, d] = o_s[i, d]

    return main


# ---- references and inputs ----


@tilec.jit(out_idx=[-1])
def group_decode(heads, groups, dim, block_N=128, block_H=64, dtype="float16"):
    """Tiles of 64 heads, of which a group has fewer: the rows of the others are not stored."""
    batch_size, seqlen_kv = T.dynamic("batch_size"), T.dynamic("seqlen_kv")
    accum = "float"
    per = heads // groups
    scale = (1.0 / dim) ** 0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.Tensor([batch_size, heads, dim], dtype),
        K: T.Tensor([batch_size, seqlen_kv, groups, dim], dtype),
        V: T.Tensor([batch_size, seqlen_kv, groups, dim], dtype),
        O: T.Tensor([batch_size, heads, dim], dtype),
    ):
        with T.Kernel(batch_size, groups, threads=128) as (bz, g):
            q = T.alloc_shared([block_H, dim], dtype)
            k_s, v_s = (T.alloc_shared([block_N, dim], dtype) for _ in range(2))
            s, p = T.alloc_fragment([block_H, block_N], accum), T.alloc_fragment([block_H, block_N], dtype)
            o = T.alloc_fragment([block_H, dim], accum)
            m, m_old, corr, rowsum, total_f = [T.alloc_fragment([block_H], accum) for _ in range(5)]
            T.copy(Q[bz, g * per : g * per + block_H, :], q)
            T.clear(o)
            T.clear(total_f)
            T.fill(m, -T.infinity(accum))
            for t in T.Pipelined(T.ceildiv(seqlen_kv, block_N), num_stages=2):
                T.copy(K[bz, t * block_N : (t + 1) * block_N, g, :], k_s)
                for i, j in T.Parallel(block_H, block_N):
                    s[i, j] = T.if_then_else(t * block_N + j < seqlen_kv, 0, -T.infinity(accum))
                T.gemm(q, k_s, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m, m_old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    corr[i] = T.exp2((m_old[i] - m[i]) * scale)
                for i, j in T.Parallel(block_H, block_N):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
                T.reduce_sum(s, rowsum, dim=1)
                for i in T.Parallel(block_H):
                    total_f[i] = total_f[i] * corr[i] + rowsum[i]
                T.copy(s, p)
                for i, d in T.Parallel(block_H, dim):
                    o[i, d] *= corr[i]
                T.copy(V[bz, t * block_N : (t + 1) * block_N, g, :], v_s)
                T.gemm(p, v_s, o, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(block_H, dim):
                o[i, d] /= total_f[i]
            for i, d in T.Parallel(block_H, dim):
                if i < per:
                    O[bz, g * per + i, d] = o[i, d]

    return main


def gqa_decode_reference(Q, K, V, mask, glse, Output_partial):
    out, splits = np.zeros(Q.shape, np.float32), glse.shape[2]
    glse, part = np.zeros(glse.shape, np.float32), np.zeros(Output_partial.shape, np.float32)
    groups, span = Q.shape[1] // K.shape[2], K.shape[1] // splits
    for b, h in np.ndindex(Q.shape[:2]):
        g = h // groups
        seen = mask[b, :, g] != 0
        out[b, h] = attend(Q[b, h][None], K[b, :, g], V[b, :, g], seen[None])[0][0]
        for s in range(splits):
            rows = slice(s * span, (s + 1) * span)
            o, lse, _ = attend(Q[b, h][None], K[b, rows, g], V[b, rows, g], seen[None, rows])
            glse[b, h, s], part[b, h, s] = lse[0] * LOG2_E, o[0]
    return glse, part, out


def gqa_decode_inputs(dims, rng):
    B, H, G, S, D = (dims[name] for name in ("batch", "heads", "groups", "seqlen_kv", "dim"))
    kv = (B, S, G, D)
    mask = (rng.uniform(size=(B, S, G)) < 0.7).astype(np.uint8)
    zeros = (np.zeros((B, H, 4), np.float32), np.zeros((B, H, 4, D), np.float32))
    return [*(rng.standard_normal(shape) for shape in ((B, H, D), kv, kv)), mask, *zeros]


def paged_decode_reference(Q, K_cache, V_cache, block_table, context_lens, sinks, S, block=16):
    out = np.zeros(Q.shape, np.float32)
    scores = np.full((*Q.shape[:2], block_table.shape[1]), -np.inf, np.float32)
    groups = Q.shape[1] // K_cache.shape[2]
    for b, h in np.ndindex(Q.shape[:2]):
        keys, values = (
            wide(c[block_table[b], :, h // groups]).reshape(-1, Q.shape[2]) for c in (K_cache, V_cache)
        )
        n = context_lens[b]
        out[b, h] = attend(Q[b, h][None], keys[:n], values[:n], sink=float(sinks[h]))[0][0]
        raw = keys[:n] @ wide(Q[b, h])
        for t in range(-(-int(n) // block)):
            scores[b, h, t] = raw[t * block : (t + 1) * block].max()
    return out, scores


def paged_decode_inputs(dims, rng, block=16):
    names = ("batch", "heads", "groups", "dim", "num_blocks", "max_blocks_per_seq")
    B, H, G, D, N, M = (dims[name] for name in names)
    table = rng.integers(0, N, (B, M)).astype(np.int32)
    cache = (N, block, G, D)
    floats = [rng.standard_normal(shape) for shape in ((B, H, D), cache, cache)]
    lengths = rng.integers(1, M * block + 1, B).astype(np.int32)
    return [*floats, table, lengths, rng.standard_normal(H), np.zeros((B, H, M), np.float32)]


def mha_decode_appended_reference(Q, Kn, Vn, Kc, Vc, length):
    Kc, Vc, out = wide(Kc).copy(), wide(Vc).copy(), np.zeros(Q.shape, np.float32)
    Kc[:, :, length], Vc[:, :, length] = wide(Kn), wide(Vn)
    for b, h in np.ndindex(Q.shape[:2]):
        out[b, h] = attend(Q[b, h][None], Kc[b, h, : length + 1], Vc[b, h, : length + 1])[0][0]
    return Kc, Vc, out


def mha_decode_appended_inputs(dims, rng):
    B, H, S, D = (dims[name] for name in ("B", "H", "Smax", "D"))
    floats = [rng.standard_normal(shape) for shape in [(B, H, D)] * 3 + [(B, H, S, D)] * 2]
    return [*floats, int(rng.integers(0, S))]


def group_decode_reference(Q, K, V):
    out, groups = np.zeros(Q.shape, np.float32), Q.shape[1] // K.shape[2]
    for b, h in np.ndindex(Q.shape[:2]):
        out[b, h] = attend(Q[b, h][None], K[b, :, h // groups], V[b, :, h // groups])[0][0]
    return out


def varlen_decode_reference(Q, K, V, cu_seqlens):
    out, groups = np.zeros(Q.shape, np.float32), Q.shape[1] // K.shape[1]
    for b, h in np.ndindex(Q.shape[:2]):
        rows = slice(int(cu_seqlens[b]), int(cu_seqlens[b + 1]))
        out[b, h] = attend(Q[b, h][None], K[rows, h // groups], V[rows, h // groups])[0][0]
    return out


def varlen_decode_inputs(dims, rng):
    B, total, H, G, D = (dims[name] for name in ("batch_size", "total", "heads", "groups", "dim"))
    assert total >= B, "a sequence has a key"
    ends = np.sort(rng.choice(np.arange(1, total), B - 1, replace=False)) if B > 1 else []
    cu = np.array([0, *ends, total], np.int32)
    kv = (total, G, D)
    return [*(rng.standard_normal(shape) for shape in ((B, H, D), kv, kv)), cu]


def main(argv=None):
    """Decode beside torch, with the heuristic config."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1, help="batch size")
    parser.add_argument("--heads", type=int, default=16, help="heads")
    parser.add_argument("--groups", type=int, default=2, help="groups")
    parser.add_argument("--kv_seqlen", type=int, default=256, help="kv sequence length")
    parser.add_argument("--dim", type=int, default=64, help="dim")
    args = parser.parse_args(argv)
    batch, heads, groups, kv_seqlen, dim = args.batch, args.heads, args.groups, args.kv_seqlen, args.dim
    config = get_heuristic_config(heads // groups)
    kernel = gqa_decode(batch, heads, groups, kv_seqlen, dim, **config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q = torch.randn(batch, heads, dim, device=device, dtype=torch.float16)
    k, v = (torch.randn(batch, kv_seqlen, groups, dim, device=device, dtype=torch.float16) for _ in range(2))
    mask = torch.randint(0, 2, (batch, kv_seqlen, groups), device=device, dtype=torch.uint8)
    split = config["num_split"]
    glse = torch.empty(batch, heads, split, device=device, dtype=torch.float16)
    Output_partial = torch.empty(batch, heads, split, dim, device=device, dtype=torch.float16)
    o = kernel(q, k, v, mask, glse, Output_partial)
    keys, values = (x.float().repeat_interleave(heads // groups, 2) for x in (k, v))
    scores = torch.einsum("bhd,bshd->bhs", q.float(), keys) * dim**-0.5
    hidden = mask.repeat_interleave(heads // groups, 2).transpose(1, 2) == 0
    want = torch.einsum("bhs,bshd->bhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), values)
    torch.testing.assert_close(o.float(), want, rtol=0.01, atol=0.01)
    print("All checks pass.")
    latency = tilec.profiler.do_bench(lambda: kernel(q, k, v, mask, glse, Output_partial), warmup=1, rep=5)
    print(f"tilec: {latency:.4f} ms")


if __name__ == "__main__":
    main()
