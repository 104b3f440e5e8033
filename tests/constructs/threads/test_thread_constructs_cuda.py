"""Thread-level code on a GPU: indices, registers, shuffles, votes, barriers, reductions over threads."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.backends.cuda.codegen import images
from tilec.backends.cuda.nodes import AsyncCopy, WaitGroup
from tilec.backends.cuda.nodes import Sync as Barrier
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import UnsupportedError
from tilec.ir.nodes import walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.nodes.threads import Sync
from tilec.targets import parse_target

CUDA = ("sm_80", "sm_90a")


@tilec.jit
def block_reversed(X, n: int = 64):
    X: T.Tensor[[n], T.int32]
    Y = T.empty((n,), T.int32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n,), T.int32)
        s[tx] = X[tx]
        Y[n - 1 - tx] = s[tx] * 1000 + s[n - 1 - tx]
    return Y


def test_shared_hazards_between_thread_level_statements_are_synchronised():
    x = np.arange(64, dtype=np.int32)
    agree(block_reversed, x, expected=(x * 1000 + x[::-1])[::-1], targets=CUDA)


@tilec.jit
def lanes(X, n: int = 64):
    X: T.Tensor[[n], T.int32]
    Y = T.empty((n, 12), T.int32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        v = X[tx]
        Y[tx, 0] = T.shfl_xor(v, 1)
        Y[tx, 1] = T.shfl_down(v, 4)
        Y[tx, 2] = T.shfl_up(v, 3, width=8)
        Y[tx, 3] = T.shfl_sync(v, 5)
        Y[tx, 4] = T.warp_reduce_sum(v)
        Y[tx, 5] = T.warp_reduce_max(v)
        Y[tx, 6] = T.any_sync(v == 3)
        Y[tx, 7] = T.all_sync(v >= 0)
        Y[tx, 8] = T.cast(T.ballot_sync(v % 2 == 0) >> 3, T.int32)
        Y[tx, 9] = T.syncthreads_count(v % 3 == 0)
        Y[tx, 10] = T.cast(T.match_any_sync(v // 8), T.int32)
        Y[tx, 11] = T.get_warp_idx() * 100 + T.get_lane_idx()
    return Y


def test_shuffles_and_votes():
    x = np.random.default_rng(2).integers(0, 40, 64).astype(np.int32)
    agree(lanes, x, targets=CUDA)


@tilec.jit
def mixed(A, n: int = 128, m: int = 32):
    A: T.Tensor[[n, m], T.float32]
    B = T.empty((n, m), T.float32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n, m), T.float32)
        f = T.alloc_fragment((n, m), T.float32)
        total = T.alloc_fragment((n,), T.float32)
        T.copy(A, s)
        best = T.alloc_var(T.float32)
        best = s[tx, 0]
        for j in T.serial(1, m):
            if s[tx, j] > best:
                best = s[tx, j]
        for j in T.serial(m):
            s[tx, j] = s[tx, j] - best
        T.copy(s, f)
        T.reduce_sum(f, total, dim=1)
        for i, j in T.Parallel(n, m):
            f[i, j] = f[i, j] * total[i]
        if tx < 5:
            f[tx, 0] = 7.0 + total[tx]
        T.copy(f, B)
        if tx == 0:
            B[0, 1] = total[3]
    return B


def test_threads_and_tiles_in_one_kernel():
    a = np.random.default_rng(3).integers(-3, 4, (128, 32)).astype(np.float32)
    s = a - a.max(axis=1, keepdims=True)
    b = s * s.sum(axis=1, keepdims=True)
    b[:5, 0] = 7 + s.sum(axis=1)[:5]
    b[0, 1] = s.sum(axis=1)[3]
    agree(mixed, a, expected=b, targets=CUDA)


@tilec.jit
def histogram(X, n: int = 256, bins: int = 16):
    X: T.Tensor[[n], T.int32]
    H = T.empty((bins,), T.int32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        h = T.alloc_shared((bins,), T.int32)
        if tx < bins:
            h[tx] = 0
        T.atomic_add(h[X[tx]], 1)
        T.sync_threads()
        if tx < bins:
            H[tx] = h[tx]
    return H


def test_shared_atomics_by_every_thread():
    x = np.random.default_rng(4).integers(0, 16, 256).astype(np.int32)
    agree(histogram, x, expected=np.bincount(x, minlength=16), targets=CUDA)


@tilec.jit
def ends(X, n: int = 64):
    N = T.dynamic("N")
    X: T.Tensor[[N], T.int32]
    Y = T.empty((N,), T.int32)
    with T.Kernel(T.ceildiv(N, n), threads=n) as bx:
        tx = T.get_thread_binding()
        i = bx * n + tx
        if i >= N:
            T.thread_return()
        Y[i] = X[i] * 2
    return Y


def test_threads_that_end_early():
    x = np.arange(70, dtype=np.int32)
    agree(ends, x, expected=2 * x, targets=CUDA)


@tilec.jit
def block_sum(X, n: int = 256):
    X: T.Tensor[[4, n], T.float32]
    Y = T.empty((4,), T.float32)
    with T.Kernel(4, threads=n) as bx:
        tx = T.get_thread_binding()
        part = T.alloc_shared((n // 32,), T.float32)
        v = T.alloc_var(T.float32)
        v = X[bx, tx]
        for i in T.serial(5):
            v = v + T.shfl_down(v, 16 >> i)
        if tx % 32 == 0:
            part[tx // 32] = v
        T.sync_threads()
        if tx < 32:
            w = T.alloc_var(T.float32)
            w = T.if_then_else(tx < n // 32, part[tx % (n // 32)], 0.0)
            for i in T.serial(5):
                w = w + T.shfl_xor(w, 16 >> i)
            if tx == 0:
                Y[bx] = w
    return Y


def test_shuffles_join_lanes_and_shared_memory_joins_warps():
    x = np.random.default_rng(5).integers(-5, 5, (4, 256)).astype(np.float32)
    agree(block_sum, x, expected=x.sum(axis=1), targets=CUDA)


@tilec.jit
def tree_auto(X, n: int = 128):
    X: T.Tensor[[n], T.float32]
    Y = T.empty((1,), T.float32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n,), T.float32)
        s[tx] = X[tx]
        for i in T.serial(7):
            if tx < (n >> (i + 1)):
                s[tx] += s[tx + (n >> (i + 1))]
        Y[0] = s[0]
    return Y


def test_ranges_of_threads_meet_without_being_told():
    x = np.random.default_rng(6).integers(-5, 5, 128).astype(np.float32)
    agree(tree_auto, x, expected=[x.sum()])


@tilec.jit
def lanes_exchange(X, n: int = 64):
    X: T.Tensor[[n], T.float32]
    Y = T.empty((16,), T.float32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n,), T.float32)
        s[tx] = X[tx]
        if tx < 16:
            s[tx] += s[tx + 32]
            t = s[tx ^ 1]
            s[tx] = s[tx] + t
            Y[tx] = s[15 - tx]
    return Y


def test_lanes_of_a_part_of_a_warp_meet_without_being_told():
    x = np.random.default_rng(7).integers(-5, 5, 64).astype(np.float32)
    first = x[:16] + x[32:48]
    both = first + first.reshape(8, 2)[:, ::-1].reshape(16)
    agree(lanes_exchange, x, expected=both[::-1])


@tilec.jit
def threads2d(A, n: int = 16):
    A: T.Tensor[[n, 8, 2], T.int32]
    B = T.empty((2, 8, n), T.int32)
    with T.Kernel(1, threads=(n, 8, 2)):
        tx, ty, tz = T.get_thread_bindings()
        B[tz, ty, tx] = A[tx, ty, tz] + tz
    return B


q = np.arange(256, dtype=np.int32).reshape(16, 8, 2)


def test_threads_of_three_axes():
    a = np.arange(256, dtype=np.int32).reshape(16, 8, 2)
    agree(threads2d, a, expected=a.transpose(2, 1, 0) + np.arange(2)[:, None, None])


@tilec.jit
def named(X, n: int = 128):
    X: T.Tensor[[n], T.int32]
    Y = T.empty((n,), T.int32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n,), T.int32)
        if tx < 64:
            s[tx] = X[tx]
            T.sync_threads(1, 64)
            Y[tx] = s[63 - tx]
        else:
            s[tx] = X[tx] * 2
            T.sync_threads(2, 64)
            Y[tx] = s[191 - tx]
    return Y


xi = np.arange(128, dtype=np.int32)


def test_named_barriers_of_halves():
    x = np.arange(128, dtype=np.int32)
    agree(named, x, expected=np.concatenate([x[:64][::-1], 2 * x[64:][::-1]]))


@pytest.mark.parametrize("target", ["gfx942", "metal3"])
def test_named_barriers_are_nvidias(target):
    chip = parse_target(target)
    with pytest.raises(UnsupportedError, match=r"T\.sync_threads\(1, 64\)") as error:
        to_tir(lower(elaborated(named, [xi], None, {}, {}), chip), chip)
    assert "GPUs have barriers of whole blocks alone" in error.value.why
    assert error.value.place.line


@tilec.jit
def mixed2d(A, bM: int = 16):
    A: T.Tensor[[bM, 64], T.float16]
    B = T.empty((bM, 64), T.float16)
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        s = T.alloc_shared((bM, 64), T.float16)
        m = T.alloc_fragment((bM,), T.float32)
        f = T.alloc_fragment((bM, 64), T.float32)
        T.copy(A, s)
        for v in T.vectorized(8):
            s[tx // 8, (tx % 8) * 8 + v] = s[tx // 8, (tx % 8) * 8 + v] * T.float16(2)
        T.copy(s, f)
        T.reduce_max(f, m, dim=1)
        for i, j in T.Parallel(bM, 64):
            f[i, j] = f[i, j] - m[i]
        T.copy(f, s)
        for v in T.serial(8):
            B[tx // 8, (tx % 8) * 8 + v] = s[tx // 8, (tx % 8) * 8 + v]
    return B


def test_vectors_of_threads_between_tile_operations():
    a = np.random.default_rng(8).integers(-5, 6, (16, 64)).astype(np.float16)
    agree(mixed2d, a, expected=2 * a - (2 * a).max(axis=1, keepdims=True))


@tilec.jit
def doubled_in_vectors(A, B, n: int = 64, trips: int = 2):
    """Threads write an operand by vectors of their own, which wgmma reads by itself on sm_90a."""
    A: T.Tensor[[n, trips * n], T.float16]
    B: T.Tensor[[trips * n, n], T.float16]
    C = T.empty((n, n), T.float32)
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        As, Bs = T.alloc_shared((n, n), T.float16), T.alloc_shared((n, n), T.float16)
        acc = T.alloc_fragment((n, n), T.float32)
        T.clear(acc)
        for k in T.serial(trips):
            T.copy(B[k * n, 0], Bs)
            for r in T.serial(n * n // 8 // 128):
                at = r * 128 + tx
                for v in T.vectorized(8):
                    As[at // 8, at % 8 * 8 + v] = A[at // 8, k * n + at % 8 * 8 + v] * T.float16(2)
            T.gemm(As, Bs, acc)
        T.copy(acc, C)
    return C


def test_products_see_what_threads_write_by_vectors():
    a, b = (np.random.default_rng(seed).integers(-3, 4, (128, 64)).astype(np.float16) for seed in (1, 2))
    agree(doubled_in_vectors, np.ascontiguousarray(a.T), b, expected=2 * a.T.astype("f4") @ b.astype("f4"))


@tilec.jit
def sums_of_rows(X, n: int = 128):
    M = T.const("M")
    X: T.Tensor[[M, n], T.float32]
    Y = T.empty((M,), T.float32)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        total = T.alloc_local((1,), T.float32)
        for i in T.serial(M):
            with T.attr(
                T.comm_reducer(lambda a, b: a + b, [T.cast(0, T.float32)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), X[i, tx], True, total[0], tx, dtype="handle"))
            if tx == 0:
                Y[i] = total[0]
    return Y


def test_reductions_over_threads_in_a_loop_do_not_meet():
    x = np.random.default_rng(9).integers(-5, 6, (5, 128)).astype(np.float32)
    agree(sums_of_rows, x, expected=x.sum(axis=1))


def micro_tiles(K, N=64, M=64, bK=8, size=8):
    """A product by threads that have 8 x 8 elements each, of tiles that one copy brings."""

    @T.prim_func
    def main(A: T.Tensor((K, M), "float32"), B: T.Tensor((K, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=(N // size, M // size)):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            a, b = T.alloc_shared((bK, M), "float32"), T.alloc_shared((bK, N), "float32")
            row, column = T.alloc_local((size,), "float32"), T.alloc_local((size,), "float32")
            c = T.alloc_local((size, size), "float32")
            T.clear(c)
            for k in T.serial(K // bK):
                T.copy(A[k * bK, 0], a)
                T.copy(B[k * bK, 0], b)
                T.sync_threads()
                for depth in T.serial(bK):
                    for v in T.vectorized(size):
                        row[v] = a[depth, ty * size + v]
                    for v in T.vectorized(size):
                        column[v] = b[depth, tx * size + v]
                    for i, j in T.grid(size, size):
                        c[i, j] += row[i] * column[j]
                T.sync_threads()
            for i in T.serial(size):
                for v in T.vectorized(size):
                    C[ty * size + i, tx * size + v] = c[i, v]

    return main


def test_threads_meet_where_the_author_says_and_nowhere_else():
    a, b = (np.random.default_rng(seed).integers(-4, 5, (16, 64)).astype(np.float32) for seed in (1, 2))
    dims = {"K": 16}
    agree(micro_tiles, a, b, dims=dims, expected=a.T @ b, targets=CUDA)
    launch = lower(elaborated(micro_tiles, (a, b), dims, {}, {}), parse_target("sm_90a")).launches[0]
    found = [stmt for stmt in walk(launch.body) if isinstance(stmt, (AsyncCopy, WaitGroup, Sync, Barrier))]
    kinds = [type(stmt) for stmt in found]
    assert AsyncCopy in kinds
    assert Barrier not in kinds
    assert kinds[kinds.index(WaitGroup) + 1] is Sync
    assert kinds.count(Sync) == 2


def halves(other):
    """The first 64 of 128 threads add what ``other`` says to their own elements, by names."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tid = T.get_thread_binding()
            s = T.alloc_shared((128,), "float32")
            s[tid] = A[tid]
            T.sync_threads()
            if tid < 64:
                total = s[tid] + s[other(tid)]
                s[tid] = total
            T.sync_threads()
            B[tid] = s[tid]

    return main


