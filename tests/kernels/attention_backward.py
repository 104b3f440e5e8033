"""Gradients of softmax attention: row sums, dQ through atomics, dK and dV in registers, and variants."""

from __future__ import annotations

import argparse

import numpy as np
from family_math import LOG2_E, attend, attend_backward, visible, wide

import tilec
import tilec.language as T
from tilec.autotuner import autotune

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@tilec.jit(out_idx=[2], pass_configs=FAST)
def bwd_delta(batch, heads, seq_len, dim, blk=32, dtype="float16"):
    """Delta[b, h, i] = sum_d O[b, i, h, d] dO[b, i, h, d], in chunks of the head."""
    accum_dtype = "float"
    shape = [batch, seq_len, heads, dim]

    @T.prim_func
    def main(
        O: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        Delta: T.Tensor([batch, heads, seq_len], accum_dtype),
    ):
        with T.Kernel(heads, T.ceildiv(seq_len, blk), batch) as (bx, by, bz):
            o = T.alloc_fragment([blk, blk], dtype)
            do = T.alloc_fragment([blk, blk], dtype)
            acc = T.alloc_fragment([blk, blk], accum_dtype)
            delta = T.alloc_fragment([blk], accum_dtype)
            T.clear(acc)
            for k in range(T.ceildiv(dim, blk)):
                T.copy(O[bz, by * blk : (by + 1) * blk, bx, k * blk : (k + 1) * blk], o)
                T.copy(dO[bz, by * blk : (by + 1) * blk, bx, k * blk : (k + 1) * blk], do)
                for i, j in T.Parallel(blk, blk):
                    acc[i, j] += o[i, j] * do[i, j]
            T.reduce_sum(acc, delta, 1)
            T.copy(delta, Delta[bz, bx, by * blk : (by + 1) * blk])

    return main


