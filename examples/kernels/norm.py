"""RMSNorm and LayerNorm over the rows of a matrix, plain and with a residual, in the eager form.

A block takes ``rows`` rows and holds their first ``bN`` columns, or all of them where N is compiled in; a
cluster of ``parts`` blocks holds so many times ``bN``. Columns behind these are read again for each pass over
the row; ``one_chunk`` promises that there are none (a guard of the manifest), which halves the registers.
With ``reread`` a block holds nothing and reads its rows for each step: for CPUs, whose caches have them, with
``by_columns`` in the last step bN columns of all its rows at a time: gains and biases of rows that fill the
first cache come from the second one once for all these rows. With ``keep_row`` and ``one_chunk`` a block
holds one row in shared memory, with ``whole_vectors`` from the vector of 16 bytes on that the row begins in,
of which up to 15 bytes are columns of no row.
Where a thread has few of them, gains and biases are then asked for together with the row. Statistics are
float32, and the variance is one of centred values, so large means cost no digits; blocks of a cluster centre
what they hold on means of their own, and meet once. Row strides are arguments, so that a slice can be
normalised in place of a copy.
"""

from __future__ import annotations

from typing import NamedTuple

from tile_math import ends_of, f32, is_between, is_inner, normalise_reference, tell_parts, vector_start

import tilec
import tilec.language as T

#: Elements of a thread up to which it has registers for gains and biases of them.
FEW = 16
#: Elements of a row in shared memory that a thread takes at a time.
LOT = 8


@T.macro
def load(X, R, x, row, start, rows, width):
    """x = X[row:, start:] as float32, plus R's elements where there is an R; 0 behind the end of rows."""
    if R is None:
        T.copy(X[row, start], x)
    else:
        for i, j in T.Parallel(rows, width):
            x[i, j] = T.cast(X[row + i, start + j], "float32") + T.cast(R[row + i, start + j], "float32")


@T.macro
def center(x, mean, rows, N, width, start=None):
    """Takes the mean from each row of x, whose first column is ``start``: what is behind its end stays 0."""
    for i, j in T.Parallel(rows, width):
        if start is None:
            x[i, j] = x[i, j] - mean[i]
        else:
            x[i, j] = T.if_then_else(start + j < N, x[i, j] - mean[i], 0.0)


@T.macro
def divide(sums, count, rows):
    """sums[i] = sums[i] / count."""
    for i in T.Parallel(rows):
        sums[i] = sums[i] / count


@T.macro
def inverse_rms(squares, scale, rows, N, eps):
    """scale[i] = 1 / sqrt(sum(squares[i]) / N + eps)."""
    T.reduce_sum(squares, scale, dim=1)
    invert_roots(scale, rows, N, eps)


@T.macro
def invert_roots(sums, rows, N, eps):
    """sums[i] = 1 / sqrt(sums[i] / N + eps)."""
    for i in T.Parallel(rows):
        sums[i] = T.rsqrt(sums[i] / N + eps)


@T.macro
def store(x, scale, G, B, Y, row, start, rows, width, first=0):
    """Y[row:, start:] = x * scale * G[first:], plus B where there is a B."""
    for i, j in T.Parallel(rows, width):
        if B is None:
            Y[row + i, start + j] = x[i, j] * scale[i] * G[first + j]
        else:
            Y[row + i, start + j] = x[i, j] * scale[i] * G[first + j] + B[first + j]


def gains(vector, start, width, held):
    """What `store` reads of G or B, and from where: with ``held`` a copy that is asked for here, to be
    there when the statistics are."""
    if vector is None or not held:
        return vector, start
    copied = T.alloc_fragment((width,), vector.dtype)
    T.copy(vector[start], copied)
    return copied, 0


