"""Gradients of softmax attention at the tiles of Hopper, from Q, K, V, O, dO and the log-sum-exp in base 2:
in one call with dQ through atomics of whole tiles, and without atomics in two walks. Tensors are (batch,
sequence, head, element)."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, attend_backward, visible
from online_softmax import FAST, FULL_ROW

import tilec
import tilec.language as T


@T.macro
def row_sums(O, dO, delta, B, S, H, D, dtype, rows=128):
    """delta[b, h, i] = sum_d O[b, i, h, d] dO[b, i, h, d]: a launch of its own."""
    with T.Kernel(T.ceildiv(S, rows), H, B, threads=128) as (bx, by, bz):
        o, do = T.alloc_fragment([rows, D], dtype), T.alloc_fragment([rows, D], dtype)
        product, total = T.alloc_fragment([rows, D], "float32"), T.alloc_fragment([rows], "float32")
        T.copy(O[bz, bx * rows : (bx + 1) * rows, by, :], o)
        T.copy(dO[bz, bx * rows : (bx + 1) * rows, by, :], do)
        for i, d in T.Parallel(rows, D):
            product[i, d] = T.cast(o[i, d], "float32") * T.cast(do[i, d], "float32")
        T.reduce_sum(product, total, dim=1)
        T.copy(total, delta[bz, by, bx * rows : (bx + 1) * rows])


@T.macro
def dq_rows(dQ_wide, dQ, B, S, H, D, rows=64):
    """dQ of float32 in the type of the operands."""
    with T.Kernel(T.ceildiv(S, rows), H, B, threads=128) as (bx, by, bz):
        T.copy(dQ_wide[bz, bx * rows : (bx + 1) * rows, by, :], dQ[bz, bx * rows : (bx + 1) * rows, by, :])


@tilec.jit(out_idx=[6, 7, 8], pass_configs=FAST)
def whole_bwd(B, S, H, D, causal=True, bM=128, bN=64, num_stages=2, threads=256, dtype="float16"):
    """A block has keys and meets all queries; its part of dQ goes through a shared tile and is added to
    memory as one tile. S of whole tiles of queries."""
    sm_scale = (1.0 / D) ** 0.5
    scale = sm_scale * LOG2_E
    shape, rows = [B, S, H, D], [B, H, S]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        O: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        lse: T.Tensor(rows, "float32"),
        dQ: T.Tensor(shape, dtype),
        dK: T.Tensor(shape, dtype),
        dV: T.Tensor(shape, dtype),
    ):
        delta, dQ_wide = T.alloc_global(rows, "float32"), T.alloc_global(shape, "float32")
        row_sums(O, dO, delta, B, S, H, D, dtype)
        with T.Kernel(T.ceildiv(S, bN), H, B, threads=128) as (bx, by, bz):
            T.fill(dQ_wide[bz, bx * bN : (bx + 1) * bN, by, 0:D], 0)
        with T.Kernel(H, T.ceildiv(S, bM), B, threads=threads) as (bx, by, bz):
            Ks, Vs = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            q, do = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            lse_s, delta_s = T.alloc_shared([bN], "float32"), T.alloc_shared([bN], "float32")
            S_t, dP_t = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], "float32")
            P, dS = T.alloc_fragment([bM, bN], dtype), T.alloc_fragment([bM, bN], dtype)
            dS_shared, dq_shared = T.alloc_shared([bM, bN], dtype), T.alloc_shared([bN, D], "float32")
            dv, dk = T.alloc_fragment([bM, D], "float32"), T.alloc_fragment([bM, D], "float32")
            dq = T.alloc_fragment([bN, D], "float32")
            dv_shared, dk_shared = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            T.copy(K[bz, by * bM : (by + 1) * bM, bx, :], Ks)
            T.copy(V[bz, by * bM : (by + 1) * bM, bx, :], Vs)
            T.clear(dv)
            T.clear(dk)
            first = by * bM // bN if causal else 0
            for k in T.Pipelined(first, T.ceildiv(S, bN), num_stages=num_stages):
                T.copy(Q[bz, k * bN : (k + 1) * bN, bx, :], q)
                T.copy(lse[bz, bx, k * bN : (k + 1) * bN], lse_s)
                T.clear(S_t)
                T.gemm(Ks, q, S_t, transpose_B=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    S_t[i, j] = T.exp2(S_t[i, j] * scale - lse_s[j])
                if causal:
                    for i, j in T.Parallel(bM, bN):
                        S_t[i, j] = T.if_then_else(by * bM + i <= k * bN + j, S_t[i, j], 0)
                T.copy(dO[bz, k * bN : (k + 1) * bN, bx, :], do)
                T.copy(delta[bz, bx, k * bN : (k + 1) * bN], delta_s)
                T.clear(dP_t)
                T.gemm(Vs, do, dP_t, transpose_B=True, policy=FULL_ROW)
                T.copy(S_t, P)
                T.gemm(P, do, dv, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    dS[i, j] = S_t[i, j] * (dP_t[i, j] - delta_s[j]) * sm_scale
                T.gemm(dS, q, dk, policy=FULL_ROW)
                T.copy(dS, dS_shared)
                T.clear(dq)
                T.gemm(dS_shared, Ks, dq, transpose_A=True)
                T.copy(dq, dq_shared)
                T.atomic_add(dQ_wide[bz, k * bN : (k + 1) * bN, bx, :], dq_shared, use_tma=True)
            T.copy(dv, dv_shared)
            T.copy(dk, dk_shared)
            T.copy(dv_shared, dV[bz, by * bM : (by + 1) * bM, bx, :])
            T.copy(dk_shared, dK[bz, by * bM : (by + 1) * bM, bx, :])
        dq_rows(dQ_wide, dQ, B, S, H, D)

    return main


@tilec.jit(out_idx=[-3, -2, -1], pass_configs=FAST)
def grouped_bwd(B, S, H, Hkv, D, bM=128, bN=64, num_stages=2, threads=256, dtype="bfloat16"):
    """Causal, without atomics: one walk over the queries of all heads of a group for dK and dV, one over the
    keys for dQ. S of whole tiles."""
    sm_scale = (1.0 / D) ** 0.5
    scale = sm_scale * LOG2_E
    q_shape, kv_shape, rows = [B, S, H, D], [B, S, Hkv, D], [B, H, S]

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        O: T.Tensor(q_shape, dtype),
        dO: T.Tensor(q_shape, dtype),
        lse: T.Tensor(rows, "float32"),
        dQ: T.Tensor(q_shape, dtype),
        dK: T.Tensor(kv_shape, dtype),
        dV: T.Tensor(kv_shape, dtype),
    ):
        delta = T.alloc_global(rows, "float32")
        row_sums(O, dO, delta, B, S, H, D, dtype)
        with T.Kernel(T.ceildiv(S, bM), Hkv, B, threads=threads) as (bx, by, bz):
            Ks, Vs = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            q, do = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            lse_s, delta_s = T.alloc_shared([bN], "float32"), T.alloc_shared([bN], "float32")
            S_t, dP_t = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], "float32")
            P, dS = T.alloc_fragment([bM, bN], dtype), T.alloc_fragment([bM, bN], dtype)
            dv, dk = T.alloc_fragment([bM, D], "float32"), T.alloc_fragment([bM, D], "float32")
            T.copy(K[bz, bx * bM : (bx + 1) * bM, by, :], Ks)
            T.copy(V[bz, bx * bM : (bx + 1) * bM, by, :], Vs)
            T.clear(dv)
            T.clear(dk)
            for g in T.serial(H // Hkv):
                head = by * (H // Hkv) + g
                for k in T.Pipelined(bx * bM // bN, T.ceildiv(S, bN), num_stages=num_stages):
                    T.copy(Q[bz, k * bN : (k + 1) * bN, head, :], q)
                    T.copy(dO[bz, k * bN : (k + 1) * bN, head, :], do)
                    T.copy(lse[bz, head, k * bN : (k + 1) * bN], lse_s)
                    T.copy(delta[bz, head, k * bN : (k + 1) * bN], delta_s)
                    T.gemm(Ks, q, S_t, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                    T.gemm(Vs, do, dP_t, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                    for i, j in T.Parallel(bM, bN):
                        seen = bx * bM + i <= k * bN + j
                        S_t[i, j] = T.if_then_else(seen, T.exp2(S_t[i, j] * scale - lse_s[j]), 0)
                    T.copy(S_t, P)
                    T.gemm(P, do, dv, policy=FULL_ROW)
                    for i, j in T.Parallel(bM, bN):
                        dS[i, j] = S_t[i, j] * (dP_t[i, j] - delta_s[j]) * sm_scale
                    T.gemm(dS, q, dk, policy=FULL_ROW)
            T.copy(dv, dV[bz, bx * bM : (bx + 1) * bM, by, :])
            T.copy(dk, dK[bz, bx * bM : (bx + 1) * bM, by, :])
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            q, do = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            dq_shared = T.alloc_shared([bM, D], dtype)
            lse_f, delta_f = T.alloc_fragment([bM], "float32"), T.alloc_fragment([bM], "float32")
            scores, dP = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], "float32")
            dS, dq = T.alloc_fragment([bM, bN], dtype), T.alloc_fragment([bM, D], "float32")
            head = by // (H // Hkv)
            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], q)
            T.copy(dO[bz, bx * bM : (bx + 1) * bM, by, :], do)
            T.copy(lse[bz, by, bx * bM : (bx + 1) * bM], lse_f)
            T.copy(delta[bz, by, bx * bM : (bx + 1) * bM], delta_f)
            T.clear(dq)
            for k in T.Pipelined(T.ceildiv((bx + 1) * bM, bN), num_stages=num_stages):
                T.copy(K[bz, k * bN : (k + 1) * bN, head, :], Ks)
                T.copy(V[bz, k * bN : (k + 1) * bN, head, :], Vs)
                T.clear(scores)
                T.gemm(q, Ks, scores, transpose_B=True, policy=FULL_ROW)
                T.clear(dP)
                T.gemm(do, Vs, dP, transpose_B=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    weight = T.exp2(scores[i, j] * scale - lse_f[i])
                    seen = k * bN + j <= bx * bM + i
                    dS[i, j] = T.if_then_else(seen, weight * (dP[i, j] - delta_f[i]) * sm_scale, 0)
                T.gemm(dS, Ks, dq, policy=FULL_ROW)
            T.copy(dq, dq_shared)
            T.copy(dq_shared, dQ[bz, bx * bM : (bx + 1) * bM, by, :])

    return main


# ---- references and inputs ----


def whole_bwd_reference(Q, K, V, O, dO, lse):
    dq, dk, dv = (np.zeros(each.shape, np.float32) for each in (Q, K, V))
    groups, seen = Q.shape[2] // K.shape[2], visible(Q.shape[1], Q.shape[1], causal=True)
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        g = h // groups
        found = attend_backward(Q[b, :, h], K[b, :, g], V[b, :, g], dO[b, :, h], seen)
        dq[b, :, h] = found[0]
        dk[b, :, g] += found[1]
        dv[b, :, g] += found[2]
    return dq, dk, dv


def grouped_bwd_reference(Q, K, V, O, dO, lse):
    return whole_bwd_reference(Q, K, V, O, dO, lse)


def whole_bwd_inputs(dims, rng):
    """O and the log-sum-exp are what the forward pass gives, causal; where that takes long, near it."""
    B, S, H, D = (dims[name] for name in ("B", "S", "H", "D"))
    kv = (B, S, dims.get("Hkv", H), D)
    q, k, v, do = (rng.standard_normal(shape) for shape in ((B, S, H, D), kv, kv, (B, S, H, D)))
    out, lse = np.zeros(q.shape), np.zeros((B, H, S)) + np.log2(np.arange(1, S + 1)) + LOG2_E / 2
    if S > 1024:
        return [q, k, v, out, do, lse]
    seen = visible(S, S, causal=True)
    for b, h in np.ndindex(B, H):
        g = h * kv[2] // H
        out[b, :, h], natural, _ = attend(q[b, :, h], k[b, :, g], v[b, :, g], seen)
        lse[b, h] = natural * LOG2_E
    return [q, k, v, out, do, lse]
