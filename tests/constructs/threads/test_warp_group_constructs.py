"""Groups of warps with code of their own, and the barriers between them."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.errors import UnsupportedError
from tilec.targets import native_target, parse_target


def products(m, n, k, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, a.astype(np.float32) @ b.astype(np.float32)


@tilec.jit
def one_buffer(A, B, bM=64, bN=32, bK=32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
        As, Bs = T.alloc_shared((bM, bK), T.float16), T.alloc_shared((bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        full, free = T.alloc_barrier(128), T.alloc_barrier(128)
        with T.ws(1):
            T.clear(acc)
        for ko in T.serial(T.ceildiv(K, bK)):
            with T.ws(0):
                T.barrier_wait(free, (ko + 1) % 2)
                T.copy(A[by * bM, ko * bK], As)
                T.copy(B[ko * bK, bx * bN], Bs)
                T.barrier_arrive(full)
            with T.ws(1):
                T.barrier_wait(full, ko % 2)
                T.gemm(As, Bs, acc)
                T.barrier_arrive(free)
        with T.ws(1):
            T.copy(acc, C[by * bM, bx * bN])
    return C


def test_a_producer_and_a_consumer_of_one_buffer():
    a, b, c = products(64, 64, 96, 1)
    agree(one_buffer, a, b, expected=c)


@tilec.jit
def split_by_threads(A, B, bM=64, bN=32, bK=32, stages=2):
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
        As = T.alloc_shared((stages, bM, bK), T.float16)
        Bs = T.alloc_shared((stages, bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        full, empty = T.alloc_barrier([128] * stages), T.alloc_barrier([128] * stages)
        tx = T.get_thread_binding()
        if tx < 128:
            T.dec_max_nreg(24)
            for k in T.serial(T.ceildiv(K, bK)):
                T.mbarrier_wait_parity(empty[k % stages], ((k // stages) % 2) ^ 1)
                T.tma_copy(
                    A[by * bM : (by + 1) * bM, k * bK : (k + 1) * bK],
                    As[k % stages, :, :],
                    barrier=full[k % stages],
                )
                T.tma_copy(B[k * bK, bx * bN], Bs[k % stages, :, :], barrier=full[k % stages])
                T.mbarrier_arrive(full[k % stages])
        else:
            T.inc_max_nreg(240)
            T.clear(acc)
            for k in T.serial(T.ceildiv(K, bK)):
                T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                T.wgmma_gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                T.wait_wgmma(0)
                T.mbarrier_arrive(empty[k % stages])
            T.copy(acc, C[by * bM, bx * bN])
    return C


def test_a_ring_of_stages_between_ranges_of_threads():
    a, b, c = products(128, 64, 160, 2)
    agree(split_by_threads, a, b, expected=c, targets=("cpu", "sm_90a"))


@tilec.jit
def two_consumers(A, B, bM=64, bN=32, bK=32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, 2 * bM), threads=384) as (bx, by):
        As = T.alloc_shared((2, bM, bK), T.float16)
        Bs = T.alloc_shared((bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        full, free = T.alloc_barrier(128), T.alloc_barrier(256)
        phase = T.alloc_var(T.int32, 0)
        tx = T.get_thread_binding()
        if tx < 128:
            phase = 1
            for k in T.serial(T.ceildiv(K, bK)):
                T.barrier_wait(free, phase)
                phase = phase ^ 1
                T.copy(A[by * 2 * bM, k * bK], As[0, :, :])
                T.copy(A[(by * 2 + 1) * bM, k * bK], As[1, :, :])
                T.copy(B[k * bK, bx * bN], Bs)
                T.barrier_arrive(full)
        elif tx < 256:
            T.clear(acc)
            for _k in T.serial(T.ceildiv(K, bK)):
                T.barrier_wait(full, phase)
                phase = phase ^ 1
                T.gemm(As[0, :, :], Bs, acc)
                T.barrier_arrive(free)
            T.copy(acc, C[by * 2 * bM, bx * bN])
        else:
            T.clear(acc)
            for _k in T.serial(T.ceildiv(K, bK)):
                T.barrier_wait(full, phase)
                phase = phase ^ 1
                T.gemm(As[1, :, :], Bs, acc)
                T.barrier_arrive(free)
            T.copy(acc, C[(by * 2 + 1) * bM, bx * bN])
    return C


def test_each_group_has_its_own_variables_and_fragments():
    a, b, c = products(256, 32, 96, 3)
    agree(two_consumers, a, b, expected=c)


@tilec.jit
def groups_with_reductions(X, rows: int = 16, cols: int = 32):
    X: T.Tensor[[2 * rows, cols], T.float32]
    Y = T.empty((2 * rows,), T.float32)
    Z = T.empty((rows, cols), T.float32)
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((rows, cols), T.float32)
        f, m = T.alloc_fragment((rows, cols), T.float32), T.alloc_fragment((rows,), T.float32)
        with T.ws(0):
            T.copy(X[0:rows, :], f)
            T.reduce_max(f, m, dim=1)
            for i, j in T.Parallel(rows, cols):
                s[i, j] = f[i, j] - m[i]
            T.copy(m, Y[0:rows])
        with T.ws(1):
            T.copy(X[rows : 2 * rows, :], f)
            T.reduce_sum(f, m, dim=1)
            T.copy(m, Y[rows : 2 * rows])
        T.copy(s, Z)
    return Y, Z


def test_tile_operations_of_a_group_and_the_block_behind_them():
    x = np.random.default_rng(4).integers(-9, 9, (32, 32)).astype(np.float32)
    best = x[:16].max(axis=1)
    agree(
        groups_with_reductions,
        x,
        expected=[np.concatenate([best, x[16:].sum(axis=1)]), x[:16] - best[:, None]],
    )


@tilec.jit
def hints(X, n: int = 128):
    X: T.Tensor[[n], T.float32]
    Y = T.empty((n,), T.float32)
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((n,), T.float32)
        T.annotate_ws_schedule(T.WSSchedule(roles=[T.WSRole("producer", ops=[T.WSInstr(0)])]))
        with T.ws_op(0):
            T.copy(X, s, annotations={T.WSID: 0})
        T.fence_proxy_async()
        T.tma_copy(s, Y)
        T.tma_store_arrive()
        T.tma_store_wait(0)
    return Y


def test_hints_of_a_schedule_mean_nothing():
    x = np.arange(128, dtype=np.float32)
    agree(hints, x, expected=x)


@tilec.jit
def one_thread_loads(A, n: int = 64):
    A: T.Tensor[[n, 32], T.float16]
    B = T.empty((n, 32), T.float32)
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n, 32), T.float16)
        mb = T.alloc_barrier(1)
        if tx == 0:
            T.mbarrier_arrive_expect_tx(mb, n * 32 * 2)
            T.tma_copy(A, s, barrier=mb)
        T.mbarrier_wait_parity(mb, 0)
        T.copy(s, B)
    return B


def test_one_thread_announces_bytes_and_loads():
    a = np.random.default_rng(9).integers(-5, 6, (64, 32)).astype(np.float16)
    agree(one_thread_loads, a, expected=a, targets=("cpu", "sm_90a"))


@tilec.jit
def elected_arrival(A, n: int = 64):
    A: T.Tensor[[n, 32], T.float16]
    B = T.empty((n, 32), T.float32)
    with T.Kernel(1, threads=256):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n, 32), T.float16)
        mb = T.alloc_barrier(1)
        if tx < 128:
            T.tma_copy(A, s, barrier=mb)
            if T.shuffle_elect(128):
                T.mbarrier_arrive(mb)
        else:
            T.mbarrier_wait_parity(mb, 0)
            T.copy(s, B)
    return B


def test_one_thread_arrives_for_its_group():
    a = np.random.default_rng(10).integers(-5, 6, (64, 32)).astype(np.float16)
    agree(elected_arrival, a, expected=a, targets=("cpu", "sm_90a"))


@tilec.jit
def attention(Q, K, V, bM=128, bN=32, D=64, stages=2):
    S = T.const("S")
    Q: T.Tensor[[S, D], T.float16]
    K: T.Tensor[[S, D], T.float16]
    V: T.Tensor[[S, D], T.float16]
    Out = T.empty((S, D), T.float16)
    scale = (1.0 / D) ** 0.5 * 1.44269504
    with T.Kernel(T.ceildiv(S, bM), threads=384) as bx:
        Qs = T.alloc_shared((bM, D), T.float16)
        Ks = T.alloc_shared((stages, bN, D), T.float16)
        Vs = T.alloc_shared((stages, bN, D), T.float16)
        kf = T.alloc_barrier([128] * stages)
        ke = T.alloc_barrier([256] * stages)
        vf = T.alloc_barrier([128] * stages)
        ve = T.alloc_barrier([256] * stages)
        qf = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        if tx >= 256:
            T.set_max_nreg(24, 0)
            T.tma_copy(Q[bx * bM, 0], Qs, barrier=qf)
            T.mbarrier_arrive(qf)
            for k in T.serial(T.ceildiv(S, bN)):
                T.mbarrier_wait_parity(ke[k % stages], (k // stages & 1) ^ 1)
                T.tma_copy(K[k * bN, 0], Ks[k % stages, :, :], barrier=kf[k % stages])
                T.mbarrier_arrive(kf[k % stages])
                T.mbarrier_wait_parity(ve[k % stages], (k // stages & 1) ^ 1)
                T.tma_copy(V[k * bN, 0], Vs[k % stages, :, :], barrier=vf[k % stages])
                T.mbarrier_arrive(vf[k % stages])
        else:
            T.set_max_nreg(240, 1)
            s = T.alloc_fragment((bM, bN), T.float32)
            p = T.alloc_fragment((bM, bN), T.float16)
            o = T.alloc_fragment((bM, D), T.float32)
            m = T.alloc_fragment((bM,), T.float32)
            mp = T.alloc_fragment((bM,), T.float32)
            total = T.alloc_fragment((bM,), T.float32)
            ls = T.alloc_fragment((bM,), T.float32)
            al = T.alloc_fragment((bM,), T.float32)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(m, -T.infinity(T.float32))
            T.mbarrier_wait_parity(qf, 0)
            for k in T.serial(T.ceildiv(S, bN)):
                T.mbarrier_wait_parity(kf[k % stages], k // stages & 1)
                T.clear(s)
                T.wgmma_gemm(Qs, Ks[k % stages, :, :], s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.wait_wgmma(0)
                T.mbarrier_arrive(ke[k % stages])
                T.copy(m, mp)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(bM):
                    al[i] = T.exp2(mp[i] * scale - m[i] * scale)
                for i, j in T.Parallel(bM, bN):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, ls, dim=1)
                for i in T.Parallel(bM):
                    total[i] = total[i] * al[i] + ls[i]
                for i, j in T.Parallel(bM, D):
                    o[i, j] *= al[i]
                T.copy(s, p)
                T.mbarrier_wait_parity(vf[k % stages], k // stages & 1)
                T.wgmma_gemm(p, Vs[k % stages, :, :], o, policy=T.GemmWarpPolicy.FullRow)
                T.wait_wgmma(0)
                T.mbarrier_arrive(ve[k % stages])
            for i, j in T.Parallel(bM, D):
                o[i, j] /= total[i]
            T.copy(o, Out[bx * bM, 0])
    return Out


def test_attention_with_a_producer_and_two_consumers():
    rng = np.random.default_rng(11)
    q, k, v = (rng.standard_normal((128, 64)).astype(np.float16) for _ in range(3))
    s = q.astype(np.float32) @ k.astype(np.float32).T / 8
    p = np.exp(s - s.max(axis=1, keepdims=True))
    o = p / p.sum(axis=1, keepdims=True) @ v.astype(np.float32)
    agree(attention, q, k, v, expected=o, targets=("cpu", "sm_90a"), rtol=2e-2, atol=2e-2)


@tilec.jit
def persistent(A, B, bM=64, bN=64, bK=32, stages=2, blocks=3):
    M, N, K = T.const("M,N,K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float32)
    with T.Kernel(blocks, threads=256) as bid:
        As = T.alloc_shared((stages, bM, bK), T.float16)
        Bs = T.alloc_shared((stages, bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        full = T.alloc_barrier([128] * stages)
        empty = T.alloc_barrier([128] * stages)
        tiles = T.ceildiv(M, bM) * T.ceildiv(N, bN)
        waves = T.ceildiv(tiles, blocks)
        kk = T.ceildiv(K, bK)
        with T.ws(0):
            for w in T.serial(waves):
                t = w * blocks + bid
                if t < tiles:
                    by = t // T.ceildiv(N, bN)
                    bx = t % T.ceildiv(N, bN)
                    for k in T.serial(kk):
                        g = w * kk + k
                        T.mbarrier_wait_parity(empty[g % stages], ((g // stages) & 1) ^ 1)
                        T.copy(A[by * bM, k * bK], As[g % stages, :, :])
                        T.copy(B[k * bK, bx * bN], Bs[g % stages, :, :])
                        T.mbarrier_arrive(full[g % stages])
        with T.ws(1):
            for w in T.serial(waves):
                t = w * blocks + bid
                if t < tiles:
                    by = t // T.ceildiv(N, bN)
                    bx = t % T.ceildiv(N, bN)
                    T.clear(acc)
                    for k in T.serial(kk):
                        g = w * kk + k
                        T.mbarrier_wait_parity(full[g % stages], (g // stages) & 1)
                        T.gemm(As[g % stages, :, :], Bs[g % stages, :, :], acc)
                        T.mbarrier_arrive(empty[g % stages])
                    T.copy(acc, C[by * bM, bx * bN])
    return C


def test_phases_go_on_from_tile_to_tile():
    a, b, c = products(192, 128, 96, 12)
    agree(persistent, a, b, expected=c)


@tilec.jit
def peeled(A, B, bM=64, bN=32, bK=32, stages=2):
    M, N, K = T.const("M,N,K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
        As = T.alloc_shared((stages, bM, bK), T.float16)
        Bs = T.alloc_shared((stages, bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        full = T.alloc_barrier([128] * stages)
        empty = T.alloc_barrier([128] * stages)
        with T.ws(0):
            for k in T.serial(T.ceildiv(K, bK)):
                T.mbarrier_wait_parity(empty[k % stages], ((k // stages) & 1) ^ 1)
                T.copy(A[by * bM, k * bK], As[k % stages, :, :])
                T.copy(B[k * bK, bx * bN], Bs[k % stages, :, :])
                T.mbarrier_arrive(full[k % stages])
        with T.ws(1):
            T.mbarrier_wait_parity(full[0], 0)
            T.gemm(As[0, :, :], Bs[0, :, :], acc, clear_accum=True)
            T.mbarrier_arrive(empty[0])
            for k in T.serial(1, T.ceildiv(K, bK)):
                T.mbarrier_wait_parity(full[k % stages], (k // stages) & 1)
                T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                T.mbarrier_arrive(empty[k % stages])
            T.copy(acc, C[by * bM, bx * bN])
    return C


def test_a_consumer_whose_first_trip_stands_before_its_loop():
    a, b, c = products(64, 32, 160, 13)
    agree(peeled, a, b, expected=c)


@tilec.jit
def crosswise(X, n=64):
    N = T.const("N")
    X: T.Tensor[[N, n], T.float32]
    Y = T.empty((N, 2 * n), T.float32)
    with T.Kernel(1, threads=256):
        p = T.alloc_shared((n,), T.float32)
        q = T.alloc_shared((n,), T.float32)
        f = T.alloc_fragment((n,), T.float32)
        pf, pe, qf, qe = (
            T.alloc_barrier(128),
            T.alloc_barrier(128),
            T.alloc_barrier(128),
            T.alloc_barrier(128),
        )
        tx = T.get_thread_binding()
        if tx < 128:
            for k in T.serial(N):
                T.barrier_wait(pe, (k + 1) % 2)
                for i in T.Parallel(n):
                    p[i] = X[k, i] + 1
                T.barrier_arrive(pf)
                T.barrier_wait(qf, k % 2)
                T.copy(q, f)
                T.barrier_arrive(qe)
                T.copy(f, Y[k, 0:n])
        else:
            for k in T.serial(N):
                T.barrier_wait(qe, (k + 1) % 2)
                for i in T.Parallel(n):
                    q[i] = X[k, i] * 2
                T.barrier_arrive(qf)
                T.barrier_wait(pf, k % 2)
                T.copy(p, f)
                T.barrier_arrive(pe)
                T.copy(f, Y[k, n : 2 * n])
    return Y


def test_groups_that_hand_over_to_each_other():
    x = np.random.default_rng(14).integers(-5, 5, (5, 64)).astype(np.float32)
    agree(crosswise, x, expected=np.concatenate([2 * x, x + 1], axis=1))


@tilec.jit
def trips_from_data(X, L, n=64, stages=2):
    N = T.dynamic("N")
    X: T.Tensor[[N, n], T.float32]
    L: T.Tensor[[2], T.int32]
    Y = T.empty((2, n), T.float32)
    with T.Kernel(2, threads=256) as bx:
        s = T.alloc_shared((stages, n), T.float32)
        f = T.alloc_fragment((n,), T.float32)
        full = T.alloc_barrier([128] * stages)
        empty = T.alloc_barrier([128] * stages)
        tx = T.get_thread_binding()
        trips = L[bx]
        if tx < 128:
            for k in T.serial(trips):
                T.mbarrier_wait_parity(empty[k % stages], ((k // stages) & 1) ^ 1)
                T.copy(X[k, :], s[k % stages, :])
                T.mbarrier_arrive(full[k % stages])
        else:
            T.clear(f)
            for k in T.serial(trips):
                T.mbarrier_wait_parity(full[k % stages], (k // stages) & 1)
                for i in T.Parallel(n):
                    f[i] += s[k % stages, i]
                T.mbarrier_arrive(empty[k % stages])
            T.copy(f, Y[bx, :])
    return Y


def test_the_number_of_trips_is_data():
    x = np.random.default_rng(15).integers(-5, 5, (9, 64)).astype(np.float32)
    trips = np.array([3, 9], np.int32)
    agree(trips_from_data, x, trips, expected=np.stack([x[:3].sum(axis=0), x.sum(axis=0)]))


def test_rings_that_suit_the_target_become_its_own():
    a, b, c = products(128, 128, 192, 16)
    agree(split_by_threads, a, b, args={"bN": 64, "bK": 64}, expected=c, targets=("cpu", "sm_90a"))
    agree(one_buffer, a, b, args={"bN": 64, "bK": 64}, expected=c, targets=("cpu", "sm_90a"))


@tilec.jit
def copied_by_threads(A, n: int = 128, vec: int = 4):
    A: T.Tensor[[n, vec], T.float16]
    B = T.empty((n, vec), T.float16)
    with T.Kernel(1, threads=n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n, vec), T.float16)
        T.ptx_cp_async(T.access_ptr(s[tx, 0], "w", vec), T.access_ptr(A[tx, 0], "r", vec), vec, tx % 3 != 0)
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        T.sync_threads()
        for v in T.serial(vec):
            B[tx, v] = s[n - 1 - tx, v] + T.__ldg(A[tx, 0])
    return B


def test_copies_of_threads_are_there_when_they_end():
    a = np.arange(512, dtype=np.float16).reshape(128, 4) % 64
    s = np.where(np.arange(128)[:, None] % 3 != 0, a, 0)
    agree(copied_by_threads, a, expected=s[::-1] + a[:, :1])


@tilec.jit
def copied_ahead(A, n: int = 64):
    A: T.Tensor[[2, n, 32], T.float16]
    B = T.empty((n, 32), T.float32)
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((2, n, 32), T.float16)
        f = T.alloc_fragment((n, 32), T.float32)
        T.clear(f)
        T.async_copy(A[0, :, :], s[0, :, :])
        for k in T.unroll(2):
            if k == 0:
                T.async_copy(A[1, :, :], s[1, :, :])
            T.ptx_wait_group(1 - k)
            for i, j in T.Parallel(n, 32):
                f[i, j] += s[k, i, j]
        T.copy(f, B)
    return B


def test_asynchronous_copies_and_waits():
    a = np.random.default_rng(17).integers(-5, 6, (2, 64, 32)).astype(np.float16)
    agree(copied_ahead, a, expected=a.astype(np.float32).sum(axis=0))


@tilec.jit
def in_pairs(X, n: int = 128):
    M = T.const("M")
    X: T.Tensor[[M, n], T.int32]
    Y = T.empty((M, n), T.int32)
    W = T.alloc_global((M, n), T.int32)
    with T.ClusterKernel(M, cluster_dims=2, threads=n) as bx:
        tx = T.get_thread_binding()
        W[bx, tx] = X[bx, tx]
        T.cluster_sync()
        partner = T.get_cluster_id() * T.get_cluster_size() + 1 - T.block_rank_in_cluster()
        Y[bx, tx] = W[partner, tx] + T.get_cluster_extent() * 100
    return Y


def test_blocks_of_a_cluster_meet():
    x = np.arange(4 * 128, dtype=np.int32).reshape(4, 128)
    kernel = elaborated(in_pairs, (x,), None, {}, {})
    y = np.zeros_like(x)
    EmulatedKernel(kernel, parse_target("sm_90a"))([x, y], {})
    np.testing.assert_array_equal(y, x[[1, 0, 3, 2]] + 200)
    for target in (parse_target("sm_80"), native_target()):
        with pytest.raises(UnsupportedError, match="cluster"):
            lower(kernel, target)


@tilec.jit
def handed_on(X, n: int = 128):
    X: T.Tensor[[2, n], T.int32]
    Y = T.empty((2, n), T.int32)
    W = T.alloc_global((2, n), T.int32)
    with T.Kernel(2, threads=n, cluster_dims=2) as bx:
        tx = T.get_thread_binding()
        mb = T.alloc_cluster_barrier(n)
        W[bx, tx] = X[bx, tx] + 1
        T.mbarrier_arrive(mb, 1 - T.block_rank_in_cluster())
        T.mbarrier_wait_parity(mb, 0)
        Y[bx, tx] = W[1 - bx, tx]
        T.cluster_sync()
    return Y


def test_arrivals_at_the_barrier_of_another_block():
    x = np.arange(256, dtype=np.int32).reshape(2, 128)
    y = np.zeros_like(x)
    EmulatedKernel(elaborated(handed_on, (x,), None, {}, {}), parse_target("sm_90a"))([x, y], {})
    np.testing.assert_array_equal(y, x[::-1] + 1)


@tilec.jit
def by_one_thread(A, n: int = 64):
    A: T.Tensor[[n, 32], T.float16]
    B = T.empty((n, 32), T.float32)
    C = T.empty((1,), T.int32)
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n, 32), T.float16)
        if tx == 0:
            C[0] = 7
            T.copy(A, s)
            s[0, 0] = 9
        if tx < 20:
            for i, j in T.Parallel(n, 32):
                B[i, j] = s[i, j] * 2
    return B, C


def test_tile_operations_of_some_threads_are_those_of_all_that_come_by():
    a = np.random.default_rng(18).integers(-5, 6, (64, 32)).astype(np.float16)
    b = 2 * a.astype(np.float32)
    b[0, 0] = 18
    agree(by_one_thread, a, expected=[b, [7]])


@tilec.jit
def handed_over(X, n: int = 64):
    X: T.Tensor[[n], T.int32]
    Y = T.empty((n,), T.int32)
    with T.Kernel(1, threads=2 * n):
        tx = T.get_thread_binding()
        s = T.alloc_shared((n,), T.int32)
        if tx < n:
            s[tx] = X[tx] + 1
            T.named_barrier_arrive(1, 2 * n)
        else:
            T.sync_threads(1, 2 * n)
            Y[tx - n] = s[2 * n - 1 - tx]
    return Y


def test_arrivals_at_a_named_barrier():
    x = np.arange(64, dtype=np.int32)
    kernel = elaborated(handed_over, (x,), None, {}, {})
    for target in ("sm_80", "sm_90a"):
        y = np.zeros_like(x)
        EmulatedKernel(kernel, parse_target(target))([x, y], {})
        np.testing.assert_array_equal(y, x[::-1] + 1)
    with pytest.raises(UnsupportedError, match=r"T\.named_barrier_arrive has no sequential form"):
        lower(kernel, native_target())


@pytest.mark.parametrize("waits_first", [False, True], ids=["producer_first", "consumer_first"])
def test_groups_that_meet_at_a_named_barrier(waits_first):
    """Nothing else lets one of them wait for the other: not what the whole block did to the tile before."""

    @T.prim_func
    def main(A: T.Tensor((128, 32), "float16"), B: T.Tensor((128, 32), "float16")):
        with T.Kernel(1, threads=256):
            tile, tx = T.alloc_shared((128, 32), "float16"), T.get_thread_binding()
            T.fill(tile, 1)
            if (tx < 128) != waits_first:
                T.copy(A, tile)
                T.sync_threads(1, 256)
            else:
                T.sync_threads(1, 256)
                T.copy(tile, B)

    a = np.arange(128 * 32).reshape(128, 32).astype(np.float16)
    agree(main, a, expected=a, targets=("sm_80",))


def test_all_threads_wait_for_what_a_group_wrote_before_its_own_barriers():
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=256):
            doubled, turned = T.alloc_shared((64,), "int32"), T.alloc_shared((64,), "int32")
            with T.ws(1):
                for i in T.Parallel(64):
                    doubled[i] = X[i] * 2
                for i in T.Parallel(64):
                    turned[i] = doubled[63 - i]
            for i in T.Parallel(64):
                Y[i] = doubled[i]

    x = np.arange(64, dtype=np.int32)
    agree(main, x, expected=x * 2)
