"""Flash attention of one block of queries: what the kernels of attention.py are made of.

Scores of the block's queries meet the keys block by block; a running maximum and sum per query keep the
softmax exact, and no score leaves the block. `attend_block` has the queries of one head against all keys.
`attend_in_parts` is for few queries: the query heads that share a key head stand in one tile, so that keys
are read once for all of them, and the keys may be split among blocks, which leave their part of the output
with its maximum and sum in the workspace, where a second launch joins them (split-K for attention, known as
flash decoding).
"""

from __future__ import annotations

from tile_math import LOG2_E

import tilec.language as T

#: The running maximum starts here and not at -inf, so that a block without a visible key makes no NaN. It is
#: a power of two: times any scale it is exact, and the difference of two such products 0, fused or not.
LOWEST = -(2.0**100)

#: Sums of weights are 0 or at least 1, but for rounding: the largest score has weight 1.
SMALLEST = 1e-30

#: Among how many blocks the keys of a sequence are split at most: one block joins them.
MOST_PARTS = 32

#: Up to how many parts a block joins several rows, and how many results these have.
FEW_PARTS, JOINED = 8, 512


@T.macro
def softmax_step(S, o, top, old, total, part, scale, bM, bN, D):
    """One block of scores S becomes weights; o, top and total are carried over to the new maximum."""
    T.copy(top, old)
    T.reduce_max(S, top, dim=1, clear=False)
    for i in T.Parallel(bM):
        old[i] = T.exp2(old[i] * scale - top[i] * scale)
    for i, j in T.Parallel(bM, bN):
        S[i, j] = T.exp2(S[i, j] * scale - top[i] * scale)
    T.reduce_sum(S, part, dim=1)
    for i in T.Parallel(bM):
        total[i] = total[i] * old[i] + part[i]
    for i, d in T.Parallel(bM, D):
        o[i, d] = o[i, d] * old[i]


def state(bM, bN, D):
    """The fragments of one block: scores, output, running maximum and its predecessor, sum, partial sum."""
    S, o = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM, D), "float32")
    top, old, total, part = (T.alloc_fragment((bM,), "float32") for _ in range(4))
    return S, o, top, old, total, part


def columns(D, width):
    """The columns of tiles that hold heads: those of a head, or ``width`` where D is a run-time value."""
    return D if isinstance(D, int) else width


def inverse_root(D):
    """1 / sqrt(D)."""
    return D**-0.5 if isinstance(D, int) else T.rsqrt(T.cast(D, "float32"))


