"""Softmax attention, forward, at the tiles of Hopper: results through a shared tile, queries scaled as they
are loaded. Tensors are (batch, sequence, head, element)."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, visible
from online_softmax import FAST, FULL_ROW, vectors, weigh

import tilec
import tilec.language as T


@tilec.jit(out_idx=[3], pass_configs=FAST)
def staged_output(B, S, H, D, causal=False, bM=128, bN=128, num_stages=2, threads=256, dtype="float16"):
    """The mask stands in the scores before the product; the output goes through a shared tile."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    shape = [B, S, H, D]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)

            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], Qs)
            T.fill(acc_o, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            blocks = T.ceildiv(S, bN)
            trips = T.min(blocks, T.ceildiv((bx + 1) * bM, bN)) if causal else blocks
            for k in T.Pipelined(trips, num_stages=num_stages):
                T.copy(K[bz, k * bN : (k + 1) * bN, by, :], Ks)
                for i, j in T.Parallel(bM, bN):
                    hidden = k * bN + j >= S
                    if causal:
                        hidden = hidden | (bx * bM + i < k * bN + j)
                    acc_s[i, j] = T.if_then_else(hidden, -T.infinity("float32"), 0)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=FULL_ROW)
                weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, bM, bN, D)
                T.copy(V[bz, k * bN : (k + 1) * bN, by, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx * bM : (bx + 1) * bM, by, :])

    return main


@tilec.jit(out_idx=[-2, -1], pass_configs=FAST)
def scaled_query(B, Sq, Sk, H, D, bM=128, bN=128, num_stages=2, threads=256, dtype="bfloat16"):
    """Queries meet the scale on their way into shared memory; also the log-sum-exp. Sk of whole tiles."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    q_shape, kv_shape = [B, Sq, H, D], [B, Sk, H, D]

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        O: T.Tensor(q_shape, dtype),
        lse: T.Tensor([B, H, Sq], "float32"),
    ):
        with T.Kernel(T.ceildiv(Sq, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)

            for i, d in T.Parallel(bM, D):
                Qs[i, d] = T.if_then_else(bx * bM + i < Sq, Q[bz, bx * bM + i, by, d] * scale, 0)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(Sk, bN), num_stages=num_stages):
                T.copy(K[bz, k * bN : (k + 1) * bN, by, :], Ks)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                weigh(acc_s, P, acc_o, top, old, corr, part, total, 1.0, bM, bN, D)
                T.copy(V[bz, k * bN : (k + 1) * bN, by, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx * bM : (bx + 1) * bM, by, :])
            for i in T.Parallel(bM):
                total[i] = T.log2(total[i]) + top[i]
            T.copy(total, lse[bz, by, bx * bM : (bx + 1) * bM])

    return main


# ---- references and inputs ----


def _heads_of(Q, K, V, seen=None, scale=None):
    """Outputs and natural log-sum-exp; ``seen(b, h)`` gives a mask, K and V may have fewer heads."""
    groups = Q.shape[2] // K.shape[2]
    out, lse = (
        np.zeros((*Q.shape[:3], V.shape[3]), np.float32),
        np.zeros((*Q.shape[:1], Q.shape[2], Q.shape[1])),
    )
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        mask = seen(b, h) if seen else None
        out[b, :, h], lse[b, h], _ = attend(
            Q[b, :, h], K[b, :, h // groups], V[b, :, h // groups], mask, scale
        )
    return out, lse.astype(np.float32)


def staged_output_reference(Q, K, V):
    return _heads_of(Q, K, V)[0]


def staged_causal_reference(Q, K, V):
    S = Q.shape[1]
    return _heads_of(Q, K, V, lambda b, h: visible(S, S, causal=True))[0]


def scaled_query_reference(Q, K, V):
    out, lse = _heads_of(Q, K, V)
    return out, lse * LOG2_E
