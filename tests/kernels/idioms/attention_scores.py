"""What models do to scores before the softmax: a bias for every pair, slopes on the distance, a cap, a
window, and sinks, which take weight and give nothing. Heads stand before the sequence."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, visible, wide
from online_softmax import FAST, FULL_ROW, vectors, weigh

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def biased(B, H, S, D, bM=128, bN=64, num_stages=2, threads=256, dtype="bfloat16"):
    """softmax(Q K^T / sqrt(D) + Bias) V; tiles of the bias come through shared memory."""
    scale = (1.0 / D) ** 0.5
    shape = [B, H, S, D]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        Bias: T.Tensor([H, S, S], dtype),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            bias = T.alloc_shared([bM, bN], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            T.copy(Q[bz, by, bx * bM : (bx + 1) * bM, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(S, bN), num_stages=num_stages):
                T.copy(K[bz, by, k * bN : (k + 1) * bN, :], Ks)
                T.copy(Bias[by, bx * bM, k * bN], bias)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    logit = acc_s[i, j] * scale + bias[i, j]
                    acc_s[i, j] = T.if_then_else(k * bN + j < S, logit, -T.infinity("float32"))
                weigh(acc_s, P, acc_o, top, old, corr, part, total, LOG2_E, bM, bN, D)
                T.copy(V[bz, by, k * bN : (k + 1) * bN, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, by, bx * bM : (bx + 1) * bM, :])

    return main


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def kept_documents(B, H, S, D, bM=128, bN=64, num_stages=2, threads=256, dtype="bfloat16"):
    """softmax(Q K^T / sqrt(D)) V of keys that are kept and in the document of the query."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    shape = [B, H, S, D]

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        documents: T.Tensor([B, S], "int32"),
        keep: T.Tensor([B, S], "uint8"),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            T.copy(Q[bz, by, bx * bM : (bx + 1) * bM, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -(2.0**30))
            for k in T.Pipelined(T.ceildiv(S, bN), num_stages=num_stages):
                T.copy(K[bz, by, k * bN : (k + 1) * bN, :], Ks)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    kept = (keep[bz, k * bN + j] != 0) & (
                        documents[bz, bx * bM + i] == documents[bz, k * bN + j]
                    )
                    acc_s[i, j] = T.if_then_else(kept & (k * bN + j < S), acc_s[i, j], -T.infinity("float32"))
                weigh(acc_s, P, acc_o, top, old, corr, part, total, scale, bM, bN, D)
                T.copy(V[bz, by, k * bN : (k + 1) * bN, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, by, bx * bM : (bx + 1) * bM, :])

    return main


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def capped_window(
    B, H, S, D, window=128, cap=30.0, bM=128, bN=64, num_stages=2, threads=256, dtype="bfloat16"
):
    """cap * tanh(score / cap), of the latest ``window`` keys alone: the loop starts at the first of them."""
    scale = (1.0 / D) ** 0.5
    shape = [B, H, S, D]

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
            T.copy(Q[bz, by, bx * bM : (bx + 1) * bM, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -(2.0**30))
            first = T.max(0, (bx * bM - window + 1) // bN)
            last = T.min(T.ceildiv(S, bN), T.ceildiv((bx + 1) * bM, bN))
            for k in T.Pipelined(first, last, num_stages=num_stages):
                T.copy(K[bz, by, k * bN : (k + 1) * bN, :], Ks)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    acc_s[i, j] = cap * T.tanh(acc_s[i, j] * (scale / cap))
                for i, j in T.Parallel(bM, bN):
                    distance = bx * bM + i - k * bN - j
                    seen = (distance >= 0) & (distance < window)
                    acc_s[i, j] = T.if_then_else(seen, acc_s[i, j], -T.infinity("float32"))
                weigh(acc_s, P, acc_o, top, old, corr, part, total, LOG2_E, bM, bN, D)
                T.copy(V[bz, by, k * bN : (k + 1) * bN, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, by, bx * bM : (bx + 1) * bM, :])

    return main


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def sloped_sinks(B, H, Hkv, S, D, bM=128, bN=64, num_stages=2, threads=256, dtype="float16"):
    """Causal, a slope of each head on the distance, and a logit of each head that only takes weight."""
    scale = (1.0 / D) ** 0.5 * LOG2_E
    q_shape, kv_shape = [B, H, S, D], [B, Hkv, S, D]

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        slopes: T.Tensor([H], "float32"),
        sinks: T.Tensor([H], "float32"),
        O: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, bM), H, B, threads=threads) as (bx, by, bz):
            Qs, Os = T.alloc_shared([bM, D], dtype), T.alloc_shared([bM, D], dtype)
            Ks, Vs = T.alloc_shared([bN, D], dtype), T.alloc_shared([bN, D], dtype)
            acc_s, P = T.alloc_fragment([bM, bN], "float32"), T.alloc_fragment([bM, bN], dtype)
            acc_o = T.alloc_fragment([bM, D], "float32")
            top, old, corr, part, total = vectors(bM)
            head = by // (H // Hkv)
            slope = slopes[by] * LOG2_E
            T.copy(Q[bz, by, bx * bM : (bx + 1) * bM, :], Qs)
            T.clear(acc_o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(T.min((bx + 1) * bM, S), bN), num_stages=num_stages):
                T.copy(K[bz, head, k * bN : (k + 1) * bN, :], Ks)
                T.clear(acc_s)
                T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=FULL_ROW)
                for i, j in T.Parallel(bM, bN):
                    distance = bx * bM + i - k * bN - j
                    logit = acc_s[i, j] * scale - slope * T.cast(distance, "float32")
                    acc_s[i, j] = T.if_then_else(distance >= 0, logit, -T.infinity("float32"))
                weigh(acc_s, P, acc_o, top, old, corr, part, total, 1.0, bM, bN, D)
                T.copy(V[bz, head, k * bN : (k + 1) * bN, :], Vs)
                T.gemm(P, Vs, acc_o, policy=FULL_ROW)
            for i in T.Parallel(bM):
                total[i] += T.exp2(sinks[by] * LOG2_E - top[i])
            for i, d in T.Parallel(bM, D):
                acc_o[i, d] /= total[i]
            T.copy(acc_o, Os)
            T.copy(Os, O[bz, by, bx * bM : (bx + 1) * bM, :])

    return main