@T.macro
def normalise(X, R, G, B, H, Y, row, rows, N, eps, centred, held):
    """A block whose rows are compiled in: Y = (X + R, less its mean if ``centred``) / root of its mean
    square * G + B; H = X + R. R, B and H may be None."""
    x, squares = [T.alloc_fragment((rows, N), "float32") for _ in range(2)]
    mean, scale = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
    load(X, R, x, row, 0, rows, N)
    gain, _ = gains(G, 0, N, held)
    bias, _ = gains(B, 0, N, held)
    if H is not None:
        T.copy(x, H[row, 0])
    if centred:
        T.reduce_sum(x, mean, dim=1)
        divide(mean, N, rows)
        center(x, mean, rows, N, N)
    for i, j in T.Parallel(rows, N):
        squares[i, j] = x[i, j] * x[i, j]
    inverse_rms(squares, scale, rows, N, eps)
    store(x, scale, gain, bias, Y, row, 0, rows, N)


@T.macro
def normalise_any(X, R, G, B, H, Y, row, part, rows, N, width, parts, eps, centred, held, one_chunk):
    """:func:`normalise` of rows of any length, of which each block of a cluster holds ``width`` columns."""
    x = T.alloc_fragment((rows, width), "float32")
    mean, scale = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
    first = part * width
    load(X, R, x, row, first, rows, width)
    gain, at = gains(G, first, width, held)
    bias, _ = gains(B, first, width, held)
    if H is not None:
        T.copy(x, H[row, first])
    if one_chunk:
        statistics(x, mean, scale, part, rows, N, width, parts, centred)
    else:
        statistics_of_all(X, R, H, x, mean, scale, row, part, rows, N, width, parts, centred)
    if parts > 1 and centred:
        own = T.alloc_fragment((rows,), "float32")
        T.copy(mean, own)
        join_parts(mean, scale, N, width, part, parts, rows)
        for i, j in T.Parallel(rows, width):
            x[i, j] = x[i, j] - (mean[i] - own[i])
    elif parts > 1:
        add_parts(scale, part, parts, rows)
    invert_roots(scale, rows, N, eps)
    store(x, scale, gain, bias, Y, row, first, rows, width, at)
    if not one_chunk:
        v = T.alloc_fragment((rows, width), "float32")
        for c in T.serial(part + parts, T.ceildiv(N, width), parts):
            load(X, R, v, row, c * width, rows, width)
            if centred:
                center(v, mean, rows, N, width, c * width)
            store(v, scale, G, B, Y, row, c * width, rows, width, c * width)


@T.macro
def statistics(x, mean, scale, part, rows, N, width, parts, centred):
    """The sums of squares of what a block holds of its rows, which it centres on their mean there."""
    squares = T.alloc_fragment((rows, width), "float32")
    if centred:
        T.reduce_sum(x, mean, dim=1)
        divide(mean, T.max(own_columns(N, width, part, parts), 1.0), rows)
        center(x, mean, rows, N, width, part * width)
    for i, j in T.Parallel(rows, width):
        squares[i, j] = x[i, j] * x[i, j]
    T.reduce_sum(squares, scale, dim=1)


@T.macro
def statistics_of_all(X, R, H, x, mean, scale, row, part, rows, N, width, parts, centred):
    """:func:`statistics` of these columns and of all that the block reads again."""
    v, sums = [T.alloc_fragment((rows, width), "float32") for _ in range(2)]
    rest, chunks = part + parts, T.ceildiv(N, width)
    if centred:
        T.copy(x, sums)
        for c in T.serial(rest, chunks, parts):
            load(X, R, v, row, c * width, rows, width)
            for i, j in T.Parallel(rows, width):
                sums[i, j] = sums[i, j] + v[i, j]
        T.reduce_sum(sums, mean, dim=1)
        divide(mean, T.max(own_columns(N, width, part, parts), 1.0), rows)
        center(x, mean, rows, N, width, part * width)
    for i, j in T.Parallel(rows, width):
        sums[i, j] = x[i, j] * x[i, j]
    for c in T.serial(rest, chunks, parts):
        load(X, R, v, row, c * width, rows, width)
        if H is not None:
            T.copy(v, H[row, c * width])
        if centred:
            center(v, mean, rows, N, width, c * width)
        for i, j in T.Parallel(rows, width):
            sums[i, j] = sums[i, j] + v[i, j] * v[i, j]
    T.reduce_sum(sums, scale, dim=1)


