"""Thread-level code: indices of threads, their own storage, barriers, reductions over them, early ends."""

from __future__ import annotations

import linecache
import warnings

import numpy as np
import pytest
from agree import agree, build, elaborated

import tilec
import tilec.language as T
from tilec.backends.cuda.nodes import Sync
from tilec.backends.pipeline import lower
from tilec.errors import EvalError, SourceValueError, UnsupportedError
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Alloc, Copy, For, Parallel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

#: Roads that have thread-level code.
TARGETS = ("cpu", "sm_80", "sm_90a")


def random(*shape, dtype=np.float32):
    """Numbers around 0, the same for every run."""
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(dtype)


def refuse(kernel, match, line, target="x86-64-v3"):
    """Lowering to ``target`` fails with the text and the author's line, counted from the function's first."""
    made = elaborated(kernel, (), {}, {}, {})
    with pytest.raises(UnsupportedError, match=match) as caught:
        lower(made, parse_target(target))
    assert caught.value.place.file == __file__
    assert caught.value.remedy
    assert line in linecache.getline(__file__, caught.value.place.line)


# Kernels --------------------------------------------------------------------------------------------------


@tilec.jit
def gemv(x, W, bN=4, red=32, vec=8):
    N, K = T.const("N K")
    x: T.Tensor[[K], T.float16]
    W: T.Tensor[[N, K], T.float16]
    y = T.empty((N,), T.float16)
    with T.Kernel(T.ceildiv(N, bN), threads=(red, bN)) as bn:
        tk, tn = T.get_thread_binding(0), T.get_thread_binding(1)
        xr, wr = T.alloc_local((vec,), T.float16), T.alloc_local((vec,), T.float16)
        s, out = T.alloc_local((1,), T.float32), T.alloc_local((1,), T.float32)
        T.clear(s)
        for ko in T.serial(T.ceildiv(K, red * vec)):
            for v in T.vectorized(vec):
                xr[v] = x[(ko * red + tk) * vec + v]
                wr[v] = W[bn * bN + tn, (ko * red + tk) * vec + v]
            for v in T.serial(vec):
                s[0] += xr[v].astype(T.float32) * wr[v].astype(T.float32)
        with T.attr(
            T.comm_reducer(lambda a, b: a + b, [T.cast(0, T.float32)]),
            "reduce_scope",
            T.reinterpret(T.uint64(0), dtype="handle"),
        ):
            T.evaluate(T.tvm_thread_allreduce(T.uint32(1), s[0], True, out[0], tk, dtype="handle"))
        if tk == 0:
            y[bn * bN + tn] = out[0]
    return y


@pytest.mark.parametrize("shape", [{}, {"red": 64, "bN": 2}, {"red": 24, "bN": 4}])
def test_gemv_with_a_reduction_over_an_axis_of_threads(shape):
    x, W = random(300, dtype=np.float16), random(10, 300, dtype=np.float16)
    expected = (W.astype(np.float32) @ x.astype(np.float32)).astype(np.float16)
    agree(gemv, x, W, args=shape, expected=expected, targets=TARGETS)


