"""Softmax attention, forward: macros, biases, ragged batches, caps."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import LOG2_E, attend, visible, wide

import tilec
import tilec.language as T

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilec.jit(out_idx=[3, 4], pass_configs=FAST)
def mha_fwd_lse(
    batch, heads, seq_q, seq_kv, dim, is_causal, block_M=32, block_N=32, num_stages=2, threads=128
):
    """Heads first; the output, and the log-sum-exp in base 2 for a backward pass."""
    scale = (1.0 / dim) ** 0.5 * 1.44269504  # log2(e)
    q_shape, kv_shape = [batch, heads, seq_q, dim], [batch, heads, seq_kv, dim]
    dtype, accum_dtype = "float16", "float"
    past_len = seq_kv - seq_q
    assert past_len >= 0, "seq_kv must be greater than or equal to seq_q"

    @T.macro
    def MMA0(
        K: T.Tensor(kv_shape, dtype),
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
                q_idx = bx * block_M + i + past_len
                k_idx = k * block_N + j
                acc_s[i, j] = T.if_then_else(q_idx >= k_idx, 0, -T.infinity(acc_s.dtype))
        else:
            for i, j in T.Parallel(block_M, block_N):
                acc_s[i, j] = T.if_then_else(k * block_N + j >= seq_kv, -T.infinity(acc_s.dtype), 0)
        T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def Softmax(
        acc_s: T.FragmentBuffer([block_M, block_N], accum_dtype),
        acc_s_cast: T.FragmentBuffer([block_M, block_N], dtype),
        scores_max: T.FragmentBuffer([block_M], accum_dtype),
        scores_max_prev: T.FragmentBuffer([block_M], accum_dtype),
        scores_scale: T.FragmentBuffer([block_M], accum_dtype),
        scores_sum: T.FragmentBuffer([block_M], accum_dtype),
        logsum: T.FragmentBuffer([block_M], accum_dtype),
    ):
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

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        Output: T.Tensor(q_shape, dtype),
        lse: T.Tensor([batch, heads, seq_q], accum_dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
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
            T.annotate_layout({Q_shared: tilec.layout.make_swizzled_layout(Q_shared)})
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            loop_range = (
                T.min(T.ceildiv(seq_kv, block_N), T.ceildiv((bx + 1) * block_M + past_len, block_N))
                if is_causal
                else T.ceildiv(seq_kv, block_N)
            )
            for k in T.Pipelined(
                loop_range,
                num_stages=num_stages,
                order=[-1, 0, 3, 1, -1, 2],
                stage=[-1, 0, 0, 1, -1, 1],
                group=[[0], [1, 2], [3, 4, 5, 6, 7, 8, 9, 10], [11], [12], [13]],
            ):
                MMA0(K, Q_shared, K_shared, acc_s, k, bx, by, bz)
                Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum)
                for i, j in T.Parallel(block_M, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])
            for i in T.Parallel(block_M):
                logsum[i] = T.log2(logsum[i]) + scores_max[i] * scale
            T.copy(logsum, lse[bz, by, bx * block_M : (bx + 1) * block_M])

    return main


@tilec.jit(out_idx=[6], pass_configs=FAST)
def gqa_varlen_fwd(heads, groups, dim, is_causal=True, block_M=32, block_N=32, num_stages=1, threads=128):
    """Ragged queries and keys by cumulative lengths; the last query of a sequence sees its last key."""
    batch_size, UQ, UKV = T.dynamic("batch_size"), T.dynamic("UQ"), T.dynamic("UKV")
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    head_kv = heads // groups
    dtype, accum_dtype = "bfloat16", "float"

    @T.prim_func
    def main(
        Q_unpad: T.Tensor([UQ, heads, dim], dtype),
        K_unpad: T.Tensor([UKV, head_kv, dim], dtype),
        V_unpad: T.Tensor([UKV, head_kv, dim], dtype),
        cu_seqlens_q: T.Tensor([batch_size + 1], "int32"),
        cu_seqlens_k: T.Tensor([batch_size + 1], "int32"),
        max_seqlen_q: T.int32,
        Output_unpad: T.Tensor([UQ, heads, dim], dtype),
    ):
        with T.Kernel(T.ceildiv(max_seqlen_q, block_M), heads, batch_size, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared, V_shared = T.alloc_shared([block_N, dim], dtype), T.alloc_shared([block_N, dim], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim], accum_dtype)
            m, m_prev, corr, part, total = [T.alloc_fragment([block_M], accum_dtype) for _ in range(5)]

            batch_idx, head_idx = bz, by
            kv_head_idx = head_idx // groups
            q_start_idx = cu_seqlens_q[batch_idx]
            kv_start_idx = cu_seqlens_k[batch_idx]
            q_end_idx = cu_seqlens_q[batch_idx + 1]
            k_end_idx = cu_seqlens_k[batch_idx + 1]
            q_current_seqlen = q_end_idx - q_start_idx
            kv_current_seqlen = k_end_idx - kv_start_idx
            T.copy(
                Q_unpad[q_start_idx + bx * block_M : q_start_idx + (bx + 1) * block_M, head_idx, :], Q_shared
            )
            T.fill(acc_o, 0)
            T.fill(total, 0)
            T.fill(m, -T.infinity(accum_dtype))
            offset = kv_current_seqlen - q_current_seqlen
            max_visible_k_idx = offset + (bx + 1) * block_M
            loop_range = (
                T.min(T.ceildiv(max_visible_k_idx, block_N), T.ceildiv(kv_current_seqlen, block_N))
                if is_causal
                else T.ceildiv(kv_current_seqlen, block_N)
            )
            for k in T.Pipelined(loop_range, num_stages=num_stages):
                T.copy(
                    K_unpad[kv_start_idx + k * block_N : kv_start_idx + (k + 1) * block_N, kv_head_idx, :],
                    K_shared,
                )
                for i, j in T.Parallel(block_M, block_N):
                    hidden = (bx * block_M + i >= q_current_seqlen) or (k * block_N + j >= kv_current_seqlen)
                    if is_causal:
                        hidden = hidden or (bx * block_M + i + offset < k * block_N + j)
                    acc_s[i, j] = T.if_then_else(hidden, -1e9, 0)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m, m_prev)
                T.fill(m, -T.infinity(accum_dtype))
                T.reduce_max(acc_s, m, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    m[i] = T.max(m[i], m_prev[i])
                    corr[i] = T.exp2(m_prev[i] * scale - m[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - m[i] * scale)
                T.reduce_sum(acc_s, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * corr[i] + part[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_M, dim):
                    acc_o[i, j] *= corr[i]
                T.copy(
                    V_unpad[kv_start_idx + k * block_N : kv_start_idx + (k + 1) * block_N, kv_head_idx, :],
                    V_shared,
                )
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                if bx * block_M + i < q_current_seqlen:
                    Output_unpad[q_start_idx + bx * block_M + i, head_idx, j] = acc_o[i, j] / total[i]

    return main


@tilec.jit
def biased_fwd(Q, K, V, Bias, slopes, softcap: float = 20.0, block_M: int = 32, block_N: int = 32):
    """A bias per pair, a slope per head on the distance, and scores capped by tanh."""
    B, H, S, D = T.const("B, H, S, D")
    Q: T.Tensor[[B, H, S, D], T.float16]
    K: T.Tensor[[B, H, S, D], T.float16]
    V: T.Tensor[[B, H, S, D], T.float16]
    Bias: T.Tensor[[H, S, S], T.float16]
    slopes: T.Tensor[[H], T.float32]
    O = T.empty((B, H, S, D), T.float16)
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
        q, k_s, v_s = (T.alloc_shared((rows, D), T.float16) for rows in (block_M, block_N, block_N))
        bias = T.alloc_shared((block_M, block_N), T.float16)
        s, p = (
            T.alloc_fragment((block_M, block_N), T.float32),
            T.alloc_fragment((block_M, block_N), T.float16),
        )
        o = T.alloc_fragment((block_M, D), T.float32)
        m, m_old, corr, part, total = [T.alloc_fragment((block_M,), T.float32) for _ in range(5)]
        T.copy(Q[bz, by, bx * block_M, 0], q)
        T.clear(o)
        T.clear(total)
        T.fill(m, -T.infinity(T.float32))
        for k in T.Pipelined(T.ceildiv(S, block_N), num_stages=2):
            T.copy(K[bz, by, k * block_N, 0], k_s)
            T.copy(Bias[by, bx * block_M, k * block_N], bias)
            T.gemm(q, k_s, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, block_N):
                raw = softcap * T.tanh(s[i, j] * (D**-0.5) / softcap)
                distance = T.abs(bx * block_M + i - k * block_N - j)
                logit = raw + bias[i, j] - slopes[by] * T.cast(distance, T.float32)
                s[i, j] = T.if_then_else(k * block_N + j < S, logit, -T.infinity(T.float32))
            T.copy(m, m_old)
            T.reduce_max(s, m, dim=1, clear=False)
            for i in T.Parallel(block_M):
                corr[i] = T.exp(m_old[i] - m[i])
            for i, j in T.Parallel(block_M, block_N):
                s[i, j] = T.exp(s[i, j] - m[i])
            T.reduce_sum(s, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * corr[i] + part[i]
            for i, j in T.Parallel(block_M, D):
                o[i, j] *= corr[i]
            T.copy(s, p)
            T.copy(V[bz, by, k * block_N, 0], v_s)
            T.gemm(p, v_s, o, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(block_M, D):
            o[i, j] /= total[i]
        T.copy(o, O[bz, by, bx * block_M, 0])
    return O


@tilec.jit(out_idx=[-1])
def cross_fwd(heads, dim, dim_v, block_M=16, block_N=16, dtype="float32"):
    """Few queries on padded keys with a length each: a whole row of scores at once, no running maximum."""
    B, Sq = T.dynamic("B"), T.dynamic("Sq")
    longest = 48

    @T.prim_func
    def main(
        Q: T.Tensor([B, Sq, heads, dim], dtype),
        K: T.Tensor([B, longest, heads, dim], dtype),
        V: T.Tensor([B, longest, heads, dim_v], dtype),
        lengths: T.Tensor([B], "int32"),
        O: T.Tensor([B, Sq, heads, dim_v], dtype),
    ):
        with T.Kernel(T.ceildiv(Sq, block_M), heads, B, threads=64) as (bx, h, b):
            q, k_s = T.alloc_shared([block_M, dim], dtype), T.alloc_shared([block_N, dim], dtype)
            v_s = T.alloc_shared([longest, dim_v], dtype)
            scores = T.alloc_shared([block_M, longest], dtype)
            part = T.alloc_fragment([block_M, block_N], "float32")
            row, o = (
                T.alloc_fragment([block_M, longest], "float32"),
                T.alloc_fragment([block_M, dim_v], "float32"),
            )
            top, total = T.alloc_fragment([block_M], "float32"), T.alloc_fragment([block_M], "float32")
            T.copy(Q[b, bx * block_M : (bx + 1) * block_M, h, :], q)
            for n in T.serial(T.ceildiv(longest, block_N)):
                T.copy(K[b, n * block_N : (n + 1) * block_N, h, :], k_s)
                T.gemm(q, k_s, part, transpose_B=True, clear_accum=True)
                T.copy(part, scores[:, n * block_N : (n + 1) * block_N])
            for i, j in T.Parallel(block_M, longest):
                row[i, j] = scores[i, j] * (dim**-0.5) if j < lengths[b] else -T.infinity("float32")
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(block_M, longest):
                row[i, j] = T.exp(row[i, j] - top[i])
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(block_M, longest):
                scores[i, j] = row[i, j] / total[i]
            T.copy(V[b, 0:longest, h, :], v_s)
            T.gemm(scores, v_s, o, clear_accum=True)
            T.copy(o, O[b, bx * block_M : (bx + 1) * block_M, h, :])

    return main


# ---- references and inputs ----


def mha_fwd_lse_reference(Q, K, V):
    out, lse = np.zeros(Q.shape, np.float32), np.zeros(Q.shape[:3], np.float32)
    seen = visible(Q.shape[2], K.shape[2], causal=True)
    for b, h in np.ndindex(Q.shape[:2]):
        o, l, _ = attend(Q[b, h], K[b, h], V[b, h], seen)
        out[b, h], lse[b, h] = o, l * LOG2_E
    return out, lse


def _bounds(total, count, rng):
    ends = np.sort(rng.choice(np.arange(1, total), count - 1, replace=False)) if count > 1 else []
    return np.array([0, *ends, total], np.int32)


def gqa_varlen_fwd_reference(Q, K, V, cu_q, cu_k, longest):
    out, groups = np.zeros(Q.shape, np.float32), Q.shape[1] // K.shape[1]
    for b, h in np.ndindex(len(cu_q) - 1, Q.shape[1]):
        q, k = slice(int(cu_q[b]), int(cu_q[b + 1])), slice(int(cu_k[b]), int(cu_k[b + 1]))
        seen = visible(q.stop - q.start, k.stop - k.start, causal=True)
        out[q, h] = attend(Q[q, h], K[k, h // groups], V[k, h // groups], seen)[0]
    return out


def gqa_varlen_fwd_inputs(dims, rng, groups=2):
    """No sequence has more queries than keys."""
    B, UQ, UKV, H, D = (dims[name] for name in ("batch_size", "UQ", "UKV", "heads", "dim"))
    assert B <= UQ <= UKV, "sequences of at least one query and as many keys"
    cu_q = _bounds(UQ, B, rng)
    extra = rng.multinomial(UKV - UQ, np.full(B, 1 / B))
    cu_k = np.array([0, *np.cumsum(np.diff(cu_q) + extra)], np.int32)
    kv = (UKV, H // groups, D)
    floats = [rng.standard_normal(shape) for shape in ((UQ, H, D), kv, kv)]
    return [*floats, cu_q, cu_k, int(np.diff(cu_q).max())]


def biased_fwd_reference(Q, K, V, Bias, slopes, cap=20.0):
    out = np.zeros(Q.shape, np.float32)
    n = np.arange(Q.shape[2])
    distance = np.abs(n[:, None] - n[None, :])
    for b, h in np.ndindex(Q.shape[:2]):
        raw = wide(Q[b, h]) @ wide(K[b, h]).T * Q.shape[3] ** -0.5
        logits = cap * np.tanh(raw / cap) + wide(Bias[h]) - slopes[h] * distance
        weights = np.exp(logits - logits.max(1, keepdims=True))
        out[b, h] = weights / weights.sum(1, keepdims=True) @ wide(V[b, h])
    return out


def cross_fwd_reference(Q, K, V, lengths):
    out = np.zeros((*Q.shape[:3], V.shape[3]), np.float32)
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        n = int(lengths[b])
        out[b, :, h] = attend(Q[b, :, h], K[b, :n, h], V[b, :n, h])[0]
    return out


def cross_fwd_inputs(dims, rng, longest=48):
    B, Sq, H, D, Dv = (dims[name] for name in ("B", "Sq", "heads", "dim", "dim_v"))
    shapes = ((B, Sq, H, D), (B, longest, H, D), (B, longest, H, Dv))
    return [*(rng.standard_normal(s) for s in shapes), rng.integers(1, longest + 1, B).astype(np.int32)]


def main(argv=None):
    """Forward beside torch."""
    import torch
    import torch.nn.functional as F

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1, help="batch size")
    parser.add_argument("--heads", type=int, default=2, help="heads")
    parser.add_argument("--seq_q", type=int, default=64, help="query sequence length")
    parser.add_argument("--seq_kv", type=int, default=96, help="key/value sequence length")
    parser.add_argument("--dim", type=int, default=64, help="dim")
    parser.add_argument("--is_causal", action="store_true", help="causal")
    args = parser.parse_args(argv)
    is_causal, dim = args.is_causal, args.dim
    flops_per_matmul = 2.0 * args.batch * args.heads * args.seq_q * args.seq_kv * dim
    total_flops = 2 * flops_per_matmul * (0.5 if is_causal else 1)

    def ref_program(Q, K, V):
        scores = torch.einsum("bhqd,bhkd->bhqk", Q, K).float() / dim**0.5
        if is_causal:
            mask = torch.tril(torch.ones(args.seq_q, args.seq_kv, device=Q.device), args.seq_kv - args.seq_q)
            scores = scores.masked_fill(mask == 0, float("-inf"))
        out = torch.einsum("bhqk,bhkd->bhqd", F.softmax(scores, dim=-1).to(V.dtype), V)
        return out, scores.logsumexp(-1) * 1.44269504

    kernel = mha_fwd_lse(args.batch, args.heads, args.seq_q, args.seq_kv, dim, is_causal)
    profiler = kernel.get_profiler()
    profiler.assert_allclose(ref_program, rtol=0.01, atol=0.01)
    print("All checks pass.")
    latency = profiler.do_bench(warmup=1)
    print(f"tilec: {latency:.2f} ms, {total_flops / latency * 1e-9:.2f} TFlops")


if __name__ == "__main__":
    main()
