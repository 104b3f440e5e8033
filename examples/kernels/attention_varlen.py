"""Flash attention forward over sequences back to back, in the factory form, with log-sum-exp.

Sequence b owns query rows q_bounds[b] to q_bounds[b + 1] - 1 and key rows k_bounds[b] to k_bounds[b + 1] - 1
(what other libraries call cu_seqlens). H query heads share Hkv key heads; keys have D channels, values Dv.
"""

from __future__ import annotations

import math

import numpy as np
from attention_blocks import LOWEST, softmax_step
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-2, -1])
def attention_varlen(
    tokens,
    keys,
    H,
    Hkv,
    D,
    B,
    Dv=0,
    causal=False,
    dtype="bfloat16",
    bM=64,
    bN=64,
    num_stages=2,
    threads=128,
):
    """O = softmax(Q K^T / sqrt(D)) V inside each sequence, and L = log(sum(exp(scores))) per query and head.

    ``longest`` is at least the largest number of queries of a sequence; it sizes the grid. Causal: the last
    query of a sequence sees its last key. Dv = 0 stands for D. A query without keys gives zeros and -inf.
    """
    scale = D**-0.5 * LOG2_E
    width = Dv or D

    @T.prim_func
    def main(
        Q: T.Tensor((tokens, H, D), dtype),
        K: T.Tensor((keys, Hkv, D), dtype),
        V: T.Tensor((keys, Hkv, width), dtype),
        q_bounds: T.Tensor((B + 1,), "int32"),
        k_bounds: T.Tensor((B + 1,), "int32"),
        longest: T.int32,
        O: T.Tensor((tokens, H, width), dtype),
        L: T.Tensor((H, tokens), "float32"),
    ):
        """Flash attention of ragged batches with log-sum-exp."""
        with T.Kernel(T.ceildiv(longest, bM), H, B, threads=threads) as (bx, h, b):
            Qs, Ks = T.alloc_shared((bM, D), dtype), T.alloc_shared((bN, D), dtype)
            Vs = T.alloc_shared((bN, width), dtype)
            S, o = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, width), "float32")
            top, old, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(4))
            P = S if dtype == "float32" else T.alloc_fragment((bM, bN), dtype)
            q0, k0 = q_bounds[b], k_bounds[b]
            queries, seen = q_bounds[b + 1] - q0, T.min(k_bounds[b + 1] - k0, keys)
            T.copy(Q[q0 + bx * bM : q0 + (bx + 1) * bM, h, :], Qs)
            T.clear(o)
            T.clear(total)
            T.fill(top, LOWEST)
            reach = T.max(T.min(seen, (bx + 1) * bM + seen - queries), 0) if causal else seen
            steps = T.if_then_else(bx * bM < queries, T.ceildiv(reach, bN), 0)
            for k in T.Pipelined(steps, num_stages=num_stages):
                T.copy(K[k0 + k * bN : k0 + (k + 1) * bN, h * Hkv // H, :], Ks)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(bM, bN):
                    visible = k * bN + j < seen
                    if causal:
                        visible = visible & (k * bN + j <= bx * bM + i + seen - queries)
                    S[i, j] = T.if_then_else(visible, S[i, j], -T.infinity("float32"))
                softmax_step(S, o, top, old, total, part, scale, bM, bN, width)
                for j, d in T.Parallel(bN, width):
                    Vs[j, d] = T.if_then_else(k * bN + j < seen, V[k0 + k * bN + j, h * Hkv // H, d], 0)
                if dtype != "float32":
                    T.copy(S, P)
                T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(bM, width):
                if bx * bM + i < queries:
                    O[q0 + bx * bM + i, h, d] = T.if_then_else(total[i] > 0.0, o[i, d] / total[i], 0.0)
            for i in T.Parallel(bM):
                if bx * bM + i < queries:
                    L[h, q0 + bx * bM + i] = top[i] * D**-0.5 + T.log(total[i])

    return main


def attend(q, k, v, visible):
    """softmax(q k^T / sqrt(D)) v of one head, and the log of its sum; zeros and -inf without keys."""
    scores = np.where(visible, q @ k.T / math.sqrt(q.shape[1]), -np.inf)
    top = scores.max(axis=1, initial=LOWEST, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = (top + np.log(total))[:, 0]
    return weights @ v / np.where(total > 0, total, 1), logs


def attention_varlen_reference(Q, K, V, q_bounds, k_bounds, longest=None, causal=False):
    """NumPy twin of :func:`attention_varlen`."""
    q, k, v = f32(Q), f32(K), f32(V)
    tokens, heads, _ = q.shape
    out, logs = np.full((tokens, heads, v.shape[2]), np.nan, np.float32), np.full((heads, tokens), np.nan)
    pairs = zip(q_bounds[:-1], q_bounds[1:], k_bounds[:-1], k_bounds[1:], strict=True)
    for q0, q1, k0, k1 in pairs:
        shape = (q1 - q0, k1 - k0)
        visible = np.tri(*shape, shape[1] - shape[0], dtype=bool) if causal else np.ones(shape, bool)
        for h in range(heads):
            shared = h * k.shape[1] // heads
            out[q0:q1, h], logs[h, q0:q1] = attend(q[q0:q1, h], k[k0:k1, shared], v[k0:k1, shared], visible)
    return out, logs.astype(np.float32)


def attention_varlen_causal_reference(Q, K, V, q_bounds, k_bounds, longest=None):
    """NumPy twin of :func:`attention_varlen` with ``causal``."""
    return attention_varlen_reference(Q, K, V, q_bounds, k_bounds, longest, causal=True)


def attention_varlen_inputs(dims, rng):
    """Sequences that cover every query and key; with several of them some may be empty."""
    tokens, keys, H, Hkv, D, B = (dims[name] for name in ("tokens", "keys", "H", "Hkv", "D", "B"))
    shapes = ((tokens, H, D), (keys, Hkv, D), (keys, Hkv, dims.get("Dv", D)))
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    q_bounds, k_bounds = (_bounds(rows, B, rng) for rows in (tokens, keys))
    return [q, k, v, q_bounds, k_bounds, int(np.diff(q_bounds).max(initial=0))]


def _bounds(rows, count, rng):
    cuts = np.sort(rng.integers(0, rows + 1, max(count - 1, 0)))
    return np.concatenate([[0], cuts, [rows]]).astype(np.int32)[: count + 1]