@tilec.jit
def dequantised_gemv(x, Q, S, group=32, threads=32):
    N, K = T.const("N K")
    x: T.Tensor[[K], T.float16]
    Q: T.Tensor[[N, K // 2], T.uint8]
    S: T.Tensor[[N, K // group], T.float16]
    y = T.empty((N,), T.float32)
    with T.Kernel(N, threads=threads) as bn:
        tk = T.get_thread_binding()
        packed, w = T.alloc_local((8,), T.uint8), T.alloc_local((16,), T.float16)
        xs, s = T.alloc_local((16,), T.float16), T.alloc_local((1,), T.float32)
        T.clear(s)
        for ko in T.serial(T.ceildiv(K, threads * 16)):
            first = (ko * threads + tk) * 16
            if first < K:
                T.copy(Q[bn, first // 2], packed)
                T.copy(x[first : first + 16], xs)
                for v in T.serial(16):
                    nibble = (packed[v // 2] >> T.cast(4 * (v % 2), T.uint8)) & T.uint8(15)
                    w[v] = (T.cast(nibble, T.float16) - T.float16(8)) * S[bn, first // group]
                for v in T.serial(16):
                    s[0] += T.cast(w[v], T.float32) * T.cast(xs[v], T.float32)
        total = T.alloc_local((1,), T.float32)
        with T.attr(
            T.comm_reducer(lambda a, b: a + b, [T.float32(0)]),
            "reduce_scope",
            T.reinterpret(T.uint64(0), dtype="handle"),
        ):
            T.evaluate(T.tvm_thread_allreduce(T.uint32(1), s[0], True, total[0], tk, dtype="handle"))
        if tk == 0:
            y[bn] = total[0]
    return y


def test_dequantised_gemv_with_vectors_of_each_thread():
    N, K = 3, 320
    x, S = random(K, dtype=np.float16), random(N, K // 32, dtype=np.float16)
    Q = np.random.default_rng(1).integers(0, 256, (N, K // 2), np.uint8)
    nibbles = np.stack([Q & 15, Q >> 4], axis=-1).reshape(N, K).astype(np.float32) - 8
    W = (nibbles * np.repeat(S, 32, axis=1)).astype(np.float16).astype(np.float32)
    agree(dequantised_gemv, x, Q, S, expected=W @ x.astype(np.float32), targets=TARGETS)


@tilec.jit
def split_k_gemv(x, W, threads=64):
    N, K = T.const("N K")
    x: T.Tensor[[K], T.float32]
    W: T.Tensor[[N, K], T.float32]
    y = T.empty((N,), T.float32)
    with T.Kernel(N, threads=threads) as bn:
        tx = T.get_thread_binding(0)
        part = T.alloc_shared((threads,), T.float32)
        acc = T.alloc_var(T.float32)
        for k in T.serial(T.ceildiv(K, threads)):
            if k * threads + tx < K:
                acc += x[k * threads + tx] * W[bn, k * threads + tx]
        part[tx] = acc
        T.sync_threads()
        half = threads // 2
        for step in T.serial(6):
            if tx < (half >> step):
                part[tx] += part[tx + (half >> step)]
            T.sync_threads()
        if tx == 0:
            y[bn] = part[0]
    return y


def test_split_k_gemv_with_a_tree_in_shared_memory():
    x, W = random(150), random(3, 150)
    agree(split_k_gemv, x, W, expected=W @ x, targets=TARGETS)


@tilec.jit
def histogram(X, bins=32, threads=64):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.int32]
    H = T.empty((M, bins), T.int32)
    with T.Kernel(M, threads=threads) as bx:
        tx = T.get_thread_binding()
        count = T.alloc_shared((bins,), T.int32)
        if tx < bins:
            count[tx] = 0
        T.sync_threads()
        for k in T.serial(T.ceildiv(N, threads)):
            if k * threads + tx < N:
                T.atomic_add(count[X[bx, k * threads + tx]], 1)
        T.sync_threads()
        if tx < bins:
            H[bx, tx] = count[tx]
    return H


def test_histogram_with_atomics_in_shared_memory():
    X = np.random.default_rng(0).integers(0, 32, (2, 200), np.int32)
    agree(histogram, X, expected=np.stack([np.bincount(row, minlength=32) for row in X]), targets=TARGETS)


@tilec.jit
def transpose(X, tile=16):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((N, M), T.float32)
    with T.Kernel(T.ceildiv(N, tile), T.ceildiv(M, tile), threads=(tile, 4)) as (bx, by):
        tx, ty, _ = T.get_thread_bindings()
        S = T.alloc_shared((tile, tile + 1), T.float32)
        for j in T.unroll(tile // 4):
            S[ty + j * 4, tx] = X[by * tile + ty + j * 4, bx * tile + tx]
        T.sync_threads()
        for j in T.unroll(tile // 4):
            Y[bx * tile + ty + j * 4, by * tile + tx] = S[tx, ty + j * 4]
    return Y


def test_transpose_through_shared_memory():
    X = random(20, 40)
    agree(transpose, X, expected=X.T, targets=TARGETS)


@tilec.jit
def neighbours(X, threads=32, synchronised=True):
    M = T.const("M")
    X: T.Tensor[[M], T.float32]
    Y = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(M, threads), threads=threads) as bx:
        tx = T.get_thread_binding()
        S = T.alloc_shared((threads,), T.float32)
        mine = T.alloc_var(T.float32, X[bx * threads + tx])
        for _ in T.serial(3):
            S[tx] = mine
            if synchronised:
                T.sync_threads()
            mine = S[(tx + 1) % threads] - mine
            if synchronised:
                T.sync_threads()
        Y[bx * threads + tx] = mine
    return Y


@pytest.mark.parametrize("synchronised", [True, False])
def test_threads_that_read_each_others_elements(synchronised):
    """Shared memory is synchronised between statements where the author leaves it out."""
    X = random(64)
    mine = X.reshape(2, 32)
    for _ in range(3):
        mine = np.roll(mine, -1, axis=1) - mine
    agree(neighbours, X, args={"synchronised": synchronised}, expected=mine.reshape(-1), targets=TARGETS)


@tilec.jit
def mixed(A, B, tile=16, threads=64):
    M, K, N = T.const("M K N")
    A: T.Tensor[[M, K], T.float32]
    B: T.Tensor[[K, N], T.float32]
    C = T.empty((M, N), T.float32)
    R = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(N, tile), T.ceildiv(M, tile), threads=threads) as (bx, by):
        tx = T.get_thread_binding()
        As, Bs = T.alloc_shared((tile, tile), T.float32), T.alloc_shared((tile, tile), T.float32)
        acc, rows = T.alloc_fragment((tile, tile), T.float32), T.alloc_fragment((tile,), T.float32)
        sums = T.alloc_shared((tile,), T.float32)
        T.clear(acc)
        for ko in T.serial(T.ceildiv(K, tile)):
            T.copy(A[by * tile, ko * tile], As)
            for i in T.serial(tile * tile // threads):
                at = i * threads + tx
                Bs[at // tile, at % tile] = 2.0 * B[ko * tile + at // tile, bx * tile + at % tile]
            T.gemm(As, Bs, acc)
        T.reduce_sum(acc, rows, dim=1)
        T.copy(rows, sums)
        if tx < tile:
            sums[tx] = sums[tx] + 1.0
        T.copy(acc, C[by * tile, bx * tile])
        if tx < tile:
            R[by * tile + tx] = sums[tx]
    return C, R


def test_tile_operations_beside_thread_code():
    draw = np.random.default_rng(0).integers
    A, B = draw(-4, 5, (32, 48)).astype(np.float32), draw(-4, 5, (48, 16)).astype(np.float32)
    agree(mixed, A, B, expected=[2 * (A @ B), (2 * (A @ B)).sum(1) + 1], targets=TARGETS)


@tilec.jit
def early(X, threads=32):
    N = T.dynamic("N")
    X: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, threads), threads=threads) as bx:
        tx = T.get_thread_binding()
        i = bx * threads + tx
        if i >= N:
            T.thread_return()
        S = T.alloc_shared((threads,), T.float32)
        S[tx] = X[i]
        T.sync_threads()
        left = T.alloc_var(T.float32)
        if tx > 0:
            left = S[tx - 1]
        Y[i] = S[tx] + left
    return Y


@tilec.jit
def early_in_a_loop(X, threads=32):
    N = T.const("N")
    X: T.Tensor[[N], T.int32]
    Y = T.empty((N,), T.int32)
    with T.Kernel(T.ceildiv(N, threads), threads=threads) as bx:
        tx = T.get_thread_binding()
        for k in T.serial(8):
            Y[bx * threads + tx] = k
            if X[bx * threads + tx] == k:
                T.thread_return()
        Y[bx * threads + tx] = -1
    return Y


@tilec.jit
def early_blocks(X, L, Y):
    X: T.Tensor[[4, 16], T.float32]
    L: T.Tensor[[4], T.int32]
    Y: T.Tensor[[4, 16], T.float32]
    with T.Kernel(4, threads=32) as bx:
        if L[bx] == 0:
            T.thread_return()
        f = T.alloc_fragment((1, 16), T.float32)
        T.copy(X[bx, 0], f)
        T.copy(f, Y[bx, 0])


class TestReturn:
    def test_threads_past_the_end(self):
        X = random(50)
        left = np.where(np.arange(50) % 32 > 0, np.roll(X, 1), 0)
        agree(early, X, expected=X + left, targets=TARGETS)

    def test_in_a_loop(self):
        X = np.arange(40, dtype=np.int32) % 11
        agree(early_in_a_loop, X, expected=np.where(X < 8, X, -1), targets=TARGETS)

    def test_whole_blocks_need_no_threads(self):
        X, L = random(4, 16), np.array([1, 0, 3, 0], np.int32)
        made = elaborated(early_blocks, (), {}, {}, {})
        assert not made.launches[0].thread_vars
        Y = np.full_like(X, 7)
        interpreter.run(made, [X, L, Y], {})
        np.testing.assert_array_equal(Y, np.where(L[:, None] > 0, X, 7))


@tilec.jit
def three_axes(A):
    A: T.Tensor[[2, 2, 4, 8], T.int32]
    with T.Kernel(2, threads=(8, 4, 2)) as bx:
        tx, ty, tz = T.get_thread_bindings()
        ex, ey, ez = T.get_thread_extents()
        A[bx, tz, ty, tx] = ((bx * ez + tz) * ey + ty) * ex + tx


@tilec.jit
def warps(A, B):
    A: T.Tensor[[256, 5], T.int32]
    B: T.Tensor[[256, 2], T.int32]
    with T.Kernel(1, threads=(128, 2)) as _:
        tx, ty = T.get_thread_binding(), T.get_thread_binding(1)
        t = ty * 128 + tx
        A[t, 0] = T.get_lane_idx()
        A[t, 1] = T.get_warp_idx()
        A[t, 2] = T.get_warp_idx_sync()
        A[t, 3] = T.get_warp_group_idx()
        A[t, 4] = T.get_lane_idx(16) + 100 * T.get_warp_group_idx(16, 2)
        B[t, 0] = T.if_then_else(T.shuffle_elect(64), 1, 0)
        B[t, 1] = T.if_then_else(T.shuffle_elect(0), 1, 0)


@tilec.jit
def bound(Y):
    Y: T.Tensor[[4, 32], T.int32]
    with T.Kernel(1, threads=(32, 4)) as _:
        for i in T.thread_binding(32, thread="threadIdx.x"):
            for j in T.thread_binding(4, "threadIdx.y"):
                Y[j, i] = i - j


class TestIndices:
    def test_all_axes(self):
        agree(three_axes, expected=np.arange(128).reshape(2, 2, 4, 8), dims={}, targets=TARGETS)

    def test_warps_and_groups(self):
        t = np.arange(256)
        A = np.stack([t % 32, t // 32, t // 32, t // 128, t % 16 + 100 * (t // 32)], axis=1)
        agree(
            warps,
            expected=[A, np.stack([t % 64 == 0, t == 0], axis=1).astype(np.int32)],
            dims={},
            targets=TARGETS,
        )

    def test_loops_over_threads(self):
        agree(bound, expected=np.arange(32)[None, :] - np.arange(4)[:, None], dims={}, targets=TARGETS)

    def test_loops_that_do_not_fit(self):
        @tilec.jit
        def wrong(Y):
            Y: T.Tensor[[32], T.int32]
            with T.Kernel(1, threads=32) as _:
                for i in T.thread_binding(64):
                    Y[i] = i

        with pytest.raises(SourceValueError, match="32 threads"):
            elaborated(wrong, (), {}, {}, {})

        @tilec.jit
        def blocks(Y):
            Y: T.Tensor[[32], T.int32]
            with T.Kernel(1, threads=32) as _:
                for i in T.thread_binding(32, "blockIdx.x"):
                    Y[i] = i

        with pytest.raises(UnsupportedError, match=r"blockIdx\.x"):
            elaborated(blocks, (), {}, {}, {})


@tilec.jit
def own_storage(X, Y):
    X: T.Tensor[[32, 9], T.float32]  # more than a thread takes, which would be a run of the block's
    Y: T.Tensor[[32, 10], T.float32]
    with T.Kernel(1, threads=32) as _:
        tx = T.get_thread_binding()
        a, b = T.alloc_local((8,), T.float32), T.alloc_local((4, 2), T.float32)
        low, rows = T.alloc_local((1,), T.float32), T.alloc_local((4,), T.float32)
        T.copy(X[tx, 0:8], a)
        for i, j in T.Parallel(4, 2):
            b[i, j] = a[i * 2 + j] + 1.0
        T.reduce_min(a, low, dim=0)
        T.reduce_sum(b, rows, dim=1)
        T.cumsum(a)
        T.copy(a, Y[tx, 0:8])
        Y[tx, 8] = low[0]
        T.fill(low, 0.0)
        for i in T.serial(4):
            low[0] += rows[i]
        Y[tx, 9] = low[0]


@tilec.jit
def own_storage_across_barriers(X, Y, threads=32):
    X: T.Tensor[[32, 4], T.int32]
    Y: T.Tensor[[32], T.int32]
    with T.Kernel(1, threads=threads) as _:
        tx = T.get_thread_binding()
        held = T.alloc_local((4,), T.int32)
        limit = X[tx, 0] % 3 + 1
        best = T.alloc_var(T.int32, init=100)
        S = T.alloc_shared((threads,), T.int32)
        for i in T.serial(4):
            held[i] = X[tx, i]
        for i in T.serial(4):
            S[tx] = held[i]
            T.sync_threads()
            if i < limit:
                best = T.min(best, S[(tx + 7) % threads] + held[3 - i])
            T.sync_threads()
        Y[tx] = best


class TestOwnStorage:
    def test_tile_operations_are_loops_of_a_thread(self):
        X = random(32, 9)
        own = X[:, :8]
        wanted = np.concatenate([own.cumsum(1), own.min(1)[:, None], (own + 1).sum(1)[:, None]], axis=1)
        agree(own_storage, X, dims={}, expected=wanted, targets=TARGETS, atol=1e-5)
        made = elaborated(own_storage, (), {}, {}, {})
        assert not [stmt for stmt in walk(made.body) if isinstance(stmt, (Copy, Parallel))]

    def test_across_barriers(self):
        X = np.random.default_rng(0).integers(0, 50, (32, 4), np.int32)
        best = np.full(32, 100)
        for i in range(4):
            sums = np.roll(X[:, i], -7) + X[:, 3 - i]
            best = np.where(i < X[:, 0] % 3 + 1, np.minimum(best, sums), best)
        agree(own_storage_across_barriers, X, dims={}, expected=best, targets=TARGETS)

    def test_storage_of_one_region_stays_there(self):
        made = elaborated(own_storage, (), {}, {}, {})
        lowered = lower(made, parse_target("x86-64-v3"), until="threads_to_tiles")
        found = {str(stmt.buffer.scope()) for stmt in walk(lowered.body) if isinstance(stmt, Alloc)}
        assert found == {"local"}


@tilec.jit
def ranges(X, Y, tile=16):
    X: T.Tensor[[64], T.float32]
    Y: T.Tensor[[64], T.float32]
    with T.Kernel(1, threads=64) as _:
        tx = T.get_thread_binding()
        S = T.alloc_shared((64,), T.float32)
        if tx < 32:
            T.copy(X[0:32], S[0:32])
        if tx >= 32:
            T.copy(X[32:64], S[32:64])
            S[tx] = S[tx] * 2.0
        Y[tx] = S[63 - tx]


@tilec.jit
def values_of_ranges(X, Y):
    X: T.Tensor[[64], T.int32]
    Y: T.Tensor[[64], T.int32]
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        S = T.alloc_shared((64,), T.int32)
        v = T.alloc_var(T.int32, X[tx])
        if tx < 32:
            T.copy(X[0:32], S[0:32])
            v = S[31 - tx] * 10
        else:
            T.copy(X[32:64], S[32:64])
            v += S[95 - tx]
        Y[tx] = v


@tilec.jit
def fragment_elements(X, Y):
    X: T.Tensor[[16], T.float32]
    Y: T.Tensor[[16], T.float32]
    with T.Kernel(1, threads=32) as _:
        tx = T.get_thread_binding()
        f, s = T.alloc_fragment((16,), T.float32), T.alloc_fragment((1,), T.float32)
        T.copy(X, f)
        T.reduce_max(f, s, dim=0)
        if tx < 16:
            Y[tx] = f[15 - tx] - s[0] + f[2]


@tilec.jit
def reduced_into_threads(X, Y):
    X: T.Tensor[[4, 16], T.float32]
    Y: T.Tensor[[64, 2], T.float32]
    with T.Kernel(1, threads=64) as _:
        tx = T.get_thread_binding()
        f = T.alloc_fragment((4, 16), T.float32)
        sums, top = T.alloc_local((4,), T.float32), T.alloc_local((4,), T.float32)
        T.copy(X, f)
        T.reduce_sum(f, sums, dim=1)
        T.fill(top, 0.5)
        T.reduce_max(f, top, dim=1, clear=False)
        Y[tx, 0] = sums[tx // 16]
        Y[tx, 1] = top[tx % 4]


class TestTiles:
    def test_reduced_into_the_storage_of_each_thread(self):
        X = random(4, 16)
        wanted = [np.repeat(X.sum(1), 16), np.tile(np.maximum(X.max(1), 0.5), 16)]
        agree(reduced_into_threads, X, dims={}, expected=np.stack(wanted, axis=1), targets=TARGETS, atol=1e-5)

    def test_under_a_range_of_threads(self):
        X = random(64)
        expected = np.concatenate([X[:32], 2 * X[32:]])[::-1]
        agree(ranges, X, dims={}, expected=expected, targets=TARGETS)

    def test_variables_of_threads_outlive_ranges(self):
        X = np.arange(64, dtype=np.int32)
        expected = np.where(X < 32, (31 - X) * 10, 95)
        agree(values_of_ranges, X, dims={}, expected=expected, targets=TARGETS)

    def test_elements_of_fragments(self):
        X = random(16)
        agree(fragment_elements, X, dims={}, expected=X[::-1] - X.max() + X[2], targets=TARGETS)

    def test_that_depend_on_a_thread(self):
        @tilec.jit
        def wrong(X, S=8):
            X: T.Tensor[[64], T.float32]
            with T.Kernel(1, threads=8) as _:
                tx = T.get_thread_binding()
                s = T.alloc_shared((64,), T.float32)
                T.copy(X[tx * 8 : tx * 8 + 8], s[tx * 8 : tx * 8 + 8])

        with pytest.raises(UnsupportedError, match="depends on the index of a thread"):
            elaborated(wrong, (), {}, {}, {})

    def test_that_read_what_differs_between_threads(self):
        @tilec.jit
        def wrong(X, Y):
            X: T.Tensor[[32], T.float32]
            Y: T.Tensor[[32], T.float32]
            with T.Kernel(1, threads=32) as _:
                tx = T.get_thread_binding()
                mine = T.alloc_var(T.float32, X[tx])
                for i in T.Parallel(32):
                    Y[i] = mine

        refuse(wrong, match="reads mine, which differs", line="for i in T.Parallel(32):")
        with pytest.raises(EvalError, match="do not agree"):
            interpreter.run(elaborated(wrong, (), {}, {}, {}), [random(32), random(32)], {})

    def test_under_a_condition_on_data(self):
        @tilec.jit
        def wrong(X):
            X: T.Tensor[[64], T.float32]
            with T.Kernel(1, threads=64) as _:
                tx = T.get_thread_binding()
                s = T.alloc_shared((64,), T.float32)
                if X[tx] > 0:
                    T.copy(X, s)

        with pytest.raises(UnsupportedError, match="tile operations under a condition") as caught:
            elaborated(wrong, (), {}, {}, {})
        assert "if X[tx] > 0" in linecache.getline(__file__, caught.value.place.line)


@tilec.jit
def counted(C, X):
    C: T.Tensor[[1], T.int32]
    X: T.Tensor[[64], T.int32]
    with T.Kernel(1, threads=64) as _:
        tx = T.get_thread_binding()
        if X[tx] > 0:
            T.atomic_add(C[0], 1)


@tilec.jit
def tickets(C, Y):
    C: T.Tensor[[1], T.int32]
    Y: T.Tensor[[32], T.int32]
    with T.Kernel(2, threads=32):
        tx = T.get_thread_binding()
        if tx % 2 == 0:
            mine = T.atomic_add(C[0], 1, return_prev=True)
            Y[mine] = mine * 2


@T.prim_func
def repeated(C: T.Tensor((1,), "float32")):
    with T.Kernel(2, threads=32):
        T.atomic_add(C[0], 1.0)


@T.prim_func
def repeated_store(C: T.Tensor((1,), "float32")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((1,), "float32")
        s[0] = 0.0
        s[0] += 1.0
        C[0] = s[0]


class TestEffects:
    def test_of_threads_that_a_condition_admits(self):
        X = np.random.default_rng(0).integers(-1, 2, 64).astype(np.int32)
        agree(
            counted,
            np.array([5], np.int32),
            X,
            dims={},
            expected=np.array([5 + (X > 0).sum()]),
            targets=TARGETS,
        )

    def test_previous_values_differ_between_threads(self):
        agree(
            tickets,
            np.zeros(1, np.int32),
            dims={},
            expected=[np.array([32], np.int32), np.arange(32, dtype=np.int32) * 2],
            targets=TARGETS,
        )

    def test_of_every_thread_happen_once_per_thread(self):
        C = np.zeros(1, np.float32)
        interpreter.run(elaborated(repeated, (), {}, {}, {}), [C], {})
        assert C[0] == 64

    def test_of_every_thread_are_refused_on_a_cpu(self):
        refuse(repeated, match="C is updated by each thread", line="T.atomic_add(C[0], 1.0)")
        refuse(repeated_store, match="s is updated by each thread", line="s[0] += 1.0")

    def test_of_every_thread_that_race_warn(self):
        with pytest.warns(UserWarning, match=r"each thread updates s, .* put it in T.Parallel\(1\)") as found:
            elaborated(repeated_store, (), {}, {}, {})
        assert linecache.getline(found[0].filename, found[0].lineno).strip() == "s[0] += 1.0"

    def test_on_an_element_of_a_fragment_happen_once(self):
        @T.prim_func
        def main(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
            with T.Kernel(1, threads=32):
                tx = T.get_thread_binding()
                s, row = T.alloc_fragment((1,), "float32"), T.alloc_shared((32,), "float32")
                T.copy(A, row)
                T.reduce_sum(row, s)
                s[0] = s[0] * 2.0 + 1.0
                T.sync_threads()
                B[tx] = row[31 - tx] * s[0]

        a = np.arange(32, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            agree(main, a, expected=a[::-1] * (a.sum() * 2 + 1), targets=TARGETS)


class TestBarriers:
    def test_in_a_branch_of_some_threads(self):
        @tilec.jit
        def wrong(X):
            X: T.Tensor[[64], T.float32]
            with T.Kernel(1, threads=64) as _:
                tx = T.get_thread_binding()
                if tx < 32:
                    T.sync_threads()
                    X[tx] = 0.0

        refuse(wrong, match="only some threads", line="T.sync_threads()")
        made = elaborated(wrong, (), {}, {}, {})
        with pytest.raises(EvalError, match="barrier"):
            interpreter.run(made, [random(64)], {})

    def test_in_a_loop_of_some_threads(self):
        @tilec.jit
        def wrong(X):
            X: T.Tensor[[64], T.float32]
            with T.Kernel(1, threads=64) as _:
                tx = T.get_thread_binding()
                for _ in T.serial(tx):
                    X[tx] = 0.0
                    T.sync_threads()

        refuse(wrong, match="equally often", line="for _ in T.serial(tx):")

    def test_of_a_number(self):
        @tilec.jit
        def named(X, Y):
            X: T.Tensor[[64], T.float32]
            Y: T.Tensor[[64], T.float32]
            with T.Kernel(1, threads=64) as _:
                tx = T.get_thread_binding()
                S = T.alloc_shared((64,), T.float32)
                S[tx] = X[tx]
                if tx < 32:
                    T.sync_threads(1, 32)
                    Y[tx] = S[31 - tx]
                else:
                    T.sync_threads(barrier_id=2, arrive_count=32)
                    Y[tx] = S[95 - tx]

        X = random(64)
        agree(named, X, dims={}, expected=X.reshape(2, 32)[:, ::-1].reshape(-1), targets=TARGETS)

    def test_without_threads_say_nothing(self):
        @tilec.jit
        def plain(X):
            X: T.Tensor[[64], T.float32]
            with T.Kernel(1, threads=64):
                s = T.alloc_shared((64,), T.float32)
                T.copy(X, s)
                if X[0] > 0:
                    T.sync_threads()
                T.tvm_storage_sync("shared")
                T.sync_warp()
                T.copy(s, X)

        made = elaborated(plain, (), {}, {}, {})
        assert [type(stmt) for stmt in made.launches[0].body] == [Alloc, Copy, Copy]


def test_the_text_of_thread_level_code_reads_back():
    for kernel, inputs in (
        (gemv, (random(64, dtype=np.float16), random(4, 64, dtype=np.float16))),
        (early, (random(8),)),
    ):
        text = format_kernel(elaborated(kernel, inputs, None, {}, {}))
        assert format_kernel(parse_kernel(text)) == text


def test_loops_of_a_thread_stay_inside():
    """Between barriers there is one loop over the threads, whatever loops the author wrote."""
    made = elaborated(split_k_gemv, (random(150), random(3, 150)), None, {}, {})
    body = lower(made, parse_target("x86-64-v3"), until="threads_to_tiles").launches[0].body
    assert [type(stmt) for stmt in body] == [Alloc, Parallel, For, Parallel]


@pytest.mark.parametrize("barrier", [(), (3,), (3, 128)], ids=["all", "named", "counted"])
def test_a_barrier_of_all_threads_is_the_one_that_copies_need(barrier):
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            a, tx = T.alloc_shared((128, 64), "float32"), T.get_thread_binding()
            T.copy(A, a)
            own = T.alloc_var("float32", T.cast(tx, "float32"))
            T.sync_threads(*barrier)
            B[127 - tx] = a[127 - tx, 3] + own

    a = np.arange(128 * 64, dtype="float32").reshape(128, 64)
    agree(main, a, expected=a[:, 3] + np.arange(128)[::-1])
    lowered = lower(build(main), parse_target("sm_80"))
    assert not any(isinstance(stmt, Sync) for stmt in walk(lowered.body))


@pytest.mark.parametrize(
    "place",
    [
        lambda tx, k: (tx + k * 5) % 64,
        lambda tx, k: tx + k,
        lambda tx, k: tx + 2 * k,
        lambda tx, k: 70 - k - tx // 2,
    ],
    ids=["round", "next to it", "two further", "backwards"],
)
@pytest.mark.parametrize("known", [True, False])
def test_threads_store_what_others_have_stored_in_trips_before(place, known):
    """Elements end as the last trip that stores them leaves them, whichever thread that was."""
    trips = 6 if known else T.dynamic("trips")

    @T.prim_func
    def main(A: T.Tensor((trips, 64), "int32"), C: T.Tensor((80,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((80,), "int32")
            tx = T.get_thread_binding()
            for i in T.serial(2):
                if tx + i * 64 < 80:
                    s[tx + i * 64] = 0
            for k in T.serial(trips):
                if tx % 2 == 0:
                    s[place(tx, k)] = A[k, tx]
            for i in T.serial(2):
                if tx + i * 64 < 80:
                    C[tx + i * 64] = s[tx + i * 64]

    a = np.random.default_rng(0).integers(1, 100, (6, 64)).astype(np.int32)
    kept = np.zeros(80, np.int32)
    for k in range(6):
        for tx in range(0, 64, 2):
            kept[place(tx, k)] = a[k, tx]
    agree(main, a, expected=kept)
