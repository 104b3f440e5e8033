"""Kernels that memory bounds, as people write them: no schedule keys, no tables, sizes of the call."""

from __future__ import annotations

import numpy as np

import tilec.language as T

BLOCKS = 264  # of loops over parts: two for each multiprocessor of an H100


def added(dtype, block=1024):
    """Sums of two tensors of one axis, whatever their length."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return main


def added_reference(A, B):
    return A + B


def summed(block=4096):
    """The sum of a tensor of one axis, onto a number."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "float16"), S: T.Tensor((1,), "float32")):
        with T.Kernel(BLOCKS, threads=512) as bx:
            parts = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(parts)
            for k in T.serial(T.ceildiv(n, block * BLOCKS)):
                for i in T.Parallel(block):
                    parts[i] += X[(k * BLOCKS + bx) * block + i]
            T.reduce_sum(parts, total)
            if T.get_thread_binding() == 0:
                T.atomic_add(S[0], total[0])

    return main


def summed_reference(X, S):
    return S + X.astype(np.float32).sum()


def histogram(block=8192):
    """How often each byte occurs."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "uint8"), H: T.Tensor((256,), "int32")):
        with T.Kernel(BLOCKS, threads=512) as bx:
            h = T.alloc_shared((256,), "int32")
            T.clear(h)
            for k in T.serial(T.ceildiv(n, BLOCKS * block)):
                for i in T.Parallel(block):
                    p = (k * BLOCKS + bx) * block + i
                    if p < n:
                        T.atomic_add(h[T.cast(X[p], "int32")], 1)
            for i in T.Parallel(256):
                T.atomic_add(H[i], h[i])

    return main


def histogram_reference(X, H):
    return H + np.bincount(X, minlength=256).astype(np.int32)


def transposed(block=64):
    """A matrix with its axes exchanged, through a shared tile."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((m, n), "float16"), Y: T.Tensor((n, m), "float16")):
        with T.Kernel(T.ceildiv(n, block), T.ceildiv(m, block), threads=256) as (bx, by):
            s = T.alloc_shared((block, block), "float16")
            T.copy(X[by * block, bx * block], s)
            for i, j in T.Parallel(block, block):
                Y[bx * block + i, by * block + j] = s[j, i]

    return main


def transposed_reference(X):
    return np.ascontiguousarray(X.T)


