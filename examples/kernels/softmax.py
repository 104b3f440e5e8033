"""Softmax over rows, in the factory form, six ways: rows of any length by running maxima and sums, read twice
or with powers that wait in the result, rows that fit a fragment in one pass, rows that a block, or a cluster
of blocks, holds as far as its registers go, or in shared memory, and there long rows of known length in one
block."""

from __future__ import annotations

import numpy as np
from tile_math import LOG2_E, ends_of, f32, is_between, is_inner, tell_parts, vector_start

import tilec
import tilec.language as T

#: Neighbouring columns of a long row that share a running maximum.
RUN = 8
#: Elements of a row in shared memory that a thread takes at a time.
LOT = 8
#: Chunks of a row whose powers wait.
MOST = 1024
#: Where running maxima start: finite, so that a lot or a chunk without columns, or with -inf alone, gives
#: zeros and no NaN.
LOWEST = -3.0e38


@T.macro
def load_row(X, x, row, start, N, rows, bN):
    """x = X[row:, start:] as float32; columns from N on are -inf and count for nothing."""
    for i, j in T.Parallel(rows, bN):
        value = T.cast(X[row + i, start + j], "float32")
        x[i, j] = T.if_then_else(start + j < N, value, -T.infinity("float32"))


@T.macro
def add_chunk(x, top, old, total, part, rows, width):
    """Takes ``width`` columns into the running maximum and sum of each row; x becomes exp(x - maximum so
    far)."""
    T.copy(top, old)
    T.reduce_max(x[0:rows, 0:width], top, dim=1, clear=False)
    for i, j in T.Parallel(rows, width):
        x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
    T.reduce_sum(x[0:rows, 0:width], part, dim=1)
    for i in T.Parallel(rows):
        total[i] = total[i] * T.exp2((old[i] - top[i]) * LOG2_E) + part[i]


@T.macro
def online(X, Y, row, N, rows, bN):
    """Reads a row twice: for its maximum and sum, and to write."""
    x = T.alloc_fragment((rows, bN), "float32")
    top, total, old, part = [T.alloc_fragment((rows,), "float32") for _ in range(4)]
    T.fill(top, LOWEST)
    T.clear(total)
    for c in T.serial(T.ceildiv(N, bN)):
        load_row(X, x, row, c * bN, N, rows, bN)
        add_chunk(x, top, old, total, part, rows, bN)
    for i in T.Parallel(rows):
        total[i] = 1.0 / total[i]
    for c in T.serial(T.ceildiv(N, bN)):
        for i, j in T.Parallel(rows, bN):
            value = T.cast(X[row + i, c * bN + j], "float32")
            Y[row + i, c * bN + j] = T.exp2((value - top[i]) * LOG2_E) * total[i]


@T.macro
def waiting(X, Y, row, N, rows, bN):
    """Reads and exponentiates a row once: powers wait in Y, those of each chunk over the maximum so far,
    until the sum of all is known. Rows have at most MOST chunks."""
    x = T.alloc_fragment((rows, bN), "float32")
    top, total, old, part = [T.alloc_fragment((rows,), "float32") for _ in range(4)]
    scales = T.alloc_fragment((MOST, rows), "float32")
    T.fill(top, LOWEST)
    T.clear(total)
    for c in T.serial(T.ceildiv(N, bN)):
        width = T.min(bN, N - c * bN)
        load_row(X, x, row, c * bN, N, rows, width)
        add_chunk(x, top, old, total, part, rows, width)
        for i, j in T.Parallel(rows, width):
            Y[row + i, c * bN + j] = x[i, j]
        for i in T.Parallel(rows):
            scales[c, i] = top[i]
    for c in T.serial(T.ceildiv(N, bN)):
        for i in T.Parallel(rows):
            scales[c, i] = T.exp2((scales[c, i] - top[i]) * LOG2_E) / total[i]
        for i, j in T.Parallel(rows, T.min(bN, N - c * bN)):
            Y[row + i, c * bN + j] = Y[row + i, c * bN + j] * scales[c, i]


