"""Attention of one new token per sequence over a paged cache of scaled 8-bit numbers, in the factory form.

As `decode`, but keys and values are int8 or 8-bit floats times a scale: one for each token and key head, in
pages as they are, or one for each key head. Of a sequence no more than the last ``window`` keys count.
"""

from __future__ import annotations

import numpy as np
from attention_blocks import LOWEST, softmax_step
from attention_varlen import attend
from decode import join_parts
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@T.macro
def fill_tile(tile, cache, scales, table, at, end, b, h, page, per):
    """Rows ``at`` and on of a sequence, times their scales; zeros from row ``end`` on."""
    rows, D = tile.shape
    for j, d in T.Parallel(rows, D):
        row = table[b, (at + j) // page]
        factor = scales[row, (at + j) % page, h] if per == "token" else scales[h]
        tile[j, d] = T.if_then_else(
            at + j < end, T.cast(cache[row, (at + j) % page, h, d], "float32") * factor, 0.0
        )


def _of_scales(per, pages, page, Hkv):
    return {"token": (pages, page, Hkv), "head": (Hkv,)}[per]


@tilec.jit(out_idx=[-1])
def decode_scaled(
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
    cache="int8",
    per="token",
    dtype="bfloat16",
    bM=8,
    bN=64,
    splits=4,
    threads=128,
):
    """O[b, h] = softmax(q k^T / sqrt(D)) v over the last ``window`` of lengths[b] keys; no keys give zeros.

    ``pages`` pages are in the cache, at most ``longest`` belong to one sequence. bM is at least ``group``.
    Scales are float32, (pages, page, Hkv) or, ``per`` "head", (Hkv,).
    """
    assert bM >= group, f"bM = {bM} holds less than the {group} query heads of a key head"
    scale = D**-0.5 * LOG2_E
    of_scales = _of_scales(per, pages, page, Hkv)

    @T.prim_func
    def main(
        Q: T.Tensor((B, Hkv, group, D), dtype),
        K: T.StridedTensor((pages, page, Hkv, D), (kv_page, kv_row, kv_head, 1), cache),
        V: T.StridedTensor((pages, page, Hkv, D), (kv_page, kv_row, kv_head, 1), cache),
        K_scale: T.Tensor(of_scales, "float32"),
        V_scale: T.Tensor(of_scales, "float32"),
        table: T.Tensor((B, longest), "int32"),
        lengths: T.Tensor((B,), "int32"),
        window: T.int32,
        O: T.Tensor((B, Hkv, group, D), dtype),
    ):
        """One query per sequence against a paged cache of 8-bit numbers."""
        parts = T.alloc_global((B, Hkv, splits, group, D), "float32")
        tops = T.alloc_global((B, Hkv, splits, group), "float32")
        sums = T.alloc_global((B, Hkv, splits, group), "float32")
        with T.Kernel(splits, Hkv, B, threads=threads) as (s, h, b):
            Qs = T.alloc_shared((bM, D), "float32")
            Ks, Vs = T.alloc_shared((bN, D), "float32"), T.alloc_shared((bN, D), "float32")
            S, o = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, D), "float32")
            top, old, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(4))
            keys = T.min(lengths[b], longest * page)
            low = T.max(keys - T.max(window, 0), 0)
            span = T.ceildiv(T.ceildiv(keys - low, splits), bN) * bN
            first = low + s * span
            end = T.min(first + span, keys)
            for i, d in T.Parallel(bM, D):
                Qs[i, d] = Q[b, h, i, d]
            T.clear(o)
            T.clear(total)
            T.fill(top, LOWEST)
            for k in T.serial(T.ceildiv(T.max(end - first, 0), bN)):
                at = first + k * bN
                fill_tile(Ks, K, K_scale, table, at, end, b, h, page, per)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(bM, bN):
                    S[i, j] = T.if_then_else(at + j < end, S[i, j], -T.infinity("float32"))
                softmax_step(S, o, top, old, total, part, scale, bM, bN, D)
                fill_tile(Vs, V, V_scale, table, at, end, b, h, page, per)
                T.gemm(S, Vs, o)
            for i, d in T.Parallel(group, D):
                parts[b, h, s, i, d] = o[i, d]
            for i in T.Parallel(group):
                tops[b, h, s, i] = top[i]
                sums[b, h, s, i] = total[i]
        with T.Kernel(group, Hkv, B, threads=threads) as (i, h, b):
            join_parts(parts, tops, sums, O, i, h, b, splits, D, scale)

    return main


def decode_scaled_reference(Q, K, V, K_scale, V_scale, table, lengths, window):
    """NumPy twin of :func:`decode_scaled`."""
    page, out = K.shape[1], np.zeros(Q.shape, np.float32)
    for b, length in enumerate(lengths):
        rows = table[b, : -(-int(length) // page)]
        for h in range(Q.shape[1]):
            pairs = ((K, K_scale), (V, V_scale))
            key, value = (_rows(*pair, rows, h)[max(length - window, 0) : length] for pair in pairs)
            out[b, h] = attend(f32(Q[b, h]), key, value, np.ones((Q.shape[2], len(key)), bool))[0]
    return out


def _rows(cache, scales, rows, head):
    """The keys or values of a sequence, as float32 (keys, D)."""
    factors = scales[rows, :, head] if scales.ndim == 3 else np.full(1, scales[head])
    return (f32(cache[rows, :, head]) * factors[..., None]).reshape(-1, cache.shape[3])


def decode_scaled_inputs(dims, rng, per="token", group=8, page=16):
    """Lengths up to the table's, a window of about half of it, pages in any order."""
    B, Hkv, D, pages, longest = (dims[name] for name in ("B", "Hkv", "D", "pages", "longest"))
    group, page = dims.get("group", group), dims.get("page", page)
    numbers = (rng.uniform(-127, 127, (pages, page, Hkv, D)) for _ in range(2))
    scales = (rng.uniform(1, 3, _of_scales(per, pages, page, Hkv)) / 127 for _ in range(2))
    table = rng.integers(0, pages, (B, longest)).astype(np.int32)
    lengths = rng.integers(0, longest * page + 1, B).astype(np.int32)
    q = rng.standard_normal((B, Hkv, group, D))
    return [q, *numbers, *scales, table, lengths, longest * page // 2 + 1]


def decode_scaled_by_head_inputs(dims, rng):
    """:func:`decode_scaled_inputs` with a scale for each key head."""
    return decode_scaled_inputs(dims, rng, "head")
