"""Attention of one new token per sequence over a paged cache, in the factory form.

Key j of sequence b lies in page table[b, j // page] at row j % page; pages, rows and heads of the cache have
strides of their own, so that rows of a page may lie together for all heads or for each. The keys of a
sequence are split among blocks, which leave their part of the output with its maximum and sum in the
workspace; a second launch joins the parts. The ``group`` query heads that share a key head are rows of one
tile: keys are read once.
"""

from __future__ import annotations

import numpy as np
from attention_blocks import LOWEST, weigh_parts
from attention_varlen import attend
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@T.macro
def join_parts(parts, tops, sums, O, i, h, b, splits, D, scale):
    """Query head i of key head h of sequence b from what its parts left."""
    top, total = (T.alloc_fragment((1, splits), "float32") for _ in range(2))
    highest, whole = (T.alloc_fragment((1,), "float32") for _ in range(2))
    o, joined = T.alloc_fragment((1, splits, D), "float32"), T.alloc_fragment((1, D), "float32")
    for r, s, d in T.Parallel(1, splits, D):
        o[r, s, d] = parts[b, h, s, i, d]
    for r, s in T.Parallel(1, splits):
        top[r, s] = tops[b, h, s, i]
        total[r, s] = sums[b, h, s, i]
    weigh_parts(o, top, total, highest, whole, joined, scale)
    for r, d in T.Parallel(1, D):
        O[b, h, i, d] = T.if_then_else(whole[r] > 0.0, joined[r, d] / whole[r], 0.0)