def split_layout(dQ):
    """Rows in groups of eight beside columns in groups of eight: how one fragment of a product lies."""
    return T.Layout(dQ.shape, lambda b, l, h, d: [b, l // 8, h, d // 8, (d % 2), 4 * (l % 8) + (d % 8) // 2])


@tilec.jit(out_idx=[1], pass_configs=FAST)
def bwd_convert(batch, heads, seq_len, dim, blk=64, dtype="float16"):
    """dQ of the accumulation type in the operands' type."""
    shape = [batch, seq_len, heads, dim]

    @T.prim_func
    def main(dQ: T.Tensor(shape, "float"), dQ_out: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(seq_len, blk), heads, batch, threads=128) as (bx, by, bz):
            T.annotate_layout({dQ: split_layout(dQ)})
            T.copy(dQ[bz, bx * blk : (bx + 1) * blk, by, :], dQ_out[bz, bx * blk : (bx + 1) * blk, by, :])

    return main


@tilec.jit(pass_configs=FAST)
def mha_bwd(batch, heads, seq_len, dim, is_causal=True, block_M=32, block_N=32, dtype="float16"):
    """dQ (added to what the caller zeroed), dK and dV from Q, K, V, dO, lse (base 2) and Delta."""
    sm_scale = (1.0 / dim) ** 0.5
    scale = (1.0 / dim) ** 0.5 * 1.44269504  # log2(e)
    shape = [batch, seq_len, heads, dim]
    accum_dtype = "float"

    @T.prim_func
    def flash_bwd(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        lse: T.Tensor([batch, heads, seq_len], accum_dtype),
        Delta: T.Tensor([batch, heads, seq_len], accum_dtype),
        dQ: T.Tensor(shape, accum_dtype),
        dK: T.Tensor(shape, dtype),
        dV: T.Tensor(shape, dtype),
    ):
        with T.Kernel(heads, T.ceildiv(seq_len, block_M), batch, threads=128) as (bx, by, bz):
            K_shared = T.alloc_shared([block_M, dim], dtype)
            dsT_shared = T.alloc_shared([block_M, block_N], dtype)
            q = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_M, dim], dtype)
            qkT = T.alloc_fragment([block_M, block_N], accum_dtype)
            dsT = T.alloc_fragment([block_M, block_N], accum_dtype)
            qkT_cast = T.alloc_fragment([block_M, block_N], dtype)
            dsT_cast = T.alloc_fragment([block_M, block_N], dtype)
            lse_shared = T.alloc_shared([block_N], accum_dtype)
            delta = T.alloc_shared([block_N], accum_dtype)
            do = T.alloc_shared([block_N, dim], dtype)
            dv = T.alloc_fragment([block_M, dim], accum_dtype)
            dk = T.alloc_fragment([block_M, dim], accum_dtype)
            dq = T.alloc_fragment([block_N, dim], accum_dtype)
            dv_shared = T.alloc_shared([block_M, dim], dtype)
            dk_shared = T.alloc_shared([block_M, dim], dtype)

            T.annotate_layout(
                {
                    dQ: split_layout(dQ),
                    K_shared: tilec.layout.make_swizzled_layout(K_shared),
                    dv_shared: tilec.layout.make_swizzled_layout(dv_shared),
                    dk_shared: tilec.layout.make_swizzled_layout(dk_shared),
                }
            )
            T.copy(K[bz, by * block_M : (by + 1) * block_M, bx, :], K_shared)
            T.copy(V[bz, by * block_M : (by + 1) * block_M, bx, :], V_shared)
            T.clear(dv)
            T.clear(dk)
            loop_st = T.floordiv(by * block_M, block_N) if is_causal else 0
            loop_ed = T.ceildiv(seq_len, block_N)
            for k in T.Pipelined(loop_st, loop_ed, num_stages=2):
                T.copy(Q[bz, k * block_N : (k + 1) * block_N, bx, :], q)
                T.clear(qkT)
                T.gemm(K_shared, q, qkT, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(lse[bz, bx, k * block_N : (k + 1) * block_N], lse_shared)
                for i, j in T.Parallel(block_M, block_N):
                    qkT[i, j] = T.exp2(qkT[i, j] * scale - lse_shared[j])
                if is_causal:
                    for i, j in T.Parallel(block_M, block_N):
                        qkT[i, j] = T.if_then_else(by * block_M + i <= k * block_N + j, qkT[i, j], 0)
                T.copy(dO[bz, k * block_N : (k + 1) * block_N, bx, :], do)
                T.clear(dsT)
                T.gemm(V_shared, do, dsT, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(qkT, qkT_cast)
                T.gemm(qkT_cast, do, dv, policy=T.GemmWarpPolicy.FullRow)
                T.copy(Delta[bz, bx, k * block_N : (k + 1) * block_N], delta)
                for i, j in T.Parallel(block_M, block_N):
                    dsT_cast[i, j] = qkT[i, j] * (dsT[i, j] - delta[j]) * sm_scale
                T.gemm(dsT_cast, q, dk, policy=T.GemmWarpPolicy.FullRow)
                T.copy(dsT_cast, dsT_shared)
                T.clear(dq)
                T.gemm(dsT_shared, K_shared, dq, transpose_A=True)
                for i, j in T.Parallel(block_N, dim):
                    if k * block_N + i < seq_len:
                        T.atomic_add(dQ[bz, k * block_N + i, bx, j], dq[i, j])
            T.copy(dv, dv_shared)
            T.copy(dk, dk_shared)
            T.copy(dv_shared, dV[bz, by * block_M : (by + 1) * block_M, bx, :])
            T.copy(dk_shared, dK[bz, by * block_M : (by + 1) * block_M, bx, :])

    return flash_bwd


@tilec.jit(pass_configs={"tl.enable_fast_math": True, "tl.disable_warp_specialized": True})
def gqa_bwd(batch, heads, seq_len, dim_qk, dim_v, is_causal=False, block_M=32, block_N=16, groups=2):
    """As mha_bwd, with ``groups`` query heads on a key head: dK and dV are summed with tile atomics, too."""
    sm_scale = (1.0 / dim_qk) ** 0.5
    scale = sm_scale * LOG2_E
    head_kv = heads // groups
    q_shape, k_shape = [batch, seq_len, heads, dim_qk], [batch, seq_len, head_kv, dim_qk]
    v_shape, o_shape = [batch, seq_len, head_kv, dim_v], [batch, seq_len, heads, dim_v]
    dtype, accum_dtype = T.bfloat16, T.float32

    @T.prim_func
    def flash_bwd(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(k_shape, dtype),
        V: T.Tensor(v_shape, dtype),
        dO: T.Tensor(o_shape, dtype),
        lse: T.Tensor([batch, heads, seq_len], accum_dtype),
        Delta: T.Tensor([batch, heads, seq_len], accum_dtype),
        dQ: T.Tensor(q_shape, accum_dtype),
        dK: T.Tensor(k_shape, accum_dtype),
        dV: T.Tensor(v_shape, accum_dtype),
    ):
        with T.Kernel(heads, T.ceildiv(seq_len, block_M), batch, threads=128) as (bx, by, bz):
            K_shared = T.alloc_shared([block_M, dim_qk], dtype)
            V_shared = T.alloc_shared([block_M, dim_v], dtype)
            q, do = T.alloc_shared([block_N, dim_qk], dtype), T.alloc_shared([block_N, dim_v], dtype)
            p_shared = T.alloc_shared([block_M, block_N], dtype)
            ds_shared = T.alloc_shared([block_M, block_N], dtype)
            qkT, dsT = [T.alloc_fragment([block_M, block_N], accum_dtype) for _ in range(2)]
            dv = T.alloc_fragment([block_M, dim_v], accum_dtype)
            dk = T.alloc_fragment([block_M, dim_qk], accum_dtype)
            dq = T.alloc_fragment([block_N, dim_qk], accum_dtype)
            lse_f, delta = [T.alloc_fragment([block_N], accum_dtype) for _ in range(2)]

            T.copy(K[bz, by * block_M : (by + 1) * block_M, bx // groups, :], K_shared)
            T.copy(V[bz, by * block_M : (by + 1) * block_M, bx // groups, :], V_shared)
            T.clear(dv)
            T.clear(dk)
            loop_st = T.floordiv(by * block_M, block_N) if is_causal else 0
            for k in T.Pipelined(loop_st, T.ceildiv(seq_len, block_N), num_stages=1):
                T.copy(Q[bz, k * block_N : (k + 1) * block_N, bx, :], q)
                T.copy(lse[bz, bx, k * block_N : (k + 1) * block_N], lse_f)
                T.gemm(K_shared, q, qkT, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    unseen = by * block_M + i > k * block_N + j if is_causal else False
                    p_shared[i, j] = T.if_then_else(unseen, 0, T.exp2(qkT[i, j] * scale - lse_f[j]))
                T.copy(dO[bz, k * block_N : (k + 1) * block_N, bx, :], do)
                T.gemm(V_shared, do, dsT, transpose_B=True, clear_accum=True)
                T.gemm(p_shared, do, dv)
                T.copy(Delta[bz, bx, k * block_N : (k + 1) * block_N], delta)
                for i, j in T.Parallel(block_M, block_N):
                    ds_shared[i, j] = p_shared[i, j] * (dsT[i, j] - delta[j]) * sm_scale
                T.gemm(ds_shared, q, dk)
                T.gemm(ds_shared, K_shared, dq, transpose_A=True, clear_accum=True)
                T.atomic_add(dQ[bz, k * block_N : (k + 1) * block_N, bx, :], dq, memory_order="release")
            T.atomic_add(dV[bz, by * block_M : (by + 1) * block_M, bx // groups, :], dv)
            T.atomic_add(dK[bz, by * block_M : (by + 1) * block_M, bx // groups, :], dk)

    return flash_bwd


@tilec.jit(pass_configs=FAST)
def varlen_bwd(total, heads, dim, batch, block_M=32, block_N=32, dtype="float16", accum_dtype="float"):
    """Sequences one after the other: rows cu[b] to cu[b + 1]. dQ comes zeroed."""
    sm_scale = dim**-0.5
    scale = sm_scale * LOG2_E
    shape, rows = [total, heads, dim], [heads, total]

    @T.macro
    def probabilities(S, lse_s, row0, col0, n):
        for i, j in T.Parallel(block_M, block_N):
            seen = (row0 + i < n) & (col0 + j < n)
            S[i, j] = T.if_then_else(seen, T.exp2(S[i, j] * scale - lse_s[j]), 0)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        lse: T.Tensor(rows, accum_dtype),
        Delta: T.Tensor(rows, accum_dtype),
        cu_seqlens: T.Tensor([batch + 1], "int32"),
        max_seqlen: T.int32,
        dQ: T.Tensor(shape, accum_dtype),
        dK: T.Tensor(shape, dtype),
        dV: T.Tensor(shape, dtype),
    ):
        with T.Kernel(heads, T.ceildiv(max_seqlen, block_M), batch, threads=128) as (bx, by, bz):
            Ks, Vs = T.alloc_shared([block_M, dim], dtype), T.alloc_shared([block_M, dim], dtype)
            q, do = T.alloc_shared([block_N, dim], dtype), T.alloc_shared([block_N, dim], dtype)
            S, dS = [T.alloc_fragment([block_M, block_N], accum_dtype) for _ in range(2)]
            P, dP = [T.alloc_fragment([block_M, block_N], dtype) for _ in range(2)]
            dP_shared = T.alloc_shared([block_M, block_N], dtype)
            lse_s, delta = T.alloc_shared([block_N], accum_dtype), T.alloc_shared([block_N], accum_dtype)
            dv, dk = [T.alloc_fragment([block_M, dim], accum_dtype) for _ in range(2)]
            dq = T.alloc_fragment([block_N, dim], accum_dtype)

            start = cu_seqlens[bz]
            length = cu_seqlens[bz + 1] - start
            if by * block_M < length:
                T.copy(K[start + by * block_M : start + (by + 1) * block_M, bx, :], Ks)
                T.copy(V[start + by * block_M : start + (by + 1) * block_M, bx, :], Vs)
                T.clear(dv)
                T.clear(dk)
                for k in T.Pipelined(T.ceildiv(length, block_N), num_stages=2):
                    first = start + k * block_N
                    T.copy(Q[first : first + block_N, bx, :], q)
                    T.copy(dO[first : first + block_N, bx, :], do)
                    for j in T.Parallel(block_N):
                        if k * block_N + j < length:
                            lse_s[j] = lse[bx, first + j]
                            delta[j] = Delta[bx, first + j]
                        else:
                            lse_s[j] = 0.0
                            delta[j] = 0.0
                    T.clear(S)
                    T.gemm(Ks, q, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    probabilities(S, lse_s, by * block_M, k * block_N, length)
                    T.clear(dS)
                    T.gemm(Vs, do, dS, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(S, P)
                    T.gemm(P, do, dv, policy=T.GemmWarpPolicy.FullRow)
                    for i, j in T.Parallel(block_M, block_N):
                        dP[i, j] = S[i, j] * (dS[i, j] - delta[j]) * sm_scale
                    T.gemm(dP, q, dk, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(dP, dP_shared)
                    T.clear(dq)
                    T.gemm(dP_shared, Ks, dq, transpose_A=True)
                    for i, d in T.Parallel(block_N, dim):
                        if k * block_N + i < length:
                            T.atomic_add(dQ[first + i, bx, d], dq[i, d])
                for i, d in T.Parallel(block_M, dim):
                    if by * block_M + i < length:
                        dV[start + by * block_M + i, bx, d] = dv[i, d]
                        dK[start + by * block_M + i, bx, d] = dk[i, d]

    return main


@tilec.jit
def window_dq(
    Q, K, V, dO, lse, Delta, window: int = 24, block_M: int = 32, block_N: int = 32, causal: bool = True
):
    """dQ of causal attention to the latest ``window`` keys, without atomics: blocks walk their keys again."""
    B, H, S, D = T.const("B, H, S, D")
    Q: T.Tensor[[B, H, S, D], T.bfloat16]
    K: T.Tensor[[B, H, S, D], T.bfloat16]
    V: T.Tensor[[B, H, S, D], T.bfloat16]
    dO: T.Tensor[[B, H, S, D], T.bfloat16]
    lse: T.Tensor[[B, H, S], T.float32]
    Delta: T.Tensor[[B, H, S], T.float32]
    dQ = T.empty((B, H, S, D), T.bfloat16)
    assert causal, "only causal windows"
    sm_scale = D**-0.5
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
        q, do = T.alloc_shared([block_M, D], T.bfloat16), T.alloc_shared([block_M, D], T.bfloat16)
        k_s, v_s = T.alloc_shared([block_N, D], T.bfloat16), T.alloc_shared([block_N, D], T.bfloat16)
        s, dp = (T.alloc_fragment([block_M, block_N], T.float32) for _ in range(2))
        ds = T.alloc_fragment([block_M, block_N], T.bfloat16)
        dq = T.alloc_fragment([block_M, D], T.float32)
        l_f, delta = T.alloc_fragment([block_M], T.float32), T.alloc_fragment([block_M], T.float32)
        T.use_swizzle(10)
        T.copy(Q[bz, by, bx * block_M, 0], q)
        T.copy(dO[bz, by, bx * block_M, 0], do)
        T.copy(lse[bz, by, bx * block_M], l_f)
        T.copy(Delta[bz, by, bx * block_M], delta)
        T.clear(dq)
        lo = T.max(0, (bx * block_M - window + 1) // block_N)
        hi = T.min(T.ceildiv(S, block_N), T.ceildiv((bx + 1) * block_M, block_N))
        for k in T.Pipelined(hi - lo, num_stages=2):
            T.copy(K[bz, by, (lo + k) * block_N, 0], k_s)
            T.copy(V[bz, by, (lo + k) * block_N, 0], v_s)
            T.gemm(q, k_s, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            T.gemm(do, v_s, dp, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, block_N):
                at_q, at_k = bx * block_M + i, (lo + k) * block_N + j
                p = T.if_then_else(
                    (at_k <= at_q) & (at_k > at_q - window), T.exp2(s[i, j] * sm_scale * LOG2_E - l_f[i]), 0.0
                )
                ds[i, j] = p * (dp[i, j] - delta[i]) * sm_scale
            T.gemm(ds, k_s, dq, policy=T.GemmWarpPolicy.FullRow)
        T.copy(dq, dQ[bz, by, bx * block_M, 0])
    return dQ


def _sink_configs():
    return [{"block": 32, "threads": 128}, {"block": 64, "threads": 128}]


@autotune(configs=_sink_configs())
@tilec.jit(out_idx=-1)
def sink_bwd(batch, heads, seq_len, block=64, threads=128, dtype="float16"):
    """Gradient of each head's sink logit: dS[h] = -sum_{b, i} exp(sink - lse) Delta, one block per head."""

    @T.prim_func
    def main(
        Sinks: T.Tensor((heads,), dtype),
        Delta: T.Tensor((batch, heads, seq_len), "float32"),
        lse: T.Tensor((batch, heads, seq_len), "float32"),
        dsinks: T.Tensor((heads,), "float32"),
    ):
        with T.Kernel(heads, threads=threads) as bx:
            delta, l_f = T.alloc_fragment([block], "float32"), T.alloc_fragment([block], "float32")
            part, total = T.alloc_fragment([block], "float32"), T.alloc_fragment([1], "float32")
            sink = T.alloc_local([1], "float32")
            sink[0] = Sinks[bx] * LOG2_E
            T.clear(part)
            for b, k in T.grid(batch, T.ceildiv(seq_len, block)):
                T.copy(Delta[b, bx, k * block : (k + 1) * block], delta)
                T.copy(lse[b, bx, k * block : (k + 1) * block], l_f)
                for i in T.Parallel(block):
                    if k * block + i < seq_len:
                        part[i] -= T.exp2(sink[0] - l_f[i]) * delta[i]
            T.reduce_sum(part, total, dim=0)
            dsinks[bx] = total[0]

    return main


# ---- references and inputs ----


def bwd_delta_reference(O, dO):
    return (wide(O) * wide(dO)).sum(-1).transpose(0, 2, 1)


def bwd_convert_reference(dQ):
    return dQ


def _heads(array, b, h):
    return array[b, :, h]


def _saved(Q, K, V, dO, seen, groups=1):
    """lse in base 2 and Delta, (batch, heads, length)."""
    B, S, H, _ = Q.shape
    lse, delta = np.zeros((B, H, S), np.float32), np.zeros((B, H, S), np.float32)
    for b in range(B):
        for h in range(H):
            out, l, _ = attend(Q[b, :, h], K[b, :, h // groups], V[b, :, h // groups], seen)
            lse[b, h], delta[b, h] = l * LOG2_E, (out * wide(dO[b, :, h])).sum(-1)
    return lse, delta


def _backward(Q, K, V, dO, seen, groups=1):
    dQ, dK, dV = (np.zeros(x.shape, np.float32) for x in (Q, K, V))
    for b in range(Q.shape[0]):
        for h in range(Q.shape[2]):
            g = h // groups
            dq, dk, dv = attend_backward(Q[b, :, h], K[b, :, g], V[b, :, g], dO[b, :, h], seen)
            dQ[b, :, h] = dq
            dK[b, :, g] += dk
            dV[b, :, g] += dv
    return dQ, dK, dV


def mha_bwd_reference(Q, K, V, dO, lse, Delta, dQ):
    return _backward(Q, K, V, dO, visible(Q.shape[1], Q.shape[1], causal=True))


def mha_bwd_inputs(dims, rng):
    shape = [dims[name] for name in ("batch", "seq_len", "heads", "dim")]
    Q, K, V, dO = (rng.standard_normal(shape).astype(np.float16) for _ in range(4))
    saved = _saved(Q, K, V, dO, visible(shape[1], shape[1], causal=True))
    return [Q, K, V, dO, *saved, np.zeros(shape, np.float32)]


def gqa_bwd_reference(Q, K, V, dO, lse, Delta, dQ, dK, dV):
    return _backward(Q, K, V, dO, None, groups=2)


def gqa_bwd_inputs(dims, rng):
    B, H, S, D, Dv = (dims[name] for name in ("batch", "heads", "seq_len", "dim_qk", "dim_v"))
    shapes = ((B, S, H, D), (B, S, H // 2, D), (B, S, H // 2, Dv))
    Q, K, V, dO = (wide(rng.standard_normal(shape)) for shape in (*shapes, (B, S, H, Dv)))
    return [Q, K, V, dO, *_saved(Q, K, V, dO, None, 2), *(np.zeros(shape, np.float32) for shape in shapes)]


def _ranges(cu):
    return [slice(int(cu[b]), int(cu[b + 1])) for b in range(len(cu) - 1)]


def varlen_bwd_reference(Q, K, V, dO, lse, Delta, cu_seqlens, max_seqlen, dQ):
    dQ, dK, dV = (np.zeros(Q.shape, np.float32) for _ in range(3))
    for rows in _ranges(cu_seqlens):
        for h in range(Q.shape[1]):
            parts = attend_backward(Q[rows, h], K[rows, h], V[rows, h], dO[rows, h])
            dQ[rows, h], dK[rows, h], dV[rows, h] = parts
    return dQ, dK, dV


def varlen_bwd_inputs(dims, rng):
    total, H, D, B = (dims[name] for name in ("total", "heads", "dim", "batch"))
    ends = np.sort(rng.choice(np.arange(1, total), B - 1, replace=False))
    cu = np.array([0, *ends, total], np.int32)
    Q, K, V, dO = (rng.standard_normal((total, H, D)).astype(np.float16) for _ in range(4))
    lse, delta = np.zeros((H, total), np.float32), np.zeros((H, total), np.float32)
    for rows in _ranges(cu):
        for h in range(H):
            out, l, _ = attend(Q[rows, h], K[rows, h], V[rows, h])
            lse[h, rows], delta[h, rows] = l * LOG2_E, (out * wide(dO[rows, h])).sum(-1)
    longest = int(np.diff(cu).max())
    return [Q, K, V, dO, lse, delta, cu, longest, np.zeros((total, H, D), np.float32)]


def window_dq_reference(Q, K, V, dO, lse, Delta):
    B, H, S, _ = Q.shape
    seen = visible(S, S, causal=True, window=24)
    out = np.zeros(Q.shape, np.float32)
    for b in range(B):
        for h in range(H):
            out[b, h] = attend_backward(Q[b, h], K[b, h], V[b, h], dO[b, h], seen)[0]
    return out


def window_dq_inputs(dims, rng):
    shape = [dims[name] for name in "BHSD"]
    Q, K, V, dO = (wide(rng.standard_normal(shape)) for _ in range(4))
    seen = visible(shape[2], shape[2], causal=True, window=24)
    swapped = [x.transpose(0, 2, 1, 3) for x in (Q, K, V, dO)]
    return [Q, K, V, dO, *_saved(*swapped, seen)]


def sink_bwd_reference(Sinks, Delta, lse):
    return -(np.exp2(wide(Sinks)[None, :, None] * LOG2_E - lse) * Delta).sum((0, 2))


def main(argv=None):
    """Gradients of one attention layer beside torch."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--n_ctx", type=int, default=128)
    parser.add_argument("--d_head", type=int, default=64)
    parser.add_argument("--causal", action="store_true")
    args = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (args.batch, args.n_ctx, args.heads, args.d_head)
    Q, K, V, dO = (torch.randn(shape, device=device, dtype=torch.float16) for _ in range(4))
    for each in (Q, K, V):
        each.requires_grad_()
    scores = torch.einsum("bqhd,bkhd->bhqk", Q.float(), K.float()) * args.d_head**-0.5
    if args.causal:
        future = torch.ones(args.n_ctx, args.n_ctx, dtype=torch.bool, device=device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    O = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), V.float()).half().contiguous()
    wanted = torch.autograd.grad(O, (Q, K, V), dO)
    with torch.no_grad():
        delta = bwd_delta(args.batch, args.heads, args.n_ctx, args.d_head)(O, dO)
        dQ = torch.zeros(shape, device=device, dtype=torch.float32)
        dK, dV = torch.empty_like(K), torch.empty_like(V)
        lse = scores.logsumexp(-1) * LOG2_E
        kernel = mha_bwd(args.batch, args.heads, args.n_ctx, args.d_head, args.causal)
        kernel(Q, K, V, dO, lse, delta, dQ, dK, dV)
        dQ = bwd_convert(args.batch, args.heads, args.n_ctx, args.d_head)(dQ)
    for got, want in zip((dQ, dK, dV), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
    print("All checks passed")


if __name__ == "__main__":
    main()