# ---- references ----


def _weighed(Q, K, V, logits):
    """``logits(raw, b, h)``: natural ones of the scaled scores; one column more is a sink."""
    groups = Q.shape[1] // K.shape[1]
    out = np.zeros(Q.shape, np.float32)
    for b, h in np.ndindex(Q.shape[:2]):
        raw = wide(Q[b, h]) @ wide(K[b, h // groups]).T * Q.shape[3] ** -0.5
        found = logits(raw, b, h)
        weights = np.exp(found - found.max(1, keepdims=True))
        weights = (weights / weights.sum(1, keepdims=True))[:, : raw.shape[1]]
        out[b, h] = weights @ wide(V[b, h // groups])
    return out


def biased_reference(Q, K, V, Bias):
    return _weighed(Q, K, V, lambda raw, b, h: raw + wide(Bias[h]))


def kept_documents_inputs(dims, rng):
    """Three documents one behind the other; of the keys of some tiles one is left out."""
    B, H, S, D = (dims[name] for name in ("B", "H", "S", "D"))
    qkv = [rng.standard_normal((B, H, S, D)) for _ in range(3)]
    documents = np.repeat(np.arange(3), (S // 2, S // 4, S))[:S]
    keep = np.ones((B, S), np.uint8)
    keep[:, [5, S - 3]] = 0
    return [*qkv, np.stack([documents] * B).astype(np.int32), keep]


def kept_documents_reference(Q, K, V, documents, keep):
    seen = (documents[:, :, None] == documents[:, None, :]) & (keep[:, None, :] != 0)
    return _weighed(Q, K, V, lambda raw, b, h: np.where(seen[b], raw, -np.inf))


def capped_window_reference(Q, K, V, window=128, cap=30.0):
    seen = visible(Q.shape[2], Q.shape[2], causal=True, window=window)
    return _weighed(Q, K, V, lambda raw, b, h: np.where(seen, cap * np.tanh(raw / cap), -np.inf))


def sloped_sinks_reference(Q, K, V, slopes, sinks):
    n = np.arange(Q.shape[2])
    distance = n[:, None] - n[None, :]

    def logits(raw, b, h):
        shown = np.where(distance >= 0, raw - slopes[h] * distance, -np.inf)
        return np.concatenate([shown, np.full((len(n), 1), sinks[h], np.float32)], 1)

    return _weighed(Q, K, V, logits)
