"""Flash attention forward, in the factory form: dense batches, padded ones with lengths, and ragged ones.

Scores of one block of queries meet the keys block by block; a running maximum and sum per query keep the
softmax exact, and no score leaves the block. Rows of Q, K and V have their own strides: they may be slices of
one fused projection or views into a cache. Grouped-query attention: H query heads share Hkv key heads, query
head h reads key head h * Hkv // H. A query that sees no key gives zeros.
"""

from __future__ import annotations

import numpy as np
from attention_blocks import LOWEST, attend_block, attend_in_parts, columns
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def attention(
    B,
    Sq,
    Sk,
    H,
    Hkv,
    D,
    q_batch,
    q_row,
    kv_batch,
    kv_row,
    causal=False,
    dtype="float32",
    bM=32,
    bN=64,
    width=128,
    num_stages=2,
    threads=128,
    blocks=0,
):
    """O = softmax(Q K^T / sqrt(D)) V over a padded batch; key j of sequence b counts if j < lengths[b].

    Causal: query i sees keys up to i + Sk - Sq (the last query sees the last key). Where D is a run-time
    value, it is at most ``width`` (a guard of the manifest). With ``blocks``, heads that share a key head
    stand in one tile and the keys are split until there are so many blocks, with 1 not at all: for few
    queries.
    """

    @T.prim_func
    def main(
        Q: T.StridedTensor((B, Sq, H, D), (q_batch, q_row, D, 1), dtype),
        K: T.StridedTensor((B, Sk, Hkv, D), (kv_batch, kv_row, D, 1), dtype),
        V: T.StridedTensor((B, Sk, Hkv, D), (kv_batch, kv_row, D, 1), dtype),
        lengths: T.Tensor((B,), "int32"),
        O: T.Tensor((B, Sq, H, D), dtype),
    ):
        """Flash attention of a padded batch with key lengths."""
        shape = (Sq, Sk, H, Hkv, D, columns(D, width))
        if blocks:
            tiles = (bM, bN, num_stages)
            attend_in_parts(Q, K, V, O, None, lengths, B, shape, causal, dtype, tiles, threads, blocks)
        else:
            with T.Kernel(T.ceildiv(Sq, bM), H, B, threads=threads) as (bx, h, b):
                keys = T.min(lengths[b], Sk)
                attend_block(Q, K, V, O, None, keys, True, bx, h, b, shape, causal, dtype, bM, bN, num_stages)

    return main


@tilec.jit(out_idx=[-2, -1])
def attention_dense(
    B,
    Sq,
    Sk,
    H,
    Hkv,
    D,
    q_batch,
    q_row,
    kv_batch,
    kv_row,
    causal=False,
    dtype="float32",
    bM=32,
    bN=64,
    width=128,
    num_stages=2,
    threads=128,
    blocks=0,
):
    """:func:`attention` where all Sk keys of every sequence count, with L = log(sum(exp(scores))) per query.

    A query that sees no key (causal, Sq > Sk) gives zeros in O and -inf in L.
    """

    @T.prim_func
    def main(
        Q: T.StridedTensor((B, Sq, H, D), (q_batch, q_row, D, 1), dtype),
        K: T.StridedTensor((B, Sk, Hkv, D), (kv_batch, kv_row, D, 1), dtype),
        V: T.StridedTensor((B, Sk, Hkv, D), (kv_batch, kv_row, D, 1), dtype),
        O: T.Tensor((B, Sq, H, D), dtype),
        L: T.Tensor((B, H, Sq), "float32"),
    ):
        """Flash attention of a batch of equal lengths, with log-sum-exp."""
        shape = (Sq, Sk, H, Hkv, D, columns(D, width))
        if blocks:
            tiles = (bM, bN, num_stages)
            attend_in_parts(Q, K, V, O, L, None, B, shape, causal, dtype, tiles, threads, blocks)
        else:
            with T.Kernel(T.ceildiv(Sq, bM), H, B, threads=threads) as (bx, h, b):
                attend_block(Q, K, V, O, L, Sk, False, bx, h, b, shape, causal, dtype, bM, bN, num_stages)

    return main


