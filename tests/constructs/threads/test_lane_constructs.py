"""What lanes of a warp and threads of a block say to each other: shuffles, votes, reductions."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.errors import SourceTypeError, SourceValueError, UnsupportedError
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

#: Roads that have thread-level code.
TARGETS = ("cpu", "sm_80", "sm_90a")
COUNT = 96


def integers(*shape, high=100):
    """Small integers, the same for every run."""
    return np.random.default_rng(len(shape)).integers(0, high, shape).astype(np.int32)


def warps(X):
    """The values of each warp as a row."""
    return X.reshape(-1, 32)


@tilec.jit
def shuffles(X, Y):
    X: T.Tensor[[COUNT], T.int32]
    Y: T.Tensor[[COUNT, 9], T.int32]
    with T.Kernel(1, threads=COUNT):
        tx = T.get_thread_binding()
        v = X[tx]
        Y[tx, 0] = T.shfl_sync(v, 3)
        Y[tx, 1] = T.shfl_sync(v, (tx * 7) % 32)
        Y[tx, 2] = T.shfl_xor(v, 5)
        Y[tx, 3] = T.shfl_up(v, 2)
        Y[tx, 4] = T.shfl_down(v, 9)
        Y[tx, 5] = T.shfl_sync(v, 3, width=8)
        Y[tx, 6] = T.shfl_up(v, 3, 16)
        Y[tx, 7] = T.shfl_down(v, 3, width=16)
        Y[tx, 8] = T.shfl_xor(v, 16, 16, mask=0xFFFFFFFF)


@tilec.jit
def tvm_shuffles(X, Y):
    X: T.Tensor[[32], T.float16]
    Y: T.Tensor[[32, 3], T.float16]
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        mask = T.tvm_warp_activemask()
        Y[tx, 0] = T.tvm_warp_shuffle(mask, X[tx], 4, 32, 32)
        Y[tx, 1] = T.tvm_warp_shuffle_up(mask, X[tx], 1, 32, 32)
        Y[tx, 2] = T.tvm_warp_shuffle_down(mask, X[tx], 1, 8, 32)


class TestShuffles:
    def test_sources(self):
        X = integers(COUNT)
        w, lane = warps(X), np.arange(32)

        def take(source, inside=True):
            found = np.where(inside, source, lane)
            return w[:, found].reshape(-1)

        wanted = [
            take(np.full(32, 3)),
            warps(X)[np.arange(COUNT) // 32, np.arange(COUNT) * 7 % 32],
            take(lane ^ 5),
            take(lane - 2, lane >= 2),
            take(lane + 9, lane + 9 < 32),
            take(lane // 8 * 8 + 3),
            take(lane - 3, lane % 16 >= 3),
            take(lane + 3, lane % 16 + 3 < 16),
            take(lane ^ 16, lane >= 16),
        ]
        agree(shuffles, X, dims={}, expected=np.stack(wanted, axis=1), targets=TARGETS)

    def test_in_tvms_order(self):
        X = np.arange(32).astype(np.float16)
        lane = np.arange(32)
        wanted = [X[np.full(32, 4)], X[np.maximum(lane - 1, 0)], X[np.where(lane % 8 < 7, lane + 1, lane)]]
        agree(tvm_shuffles, X, dims={}, expected=np.stack(wanted, axis=1), targets=TARGETS)


@tilec.jit
def votes(X, A, B, C):
    X: T.Tensor[[COUNT], T.int32]
    A: T.Tensor[[COUNT, 5], T.int32]
    B: T.Tensor[[COUNT, 3], T.uint64]
    C: T.Tensor[[COUNT, 3], T.uint32]
    with T.Kernel(1, threads=COUNT):
        tx = T.get_thread_binding()
        v = X[tx]
        A[tx, 0] = T.any_sync(v > 95, 0xFFFFFFFF)
        A[tx, 1] = T.all_sync(v < 95)
        A[tx, 2] = T.syncthreads_count(v > 50)
        A[tx, 3] = T.syncthreads_and(v >= 0)
        A[tx, 4] = T.syncthreads_or(v == 1000)
        B[tx, 0] = T.ballot_sync(v > 50, 0xFFFFFFFF)
        B[tx, 1] = T.ballot(v % 2)
        B[tx, 2] = T.activemask()
        C[tx, 0] = T.match_any_sync(v // 20, 0xFFFFFFFF)
        C[tx, 1] = T.match_all_sync(v // 20)
        C[tx, 2] = T.match_all_sync(tx // 32)


@tilec.jit
def partial_votes(X, B):
    X: T.Tensor[[COUNT], T.int32]
    B: T.Tensor[[COUNT, 3], T.uint64]
    with T.Kernel(1, threads=COUNT):
        tx = T.get_thread_binding()
        for i in T.serial(3):
            B[tx, i] = T.uint64(0)
        if X[tx] > 50:
            B[tx, 0] = T.activemask()
            B[tx, 1] = T.ballot(X[tx] > 75)
        if tx % 32 < 16:
            B[tx, 2] = T.ballot_sync(X[tx] > 50, 0x00FF)


def bits(holds):
    """Masks of lanes, a row of conditions to each."""
    return (warps(holds).astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)


def each(values):
    """A value of each warp in all of its lanes."""
    return np.repeat(values, 32)


class TestVotes:
    def test_of_whole_warps(self):
        X = integers(COUNT)
        w = warps(X)
        total = [np.full(COUNT, n) for n in ((X > 50).sum(), 1, 0)]
        A = np.stack([each((w > 95).any(1)), each((w < 95).all(1)), *total], axis=1).astype(np.int32)
        full = np.full(COUNT, 2**32 - 1, np.uint64)
        B = np.stack([each(bits(X > 50)), each(bits(X % 2 == 1)), full], axis=1)
        same = w[:, :, None] // 20 == w[:, None, :] // 20
        C = np.stack(
            [
                (same.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(2).reshape(-1),
                np.where(each(same.all(axis=(1, 2))), full, 0),
                full,
            ],
            axis=1,
        ).astype(np.uint32)
        agree(votes, X, dims={}, expected=[A, B, C], targets=TARGETS)

    def test_of_the_lanes_that_are_here(self):
        X = integers(COUNT)
        here, low = X > 50, np.arange(COUNT) % 32 < 16
        eight = np.arange(COUNT) % 32 < 8
        B = [
            np.where(here, each(bits(here)), 0),
            np.where(here, each(bits(X > 75)), 0),
            np.where(low, each(bits((X > 50) & eight)), 0),
        ]
        agree(partial_votes, X, dims={}, expected=np.stack(B, axis=1).astype(np.uint64), targets=("cpu",))


@tilec.jit
def reductions(X, F, Y, Z):
    X: T.Tensor[[COUNT], T.int32]
    F: T.Tensor[[COUNT], T.float32]
    Y: T.Tensor[[COUNT, 5], T.int32]
    Z: T.Tensor[[COUNT, 3], T.float32]
    with T.Kernel(1, threads=COUNT):
        tx = T.get_thread_binding()
        Y[tx, 0] = T.warp_reduce_sum(X[tx])
        Y[tx, 1] = T.warp_reduce_max(X[tx])
        Y[tx, 2] = T.warp_reduce_min(X[tx])
        Y[tx, 3] = T.warp_reduce_bitand(X[tx] | 3)
        Y[tx, 4] = T.warp_reduce_bitor(X[tx])
        Z[tx, 0] = T.warp_reduce_sum(F[tx])
        Z[tx, 1] = T.warp_reduce_max(F[tx])
        Z[tx, 2] = T.warp_reduce_min(F[tx])


def test_reductions_over_a_warp():
    X, F = integers(COUNT), np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
    w, f = warps(X), warps(F)
    Y = [w.sum(1), w.max(1), w.min(1), np.bitwise_and.reduce(w | 3, 1), np.bitwise_or.reduce(w, 1)]
    Z = [f.sum(1), f.max(1), f.min(1)]
    expected = [np.stack([each(part) for part in parts], axis=1) for parts in (Y, Z)]
    agree(reductions, X, F, dims={}, expected=expected, targets=TARGETS, atol=1e-5)


HANDLE = {"dtype": "handle"}


def combined(f, identity, value, cond, out, *axes):
    """The idiom of a reduction over axes of threads."""
    with T.attr(T.comm_reducer(f, [identity]), "reduce_scope", T.reinterpret(T.uint64(0), **HANDLE)):
        T.evaluate(T.tvm_thread_allreduce(T.uint32(1), value, cond, out, *axes, **HANDLE))


@tilec.jit
def over_axes(X, Y):
    X: T.Tensor[[2, 4, 8], T.float32]
    Y: T.Tensor[[2, 4, 8, 6], T.float32]
    with T.Kernel(1, threads=(8, 4, 2)):
        tx, ty, tz = T.get_thread_bindings()
        out = T.alloc_local((6,), T.float32)
        v = X[tz, ty, tx]
        combined(lambda a, b: a + b, T.float32(0), v, True, out[0], tx)
        combined(lambda a, b: a + b, T.float32(0), v, tx != 1, out[1], ty)
        combined(lambda a, b: T.max(a, b), -T.infinity("float32"), v, True, out[2], tx, tz)
        combined(lambda a, b: T.min(a, b), T.infinity("float32"), v, tx > 2, out[3], tx, ty)
        combined(lambda a, b: a * b, T.float32(1), v, True, out[4], ty, tz)
        combined(lambda a, b: a + b, T.float32(0), v, True, out[5], tx, ty, tz)
        for i in T.serial(6):
            Y[tz, ty, tx, i] = out[i]


@tilec.jit
def bare_attribute(X, Y):
    X: T.Tensor[[64], T.int32]
    Y: T.Tensor[[1], T.int32]
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        total = T.alloc_var(T.int32)
        T.attr(T.comm_reducer(lambda a, b: a + b, [T.int32(0)]), "reduce_scope", T.uint64(0))
        T.attr(0, "pragma_unroll", 1)
        T.tvm_thread_allreduce(T.uint32(1), X[tx], True, total, tx, dtype="handle")
        if tx == 5:
            Y[0] = total


class TestThreadReductions:
    def test_over_any_axes(self):
        X = np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32)
        tx = np.arange(8)
        wanted = [
            X.sum(2, keepdims=True),
            np.where(tx != 1, X, 0).sum(1, keepdims=True),
            X.max((0, 2), keepdims=True),
            np.where(tx > 2, X, np.inf).min((1, 2), keepdims=True),
            X.prod((0, 1), keepdims=True),
            X.sum(keepdims=True),
        ]
        expected = np.stack([np.broadcast_to(part, X.shape) for part in wanted], axis=-1)
        agree(over_axes, X, dims={}, expected=expected, targets=TARGETS, atol=1e-5)

    def test_under_an_attribute_of_the_rest(self):
        X = integers(64)
        agree(bare_attribute, X, dims={}, expected=np.array([X.sum()]), targets=TARGETS)


# Kernels --------------------------------------------------------------------------------------------------


@tilec.jit
def softmax(X):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as bx:
        tx = T.get_thread_binding()
        top = T.alloc_var(T.float32, -T.infinity(T.float32))
        for k in T.serial(T.ceildiv(N, 32)):
            if k * 32 + tx < N:
                top = T.max(top, X[bx, k * 32 + tx])
        for step in T.serial(5):
            top = T.max(top, T.shfl_xor(top, 16 >> step))
        total = T.alloc_var(T.float32)
        for k in T.serial(T.ceildiv(N, 32)):
            if k * 32 + tx < N:
                total += T.exp(X[bx, k * 32 + tx] - top)
        for step in (16, 8, 4, 2, 1):
            total += T.shfl_xor(total, step)
        for k in T.serial(T.ceildiv(N, 32)):
            if k * 32 + tx < N:
                Y[bx, k * 32 + tx] = T.exp(X[bx, k * 32 + tx] - top) / total
    return Y


def test_softmax_of_rows_by_shuffles():
    X = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
    e = np.exp(X - X.max(1, keepdims=True))
    agree(softmax, X, expected=e / e.sum(1, keepdims=True), targets=TARGETS)


@tilec.jit
def scan(X, threads=128):
    M = T.const("M")
    X: T.Tensor[[M], T.int32]
    Y = T.empty((M,), T.int32)
    with T.Kernel(T.ceildiv(M, threads), threads=threads) as bx:
        tx = T.get_thread_binding()
        lane, warp = T.get_lane_idx(), T.get_warp_idx()
        sums = T.alloc_shared((threads // 32,), T.int32)
        v = T.alloc_var(T.int32, X[bx * threads + tx])
        for step in (1, 2, 4, 8, 16):
            below = T.shfl_up(v, step)
            if lane >= step:
                v += below
        if lane == 31:
            sums[warp] = v
        T.sync_threads()
        if warp == 0:
            s = T.alloc_var(T.int32)
            if lane < threads // 32:
                s = sums[lane]
            for step in (1, 2):
                before = T.shfl_up(s, step, width=4)
                if lane >= step:
                    s += before
            if lane < threads // 32:
                sums[lane] = s
        T.sync_threads()
        if warp > 0:
            v += sums[warp - 1]
        Y[bx * threads + tx] = v
    return Y


def test_scan_of_a_block_by_shuffles():
    X = integers(256)
    agree(scan, X, expected=X.reshape(2, 128).cumsum(1).reshape(-1), targets=TARGETS)


@tilec.jit
def top_k(X, k=3, threads=64):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    V = T.empty((M, k), T.float32)
    P = T.empty((M, k), T.int32)
    with T.Kernel(M, threads=threads) as bx:
        tx = T.get_thread_binding()
        value = T.alloc_var(T.float32, -T.infinity(T.float32))
        if tx < N:
            value = X[bx, tx]
        tops = T.alloc_shared((threads // 32,), T.float32)
        owner = T.alloc_shared((1,), T.int32)
        for r in T.serial(k):
            best = T.warp_reduce_max(value)
            if T.get_lane_idx() == 0:
                tops[tx // 32] = best
            if tx == 0:
                owner[0] = threads
            T.sync_threads()
            best_of_all = T.max(tops[0], tops[1])
            found = T.ballot(value == best_of_all)
            if (found != T.uint64(0)) and T.get_lane_idx() == 0:
                first = T.cast(T.popcount(found ^ (found - T.uint64(1))), T.int32) - 1
                T.atomic_min(owner[0], first + tx)
            T.sync_threads()
            if tx == owner[0]:
                V[bx, r] = value
                P[bx, r] = tx
                value = -T.infinity(T.float32)
            T.sync_threads()
    return V, P


def test_top_k_by_votes():
    X = np.random.default_rng(3).integers(0, 20, (2, 50)).astype(np.float32)
    order = np.argsort(-X, axis=1, kind="stable")[:, :3].astype(np.int32)
    agree(top_k, X, expected=[np.take_along_axis(X, order, 1), order], targets=TARGETS)


@tilec.jit
def compact(X, threads=64):
    N = T.const("N")
    X: T.Tensor[[N], T.int32]
    Y = T.empty((N,), T.int32)
    C = T.empty((1,), T.int32)
    with T.Kernel(1, threads=threads):
        tx = T.get_thread_binding()
        base = T.alloc_shared((threads // 32 + 1,), T.int32)
        done = T.alloc_var(T.int32)
        for k in T.serial(T.ceildiv(N, threads)):
            i = k * threads + tx
            keep = (i < N) & (X[i] % 3 == 0)
            votes = T.ballot(keep)
            lower = votes & ((T.uint64(1) << T.cast(T.get_lane_idx(), T.uint64)) - T.uint64(1))
            if T.get_lane_idx() == 0:
                base[tx // 32 + 1] = T.cast(T.popcount(votes), T.int32)
            T.sync_threads()
            if tx == 0:
                base[0] = done
                for w in T.serial(threads // 32):
                    base[w + 1] += base[w]
            T.sync_threads()
            if keep:
                Y[base[tx // 32] + T.cast(T.popcount(lower), T.int32)] = X[i]
            done = base[threads // 32]
            T.sync_threads()
        if tx == 0:
            C[0] = done
        for k in T.serial(T.ceildiv(N, threads)):
            if k * threads + tx >= done:
                Y[k * threads + tx] = 0
    return Y, C


def test_compaction_by_ballots():
    X = integers(150)
    kept = X[X % 3 == 0]
    agree(compact, X, expected=[np.pad(kept, (0, 150 - len(kept))), np.array([len(kept)])], targets=TARGETS)


@T.macro
def butterflies(own, other, tx, per):
    """Sums and differences with the lanes at distances 1 to 16."""
    for i in T.serial(5):
        upper = (tx >> i) & 1
        for j in T.Pipelined(per, num_stages=1):
            other[j] = T.tvm_warp_shuffle(0xFFFFFFFF, own[j], (tx ^ (1 << i)) % 32, 32, 32)
            own[j] = T.if_then_else(upper == 0, own[j] + other[j], other[j] - own[j])


@tilec.jit
def hadamard(X, threads=64, per=4):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=threads) as bx:
        tx = T.get_thread_binding(0)
        own, other = T.alloc_local((per,), T.float32), T.alloc_local((per,), T.float32)
        swap = T.alloc_shared((threads, per + 1), T.float32)
        for v in T.vectorized(per):
            own[v] = X[bx, tx * per + v]
        for i in T.serial(2):
            for j in T.serial(per // 2):
                low = (j // (1 << i)) * (2 << i) + j % (1 << i)
                a, b = own[low], own[low + (1 << i)]
                own[low] = a + b
                own[low + (1 << i)] = a - b
        butterflies(own, other, tx, per)
        for j in T.serial(per):
            swap[tx, j] = own[j]
        T.sync_threads()
        for j in T.serial(per):
            far = swap[tx ^ 32, j]
            own[j] = T.if_then_else(tx < 32, own[j] + far, far - own[j])
        for v in T.vectorized(per):
            Y[bx, tx * per + v] = own[v]
    return Y


def test_hadamard_transform_in_registers():
    X = np.random.default_rng(0).integers(-5, 6, (2, 256)).astype(np.float32)
    H = np.ones((1, 1), np.float32)
    while len(H) < 256:
        H = np.block([[H, H], [H, -H]])
    agree(hadamard, X, expected=X @ H, targets=TARGETS)


RADIX = 64


@tilec.jit
def radix_select(X, k=10, threads=128):
    M, N = T.const("M N")
    X: T.Tensor[[M, N], T.int32]
    V = T.empty((M, k), T.int32)
    with T.Kernel(M, threads=threads) as bx:
        tx = T.get_thread_binding()
        above, bound = T.alloc_shared((RADIX + 1,), T.int32), T.alloc_shared((1,), T.int32)
        count, rest = T.alloc_shared((1,), T.int32), T.alloc_shared((N,), T.int32)
        left, digit = T.alloc_var(T.int32, k), T.alloc_var(T.int32)
        T.fill(above, 0)
        T.fill(count, 0)
        for s in T.serial(T.ceildiv(N, threads)):
            i = s * threads + tx
            if i < N:
                T.atomic_add(above[X[bx, i] // RADIX], 1)
        T.sync_threads()
        if tx < RADIX:
            for b in T.serial(6):
                kept = T.alloc_var(T.int32)
                T.sync_threads(3, RADIX)
                if tx < RADIX - (1 << b):
                    kept = above[tx + (1 << b)]
                T.sync_threads(3, RADIX)
                above[tx] += kept
            T.sync_threads(3, RADIX)
            if above[tx] > left and above[tx + 1] <= left:
                bound[0] = tx
        T.sync_threads()
        digit = bound[0]
        left -= above[digit + 1]
        T.sync_threads()
        for s in T.serial(T.ceildiv(N, threads)):
            i = s * threads + tx
            if i < N:
                own = X[bx, i] // RADIX
                if own > digit:
                    V[bx, T.atomic_add(above[own + 1], 1, return_prev=True)] = X[bx, i]
                elif own == digit:
                    rest[T.atomic_add(count[0], 1, return_prev=True)] = X[bx, i]
        T.sync_threads()
        while left > 0:
            T.fill(bound, -1)
            for s in T.serial(T.ceildiv(count[0], threads)):
                if s * threads + tx < count[0]:
                    T.atomic_max(bound[0], rest[s * threads + tx])
            T.sync_threads()
            for s in T.serial(T.ceildiv(count[0], threads)):
                if (s * threads + tx < count[0]) and rest[s * threads + tx] == bound[0]:
                    rest[s * threads + tx] = -1
            if tx == 0:
                V[bx, k - left] = bound[0]
            left -= 1
    return V


def test_selection_by_radix():
    """Counts, named barriers, loops that end by what the block has found."""
    X = np.random.default_rng(1).permutation(4096)[:400].reshape(2, 200).astype(np.int32)
    (found,) = agree(radix_select, X, targets=())
    for values in (found, radix_select(X)):  # in the order in which threads came
        np.testing.assert_array_equal(np.sort(values), np.sort(X)[:, -10:])


# Errors ---------------------------------------------------------------------------------------------------


def build(use):
    """The tile IR of a kernel with one statement of every thread."""

    @tilec.jit
    def kernel(X):
        X: T.Tensor[[32], T.float32]
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            use(X, tx)

    return elaborated(kernel, (), {}, {}, {})


def in_parallel(X, tx):
    """A shuffle where iterations are shared."""
    from tilec.language.tiles.operations.tile_loops import over

    over((32,), lambda i: T.shfl_xor(X[i], 1))


@pytest.mark.parametrize(
    "statement",
    [
        lambda: T.sync_threads(),
        lambda: T.sync_warp(),
        lambda: T.sync_grid(),
        lambda: T.cluster_sync(),
        lambda: T.cluster_arrive(),
        lambda: T.cluster_wait(),
        lambda: T.set_max_nreg(96, 1),
        lambda: T.wait_wgmma(0),
        lambda: T.thread_return(),
    ],
)
def test_statements_of_threads_in_a_parallel_loop(statement):
    from tilec.language.tiles.operations.tile_loops import over

    with pytest.raises(UnsupportedError, match=r"in T\.Parallel") as caught:
        build(lambda X, tx: over((32,), lambda i: statement()))
    assert "which thread runs an iteration is open" in caught.value.why
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda X, tx: T.any_sync(X[tx]), SourceTypeError, "condition, not a float"),
        (lambda X, tx: T.syncthreads_or(1.0), SourceTypeError, "condition, not a float"),
        (lambda X, tx: T.any_sync(0xFFFFFFFF, X[tx] > 0), SourceTypeError, "T.any_sync of a number"),
        (lambda X, tx: T.shfl_down(0xFFFFFFFF, X[tx], 16), SourceTypeError, "T.shfl_down of a number"),
        (lambda X, tx: T.match_any_sync(0xFFFFFFFF, tx), SourceTypeError, "match_any_sync of a number"),
        (lambda X, tx: T.shfl_xor(X[tx], 1, width=5), SourceValueError, "width=5"),
        (lambda X, tx: T.warp_reduce_bitor(X[tx]), SourceTypeError, "float32"),
        (lambda X, tx: T.tvm_warp_shuffle(1, X[tx], 1, 32, 64), UnsupportedError, "warps of 64"),
        (lambda X, tx: T.comm_reducer(max, [1, 2]), UnsupportedError, "2 values"),
        (lambda X, tx: T.attr(1, "reduce_scope", 0), SourceTypeError, "comm_reducer"),
        (lambda X, tx: T.get_thread_binding(3), SourceValueError, "axes 0, 1 and 2"),
        (lambda X, tx: T.get_lane_idx(0), SourceValueError, "number of threads"),
        (lambda X, tx: T.sync_threads(1, 48), SourceValueError, "sync_threads"),
        (lambda X, tx: combined(T.max, 0, X[tx], True, X[0], tx + 1), SourceTypeError, "no thread index"),
        (lambda X, tx: combined(T.max, 0, X[tx], True, 1.0, tx), SourceTypeError, "writes an element"),
        (in_parallel, UnsupportedError, "in T.Parallel"),
    ],
)
def test_wrong_uses(use, kind, match):
    with pytest.raises(kind, match=match) as caught:
        build(use)
    assert caught.value.place.file == __file__
    assert caught.value.remedy or caught.value.why or kind is not UnsupportedError


def test_outside_of_a_reduce_scope():
    with pytest.raises(RuntimeError, match="reduce_scope"):
        build(lambda X, tx: T.tvm_thread_allreduce(1, X[tx], True, X[0], tx))


def test_the_text_reads_back():
    for kernel in (shuffles, votes, reductions, over_axes):
        text = format_kernel(elaborated(kernel, (), {}, {}, {}))
        assert format_kernel(parse_kernel(text)) == text