@T.macro
def normalise_kept(X, R, G, B, H, Y, row, start, part, N, width, parts, threads, eps, centred):
    """:func:`normalise_any` of a row without further columns, held in shared memory from column ``start`` on,
    0 or less: all of it is under way at once, without registers, and blocks of few threads hold much."""
    lot = min(width, LOT * threads)
    x = T.alloc_shared((width,), X.dtype)
    sums = T.alloc_fragment((1, lot), "float32")
    mean, scale = [T.alloc_fragment((1,), "float32") for _ in range(2)]
    first = start + part * width
    begin, end = ends_of(first, N, width)
    T.copy(X[row, first], x, prefer_instruction="cp_async")
    r = None if R is None else T.alloc_shared((width,), R.dtype)
    if R is not None:
        T.copy(R[row, first], r, prefer_instruction="cp_async")
    T.clear(mean)
    if centred:
        T.clear(sums)
        for c in T.serial(T.ceildiv(end, lot)):
            for i, j in T.Parallel(1, lot):
                sums[i, j] = sums[i, j] + kept(x, r, c * lot + j)
        T.reduce_sum(sums, mean, dim=1)
        divide(mean, T.max(T.cast(end - begin, "float32"), 1.0), 1)
    T.clear(sums)
    for c in T.serial(T.ceildiv(end, lot)):
        if not centred or is_inner(c, begin, end, lot):
            for i, j in T.Parallel(1, lot):
                sums[i, j] = sums[i, j] + square(kept(x, r, c * lot + j) - mean[i])
        else:
            for i, j in T.Parallel(1, lot):
                value = square(kept(x, r, c * lot + j) - mean[i])
                sums[i, j] = sums[i, j] + T.if_then_else(is_between(c * lot + j, begin, end), value, 0.0)
    T.reduce_sum(sums, scale, dim=1)
    if parts > 1 and centred:
        join_parts(mean, scale, N, width, part, parts, 1, start)
    elif parts > 1:
        add_parts(scale, part, parts, 1)
    invert_roots(scale, 1, N, eps)
    for c in T.serial(T.ceildiv(end, lot)):
        for i, j in T.Parallel(1, lot):
            value = kept(x, r, c * lot + j)
            scaled = (value - mean[i]) * scale[i] * G[first + c * lot + j]
            Y[row + i, first + c * lot + j] = scaled if B is None else scaled + B[first + c * lot + j]
            if H is not None:
                H[row + i, first + c * lot + j] = value


def kept(x, r, j):
    """An element of a row in shared memory, plus that of the residual where there is one."""
    value = T.cast(x[j], "float32")
    return value if r is None else value + T.cast(r[j], "float32")


def square(value):
    """value ** 2."""
    return value * value


def own_columns(N, width, part, parts, start=0):
    """How many of N columns the block ``part`` of a cluster has, in float32: the first one from column
    ``start`` on, 0 or less."""
    rounds = (N - start) // (width * parts)
    rest = N - start - (rounds * parts + part) * width
    own = rounds * width + T.min(T.max(rest, 0), width)
    return T.cast(own if isinstance(start, int) else own + T.if_then_else(part == 0, start, 0), "float32")


@T.macro
def add_parts(sums, part, parts, rows):
    """Adds up what the blocks of a cluster have summed."""
    tile = T.alloc_shared((parts, rows), "float32")
    tell_parts(sums, tile, part, parts)
    T.cluster_sync()
    T.clear(sums)
    for p in T.unroll(parts):
        for i in T.Parallel(rows):
            sums[i] = sums[i] + tile[p, i]


@T.macro
def join_parts(mean, squares, N, width, part, parts, rows, start=0):
    """Means of the columns of each block of a cluster become those of all, and sums of squares of what is
    centred on the former become those of what is centred on the latter (Chan, Golub and LeVeque, Updating
    formulae and a pairwise algorithm for computing sample variances, 1979)."""
    means, sums = [T.alloc_shared((parts, rows), "float32") for _ in range(2)]
    tell_parts(mean, means, part, parts)
    tell_parts(squares, sums, part, parts)
    T.cluster_sync()
    T.clear(mean)
    T.clear(squares)
    for p in T.unroll(parts):
        for i in T.Parallel(rows):
            mean[i] = mean[i] + means[p, i] * (own_columns(N, width, p, parts, start) / N)
    for p in T.unroll(parts):
        for i in T.Parallel(rows):
            apart = means[p, i] - mean[i]
            squares[i] = squares[i] + sums[p, i] + apart * apart * own_columns(N, width, p, parts, start)