@T.macro
def attend_block(Q, K, V, O, L, keys, padded, bx, h, b, shape, causal, dtype, bM, bN, num_stages):
    """Queries of head h of sequence b, one block of them, meet the first ``keys`` keys.

    ``padded``: rows of V behind them may hold anything. ``L`` is None or takes the log of each row's sum."""
    Sq, Sk, H, Hkv, D, width = shape
    scale = inverse_root(D) * LOG2_E
    Qs, Ks, Vs = (T.alloc_shared((r, width), dtype) for r in (bM, bN, bN))
    S, o, top, old, total, part = state(bM, bN, width)
    P = S if dtype == "float32" else T.alloc_fragment((bM, bN), dtype)
    T.copy(Q[b, bx * bM : (bx + 1) * bM, h, 0:width], Qs)
    T.clear(o)
    T.clear(total)
    T.fill(top, LOWEST)
    reach = T.max(T.min(keys, (bx + 1) * bM + Sk - Sq), 0) if causal else keys
    blocks = T.ceildiv(reach, bN)
    for step in T.Pipelined(blocks, num_stages=num_stages):
        k = blocks - 1 - step  # blocks with hidden keys come first: the others need no mask
        T.copy(K[b, k * bN : (k + 1) * bN, h * Hkv // H, 0:width], Ks)
        T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(bM, bN):
            seen = k * bN + j < keys
            if causal:
                seen = seen & (k * bN + j <= bx * bM + i + Sk - Sq)
            S[i, j] = T.if_then_else(seen, S[i, j], -T.infinity("float32"))
        softmax_step(S, o, top, old, total, part, scale, bM, bN, width)
        if padded:
            for j, d in T.Parallel(bN, width):
                Vs[j, d] = T.if_then_else(k * bN + j < keys, V[b, k * bN + j, h * Hkv // H, d], 0)
        else:
            T.copy(V[b, k * bN : (k + 1) * bN, h * Hkv // H, 0:width], Vs)
        if dtype != "float32":
            T.copy(S, P)
        T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.FullRow)
    for i in T.Parallel(bM):
        part[i] = 1.0 / T.max(total[i], SMALLEST)
    for i, d in T.Parallel(bM, width):
        O[b, bx * bM + i, h, d] = o[i, d] * part[i]
    if L is not None:
        for i in T.Parallel(bM):
            L[b, h, bx * bM + i] = (top[i] * scale + T.log2(total[i])) / LOG2_E


def parts_of_keys(rows, Hkv, B, Sk, bM, bN, blocks):
    """Among how many blocks the keys are split: until there are ``blocks``, each with a tile of keys at
    least; at most `MOST_PARTS`."""
    others = T.ceildiv(rows, bM) * Hkv * B
    return T.max(T.min(T.min(blocks // T.max(others, 1), T.ceildiv(Sk, bN)), MOST_PARTS), 1)


def first_of(head, shape):
    """The first query head of a key head."""
    _, _, H, Hkv, _, _ = shape
    return T.ceildiv(head * H, Hkv)


def heads_of(head, shape):
    """The query heads of a key head: the most that share one, the first, and how many share this one."""
    _, _, H, Hkv, _, _ = shape
    first = first_of(head, shape)
    return T.ceildiv(H, Hkv), first, first_of(head + 1, shape) - first


@T.macro
def attend_part(Q, K, V, leave, keys, padded, bx, head, s, b, splits, shape, causal, dtype, tiles):
    """Part s of ``splits`` of ``keys`` keys and the query heads of key head ``head``, one tile of their rows;
    ``leave(o, top, total)`` stores what comes of it.

    Row r of a key head is query r // group of its head r % group, where ``group`` is the most query heads
    that share a key head. ``padded``: rows of V behind the keys may hold anything."""
    Sq, Sk, _, _, D, width = shape
    bM, bN, num_stages = tiles
    scale = inverse_root(D) * LOG2_E
    Qs, Ks, Vs = (T.alloc_shared((r, width), dtype) for r in (bM, bN, bN))
    S, o, top, old, total, part = state(bM, bN, width)
    P = S if dtype == "float32" else T.alloc_fragment((bM, bN), dtype)
    group, first_head, heads = heads_of(head, shape)
    span = T.ceildiv(T.ceildiv(keys, splits), bN) * bN
    first = s * span
    end = T.min(first + span, keys)
    for i, d in T.Parallel(bM, width):
        r = bx * bM + i
        Qs[i, d] = T.if_then_else(
            (r % group < heads) & (r // group < Sq), Q[b, r // group, first_head + r % group, d], 0
        )
    T.clear(o)
    T.clear(total)
    T.fill(top, LOWEST)
    for k in T.Pipelined(T.ceildiv(T.max(end - first, 0), bN), num_stages=num_stages):
        at = first + k * bN
        T.copy(K[b, at : at + bN, head, 0:width], Ks)
        T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(bM, bN):
            seen = at + j < end
            if causal:
                seen = seen & (at + j <= (bx * bM + i) // group + Sk - Sq)
            S[i, j] = T.if_then_else(seen, S[i, j], -T.infinity("float32"))
        softmax_step(S, o, top, old, total, part, scale, bM, bN, width)
        if padded:
            for j, d in T.Parallel(bN, width):
                Vs[j, d] = T.if_then_else(at + j < end, V[b, at + j, head, d], 0)
        else:
            T.copy(V[b, at : at + bN, head, 0:width], Vs)
        if dtype != "float32":
            T.copy(S, P)
        T.gemm(P, Vs, o, policy=T.GemmWarpPolicy.FullRow)
    leave(o, top, total)


@T.macro
def leave_part(parts, tops, sums, o, top, total, bx, y, b):
    """Stores a tile of part y in the workspace."""
    bM, width = o.shape
    for i, d in T.Parallel(bM, width):
        parts[b, y, bx * bM + i, d] = o[i, d]
    for i in T.Parallel(bM):
        tops[b, bx * bM + i, y] = top[i]
        sums[b, bx * bM + i, y] = total[i]


@T.macro
def leave_whole(O, L, o, top, total, bx, head, b, shape):
    """Stores a tile that has met all keys, with the maxima and sums of its rows."""
    Sq, (bM, width), scale = shape[0], o.shape, inverse_root(shape[4]) * LOG2_E
    group, first_head, heads = heads_of(head, shape)
    for i, d in T.Parallel(bM, width):
        r = bx * bM + i
        if (r % group < heads) & (r // group < Sq):
            O[b, r // group, first_head + r % group, d] = o[i, d] / T.max(total[i], SMALLEST)
    if L is not None:
        for i in T.Parallel(bM):
            r = bx * bM + i
            if (r % group < heads) & (r // group < Sq):
                L[b, first_head + r % group, r // group] = (top[i] * scale + T.log2(total[i])) / LOG2_E


@T.macro
def bring_parts(parts, tops, sums, o, top, total, first, rows, head, b, splits):
    """What the ``splits`` parts of key head ``head`` left of its rows from ``first`` on. There are ``rows``,
    or None where the tile has no others; what it lacks counts for nothing."""
    bM, most, width = o.shape
    for i, s, d in T.Parallel(bM, most, width):
        r = first + i
        counts = s < splits if rows is None else (r < rows) & (s < splits)
        o[i, s, d] = T.if_then_else(counts, parts[b, head * splits + s, r, d], 0)
    for i, s in T.Parallel(bM, most):
        r = first + i
        counts = s < splits if rows is None else (r < rows) & (s < splits)
        top[i, s] = T.if_then_else(counts, tops[b, r, head * splits + s], LOWEST)
        total[i, s] = T.if_then_else(counts, sums[b, r, head * splits + s], 0)


@T.macro
def weigh_parts(o, top, total, highest, whole, joined, scale):
    """``joined`` = the sums of parts (rows, parts, columns) by their own maxima, ``whole`` = those of their
    weights."""
    rows, parts, D = o.shape
    T.reduce_max(top, highest, dim=1)
    for i, s in T.Parallel(rows, parts):
        top[i, s] = T.exp2((top[i, s] - highest[i]) * scale)
        total[i, s] = total[i, s] * top[i, s]
    T.reduce_sum(total, whole, dim=1)
    for i, s, d in T.Parallel(rows, parts, D):
        o[i, s, d] = o[i, s, d] * top[i, s]
    T.reduce_sum(o, joined, dim=1)


@T.macro
def join_parts(parts, tops, sums, O, L, query, h, b, splits, shape):
    """The output of one query of head h, and the log of its sum where ``L`` is not None, from its parts."""
    _, _, H, Hkv, D, width = shape
    scale = inverse_root(D) * LOG2_E
    group = T.ceildiv(H, Hkv)
    head = h * Hkv // H
    row = query * group + h - first_of(head, shape)
    top, total = (T.alloc_fragment((1, MOST_PARTS), "float32") for _ in range(2))
    highest, whole = (T.alloc_fragment((1,), "float32") for _ in range(2))
    o, joined = T.alloc_fragment((1, MOST_PARTS, width), "float32"), T.alloc_fragment((1, width), "float32")
    bring_parts(parts, tops, sums, o, top, total, row, None, head, b, splits)
    weigh_parts(o, top, total, highest, whole, joined, scale)
    for i, d in T.Parallel(1, width):
        O[b, query, h, d] = joined[i, d] / T.max(whole[i], SMALLEST)
    if L is not None:
        for i in T.Parallel(1):
            L[b, h, query] = (highest[i] * scale + T.log2(whole[i])) / LOG2_E


@T.macro
def join_rows(parts, tops, sums, O, L, bx, head, b, splits, shape):
    """:func:`join_parts` for a tile of rows of a key head whose parts are at most `FEW_PARTS`."""
    Sq, _, H, Hkv, D, width = shape
    bM, scale, rows = JOINED // width, inverse_root(D) * LOG2_E, Sq * T.ceildiv(H, Hkv)
    top, total = (T.alloc_fragment((bM, FEW_PARTS), "float32") for _ in range(2))
    highest, whole = (T.alloc_fragment((bM,), "float32") for _ in range(2))
    o, joined = T.alloc_fragment((bM, FEW_PARTS, width), "float32"), T.alloc_fragment((bM, width), "float32")
    bring_parts(parts, tops, sums, o, top, total, bx * bM, rows, head, b, splits)
    weigh_parts(o, top, total, highest, whole, joined, scale)
    leave_whole(O, L, joined, highest, whole, bx, head, b, shape)


@T.macro
def attend_in_parts(Q, K, V, O, L, lengths, B, shape, causal, dtype, tiles, threads, blocks):
    """Parts of the keys until there are ``blocks`` blocks, and a launch that joins them; with 1 all keys in
    one part, which nothing joins.

    ``lengths`` are those of the keys of each sequence, behind which rows of V may hold anything; None where
    all of them count."""
    Sq, Sk, H, Hkv, _, width = shape
    bM, bN, _ = tiles
    rows = Sq * T.ceildiv(H, Hkv)
    padded = lengths is not None
    how = (shape, causal, dtype, tiles)
    if blocks == 1:
        with T.Kernel(T.ceildiv(rows, bM), Hkv, B, threads=threads) as (bx, head, b):
            keys = T.min(lengths[b], Sk) if padded else Sk
            attend_part(
                *(Q, K, V, lambda *found: leave_whole(O, L, *found, bx, head, b, shape)),
                *(keys, padded, bx, head, 0, b, 1, *how),
            )
    else:
        splits = parts_of_keys(rows, Hkv, B, Sk, bM, bN, blocks)
        parts = T.alloc_global((B, Hkv * splits, rows, width), "float32")
        tops = T.alloc_global((B, rows, Hkv * splits), "float32")
        sums = T.alloc_global((B, rows, Hkv * splits), "float32")
        with T.Kernel(T.ceildiv(rows, bM), Hkv * splits, B, threads=threads) as (bx, y, b):
            keys = T.min(lengths[b], Sk) if padded else Sk
            attend_part(
                *(Q, K, V, lambda *found: leave_part(parts, tops, sums, *found, bx, y, b)),
                *(keys, padded, bx, y // splits, y % splits, b, splits, *how),
            )
        few = splits <= FEW_PARTS
        across = T.if_then_else(few, T.ceildiv(rows, JOINED // width), Sq)
        with T.Kernel(across, T.if_then_else(few, Hkv, H), B, threads=128) as (bx, h, b):
            T.pdl_sync()
            if few:
                join_rows(parts, tops, sums, O, L, bx, h, b, splits, shape)
            else:
                join_parts(parts, tops, sums, O, L, bx, h, b, splits, shape)
