"""A paged cache of keys and values: what brings new tokens into it, and attention of them over it.

Row r of page p of the cache is slot p * page + r; the heads of a page lie one behind the other, each with its
rows together. Key j of sequence b lies in page table[b, j // page] at row j % page. The queries of a step lie
back to back, any number for each sequence: one where it decodes, a chunk of its prompt where it is prefilled.

``stored`` is the cache's own type, else that of activations: float8_e4m3fn has numbers up to 448 (OCP 8-bit
Floating Point Specification 1.0, table 1), which keys and values are rounded to as they are, without a scale.
"""

from __future__ import annotations

import numpy as np
from attention_blocks import LOWEST, SMALLEST, softmax_step, state
from attention_varlen import attend
from norm import invert_roots
from tile_math import LOG2_E, f32

import tilec
import tilec.language as T


@T.macro
def load_halves(X, bias, low, high, t0, head, rows, half):
    """low and high = the two halves of head ``head`` of ``rows`` tokens from ``t0`` on plus its bias."""
    for i, d in T.Parallel(rows, half):
        low[i, d] = T.cast(X[t0 + i, head, d], "float32") + T.cast(bias[head, d], "float32")
        high[i, d] = T.cast(X[t0 + i, head, d + half], "float32") + T.cast(bias[head, d + half], "float32")


@T.macro
def scale_halves(low, high, q_gain, k_gain, is_query, rows, half, eps):
    """Heads scaled to unit mean square, times the gain of queries or of keys."""
    squares, scale = T.alloc_fragment((rows, half), "float32"), T.alloc_fragment((rows,), "float32")
    for i, d in T.Parallel(rows, half):
        squares[i, d] = low[i, d] * low[i, d] + high[i, d] * high[i, d]
    T.reduce_sum(squares, scale, dim=1)
    invert_roots(scale, rows, 2 * half, eps)
    for i, d in T.Parallel(rows, half):
        low[i, d] = low[i, d] * scale[i] * T.if_then_else(is_query, q_gain[d], k_gain[d])
        high[i, d] = high[i, d] * scale[i] * T.if_then_else(is_query, q_gain[d + half], k_gain[d + half])


@T.macro
def turn_halves(low, high, cos, sin, positions, t0, rows, half):
    """Each pair of the two halves turned by the angle of its token's position."""
    for i, d in T.Parallel(rows, half):
        c, s = cos[positions[t0 + i], d], sin[positions[t0 + i], d]
        x, y = low[i, d], high[i, d]
        low[i, d] = x * c - y * s
        high[i, d] = y * c + x * s