@tilec.jit(out_idx=[-1])
def decode_paged(
    B,
    Hkv,
    D,
    pages,
    longest,
    kv_page,
    kv_row,
    kv_head,
    group=8,
    page=16,
    dtype="bfloat16",
    stored="",
    bM=16,
    bN=64,
    splits=4,
    num_stages=2,
    threads=32,
):
    """O[b, h] = softmax(q k^T / sqrt(D)) v over the first lengths[b] keys; no keys give zeros.

    ``pages`` pages are in the cache, at most ``longest`` belong to one sequence. bM is at least ``group``.
    A cache of another type, ``stored``, is brought in as it is, and converted in shared memory.
    """
    assert bM >= group, f"bM = {bM} holds less than the {group} query heads of a key head"
    stored = stored or dtype
    scale = D**-0.5 * LOG2_E
    shared_between_warps = T.alloc_fragment if threads == 32 else T.alloc_shared
    joiners = 128 if splits * D <= 8192 else 256

    @T.prim_func
    def main(
        Q: T.Tensor((B, Hkv, group, D), dtype),
        K: T.StridedTensor((pages, page, Hkv, D), (kv_page, kv_row, kv_head, 1), stored),
        V: T.StridedTensor((pages, page, Hkv, D), (kv_page, kv_row, kv_head, 1), stored),
        table: T.Tensor((B, longest), "int32"),
        lengths: T.Tensor((B,), "int32"),
        O: T.Tensor((B, Hkv, group, D), dtype),
    ):
        """One query per sequence against a paged cache of keys and values."""
        if splits > 1:
            parts = T.alloc_global((B, Hkv, splits, group, D), "float32")
            tops = T.alloc_global((B, Hkv, splits, group), "float32")
            sums = T.alloc_global((B, Hkv, splits, group), "float32")
        with T.Kernel(splits, Hkv, B, threads=threads) as (s, h, b):
            Qs = T.alloc_shared((bM, D), dtype)
            Ks, Vs = T.alloc_shared((bN, D), dtype), T.alloc_shared((bN, D), dtype)
            K_in, V_in = (tile if stored == dtype else T.alloc_shared((bN, D), stored) for tile in (Ks, Vs))
            S, o = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, D), "float32")
            weights = T.alloc_fragment((bM, bN), "float32")
            top, old, total = (T.alloc_fragment((bM,), "float32") for _ in range(3))
            P = S if dtype == "float32" else shared_between_warps((bM, bN), dtype)
            keys = T.min(lengths[b], longest * page)
            span = T.ceildiv(T.ceildiv(keys, splits), bN) * bN
            first = s * span
            end = T.min(first + span, keys)
            for i, d in T.Parallel(bM, D):
                Qs[i, d] = Q[b, h, i, d]
            T.clear(o)
            T.clear(weights)
            T.fill(top, LOWEST)
            for k in T.Pipelined(T.ceildiv(T.max(end - first, 0), bN), num_stages=num_stages):
                at = first + k * bN
                for j, d in T.Parallel(bN, D):
                    K_in[j, d] = T.if_then_else(
                        at + j < end, K[table[b, (at + j) // page], (at + j) % page, h, d], 0
                    )
                if stored != dtype:
                    T.copy(K_in, Ks)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.Square)
                for i, j in T.Parallel(bM, bN):
                    S[i, j] = T.if_then_else(at + j < end, S[i, j], -T.infinity("float32"))
                T.copy(top, old)
                T.reduce_max(S, top, dim=1, clear=False)
                for i, j in T.Parallel(bM, bN):
                    S[i, j] = T.exp2((S[i, j] - top[i]) * scale)
                for i in T.Parallel(bM):
                    old[i] = T.exp2((old[i] - top[i]) * scale)
                for i, j in T.Parallel(bM, bN):
                    weights[i, j] = weights[i, j] * old[i] + S[i, j]
                for i, d in T.Parallel(bM, D):
                    o[i, d] = o[i, d] * old[i]
                for j, d in T.Parallel(bN, D):
                    V_in[j, d] = T.if_then_else(
                        at + j < end, V[table[b, (at + j) // page], (at + j) % page, h, d], 0
                    )
                if dtype != "float32":
                    T.copy(S, P)
                if stored != dtype:
                    T.copy(V_in, Vs)
                T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.Square)
            T.reduce_sum(weights, total, dim=1)
            if splits == 1:
                for i, d in T.Parallel(group, D):
                    O[b, h, i, d] = T.if_then_else(total[i] > 0.0, o[i, d] / total[i], 0.0)
            else:
                for i, d in T.Parallel(group, D):
                    parts[b, h, s, i, d] = o[i, d]
                for i in T.Parallel(group):
                    tops[b, h, s, i] = top[i]
                    sums[b, h, s, i] = total[i]
        if splits > 1:
            with T.Kernel(group, Hkv, B, threads=joiners) as (i, h, b):
                T.pdl_sync()
                join_parts(parts, tops, sums, O, i, h, b, splits, D, scale)

    return main


def decode_paged_reference(Q, K, V, table, lengths):
    """NumPy twin of :func:`decode_paged`."""
    q, k, v = f32(Q), f32(K), f32(V)
    page = k.shape[1]
    out = np.zeros_like(q)
    for b, length in enumerate(lengths):
        rows = table[b, : -(-int(length) // page)]
        for h in range(q.shape[1]):
            key, value = (cache[rows, :, h].reshape(-1, q.shape[3])[:length] for cache in (k, v))
            out[b, h] = attend(q[b, h], key, value, np.ones((q.shape[2], length), bool))[0]
    return out


def decode_paged_inputs(dims, rng, group=8, page=16):
    """Lengths up to the table's, pages in any order; a page may serve several sequences."""
    B, Hkv, D, pages, longest = (dims[name] for name in ("B", "Hkv", "D", "pages", "longest"))
    group, page = dims.get("group", group), dims.get("page", page)
    shapes = ((B, Hkv, group, D), (pages, page, Hkv, D), (pages, page, Hkv, D))
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    table = rng.integers(0, pages, (B, longest)).astype(np.int32)
    return [q, k, v, table, rng.integers(0, longest * page + 1, B).astype(np.int32)]