@pytest.mark.parametrize(
    ("other", "meetings"), [(lambda tid: tid + 64, 0), (lambda tid: tid, 0), (lambda tid: tid ^ 33, 1)]
)
def test_warps_that_add_elements_of_others_wait_for_each_other_where_they_are_their_own(other, meetings):
    """Which elements a group of warps can reach follows from its threads; so do tests of their places."""
    kernel, target = halves(other), parse_target("sm_80")
    a = np.arange(128, dtype=np.float32)
    tid = np.arange(64)
    agree(kernel, a, expected=np.concatenate([a[:64] + a[other(tid)], a[64:]]), targets=CUDA)
    lowered = lower(elaborated(kernel, (a,), None, {}, {}), target)
    (group,) = (stmt for stmt in walk(lowered.launches[0].body) if isinstance(stmt, Group))
    assert sum(isinstance(stmt, Barrier) for stmt in walk(group.body)) == meetings
    assert "condval" not in images.source(to_tir(lowered, target), target, "k")


@pytest.mark.parametrize("name", ["gfx942", "metal3"])
def test_warps_that_wait_for_each_other_are_refused_where_blocks_alone_do(name):
    target = parse_target(name)
    lowered = lower(elaborated(halves(lambda tid: tid ^ 33), (np.zeros(128),), None, {}, {}), target)
    with pytest.raises(UnsupportedError, match="threads 0 to 63 of a block wait for each other") as found:
        to_tir(lowered, target)
    assert "if tid < 64:" in str(found.value)