@T.macro
def one_pass(X, Y, row, N, rows, bN, cut):
    """Reads and exponentiates a row once; it stays in a fragment, of which ``cut`` leaves the columns from N
    on alone."""
    x = T.alloc_fragment((rows, bN), "float32")
    top, total = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
    width = N if cut else bN
    load_row(X, x, row, 0, N, rows, width)
    T.reduce_max(x[0:rows, 0:width], top, dim=1)
    for i, j in T.Parallel(rows, width):
        x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
    T.reduce_sum(x[0:rows, 0:width], total, dim=1)
    for i in T.Parallel(rows):
        total[i] = 1.0 / total[i]
    for i, j in T.Parallel(rows, width):
        Y[row + i, j] = x[i, j] * total[i]


@T.macro
def held(X, Y, row, part, N, rows, bN, parts, one_chunk):
    """Holds the first bN columns of the rows in each of ``parts`` blocks; columns behind these are read again
    for each step, unless there are none (``one_chunk``)."""
    x = T.alloc_fragment((rows, bN), "float32")
    top, total, scale = [T.alloc_fragment((rows,), "float32") for _ in range(3)]
    load_row(X, x, row, part * bN, N, rows, bN)
    if one_chunk:
        T.reduce_max(x, top, dim=1)
        exponentiate(x, top, rows, bN)
        T.reduce_sum(x, total, dim=1)
    else:
        add_up_all(X, x, top, total, row, part, N, rows, bN, parts)
    scale_of_all(top, total, scale, part, parts, rows)
    for i, j in T.Parallel(rows, bN):
        Y[row + i, part * bN + j] = x[i, j] * scale[i]
    if not one_chunk:
        v = T.alloc_fragment((rows, bN), "float32")
        for c in T.serial(part + parts, T.ceildiv(N, bN), parts):
            load_row(X, v, row, c * bN, N, rows, bN)
            for i, j in T.Parallel(rows, bN):
                Y[row + i, c * bN + j] = T.exp2((v[i, j] - top[i]) * LOG2_E) * scale[i]


@T.macro
def held_as_stored(X, Y, row, part, N, rows, bN, parts, dtype):
    """:func:`held` of rows without further columns, as memory has them: 16-bit ones take half the registers,
    and the powers of all are taken twice."""
    x = T.alloc_fragment((rows, bN), dtype)
    powers = T.alloc_fragment((rows, bN), "float32")
    top, total, scale = [T.alloc_fragment((rows,), "float32") for _ in range(3)]
    first = part * bN
    for i, j in T.Parallel(rows, bN):
        x[i, j] = T.if_then_else(first + j < N, X[row + i, first + j], -T.infinity(dtype))
    T.reduce_max(x, top, dim=1)
    raise_tops(top, rows)
    for i, j in T.Parallel(rows, bN):
        powers[i, j] = T.exp2((T.cast(x[i, j], "float32") - top[i]) * LOG2_E)
    T.reduce_sum(powers, total, dim=1)
    scale_of_all(top, total, scale, part, parts, rows)
    for i, j in T.Parallel(rows, bN):
        power = T.exp2((T.cast(x[i, j], "float32") - top[i]) * LOG2_E)
        Y[row + i, first + j] = power * scale[i]


@T.macro
def exponentiate(x, top, rows, bN):
    """x = exp(x - top), where a row without a number above `LOWEST` has that for its maximum."""
    raise_tops(top, rows)
    for i, j in T.Parallel(rows, bN):
        x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)


@T.macro
def raise_tops(top, rows):
    """top = `LOWEST` where it is less."""
    for i in T.Parallel(rows):
        top[i] = T.max(top[i], LOWEST)


@T.macro
def add_up_all(X, x, top, total, row, part, N, rows, bN, parts):
    """Maxima and sums of the columns that a block holds and of those that it reads again."""
    v, w = [T.alloc_fragment((rows, bN), "float32") for _ in range(2)]
    chunks = T.ceildiv(N, bN)
    T.copy(x, w)
    for c in T.serial(part + parts, chunks, parts):
        load_row(X, v, row, c * bN, N, rows, bN)
        for i, j in T.Parallel(rows, bN):
            w[i, j] = T.max(w[i, j], v[i, j])
    T.reduce_max(w, top, dim=1)
    exponentiate(x, top, rows, bN)
    T.copy(x, w)
    for c in T.serial(part + parts, chunks, parts):
        load_row(X, v, row, c * bN, N, rows, bN)
        for i, j in T.Parallel(rows, bN):
            w[i, j] = w[i, j] + T.exp2((v[i, j] - top[i]) * LOG2_E)
    T.reduce_sum(w, total, dim=1)