def element(X, R, i, j, mean=None):
    """X[i, j] in float32, plus that of R, less the mean where there is one."""
    value = T.cast(X[i, j], "float32")
    value = value if R is None else value + T.cast(R[i, j], "float32")
    return value if mean is None else value - mean


@T.macro
def normalise_in_place(X, R, G, B, H, Y, row, rows, N, eps, centred, width):
    """:func:`normalise` of rows of any length that stay where they are, ``width`` columns of all rows at a
    time in the last step, or all of them (None)."""
    mean, scale = [T.alloc_fragment((rows,), "float32") for _ in range(2)]
    T.clear(mean)
    T.clear(scale)
    if centred:
        for i, j in T.Parallel(rows, N):
            mean[i] += element(X, R, row + i, j)
        divide(mean, N, rows)
    for i, j in T.Parallel(rows, N):
        x = element(X, R, row + i, j, mean[i] if centred else None)
        scale[i] += x * x
    invert_roots(scale, rows, N, eps)
    if width is None:
        store_in_place(X, R, G, B, H, Y, mean, scale, row, 0, rows, N, centred)
    else:
        for c in T.serial(T.ceildiv(N, width)):
            own = T.min(width, N - c * width)
            store_in_place(X, R, G, B, H, Y, mean, scale, row, c * width, rows, own, centred)


@T.macro
def store_in_place(X, R, G, B, H, Y, mean, scale, row, start, rows, width, centred):
    """The last step of :func:`normalise_in_place` for ``width`` columns."""
    for i, j in T.Parallel(rows, width):
        x = element(X, R, row + i, start + j, mean[i] if centred else None)
        if B is None:
            Y[row + i, start + j] = x * scale[i] * G[start + j]
        else:
            Y[row + i, start + j] = x * scale[i] * G[start + j] + B[start + j]
        if H is not None:
            H[row + i, start + j] = element(X, R, row + i, start + j)


class Plan(NamedTuple):
    """How a kernel goes through its rows, as the module says."""

    rows: int
    bN: int
    parts: int
    one_chunk: bool
    reread: bool
    by_columns: bool
    keep_row: bool
    whole_vectors: bool
    threads: int


@T.macro
def rows_of(X, R, G, B, H, Y, n, N, pitch, eps, centred, plan):
    """The form for this N: compiled in and held by one block, or any. ``n``: the number of the block;
    ``pitch``: how far apart the rows lie whose vectors a block begins at."""
    rows, bN, parts, one_chunk, reread, by_columns, keep_row, whole_vectors, threads = plan
    pinned = isinstance(N, int) and parts == 1
    held = (pinned or one_chunk) and rows * (N if pinned else bN) <= FEW * threads
    if keep_row and one_chunk:
        row, part = n // parts, n % parts
        start = vector_start(row, pitch, X.dtype) if whole_vectors else 0
        normalise_kept(X, R, G, B, H, Y, row, start, part, N, bN, parts, threads, eps, centred)
    elif reread:
        width = bN if by_columns else None
        normalise_in_place(X, R, G, B, H, Y, n * rows, rows, N, eps, centred, width)
    elif pinned:
        normalise(X, R, G, B, H, Y, n * rows, rows, N, eps, centred, held)
    else:
        row, part = n // parts * rows, n % parts
        normalise_any(X, R, G, B, H, Y, row, part, rows, N, bN, parts, eps, centred, held, one_chunk)


def grid(M, rows, parts, threads):
    """A block for each part of ``rows`` rows; those of the same rows are a cluster."""
    clusters = {"cluster_dims": parts} if parts > 1 else {}
    return T.Kernel(T.ceildiv(M, rows) * parts, threads=threads, **clusters)