def column_sums(rows=128, columns=128, part=1024):
    """Sums of columns, of parts of the rows, onto a row."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((m, n), "float16"), S: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, part), threads=256) as (bx, by):
            sums = T.alloc_fragment((rows, columns), "float32")
            total = T.alloc_fragment((columns,), "float32")
            T.clear(sums)
            for k in T.serial(part // rows):
                for i, j in T.Parallel(rows, columns):
                    sums[i, j] += X[by * part + k * rows + i, bx * columns + j]
            T.reduce_sum(sums, total, dim=0)
            for j in T.Parallel(columns):
                T.atomic_add(S[bx * columns + j], total[j])

    return main


def column_sums_reference(X, S):
    return S + X.astype(np.float32).sum(0)


def layer_norm(n=4096):
    """Rows less their mean, over their deviation, times a gain, plus a bias."""
    m = T.dynamic("m")
    row = (n,)

    @T.prim_func
    def main(
        X: T.Tensor((m, n), "float16"),
        G: T.Tensor(row, "float16"),
        B: T.Tensor(row, "float16"),
        Y: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(m, threads=256) as by:
            x = T.alloc_fragment(row, "float32")
            squares = T.alloc_fragment(row, "float32")
            mean = T.alloc_fragment((1,), "float32")
            variance = T.alloc_fragment((1,), "float32")
            for i in T.Parallel(n):
                x[i] = X[by, i]
            T.reduce_sum(x, mean)
            for i in T.Parallel(n):
                squares[i] = (x[i] - mean[0] / n) * (x[i] - mean[0] / n)
            T.reduce_sum(squares, variance)
            for i in T.Parallel(n):
                Y[by, i] = (x[i] - mean[0] / n) * T.rsqrt(variance[0] / n + 1e-5) * G[i] + B[i]

    return main


def layer_norm_reference(X, G, B):
    x = X.astype(np.float32)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (x * G + B).astype(X.dtype)


def softmax(block=1024):
    """Softmax of rows of any length, which it reads twice."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((m, n), "float16"), Y: T.Tensor((m, n), "float16")):
        with T.Kernel(m, threads=128) as by:
            x = T.alloc_fragment((block,), "float32")
            top = T.alloc_fragment((1,), "float32")
            before = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((1,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(T.ceildiv(n, block)):
                for i in T.Parallel(block):
                    p = k * block + i
                    x[i] = T.if_then_else(p < n, T.cast(X[by, p], "float32"), -T.infinity("float32"))
                T.copy(top, before)
                T.reduce_max(x, top, clear=False)
                for i in T.Parallel(block):
                    x[i] = T.exp(x[i] - top[0])
                T.reduce_sum(x, part)
                total[0] = total[0] * T.exp(before[0] - top[0]) + part[0]
            for k in T.serial(T.ceildiv(n, block)):
                for i in T.Parallel(block):
                    Y[by, k * block + i] = T.exp(T.cast(X[by, k * block + i], "float32") - top[0]) / total[0]

    return main


def softmax_reference(X):
    x = np.exp(X.astype(np.float32) - X.max(1, keepdims=True).astype(np.float32))
    return (x / x.sum(1, keepdims=True)).astype(X.dtype)


def matrix_vector(rows=4, block=1024):
    """A matrix times a vector."""
    n, k = T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(W: T.Tensor((n, k), "float16"), X: T.Tensor((k,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(T.ceildiv(n, rows), threads=128) as bx:
            sums = T.alloc_fragment((rows, block), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.clear(sums)
            for part in T.serial(T.ceildiv(k, block)):
                for i, j in T.Parallel(rows, block):
                    weight = T.cast(W[bx * rows + i, part * block + j], "float32")
                    sums[i, j] += T.cast(X[part * block + j], "float32") * weight
            T.reduce_sum(sums, total, dim=1)
            for i in T.Parallel(rows):
                Y[bx * rows + i] = total[i]

    return main


def matrix_vector_reference(W, X):
    return (W.astype(np.float32) @ X.astype(np.float32)).astype(W.dtype)


def heads_first(heads=32, depth=128):
    """(batch, tokens, heads, depth) with heads in front of tokens."""
    b, s = T.dynamic("b"), T.dynamic("s")
    before, behind = (b, s, heads, depth), (b, heads, s, depth)

    @T.prim_func
    def main(X: T.Tensor(before, "float16"), Y: T.Tensor(behind, "float16")):
        with T.Kernel(T.ceildiv(s, 8), b, threads=256) as (bx, by):
            for i, h, d in T.Parallel(8, heads, depth):
                if bx * 8 + i < s:
                    Y[by, h, bx * 8 + i, d] = X[by, bx * 8 + i, h, d]

    return main


def heads_first_reference(X):
    return np.ascontiguousarray(X.transpose(0, 2, 1, 3))


def pooled(channels=64):
    """The largest of 2 x 2 pixels, channel by channel."""
    b, h, w = T.dynamic("b"), T.dynamic("h"), T.dynamic("w")
    before, behind = (b, h * 2, w * 2, channels), (b, h, w, channels)

    @T.prim_func
    def main(X: T.Tensor(before, "float16"), Y: T.Tensor(behind, "float16")):
        with T.Kernel(T.ceildiv(w, 16), h, b, threads=128) as (bx, by, bz):
            for i, c in T.Parallel(16, channels):
                p = bx * 16 + i
                if p < w:
                    top = T.alloc_var("float16")
                    top = T.max(X[bz, by * 2, p * 2, c], X[bz, by * 2, p * 2 + 1, c])
                    top = T.max(top, X[bz, by * 2 + 1, p * 2, c])
                    Y[bz, by, p, c] = T.max(top, X[bz, by * 2 + 1, p * 2 + 1, c])

    return main


def pooled_reference(X):
    b, h, w, c = X.shape
    return X.reshape(b, h // 2, 2, w // 2, 2, c).max((2, 4))


def quantised_rows(n=4096):
    """Rows as int8, with a scale for each."""
    m = T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((m, n), "float16"), S: T.Tensor((m,), "float32"), Q: T.Tensor((m, n), "int8")):
        with T.Kernel(m, threads=256) as by:
            x = T.alloc_fragment((n,), "float32")
            top = T.alloc_fragment((1,), "float32")
            for i in T.Parallel(n):
                x[i] = X[by, i]
            T.reduce_absmax(x, top)
            S[by] = top[0] / 127
            for i in T.Parallel(n):
                Q[by, i] = T.cast(T.round(x[i] * (127 / T.max(top[0], 1e-8))), "int8")

    return main


def quantised_rows_reference(X):
    top = np.abs(X.astype(np.float32)).max(1)
    scaled = X.astype(np.float32) * (np.float32(127) / np.maximum(top, np.float32(1e-8)))[:, None]
    return top / np.float32(127), np.rint(scaled).astype(np.int8)


def depthwise(channels=256):
    """3 x 3 weights for each channel, over pixels with a border of zeros."""
    b, h, w = T.dynamic("b"), T.dynamic("h"), T.dynamic("w")
    pixels = (b, h, w, channels)

    @T.prim_func
    def main(
        X: T.Tensor(pixels, "float16"),
        W: T.Tensor((3, 3, channels), "float16"),
        Y: T.Tensor(pixels, "float16"),
    ):
        with T.Kernel(T.ceildiv(w, 8), h, b, threads=256) as (bx, by, bz):
            sums = T.alloc_fragment((8, channels), "float32")
            T.clear(sums)
            for r, s in T.grid(3, 3):
                for i, c in T.Parallel(8, channels):
                    y, x = by + r - 1, bx * 8 + i + s - 1
                    inside = y >= 0 and y < h and x >= 0 and x < w
                    sums[i, c] += T.if_then_else(inside, T.cast(X[bz, y, x, c], "float32") * W[r, s, c], 0.0)
            for i, c in T.Parallel(8, channels):
                if bx * 8 + i < w:
                    Y[bz, by, bx * 8 + i, c] = sums[i, c]

    return main


def depthwise_reference(X, W):
    _, h, w, _ = X.shape
    padded = np.pad(X.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = (padded[:, r : r + h, s : s + w] * W[r, s].astype(np.float32) for r in range(3) for s in range(3))
    return sum(taps).astype(X.dtype)


def largest(block=2048):
    """Where the largest element of each row is, the first of equal ones."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((m, n), "float16"), At: T.Tensor((m,), "int32")):
        with T.Kernel(m, threads=256) as by:
            best = T.alloc_fragment((block,), "float32")
            place = T.alloc_fragment((block,), "int32")
            top = T.alloc_fragment((1,), "float32")
            first = T.alloc_fragment((1,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.clear(place)
            for k in T.serial(T.ceildiv(n, block)):
                for i in T.Parallel(block):
                    if k * block + i < n:
                        value = T.cast(X[by, k * block + i], "float32")
                        if value > best[i]:
                            best[i] = value
                            place[i] = k * block + i
            T.reduce_max(best, top)
            for i in T.Parallel(block):
                place[i] = T.if_then_else(best[i] == top[0], place[i], 2147483647)
            T.reduce_min(place, first)
            At[by] = first[0]

    return main


def largest_reference(X):
    return X.argmax(1).astype(np.int32)


def group_norm(groups=32, channels=512, block=512):
    """Groups of channels less their mean, over their deviation, read twice."""
    b, pixels = T.dynamic("b"), T.dynamic("pixels")
    each = channels // groups
    image, row = (b, channels, pixels), (channels,)

    @T.prim_func
    def main(
        X: T.Tensor(image, "float16"),
        G: T.Tensor(row, "float16"),
        B: T.Tensor(row, "float16"),
        Y: T.Tensor(image, "float16"),
    ):
        with T.Kernel(groups, b, threads=256) as (bx, by):
            sums = T.alloc_fragment((each, block), "float32")
            squares = T.alloc_fragment((each, block), "float32")
            row_sums = T.alloc_fragment((each,), "float32")
            row_squares = T.alloc_fragment((each,), "float32")
            total = T.alloc_fragment((1,), "float32")
            total_squares = T.alloc_fragment((1,), "float32")
            T.clear(sums)
            T.clear(squares)
            for k in T.serial(T.ceildiv(pixels, block)):
                for c, i in T.Parallel(each, block):
                    if k * block + i < pixels:
                        value = T.cast(X[by, bx * each + c, k * block + i], "float32")
                        sums[c, i] += value
                        squares[c, i] += value * value
            T.reduce_sum(sums, row_sums, dim=1)
            T.reduce_sum(squares, row_squares, dim=1)
            T.reduce_sum(row_sums, total)
            T.reduce_sum(row_squares, total_squares)
            mean = total[0] / (each * pixels)
            scale = T.rsqrt(total_squares[0] / (each * pixels) - mean * mean + 1e-5)
            for k in T.serial(T.ceildiv(pixels, block)):
                for c, i in T.Parallel(each, block):
                    p, channel = k * block + i, bx * each + c
                    if p < pixels:
                        Y[by, channel, p] = (X[by, channel, p] - mean) * scale * G[channel] + B[channel]

    return main


def group_norm_reference(X, G, B):
    x = X.astype(np.float32).reshape(X.shape[0], 32, -1)
    x = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)
    return (x.reshape(X.shape) * G[:, None] + B[:, None]).astype(X.dtype)


def running_sums(block=2048):
    """Sums of the elements of a row up to each."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((m, n), "float32"), Y: T.Tensor((m, n), "float32")):
        with T.Kernel(m, threads=256) as by:
            x = T.alloc_shared((block,), "float32")
            before = T.alloc_fragment((1,), "float32")
            T.clear(before)
            for k in T.serial(T.ceildiv(n, block)):
                T.copy(X[by, k * block], x)
                T.cumsum(x)
                for i in T.Parallel(block):
                    Y[by, k * block + i] = x[i] + before[0]
                before[0] += x[block - 1]

    return main


def running_sums_reference(X):
    return X.cumsum(1)


def small_products(size=16, many=4):
    """Products of small matrices, several to a block."""
    b = T.dynamic("b")
    shape = (b, size, size)

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32"), C: T.Tensor(shape, "float32")):
        with T.Kernel(T.ceildiv(b, many), threads=256) as bx:
            left = T.alloc_shared((many, size, size), "float32")
            right = T.alloc_shared((many, size, size), "float32")
            sums = T.alloc_fragment((many, size, size), "float32")
            T.copy(A[bx * many, 0, 0], left)
            T.copy(B[bx * many, 0, 0], right)
            T.clear(sums)
            for k in T.serial(size):
                for t, i, j in T.Parallel(many, size, size):
                    sums[t, i, j] += left[t, i, k] * right[t, k, j]
            T.copy(sums, C[bx * many, 0, 0])

    return main


def small_products_reference(A, B):
    return A @ B
