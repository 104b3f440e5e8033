"""Compression and selection: keys and values of blocks become their means, queries meet the means, and the
weights that the heads of a group give a block say how much it matters. Launches of one function."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, wide
from online_softmax import FAST, FULL_ROW, vectors, weigh

import tilec
import tilec.language as T


@T.macro
def means(X, out, B, S, Hkv, D, block, dtype, bN=64):
    """out[b, n, h] = mean of rows n * block to (n + 1) * block - 1 of X: ``bN`` blocks a launched block."""
    with T.Kernel(T.ceildiv(S, bN * block), Hkv, B, threads=128) as (bx, by, bz):
        total, x = T.alloc_fragment([bN, D], "float32"), T.alloc_fragment([bN, D], dtype)
        T.clear(total)
        for r in T.serial(block):
            for j, d in T.Parallel(bN, D):
                x[j, d] = X[bz, (bx * bN + j) * block + r, by, d]
            for j, d in T.Parallel(bN, D):
                total[j, d] += x[j, d]
        for j, d in T.Parallel(bN, D):
            out[bz, bx * bN + j, by, d] = total[j, d] / block


@tilec.jit(out_idx=[-2, -1], pass_configs=FAST)
def compressed(B, S, H, Hkv, D, block=32, bM=64, bN=64, num_stages=2, threads=128, dtype="bfloat16"):
    """Attention to the means of blocks that lie before a query as a whole, and a score for each query, group
    of heads and block: the sum of the group's weights. S of whole blocks; queries that see nothing give 0."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    blocks = S // block
    q_shape, kv_shape, mean_shape = [B, S, H, D], [B, S, Hkv, D], [B, blocks, Hkv, D]

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        O: T.Tensor(q_shape, dtype),
        scores: T.Tensor([B, S, Hkv, blocks], "float32"),
    ):
        K_mean, V_mean = T.alloc_global(mean_shape, dtype), T.alloc_global(mean_shape, dtype)
        lse = T.alloc_global([B, H, S], "float32")
        means(K, K_mean, B, S, Hkv, D, block, dtype)
        means(V, V_mean, B, S, Hkv, D, block, dtype)
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            head = by // (H // Hkv)
            T.copy(Q[bz, bx * bM : (bx + 1) * bM, by, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -(2.0**30))
            seen = T.min((bx + 1) * bM // block, blocks)
            for k in T.Pipelined(T.ceildiv(seen, bN), num_stages=num_stages):
                T.copy(K_mean[bz, k * bN : (k + 1) * bN, head, :], Ks)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    whole = (k * bN + j + 1) * block <= bx * bM + i + 1
                    acc_s[i, j] = T.if_then_else(whole, acc_s[i, j], -T.infinity("float32"))
                weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, bM, bN, D)
                T.copy(V_mean[bz, k * bN : (k + 1) * bN, head, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= T.max(total[i], 1e-30)
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, bx * bM : (bx + 1) * bM, by, :])
            for i in T.Parallel(bM):
                if bx * bM + i < S:
                    lse[bz, by, bx * bM + i] = T.log2(T.max(total[i], 1e-30)) + top[i] * scale
        with T.Kernel(T.ceildiv(S, bM), Hkv, B * T.ceildiv(blocks, bN), threads=threads) as (bx, by, bz):
            Qs, Ks = T.alloc_shared([bM, D], dtype), T.alloc_shared([bN, D], dtype)
            lse_s = T.alloc_shared([bM], "float32")
            acc_s, mass = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], "float32")
            b, first = bz // T.ceildiv(blocks, bN), bz % T.ceildiv(blocks, bN) * bN
            T.copy(K_mean[b, first : first + bN, by, :], Ks)
            T.clear(mass)
            for g in T.Pipelined(H // Hkv, num_stages=num_stages):
                T.copy(Q[b, bx * bM : (bx + 1) * bM, by * (H // Hkv) + g, :], Qs)
                T.copy(lse[b, by * (H // Hkv) + g, bx * bM : (bx + 1) * bM], lse_s)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    whole = (first + j + 1) * block <= bx * bM + i + 1
                    mass[i, j] += T.if_then_else(whole, T.exp2(acc_s[i, j] * scale - lse_s[i]), 0)
            T.copy(mass, scores[b, bx * bM : (bx + 1) * bM, by, first : first + bN])

    return main


# ---- references ----


def compressed_reference(Q, K, V, block=32):
    (B, S, H, D), Hkv = Q.shape, K.shape[2]
    k, v = (wide(x).reshape(B, S // block, block, Hkv, D).mean(2) for x in (K, V))
    seen = (np.arange(S // block)[None, :] + 1) * block <= np.arange(S)[:, None] + 1
    out, scores = np.zeros(Q.shape, np.float32), np.zeros((B, S, Hkv, S // block), np.float32)
    for b, h in np.ndindex(B, H):
        g = h // (H // Hkv)
        out[b, :, h], _, weights = attend(Q[b, :, h], k[b, :, g], v[b, :, g], seen)
        scores[b, :, g] += weights
    return out, scores
