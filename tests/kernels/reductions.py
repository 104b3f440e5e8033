"""Sums, extremes and statistics: over tiles, over threads, over parts of a row, over axes, with positions."""

from __future__ import annotations

import numpy as np
from family_math import wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def reduce_threads(M, N, reduce_thread=32, rows=4, dtype="float16"):
    """Row sums: every thread adds up its columns, then the threads of a row meet."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=(reduce_thread, rows)) as bx:
            tk = T.get_thread_binding(0)
            tr = T.get_thread_binding(1)
            local = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            T.clear(local)
            for k in T.serial(T.ceildiv(N, reduce_thread)):
                if k * reduce_thread + tk < N:
                    local[0] += A[bx * rows + tr, k * reduce_thread + tk].astype("float32")
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.Cast("float32", 0)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), local[0], True, total[0], tk, dtype="handle"))
            if tk == 0 and bx * rows + tr < M:
                B[bx * rows + tr] = total[0]

    return main


@tilec.jit(out_idx=[-2, -1])
def warp_extremes(N, warps=4, dtype="float32"):
    """The largest and the smallest of each row through shuffles and one word of shared memory per warp."""
    M = T.dynamic("M")
    threads = warps * 32

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), High: T.Tensor((M,), dtype), Low: T.Tensor((M,), dtype)):
        with T.Kernel(M, threads=threads) as bx:
            tx = T.get_thread_binding()
            high, low = T.alloc_var(dtype), T.alloc_var(dtype)
            highs, lows = T.alloc_shared((warps,), dtype), T.alloc_shared((warps,), dtype)
            high = -T.infinity(dtype)
            low = T.infinity(dtype)
            for k in T.serial(T.ceildiv(N, threads)):
                if k * threads + tx < N:
                    high = T.max(high, A[bx, k * threads + tx])
                    low = T.min(low, A[bx, k * threads + tx])
            for step in T.unroll(5):
                high = T.max(high, T.shfl_xor(high, 16 >> step))
                low = T.min(low, T.shfl_xor(low, 16 >> step))
            if T.get_lane_idx() == 0:
                highs[T.get_warp_idx()] = high
                lows[T.get_warp_idx()] = low
            T.sync_threads()
            if tx == 0:
                for w in T.serial(1, warps):
                    highs[0] = T.max(highs[0], highs[w])
                    lows[0] = T.min(lows[0], lows[w])
                High[bx] = highs[0]
                Low[bx] = lows[0]

    return main


@tilec.jit
def column_statistics(X, blk: int = 32, rows: int = 16):
    """Mean and variance of columns in one pass: counts, means and squares of chunks are joined."""
    M, N = T.dynamic("M"), T.const("N")
    X: T.Tensor[[M, N], T.float32]
    Mean = T.empty((N,), T.float32)
    Var = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, blk), threads=128) as bx:
        x, d = T.alloc_fragment((rows, blk), T.float32), T.alloc_fragment((rows, blk), T.float32)
        mean, m2, part, square = [T.alloc_fragment((blk,), T.float32) for _ in range(4)]
        T.clear(mean)
        T.clear(m2)
        for k in T.Pipelined(T.ceildiv(M, rows), num_stages=2):
            T.copy(X[k * rows : (k + 1) * rows, bx * blk : (bx + 1) * blk], x)
            here = T.cast(T.min(rows, M - k * rows), T.float32)
            before = T.cast(k * rows, T.float32)
            T.reduce_sum(x, part, dim=0)
            for j in T.Parallel(blk):
                part[j] /= here
            for i, j in T.Parallel(rows, blk):
                off = x[i, j] - part[j]
                d[i, j] = off * off if k * rows + i < M else 0.0
            T.reduce_sum(d, square, dim=0)
            for j in T.Parallel(blk):
                delta = part[j] - mean[j]
                m2[j] += square[j] + delta * delta * before * here / (before + here)
                mean[j] += delta * here / (before + here)
        for j in T.Parallel(blk):
            Mean[bx * blk + j] = mean[j]
            Var[bx * blk + j] = m2[j] / M
    return Mean, Var


@tilec.jit(out_idx=[1, 2])
def arg_extreme(M, N, blk_n=64, rows=8, largest=True, dtype="float16"):
    """Value and first place of the largest (smallest) element of each row, chunk by chunk."""
    sign = 1 if largest else -1

    @T.prim_func
    def main(
        A: T.Tensor((M, N), dtype),
        Value: T.Tensor((M,), dtype),
        Place: T.Tensor((M,), "int32"),
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=64) as bx:
            a = T.alloc_fragment((rows, blk_n), "float32")
            c = T.alloc_fragment((rows, blk_n), "int32")
            top, best = T.alloc_fragment((rows,), "float32"), T.alloc_fragment((rows,), "float32")
            at, place = T.alloc_fragment((rows,), "int32"), T.alloc_fragment((rows,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.fill(place, 0)
            for k in T.serial(T.ceildiv(N, blk_n)):
                for i, j in T.Parallel(rows, blk_n):
                    a[i, j] = T.if_then_else(
                        k * blk_n + j < N, A[bx * rows + i, k * blk_n + j] * sign, -T.infinity("float32")
                    )
                T.reduce_max(a, top, dim=1)
                for i, j in T.Parallel(rows, blk_n):
                    c[i, j] = T.Select(a[i, j] == top[i], k * blk_n + j, T.max_value("int32"))
                T.reduce_min(c, at, dim=1)
                for i in T.Parallel(rows):
                    if top[i] > best[i]:
                        best[i] = top[i]
                        place[i] = at[i]
            for i in T.Parallel(rows):
                if bx * rows + i < M:
                    Value[bx * rows + i] = best[i] * sign
                    Place[bx * rows + i] = place[i]

    return main


@tilec.jit(out_idx=[1])
def reducer_norms(M, N, rows=4, blk=64):
    """Roots of row sums of squares with a deferred reducer over chunks, and the largest of all of them."""

    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), Norm: T.Tensor((M,), "float32"), Top: T.Tensor((1,), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            o_reducer = T.alloc_reducer(rows, "float32", op="sum", replication="all")
            a = T.alloc_fragment((rows, blk), "float32")
            norm, most = T.alloc_fragment((rows,), "float32"), T.alloc_fragment((1,), "float32")
            T.clear(o_reducer)
            for k in T.Pipelined(T.ceildiv(N, blk), num_stages=1):
                T.copy(A[bx * rows, k * blk], a)
                for i, j in T.Parallel(rows, blk):
                    o_reducer[i] += a[i, j] * a[i, j]
            T.finalize_reducer(o_reducer)
            for i in T.Parallel(rows):
                norm[i] = T.sqrt(o_reducer[i])
            T.copy(norm, Norm[bx * rows])
            T.reduce_max(norm, most)
            for _ in T.Parallel(1):
                T.atomic_max(Top[0], most[0])

    return main


@tilec.jit(out_idx=[-1])
def segment_sums(D, rows=8, dtype="float32"):
    """Rows of each segment added up: segment s has rows starts[s] to starts[s + 1], of any number."""
    total, segments = T.dynamic("total"), T.dynamic("segments")

    @T.prim_func
    def main(
        X: T.Tensor((total, D), dtype),
        starts: T.Tensor((segments + 1,), "int32"),
        Y: T.Tensor((segments, D), dtype),
    ):
        with T.Kernel(segments, threads=128) as s:
            x, y = T.alloc_fragment((rows, D), dtype), T.alloc_fragment((D,), dtype)
            T.clear(y)
            first, last = starts[s], starts[s + 1]
            for k in T.serial(T.ceildiv(last - first, rows)):
                for i, j in T.Parallel(rows, D):
                    row = first + k * rows + i
                    x[i, j] = X[row, j] if row < last else 0.0
                T.reduce_sum(x, y, dim=0, clear=False)
            T.copy(y, Y[s, :])

    return main


@tilec.jit
def softmax_cross_entropy(
    Logits, Label, blk: int = 64, rows: int = 4, smoothing: float = 0.1, ignore: int = -100
):
    """Loss of each row and its log-sum-exp, over a vocabulary in chunks; ignored labels give 0."""
    M, V = T.dynamic("M"), T.const("V")
    Logits: T.Tensor[[M, V], T.bfloat16]
    Label: T.Tensor[[M], T.int64]
    Loss = T.empty((M,), T.float32)
    Lse = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_fragment((rows, blk), T.float32)
        top, old, total, part, plain = [T.alloc_fragment((rows,), T.float32) for _ in range(5)]
        T.fill(top, -T.infinity(T.float32))
        T.clear(total)
        T.clear(plain)
        for k in T.Pipelined(T.ceildiv(V, blk), num_stages=2):
            for i, j in T.Parallel(rows, blk):
                x[i, j] = T.if_then_else(k * blk + j < V, Logits[bx * rows + i, k * blk + j], 0)
            T.reduce_sum(x, part, dim=1)
            for i in T.Parallel(rows):
                plain[i] += part[i]
            for i, j in T.Parallel(rows, blk):
                x[i, j] = T.if_then_else(k * blk + j < V, x[i, j], -T.infinity(T.float32))
            T.copy(top, old)
            T.reduce_max(x, top, dim=1, clear=False)
            for i, j in T.Parallel(rows, blk):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, part, dim=1)
            for i in T.Parallel(rows):
                total[i] = total[i] * T.exp(old[i] - top[i]) + part[i]
        for i in T.Parallel(rows):
            row = bx * rows + i
            if row < M:
                lse = T.log(total[i]) + top[i]
                label = Label[row]
                Lse[row] = lse
                if label == ignore:
                    Loss[row] = 0.0
                else:
                    hit = T.cast(Logits[row, label], T.float32)
                    Loss[row] = lse - (1 - smoothing) * hit - smoothing * plain[i] / V
    return Loss, Lse


# ---- references and inputs ----


def reduce_threads_reference(A):
    return wide(A).sum(1)


def warp_extremes_reference(A):
    return A.max(1), A.min(1)


def column_statistics_reference(X):
    return X.mean(0, dtype=np.float64), X.var(0, dtype=np.float64)


def arg_extreme_reference(A):
    return A.max(1), wide(A).argmax(1).astype(np.int32)


def arg_smallest_reference(A):
    return A.min(1), wide(A).argmin(1).astype(np.int32)


def reducer_norms_reference(A, Top):
    norms = np.sqrt((A.astype(np.float64) ** 2).sum(1))
    return norms, np.maximum(Top, norms.max())


def segment_sums_reference(X, starts):
    return np.stack([X[starts[s] : starts[s + 1]].sum(0, dtype=np.float64) for s in range(len(starts) - 1)])


def segment_sums_inputs(dims, rng):
    total, segments = dims["total"], dims["segments"]
    ends = np.sort(rng.integers(0, total + 1, segments - 1))
    return [rng.standard_normal((total, dims["D"])), np.array([0, *ends, total], np.int32)]


def softmax_cross_entropy_reference(Logits, Label, smoothing=0.1):
    x = wide(Logits)
    top = x.max(1)
    lse = np.log(np.exp(x - top[:, None]).sum(1)) + top
    safe = np.where(Label < 0, 0, Label)
    loss = lse - (1 - smoothing) * x[np.arange(len(x)), safe] - smoothing * x.mean(1)
    return np.where(Label == -100, 0.0, loss), lse


def softmax_cross_entropy_inputs(dims, rng):
    label = rng.integers(0, dims["V"], dims["M"])
    label[::5] = -100
    return [rng.standard_normal((dims["M"], dims["V"])), label]
