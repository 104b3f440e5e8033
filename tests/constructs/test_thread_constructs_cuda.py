"""Thread-level code on a GPU: indices, registers, shuffles, votes, barriers, reductions over threads."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec
import tilec.language as T

CUDA = ("sm_80", "sm_90a")


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
def test_a_product_of_matrix_and_vector_reduces_over_a_thread_axis(shape):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal(300).astype(np.float16), rng.standard_normal((10, 300)).astype(np.float16)
    agree(gemv, x, w, args=shape, expected=w.astype(np.float32) @ x.astype(np.float32), targets=CUDA)


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
