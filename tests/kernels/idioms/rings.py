"""Products and attention whose authors write the ring themselves: who loads, who multiplies, which barrier
says so. One consumer or two with accumulators of their own, first and last trips peeled off, a ring that runs
on from tile to tile. Tiles are those of Hopper."""

from __future__ import annotations

import numpy as np
from family_math import LOG2_E, attend, wide
from online_softmax import FAST, FULL_ROW, vectors, weigh

import tilec
import tilec.language as T

HALF = "float16"


def bytes_of(rows, columns, size=2):
    return rows * columns * size


@tilec.jit(out_idx=[-1])
def one_consumer(M, N, K, bM=128, bN=128, bK=64, stages=4, dtype=HALF):
    """Group 0 loads, group 1 multiplies; both in one loop. Barriers count bytes."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            As, Bs = T.alloc_shared((stages, bM, bK), dtype), T.alloc_shared((stages, bK, bN), dtype)
            acc, Cs = T.alloc_fragment((bM, bN), "float32"), T.alloc_shared((bM, bN), dtype)
            full, free = T.alloc_barrier([1] * stages), T.alloc_barrier([128] * stages)
            tx = T.get_thread_binding()
            with T.ws(1):
                T.clear(acc)
            for k in T.serial(T.ceildiv(K, bK)):
                with T.ws(0):
                    T.barrier_wait(free[k % stages], (k // stages + 1) % 2)
                    if tx == 0:
                        T.mbarrier_arrive_expect_tx(full[k % stages], bytes_of(bM, bK) + bytes_of(bK, bN))
                    T.tma_copy(A[by * bM, k * bK], As[k % stages, :, :], barrier=full[k % stages])
                    T.tma_copy(B[k * bK, bx * bN], Bs[k % stages, :, :], barrier=full[k % stages])
                with T.ws(1):
                    T.barrier_wait(full[k % stages], k // stages % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    T.barrier_arrive(free[k % stages])
            with T.ws(1):
                T.copy(acc, Cs)
                T.copy(Cs, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def two_consumers(M, N, K, bM=64, bN=256, bK=64, stages=3, dtype="bfloat16"):
    """Each consumer has its own half of A, its own accumulator and its own store; B is for both."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, 2 * bM), threads=384) as (bx, by):
            A_up, A_low = T.alloc_shared((stages, bM, bK), dtype), T.alloc_shared((stages, bM, bK), dtype)
            Bs = T.alloc_shared((stages, bK, bN), dtype)
            full, free = T.alloc_barrier([128] * stages), T.alloc_barrier([256] * stages)
            tx = T.get_thread_binding()
            trips = T.ceildiv(K, bK)
            if tx < 128:
                T.dec_max_nreg(24)
                for k in T.serial(trips):
                    at = k % stages
                    T.mbarrier_wait_parity(free[at], (k // stages) % 2 ^ 1)
                    T.tma_copy(A[by * 2 * bM, k * bK], A_up[at, :, :], barrier=full[at])
                    T.tma_copy(A[(by * 2 + 1) * bM, k * bK], A_low[at, :, :], barrier=full[at])
                    T.tma_copy(B[k * bK, bx * bN], Bs[at, :, :], barrier=full[at])
                    T.mbarrier_arrive(full[at])
            elif tx < 256:
                T.inc_max_nreg(240)
                acc_up = T.alloc_fragment((bM, bN), "float32")
                T.clear(acc_up)
                for k in T.serial(trips):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.gemm(A_up[k % stages, :, :], Bs[k % stages, :, :], acc_up)
                    T.mbarrier_arrive(free[k % stages])
                T.copy(acc_up, C[by * 2 * bM, bx * bN])
            else:
                T.inc_max_nreg(240)
                acc_low = T.alloc_fragment((bM, bN), "float32")
                T.clear(acc_low)
                for k in T.serial(trips):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.gemm(A_low[k % stages, :, :], Bs[k % stages, :, :], acc_low)
                    T.mbarrier_arrive(free[k % stages])
                T.copy(acc_low, C[(by * 2 + 1) * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def peeled_trips(M, N, K, bM=128, bN=256, bK=64, stages=4, dtype=HALF):
    """The first product clears the accumulator, each buffer is given back when the next product is under way,
    the last one behind the loop. At least one trip."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=384) as (bx, by):
            As, Bs = T.alloc_shared((stages, bM, bK), dtype), T.alloc_shared((stages, bN, bK), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            full, free = T.alloc_barrier([128] * stages), T.alloc_barrier([256] * stages)
            tx = T.get_thread_binding()
            trips = T.ceildiv(K, bK)
            if tx >= 256:
                T.dec_max_nreg(24)
                for k in T.serial(trips):
                    T.mbarrier_wait_parity(free[k % stages], (k // stages) % 2 ^ 1)
                    T.tma_copy(A[by * bM, k * bK], As[k % stages, :, :], barrier=full[k % stages])
                    T.tma_copy(B[bx * bN, k * bK], Bs[k % stages, :, :], barrier=full[k % stages])
                    T.mbarrier_arrive(full[k % stages])
            else:
                T.inc_max_nreg(232)
                T.mbarrier_wait_parity(full[0], 0)
                T.wgmma_gemm(As[0, :, :], Bs[0, :, :], acc, transpose_B=True, clear_accum=True)
                for k in T.serial(1, trips):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.wgmma_gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc, transpose_B=True)
                    T.wait_wgmma(1)
                    T.mbarrier_arrive(free[(k - 1) % stages])
                T.wait_wgmma(0)
                T.mbarrier_arrive(free[(trips - 1) % stages])
                T.copy(acc, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def running_on(M, N, K, workers=132, bM=128, bN=128, bK=64, stages=4, dtype=HALF):
    """A persistent block: the ring does not empty between its tiles; one counter of trips for each role."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(workers, threads=256) as worker:
            As, Bs = T.alloc_shared((stages, bM, bK), dtype), T.alloc_shared((stages, bK, bN), dtype)
            acc, Cs = T.alloc_fragment((bM, bN), "float32"), T.alloc_shared((bM, bN), dtype)
            full, free = T.alloc_barrier([128] * stages), T.alloc_barrier([128] * stages)
            tx = T.get_thread_binding()
            columns, trips = T.ceildiv(N, bN), T.ceildiv(K, bK)
            tiles = T.ceildiv(M, bM) * columns
            done = T.alloc_var("int32", 0)
            if tx < 128:
                for wave in T.serial(T.ceildiv(tiles, workers)):
                    tile = wave * workers + worker
                    if tile < tiles:
                        for k in T.serial(trips):
                            at = (done + k) % stages
                            T.mbarrier_wait_parity(free[at], ((done + k) // stages) % 2 ^ 1)
                            T.tma_copy(A[tile // columns * bM, k * bK], As[at, :, :], barrier=full[at])
                            T.tma_copy(B[k * bK, tile % columns * bN], Bs[at, :, :], barrier=full[at])
                            T.mbarrier_arrive(full[at])
                        done = done + trips
            else:
                for wave in T.serial(T.ceildiv(tiles, workers)):
                    tile = wave * workers + worker
                    if tile < tiles:
                        T.clear(acc)
                        for k in T.serial(trips):
                            at = (done + k) % stages
                            T.mbarrier_wait_parity(full[at], ((done + k) // stages) % 2)
                            T.gemm(As[at, :, :], Bs[at, :, :], acc)
                            T.mbarrier_arrive(free[at])
                        done = done + trips
                        T.copy(acc, Cs)
                        T.copy(Cs, C[tile // columns * bM, tile % columns * bN])

    return main


@T.macro
def attend_ring(Qs, Ks, Vs, O, ready, rings, trips, stages, row, head, b, shape, dtype):
    """One consumer: its own 64 queries, its own fragments."""
    rows, bN, D, scale = shape
    k_full, k_free, v_full, v_free = rings
    S, P = T.alloc_fragment((rows, bN), "float32"), T.alloc_fragment((rows, bN), dtype)
    o = T.alloc_fragment((rows, D), "float32")
    top, old, corr, part, total = vectors(rows)
    T.clear(o)
    T.clear(total)
    T.fill(top, -T.infinity("float32"))
    T.mbarrier_wait_parity(ready, 0)
    for k in T.serial(trips):
        T.mbarrier_wait_parity(k_full[k % stages], (k // stages) % 2)
        T.gemm(Qs, Ks[k % stages, :, :], S, transpose_B=True, clear_accum=True, policy=FULL_ROW)
        T.mbarrier_arrive(k_free[k % stages])
        weigh(S, P, o, top, old, corr, part, total, scale, rows, bN, D)
        T.mbarrier_wait_parity(v_full[k % stages], (k // stages) % 2)
        T.gemm(P, Vs[k % stages, :, :], o, policy=FULL_ROW)
        T.mbarrier_arrive(v_free[k % stages])
    for i, d in T.Parallel(rows, D):
        o[i, d] /= total[i]
    T.copy(o, O[b, row : row + rows, head, :])


@tilec.jit(out_idx=[-1], pass_configs=FAST)
def attention_ring(B, Sq, Sk, H, D, rows=64, bN=128, stages=2, dtype=HALF):
    """A producer, two consumers with 64 queries each; K and V have rings of their own. Sk of whole tiles."""
    scale = (1.0 / D) ** 0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.Tensor([B, Sq, H, D], dtype),
        K: T.Tensor([B, Sk, H, D], dtype),
        V: T.Tensor([B, Sk, H, D], dtype),
        O: T.Tensor([B, Sq, H, D], dtype),
    ):
        with T.Kernel(T.ceildiv(Sq, 2 * rows), H, B, threads=384) as (bx, by, bz):
            Q_up, Q_low = T.alloc_shared((rows, D), dtype), T.alloc_shared((rows, D), dtype)
            Ks, Vs = T.alloc_shared((stages, bN, D), dtype), T.alloc_shared((stages, bN, D), dtype)
            ready = T.alloc_barrier(128)
            k_full, v_full = T.alloc_barrier([128] * stages), T.alloc_barrier([128] * stages)
            k_free, v_free = T.alloc_barrier([256] * stages), T.alloc_barrier([256] * stages)
            tx = T.get_thread_binding()
            trips, row, shape = T.ceildiv(Sk, bN), bx * 2 * rows, (rows, bN, D, scale)
            rings = (k_full, k_free, v_full, v_free)
            if tx < 128:
                T.dec_max_nreg(24)
                T.tma_copy(Q[bz, row : row + rows, by, :], Q_up, barrier=ready)
                T.tma_copy(Q[bz, row + rows : row + 2 * rows, by, :], Q_low, barrier=ready)
                T.mbarrier_arrive(ready)
                for k in T.serial(trips):
                    at, parity = k % stages, (k // stages) % 2 ^ 1
                    T.mbarrier_wait_parity(k_free[at], parity)
                    T.tma_copy(K[bz, k * bN : (k + 1) * bN, by, :], Ks[at, :, :], barrier=k_full[at])
                    T.mbarrier_arrive(k_full[at])
                    T.mbarrier_wait_parity(v_free[at], parity)
                    T.tma_copy(V[bz, k * bN : (k + 1) * bN, by, :], Vs[at, :, :], barrier=v_full[at])
                    T.mbarrier_arrive(v_full[at])
            elif tx < 256:
                T.inc_max_nreg(240)
                attend_ring(Q_up, Ks, Vs, O, ready, rings, trips, stages, row, by, bz, shape, dtype)
            else:
                T.inc_max_nreg(240)
                attend_ring(Q_low, Ks, Vs, O, ready, rings, trips, stages, row + rows, by, bz, shape, dtype)

    return main


# ---- references ----


def product_reference(A, B):
    return wide(A) @ wide(B)


def product_nt_reference(A, B):
    return wide(A) @ wide(B).T


def attention_ring_reference(Q, K, V):
    out = np.zeros(Q.shape, np.float32)
    for b, h in np.ndindex(Q.shape[0], Q.shape[2]):
        out[b, :, h] = attend(Q[b, :, h], K[b, :, h], V[b, :, h])[0]
    return out