@T.macro
def softmax_step_by_lanes(S, o, top, old, total, part, bM, bN, D):
    """:func:`softmax_step` on scores (keys, queries), already scaled: every row statistic is a vector."""
    T.copy(top, old)
    T.reduce_max(S, top, dim=0, clear=False)
    for j, i in T.Parallel(bN, bM):
        S[j, i] = T.exp2(S[j, i] - top[i])
    T.reduce_sum(S, part, dim=0)
    for i in T.Parallel(bM):
        old[i] = T.exp2(old[i] - top[i])
    for i in T.Parallel(bM):
        total[i] = total[i] * old[i] + part[i]
    for d, i in T.Parallel(D, bM):
        o[d, i] = o[d, i] * old[i]


@tilec.jit(out_idx=[-1])
def attention_ragged(tokens, H, Hkv, D, q_row, kv_row, B, causal=False, bM=32, bN=16, num_stages=2):
    """Self-attention inside each of B sequences, float32: rows starts[b] to starts[b] + lengths[b] - 1.

    ``longest`` is at least the largest length; it sizes the grid. Rows of no sequence are left as they are.
    Scores are held as (keys, queries), S^T = K Q^T and O^T = V^T P^T: vector lanes are queries, so maximum
    and sum need no work across lanes, and only the queries are transposed.
    """
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.StridedTensor((tokens, H, D), (q_row, D, 1), "float32"),
        K: T.StridedTensor((tokens, Hkv, D), (kv_row, D, 1), "float32"),
        V: T.StridedTensor((tokens, Hkv, D), (kv_row, D, 1), "float32"),
        starts: T.Tensor((B,), "int32"),
        lengths: T.Tensor((B,), "int32"),
        longest: T.int32,
        O: T.Tensor((tokens, H, D), "float32"),
    ):
        """Flash attention inside each sequence of a ragged batch."""
        with T.Kernel(T.ceildiv(longest, bM), H, B, threads=128) as (bx, h, b):
            Qt = T.alloc_shared((D, bM), "float32")
            Ks, Vs = T.alloc_shared((bN, D), "float32"), T.alloc_shared((bN, D), "float32")
            S = T.alloc_fragment((bN, bM), "float32")
            o = T.alloc_fragment((D, bM), "float32")
            top, old, total, part = [T.alloc_fragment((bM,), "float32") for _ in range(4)]
            start, length = starts[b], lengths[b]
            row = start + bx * bM
            reach = T.min(length, (bx + 1) * bM) if causal else length
            if bx * bM < length:
                for d, i in T.Parallel(D, bM):
                    Qt[d, i] = Q[row + i, h, d] * scale
                T.clear(o)
                T.clear(total)
                T.fill(top, LOWEST)
                for k in T.Pipelined(T.ceildiv(reach, bN), num_stages=num_stages):
                    key = start + k * bN
                    T.copy(K[key : key + bN, h * Hkv // H, :], Ks)
                    T.gemm(Ks, Qt, S, clear_accum=True)
                    for j, i in T.Parallel(bN, bM):
                        seen = k * bN + j < length
                        if causal:
                            seen = seen & (k * bN + j <= bx * bM + i)
                        S[j, i] = T.if_then_else(seen, S[j, i], -T.infinity("float32"))
                    softmax_step_by_lanes(S, o, top, old, total, part, bM, bN, D)
                    T.copy(V[key : key + bN, h * Hkv // H, :], Vs)
                    T.gemm(Vs, S, o, transpose_A=True)
                for i, d in T.Parallel(bM, D):
                    if bx * bM + i < length:
                        O[row + i, h, d] = o[d, i] / total[i]

    return main


def _attend(q, k, v, visible):
    """One head: q (m, D), k and v (n, D), visible (m, n); the output and the log of each row's sum."""
    scores = np.where(visible, q @ k.T / np.sqrt(q.shape[-1]), -np.inf)
    top = scores.max(axis=1, initial=LOWEST, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = (top + np.log(total))[:, 0]
    return np.where(total > 0, weights @ v / np.where(total > 0, total, 1), 0), logs


def _padded_batch(Q, K, V, lengths, causal):
    """O (B, Sq, H, D) and L (B, H, Sq); key j of sequence b counts if j < lengths[b]."""
    q, k, v = f32(Q), f32(K), f32(V)
    batch, queries, heads, _ = q.shape
    keys, kv_heads = k.shape[1:3]
    out, logs = np.zeros_like(q), np.zeros((batch, heads, queries), np.float32)
    for b in range(batch):
        visible = np.broadcast_to(np.arange(keys) < lengths[b], (queries, keys))
        if causal:
            visible = visible & np.tri(queries, keys, keys - queries, dtype=bool)
        for h in range(heads):
            seen = min(max(int(lengths[b]), 0), keys)
            shared = h * kv_heads // heads
            parts = (q[b, :, h], k[b, :seen, shared], v[b, :seen, shared], visible[:, :seen])
            out[b, :, h], logs[b, h] = _attend(*parts)
    return out, logs


def attention_reference(Q, K, V, lengths, causal=False):
    """NumPy twin of :func:`attention`."""
    return _padded_batch(Q, K, V, lengths, causal)[0]


def attention_causal_reference(Q, K, V, lengths):
    """NumPy twin of :func:`attention` with ``causal``."""
    return attention_reference(Q, K, V, lengths, causal=True)


def attention_dense_reference(Q, K, V, causal=False):
    """NumPy twin of :func:`attention_dense`."""
    return _padded_batch(Q, K, V, [K.shape[1]] * len(Q), causal)


def attention_dense_causal_reference(Q, K, V):
    """NumPy twin of :func:`attention_dense` with ``causal``."""
    return attention_dense_reference(Q, K, V, causal=True)


def attention_ragged_reference(Q, K, V, starts, lengths, longest=None, causal=False):
    """NumPy twin of :func:`attention_ragged`; rows of no sequence are NaN."""
    out = np.full(Q.shape, np.nan, np.float32)
    for start, length in zip(starts, lengths, strict=True):
        rows = slice(int(start), int(start + length))
        q, k, v = (x[rows][None] for x in (Q, K, V))
        out[rows] = attention_reference(q, k, v, [length], causal)[0]
    return out


def attention_ragged_causal_reference(Q, K, V, starts, lengths, longest=None):
    """NumPy twin of :func:`attention_ragged` with ``causal``."""
    return attention_ragged_reference(Q, K, V, starts, lengths, longest, causal=True)


def attention_inputs(dims, rng, dtype="float32"):
    """Random operands and key lengths from 1 to Sk."""
    B, Sq, Sk, H, Hkv, D = (dims[name] for name in ("B", "Sq", "Sk", "H", "Hkv", "D"))
    q, k, v = (
        rng.standard_normal(s).astype(dtype) for s in ((B, Sq, H, D), (B, Sk, Hkv, D), (B, Sk, Hkv, D))
    )
    return [q, k, v, rng.integers(1, max(Sk, 1) + 1, B).astype(np.int32)]


def attention_dense_inputs(dims, rng, dtype="float32"):
    """Random operands."""
    return attention_inputs(dims, rng, dtype)[:3]


def attention_ragged_inputs(dims, rng, dtype="float32"):
    """Sequences back to back that cover every row."""
    tokens, H, Hkv, D, B = (dims[name] for name in ("tokens", "H", "Hkv", "D", "B"))
    cuts = np.sort(rng.integers(0, tokens + 1, max(B - 1, 0)))
    bounds = np.concatenate([[0], cuts, [tokens]]).astype(np.int32)
    lengths = np.diff(bounds).astype(np.int32)[:B]
    q, k, v = (rng.standard_normal((tokens, heads, D)).astype(dtype) for heads in (H, Hkv, Hkv))
    return [q, k, v, bounds[:B], lengths, int(lengths.max(initial=0))]