@T.macro
def scale_of_all(top, total, scale, part, parts, rows):
    """What the powers of a block are multiplied by: 1 / total, where it has no others."""
    if parts == 1:
        for i in T.Parallel(rows):
            scale[i] = 1.0 / total[i]
    else:
        scale_of_parts(top, total, scale, part, parts, rows)


@T.macro
def scale_of_parts(top, total, scale, part, parts, rows):
    """scale = exp(top - the maximum of all blocks of the cluster) / the sum of all."""
    tops, totals = [T.alloc_shared((parts, rows), "float32") for _ in range(2)]
    tell_parts(top, tops, part, parts)
    tell_parts(total, totals, part, parts)
    high, whole = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
    T.cluster_sync()
    T.fill(high, LOWEST)
    T.clear(whole)
    for p in T.unroll(parts):
        for i in T.Parallel(rows):
            high[i] = T.max(high[i], tops[p, i])
    for p in T.unroll(parts):
        for i in T.Parallel(rows):
            whole[i] = whole[i] + totals[p, i] * T.exp2((tops[p, i] - high[i]) * LOG2_E)
    for i in T.Parallel(rows):
        scale[i] = T.exp2((top[i] - high[i]) * LOG2_E) / whole[i]


@T.macro
def kept(X, Y, row, first, N, bN, part, parts, threads, dtype):
    """:func:`held` of a row without further columns, in shared memory, from column ``first`` on, which may be
    below 0: all of it is under way at once, without registers, and blocks of few threads hold much. The
    powers of all are taken twice."""
    lot = min(bN, LOT * threads)
    x = T.alloc_shared((bN,), dtype)
    some = T.alloc_fragment((1, lot), "float32")
    top, total, scale = [T.alloc_fragment((1,), "float32") for _ in range(3)]
    begin, end = ends_of(first, N, bN)
    T.copy(X[row, first], x, prefer_instruction="cp_async")
    T.fill(some, LOWEST)
    for c in T.serial(T.ceildiv(end, lot)):
        if is_inner(c, begin, end, lot):
            for i, j in T.Parallel(1, lot):
                some[i, j] = T.max(some[i, j], T.cast(x[c * lot + j], "float32"))
        else:
            for i, j in T.Parallel(1, lot):
                value = T.cast(x[c * lot + j], "float32")
                some[i, j] = T.max(
                    some[i, j], T.if_then_else(is_between(c * lot + j, begin, end), value, LOWEST)
                )
    T.reduce_max(some, top, dim=1)
    T.clear(some)
    for c in T.serial(T.ceildiv(end, lot)):
        if is_inner(c, begin, end, lot):
            for i, j in T.Parallel(1, lot):
                some[i, j] = some[i, j] + power(x[c * lot + j], top[i])
        else:
            for i, j in T.Parallel(1, lot):
                value = power(x[c * lot + j], top[i])
                some[i, j] = some[i, j] + T.if_then_else(is_between(c * lot + j, begin, end), value, 0.0)
    T.reduce_sum(some, total, dim=1)
    scale_of_all(top, total, scale, part, parts, 1)
    for c in T.serial(T.ceildiv(end, lot)):
        for i, j in T.Parallel(1, lot):
            Y[row + i, first + c * lot + j] = power(x[c * lot + j], top[i]) * scale[i]


def power(value, top):
    """exp(value - top)."""
    return T.exp2((T.cast(value, "float32") - top) * LOG2_E)


@T.macro
def take_chunk(x, w, v, high, old, sums, c, N, lots, bN):
    """Takes a chunk of a row into running maxima and sums, one per lot of RUN columns in all chunks."""
    for g, k in T.Parallel(lots, RUN):
        w[g, k] = x[g * RUN + k]
    for g, k in T.Parallel(lots, RUN):
        value = T.cast(w[g, k], "float32")
        v[g, k] = T.if_then_else(c * bN + g * RUN + k < N, value, -T.infinity("float32"))
    T.copy(high, old)
    T.reduce_max(v, high, dim=1, clear=False)
    for g in T.Parallel(lots):
        sums[g] = sums[g] * T.exp2((old[g] - high[g]) * LOG2_E)
    for g, k in T.Parallel(lots, RUN):
        v[g, k] = T.exp2((v[g, k] - high[g]) * LOG2_E)
    T.reduce_sum(v, sums, dim=1, clear=False)