@T.macro
def store_halves(low, high, cache, slots, tokens, t0, head, page, rows, half):
    """Heads of tokens in their slots of a cache."""
    for i, d in T.Parallel(rows, half):
        t = t0 + i
        if t < tokens:
            cache[slots[t] // page, head, slots[t] % page, d] = low[i, d]
            cache[slots[t] // page, head, slots[t] % page, d + half] = high[i, d]


@tilec.jit
def rotary_to_cache(
    tokens, H, Hkv, D, S, pages, page=16, normed=False, dtype="bfloat16", stored="", rows=4, threads=128
):
    """Adds the bias to the fused projection of new tokens and takes it apart: Q gets the queries, turned by
    the angles of their positions, the cache the keys, turned, and the values, each token's in its slot.

    ``cos`` and ``sin`` are tables (S, D // 2), pairs lie half a head apart. ``normed``: each head of the
    queries and keys is first scaled to unit mean square, to which ``eps`` is added, times its gain; otherwise
    gains and ``eps`` mean nothing. Nothing becomes of a token whose slot lies outside of the cache.
    """
    half, stored = D // 2, stored or dtype

    @T.prim_func
    def main(
        X: T.Tensor((tokens, H + 2 * Hkv, D), dtype),
        bias: T.Tensor((H + 2 * Hkv, D), dtype),
        q_gain: T.Tensor((D,), dtype),
        k_gain: T.Tensor((D,), dtype),
        eps: T.float32,
        cos: T.Tensor((S, half), "float32"),
        sin: T.Tensor((S, half), "float32"),
        positions: T.Tensor((tokens,), "int32"),
        slots: T.Tensor((tokens,), "int32"),
        Q: T.Tensor((tokens, H, D), dtype),
        K: T.Tensor((pages, Hkv, page, D), stored),
        V: T.Tensor((pages, Hkv, page, D), stored),
    ):
        """New queries, and new keys and values in their slots of a paged cache."""
        with T.Kernel(H + 2 * Hkv, T.ceildiv(tokens, rows), threads=threads) as (head, b):
            low, high = [T.alloc_fragment((rows, half), "float32") for _ in range(2)]
            t0 = b * rows
            load_halves(X, bias, low, high, t0, head, rows, half)
            if head < H + Hkv:
                if normed:
                    scale_halves(low, high, q_gain, k_gain, head < H, rows, half, eps)
                turn_halves(low, high, cos, sin, positions, t0, rows, half)
            if head < H:
                for i, d in T.Parallel(rows, half):
                    Q[t0 + i, head, d] = low[i, d]
                    Q[t0 + i, head, d + half] = high[i, d]
            elif head < H + Hkv:
                store_halves(low, high, K, slots, tokens, t0, head - H, page, rows, half)
            else:
                store_halves(low, high, V, slots, tokens, t0, head - H - Hkv, page, rows, half)

    return main


@tilec.jit(out_idx=[-1])
def attention_paged(
    tokens,
    Hkv,
    group,
    D,
    B,
    pages,
    longest,
    page=16,
    dtype="bfloat16",
    stored="",
    bM=64,
    bN=64,
    num_stages=2,
    threads=128,
):
    """O = softmax(Q K^T / sqrt(D)) V of each query over the keys of its sequence up to its own.

    Sequence b has queries q_bounds[b] to q_bounds[b + 1] - 1, the last of its lengths[b] keys being theirs. A
    query sees its own key and the ``window`` - 1 before it; a window as long as the sequence is none.
    ``most`` is at least the largest number of queries of a sequence; it sizes the grid. The ``group`` query
    heads that share a key head are rows of one tile: keys are read once. At most ``longest`` pages are a
    sequence's.
    """
    scale, stored = D**-0.5 * LOG2_E, stored or dtype

    @T.prim_func
    def main(
        Q: T.Tensor((tokens, Hkv, group, D), dtype),
        K: T.Tensor((pages, Hkv, page, D), stored),
        V: T.Tensor((pages, Hkv, page, D), stored),
        table: T.Tensor((B, longest), "int32"),
        q_bounds: T.Tensor((B + 1,), "int32"),
        lengths: T.Tensor((B,), "int32"),
        window: T.int32,
        most: T.int32,
        O: T.Tensor((tokens, Hkv, group, D), dtype),
    ):
        """Causal attention of ragged queries over a paged cache, within a window."""
        with T.Kernel(T.ceildiv(most * group, bM), Hkv, B, threads=threads) as (bx, h, b):
            Qs, Ks, Vs = (T.alloc_shared((r, D), dtype) for r in (bM, bN, bN))
            S, o, top, old, total, part = state(bM, bN, D)
            P = S if dtype == "float32" else T.alloc_fragment((bM, bN), dtype)
            q0, keys = q_bounds[b], T.min(lengths[b], longest * page)
            queries = q_bounds[b + 1] - q0
            past = keys - queries
            for i, d in T.Parallel(bM, D):
                r = bx * bM + i
                Qs[i, d] = T.if_then_else(r // group < queries, Q[q0 + r // group, h, r % group, d], 0)
            T.clear(o)
            T.clear(total)
            T.fill(top, LOWEST)
            first = T.max(past + bx * bM // group - window + 1, 0) // bN
            reach = T.min(keys, past + (bx * bM + bM - 1) // group + 1)
            steps = T.if_then_else(bx * bM < queries * group, T.ceildiv(T.max(reach, 0), bN) - first, 0)
            for k in T.Pipelined(T.max(steps, 0), num_stages=num_stages):
                at = (first + k) * bN
                for j, d in T.Parallel(bN, D):
                    Ks[j, d] = T.if_then_else(
                        at + j < keys, K[table[b, (at + j) // page], h, (at + j) % page, d], 0
                    )
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(bM, bN):
                    own = past + (bx * bM + i) // group
                    seen = (at + j <= own) & (at + j > own - window)
                    S[i, j] = T.if_then_else(seen, S[i, j], -T.infinity("float32"))
                softmax_step(S, o, top, old, total, part, scale, bM, bN, D)
                for j, d in T.Parallel(bN, D):
                    Vs[j, d] = T.if_then_else(
                        at + j < keys, V[table[b, (at + j) // page], h, (at + j) % page, d], 0
                    )
                if dtype != "float32":
                    T.copy(S, P)
                T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(bM, D):
                r = bx * bM + i
                if r // group < queries:
                    O[q0 + r // group, h, r % group, d] = o[i, d] / T.max(total[i], SMALLEST)

    return main


@tilec.jit(out_idx=[-2, -1])
def gather_pages(Hkv, D, B, pages, longest, keys, page=16, dtype="bfloat16", stored="", rows=16, threads=128):
    """The keys and values of each sequence, out of its pages, one behind the other, in activations' type.

    Those of sequence b are rows k_bounds[b] to k_bounds[b + 1] - 1 of what comes out. ``most`` is at least
    the largest number of keys of a sequence; it sizes the grid.
    """
    stored = stored or dtype

    @T.prim_func
    def main(
        K: T.Tensor((pages, Hkv, page, D), stored),
        V: T.Tensor((pages, Hkv, page, D), stored),
        table: T.Tensor((B, longest), "int32"),
        k_bounds: T.Tensor((B + 1,), "int32"),
        most: T.int32,
        keys_out: T.Tensor((keys, Hkv, D), dtype),
        values_out: T.Tensor((keys, Hkv, D), dtype),
    ):
        """Keys and values of sequences as rows back to back."""
        with T.Kernel(T.ceildiv(most, rows), Hkv, B, threads=threads) as (bx, h, b):
            k0 = k_bounds[b]
            count = T.min(k_bounds[b + 1] - k0, longest * page)
            for i, d in T.Parallel(rows, D):
                key = bx * rows + i
                if key < count:
                    keys_out[k0 + key, h, d] = K[table[b, key // page], h, key % page, d]
                    values_out[k0 + key, h, d] = V[table[b, key // page], h, key % page, d]

    return main


def rotary_to_cache_inputs(dims, rng, page=16):
    """Angles of base 10000, random positions below S, a slot of its own for each token."""
    tokens, H, Hkv, D, S, pages = (dims[name] for name in ("tokens", "H", "Hkv", "D", "S", "pages"))
    angles = np.arange(S)[:, None] * 10000.0 ** (-np.arange(D // 2) / (D // 2))
    slots = pages * dims.get("page", page)
    return [
        rng.standard_normal((tokens, H + 2 * Hkv, D)),
        rng.standard_normal((H + 2 * Hkv, D)),
        *(rng.uniform(0.5, 1.5, D) for _ in range(2)),
        1e-5,
        *(f(angles).astype(np.float32) for f in (np.cos, np.sin)),
        rng.integers(0, S, tokens).astype(np.int32),
        rng.permutation(max(slots, tokens))[:tokens].astype(np.int32),
    ]


def attention_paged_reference(Q, K, V, table, q_bounds, lengths, window, most=None):
    """NumPy twin of :func:`attention_paged`."""
    q, k, v = f32(Q), f32(K), f32(V)
    out = np.full_like(q, np.nan)
    for b, length in enumerate(lengths):
        rows = slice(q_bounds[b], q_bounds[b + 1])
        own = np.arange(length - (rows.stop - rows.start), length)[:, None]
        visible = (np.arange(length) <= own) & (np.arange(length) > own - window)
        of_sequence = table[b, : -(-int(length) // k.shape[2])]
        for h, g in np.ndindex(q.shape[1:3]):
            key, value = (cache[of_sequence, h].reshape(-1, q.shape[3])[:length] for cache in (k, v))
            out[rows, h, g] = attend(q[rows, h, g], key, value, visible)[0]
    return out


def attention_paged_inputs(dims, rng, page=16):
    """Every query belongs to a sequence that has a key for it; pages in any order, a window of some keys."""
    tokens, Hkv, group, D, B, pages, longest = (
        dims[name] for name in ("tokens", "Hkv", "group", "D", "B", "pages", "longest")
    )
    page = dims.get("page", page)
    cache = (pages, Hkv, page, D)
    q, k, v = (rng.standard_normal(shape) for shape in ((tokens, Hkv, group, D), cache, cache))
    table = rng.integers(0, pages, (B, longest)).astype(np.int32)
    cuts = np.sort(rng.integers(0, tokens + 1, max(B - 1, 0)))
    q_bounds = np.concatenate([[0], cuts, [tokens]]).astype(np.int32)[: B + 1]
    queries = np.diff(q_bounds)
    lengths = np.minimum(queries + rng.integers(0, longest * page, B), longest * page).astype(np.int32)
    return [
        q,
        k,
        v,
        table,
        q_bounds,
        lengths,
        int(rng.integers(1, longest * page + 1)),
        int(queries.max(initial=0)),
    ]


def gather_pages_reference(K, V, table, k_bounds, most=None):
    """NumPy twin of :func:`gather_pages`."""
    page, counts = K.shape[2], np.diff(k_bounds)
    rows = [np.arange(count) for count in counts]
    at = [pages[row // page] for pages, row in zip(table, rows, strict=True)]
    places = np.concatenate(at), slice(None), np.concatenate(rows) % page
    return K[places], V[places]


def gather_pages_inputs(dims, rng, page=16):
    """Sequences of any lengths that fit, pages in any order."""
    Hkv, D, B, pages, longest, keys = (dims[n] for n in ("Hkv", "D", "B", "pages", "longest", "keys"))
    page = dims.get("page", page)
    counts = rng.multinomial(keys, np.full(B, 1 / B))
    counts = np.minimum(counts, longest * page)
    return [
        *(rng.standard_normal((pages, Hkv, page, D)) for _ in range(2)),
        rng.integers(0, pages, (B, longest)).astype(np.int32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        int(counts.max(initial=0)),
    ]