@tilec.jit
def rmsnorm(
    X,
    G,
    eps: float = 1e-6,
    dtype: str = "float32",
    rows: int = 8,
    bN: int = 256,
    parts: int = 1,
    one_chunk: bool = False,
    reread: bool = False,
    by_columns: bool = False,
    keep_row: bool = False,
    whole_vectors: bool = False,
    threads: int = 128,
):
    """Y = X / rms(X) * G per row."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    G: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    plan = Plan(rows, bN, parts, one_chunk, reread, by_columns, keep_row, whole_vectors, threads)
    with grid(M, rows, parts, threads) as n:
        rows_of(X, None, G, None, None, Y, n, N, ldx, eps, False, plan)
    return Y


@tilec.jit
def rmsnorm_residual(
    X,
    R,
    G,
    eps: float = 1e-6,
    dtype: str = "float32",
    rows: int = 8,
    bN: int = 256,
    parts: int = 1,
    one_chunk: bool = False,
    reread: bool = False,
    by_columns: bool = False,
    keep_row: bool = False,
    whole_vectors: bool = False,
    threads: int = 128,
):
    """H = X + R, Y = H / rms(H) * G per row: one step of a pre-norm residual stream."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    R: T.Tensor[[M, N], dtype]
    G: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    H = T.empty((M, N), dtype)
    plan = Plan(rows, bN, parts, one_chunk, reread, by_columns, keep_row, whole_vectors, threads)
    with grid(M, rows, parts, threads) as n:
        rows_of(X, R, G, None, H, Y, n, N, N, eps, False, plan)
    return Y, H


@tilec.jit
def layernorm(
    X,
    G,
    B,
    eps: float = 1e-5,
    dtype: str = "float32",
    rows: int = 8,
    bN: int = 256,
    parts: int = 1,
    one_chunk: bool = False,
    reread: bool = False,
    by_columns: bool = False,
    keep_row: bool = False,
    whole_vectors: bool = False,
    threads: int = 128,
):
    """Y = (X - mean) / std * G + B per row."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    G: T.Tensor[[N], dtype]
    B: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    plan = Plan(rows, bN, parts, one_chunk, reread, by_columns, keep_row, whole_vectors, threads)
    with grid(M, rows, parts, threads) as n:
        rows_of(X, None, G, B, None, Y, n, N, ldx, eps, True, plan)
    return Y


@tilec.jit
def layernorm_residual(
    X,
    R,
    G,
    B,
    eps: float = 1e-5,
    dtype: str = "float32",
    rows: int = 8,
    bN: int = 256,
    parts: int = 1,
    one_chunk: bool = False,
    reread: bool = False,
    by_columns: bool = False,
    keep_row: bool = False,
    whole_vectors: bool = False,
    threads: int = 128,
):
    """Y = layernorm(X + R) per row: the post-norm step of a BERT encoder."""
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    R: T.Tensor[[M, N], dtype]
    G: T.Tensor[[N], dtype]
    B: T.Tensor[[N], dtype]
    Y = T.empty((M, N), dtype)
    plan = Plan(rows, bN, parts, one_chunk, reread, by_columns, keep_row, whole_vectors, threads)
    with grid(M, rows, parts, threads) as n:
        rows_of(X, R, G, B, None, Y, n, N, N, eps, True, plan)
    return Y


def rmsnorm_reference(X, G, eps=1e-6):
    """NumPy twin of :func:`rmsnorm`."""
    return normalise_reference(f32(X), eps, center=False) * f32(G)


def rmsnorm_residual_reference(X, R, G, eps=1e-6):
    """NumPy twin of :func:`rmsnorm_residual`: (Y, H)."""
    H = f32(X) + f32(R)
    return rmsnorm_reference(H, G, eps), H


def layernorm_reference(X, G, B, eps=1e-5):
    """NumPy twin of :func:`layernorm`."""
    return normalise_reference(f32(X), eps, center=True) * f32(G) + f32(B)


def layernorm_residual_reference(X, R, G, B, eps=1e-5):
    """NumPy twin of :func:`layernorm_residual`."""
    return layernorm_reference(f32(X) + f32(R), G, B, eps)