@T.macro
def staged(X, Y, row, N, chunks, bN, dtype):
    """Reads a row once, all of it at the same time, and keeps it in shared memory, in chunks of bN, as it is;
    powers are taken once for the sum, and once more to write."""
    lots = bN // RUN
    kept = [T.alloc_shared((bN,), dtype) for _ in range(chunks)]
    v, w = T.alloc_fragment((lots, RUN), "float32"), T.alloc_fragment((lots, RUN), dtype)
    high, old, sums = [T.alloc_fragment((lots,), "float32") for _ in range(3)]
    top, total = [T.alloc_fragment((1,), "float32") for _ in range(2)]
    for c, x in enumerate(kept):
        T.copy(X[row, c * bN], x)
    T.fill(high, LOWEST)
    T.clear(sums)
    for c, x in enumerate(kept):
        take_chunk(x, w, v, high, old, sums, c, N, lots, bN)
    T.reduce_max(high, top, dim=0)
    for g in T.Parallel(lots):
        sums[g] = sums[g] * T.exp2((high[g] - top[0]) * LOG2_E)
    T.reduce_sum(sums, total, dim=0)
    for i in T.Parallel(1):
        total[i] = 1.0 / total[i]
    for c, x in enumerate(kept):
        for g, k in T.Parallel(lots, RUN):
            power = T.exp2((T.cast(x[g * RUN + k], "float32") - top[0]) * LOG2_E)
            Y[row, c * bN + g * RUN + k] = power * total[0]


@tilec.jit(out_idx=[-1])
def softmax(
    M,
    N,
    ldx,
    dtype="float32",
    rows=4,
    bN=1024,
    one_chunk=False,
    as_stored=False,
    cut=False,
    wait=False,
    keep_row=False,
    whole_vectors=False,
    parts=0,
    threads=128,
):
    """Y = softmax(X) per row; rows of X are ldx elements apart, N may be a runtime value.

    ``one_chunk`` promises N <= bN (a guard of the manifest): the row is then read and exponentiated once,
    with ``cut`` by loops over its own columns alone, which costs a CPU nothing. ``wait`` promises N <= MOST *
    bN: for CPUs, which then read a row once, whatever its length, and hold bN columns of it.
    ``keep_row`` does that for longer rows, where N is compiled in and a row fits shared memory; a block then
    takes one row, and powers are rounded to ``dtype`` once more than otherwise. ``parts``: clusters of so
    many blocks (1: blocks) hold ``bN`` columns each; with ``one_chunk`` and ``as_stored`` 16-bit ones as they
    are, with ``one_chunk`` and ``keep_row`` those of one row in shared memory: with ``whole_vectors`` from
    the vector of 16 bytes on that the row begins in, of which up to 15 bytes are columns of no row.
    """

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (ldx, 1), dtype), Y: T.Tensor((M, N), dtype)):
        """Y = softmax(X) over each row."""
        if parts:
            clusters = {"cluster_dims": parts} if parts > 1 else {}
            with T.Kernel(T.ceildiv(M, rows) * parts, threads=threads, **clusters) as n:
                row, part = n // parts * rows, n % parts
                if one_chunk and keep_row:
                    start = vector_start(n // parts, ldx, dtype) if whole_vectors else 0
                    kept(X, Y, n // parts, start + part * bN, N, bN, part, parts, threads, dtype)
                elif one_chunk and as_stored and dtype != "float32":
                    held_as_stored(X, Y, row, part, N, rows, bN, parts, dtype)
                else:
                    held(X, Y, row, part, N, rows, bN, parts, one_chunk)
        elif keep_row:
            with T.Kernel(M, threads=threads) as b:
                staged(X, Y, b, N, -(-N // bN), bN, dtype)
        else:
            with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
                if one_chunk:
                    one_pass(X, Y, b * rows, N, rows, bN, cut)
                elif wait:
                    waiting(X, Y, b * rows, N, rows, bN)
                else:
                    online(X, Y, b * rows, N, rows, bN)

    return main


def softmax_reference(X):
    """NumPy twin of :func:`softmax`."""
    x = f32(X)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
