"""Products as people write them: how operands come to shared tiles."""

from __future__ import annotations

import numpy as np
from family_math import wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def shared_out(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """Threads share the elements of tiles out among themselves, eight at a time, and those of the result."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            C_shared = T.alloc_shared((bM, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            tx = T.get_thread_binding(0)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                for r in T.serial(bM * bK // (8 * threads)):
                    row = (r * threads + tx) // (bK // 8)
                    for v in T.vectorized(8):
                        column = tx % (bK // 8) * 8 + v
                        A_shared[row, column] = A[by * bM + row, ko * bK + column]
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.sync_threads()
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C_shared)
            for r in T.serial(bM * bN // (8 * threads)):
                for v in T.vectorized(8):
                    at = (r * threads + tx) * 8 + v
                    C[by * bM + at // bN, bx * bN + at % bN] = C_shared[at // bN, at % bN]

    return main


@tilec.jit(out_idx=[-1])
def unpacked_by_threads(M, N, K, bM=128, bN=128, bK=64, num_stages=2, threads=128, dtype="float16"):
    """Weights of four bits by way of arrays of each thread, with scales of 64 along K."""
    size = 8

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // 64), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_packed = T.alloc_shared((bN, bK // 2), "uint8")
            B_shared = T.alloc_shared((bN, bK), dtype)
            packed = T.alloc_local((size // 2,), "uint8")
            numbers = T.alloc_local((size,), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            tx = T.get_thread_binding()
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK // 2], B_packed)
                for r in T.serial(bN * bK // (size * threads)):
                    for v in T.vectorized(size // 2):
                        at = (r * threads + tx) * (size // 2) + v
                        packed[v] = B_packed[at // (bK // 2), at % (bK // 2)]
                    for v in T.serial(size):
                        at = (r * threads + tx) * size + v
                        number = (packed[v // 2] >> T.cast(v % 2 * 4, "uint8")) & T.uint8(15)
                        scale = scales[bx * bN + at // bK, (ko * bK + at % bK) // 64]
                        numbers[v] = (T.cast(number, dtype) - T.cast(8, dtype)) * scale
                    for v in T.vectorized(size):
                        at = (r * threads + tx) * size + v
                        B_shared[at // bK, at % bK] = numbers[v]
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def cleared_and_listed(rows, M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """Rows that a list names, where it names one; zeros in front elsewhere."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        places: T.Tensor((M,), "int32"),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.clear(A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                for i, j in T.Parallel(bM, bK):
                    if by * bM + i < M and places[by * bM + i] >= 0:
                        A_shared[i, j] = A[places[by * bM + i], ko * bK + j]
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def listed_by_warps(rows, M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """Rows that a list names, eight lanes a row; the first threads keep the list."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        places: T.Tensor((M,), "int32"),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            listed = T.alloc_shared((bM,), "int32")
            C_local = T.alloc_fragment((bM, bN), "float32")
            tx = T.get_thread_binding(0)
            warp, lane = tx // 32, tx % 32
            T.clear(C_local)
            if tx < bM:
                listed[tx] = T.if_then_else(by * bM + tx < M, places[by * bM + tx], -1)
            T.sync_threads()
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                for r in T.unroll(bM * 8 // threads):
                    row = r * (threads // 8) + warp * 4 + lane // 8
                    at = listed[row]
                    for v in T.vectorized(8):
                        column = lane % 8 * 8 + v
                        A_shared[row, column] = T.if_then_else(at >= 0, A[at, ko * bK + column], 0)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def counted_through(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """One variable counts the elements of a tile through, and those of the result."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                for p in T.Parallel(bM * bK):
                    A_shared[p // bK, p % bK] = A[by * bM + p // bK, ko * bK + p % bK]
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for p in T.Parallel(bM * bN):
                C[by * bM + p // bN, bx * bN + p % bN] = C_local[p // bN, p % bN]

    return main


@tilec.jit(out_idx=[-1])
def side_by_side(M, N, K, bM=128, bN=128, bK=32, num_stages=3, threads=256, dtype="float16"):
    """Columns of two tensors in one tile, of two others in the other one."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        A2: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        B2: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, 2 * bK), dtype)
            B_shared = T.alloc_shared((bN, 2 * bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared[:, :bK])
                T.copy(A2[by * bM, ko * bK], A_shared[:, bK:])
                T.copy(B[bx * bN, ko * bK], B_shared[:, :bK])
                for i, j in T.Parallel(bN, bK):
                    B_shared[i, bK + j] = B2[bx * bN + i, ko * bK + j]
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def either_tensor(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """Tiles along K of one tensor and of another one, in turns, by a branch."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        A2: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                if ko % 2 == 0:
                    T.copy(A[by * bM, ko * bK], A_shared)
                else:
                    column = ko * bK
                    T.copy(A2[by * bM, column], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def through_fragment(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """An operand comes to registers first, and is changed there."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_local = T.alloc_fragment((bM, bK), dtype)
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_local)
                for i, j in T.Parallel(bM, bK):
                    A_local[i, j] = T.max(A_local[i, j], 0)
                T.copy(A_local, A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def both_in_one_loop(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """One loop fills both operands, rows of one by a list."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        places: T.Tensor((M,), "int32"),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                for i, j in T.Parallel(bM, bK):
                    row = T.if_then_else(by * bM + i < M, places[by * bM + i], -1)
                    A_shared[i, j] = T.if_then_else(row >= 0, A[row, ko * bK + j], 0)
                    B_shared[i, j] = T.if_then_else(bx * bN + i < N, B[bx * bN + i, ko * bK + j], 0)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def weighted_trips(M, N, K, bM=128, bN=128, bK=64, num_stages=2, threads=256, dtype="float16"):
    """What each trip multiplies has weights, which come to a fragment, and a mask that the loop reads."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        weights: T.Tensor((M, 2 * K), dtype),
        keep: T.Tensor((M, 2 * K), "bool"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), dtype)
            B_shared = T.alloc_shared((bN, bK), dtype)
            weight = T.alloc_fragment((bM, bN), dtype)
            part = T.alloc_fragment((bM, bN), "float32")
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(K // bK, num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, part, transpose_B=True, clear_accum=True)
                T.copy(weights[by * bM, ko * bN], weight)
                for i, j in T.Parallel(bM, bN):
                    kept = T.if_then_else(keep[by * bM + i, ko * bN + j], weight[i, j], 0)
                    C_local[i, j] += part[i, j] * kept
            T.copy(C_local, C[by * bM, bx * bN])

    return main


# ---- references ----


def product_nt_reference(A, B):
    return wide(A) @ wide(B).T


def unpacked_by_threads_reference(A, B, scales):
    numbers = wide(np.stack([B & 15, B >> 4], -1).reshape(len(B), -1)) - 8
    return wide(A) @ wide((numbers * wide(scales).repeat(64, 1)).astype(A.dtype)).T


def listed_reference(A, places, B):
    rows = np.where(places[:, None] >= 0, wide(A)[places], 0)
    return rows @ wide(B).T


def side_by_side_reference(A, A2, B, B2):
    return wide(A) @ wide(B).T + wide(A2) @ wide(B2).T


def either_tensor_reference(A, A2, B):
    of_first = np.arange(A.shape[1]) // 64 % 2 == 0
    return wide(np.where(of_first, A, A2)) @ wide(B).T


def weighted_trips_reference(A, B, weights, keep):
    M, N, trips = len(A), len(B), A.shape[1] // 64
    total = np.zeros((M, N), wide(A).dtype)
    kept = np.where(keep, wide(weights), 0).reshape(M, trips, 128)[:, :, np.arange(N) % 128]
    for ko in range(trips):
        columns = slice(64 * ko, 64 * ko + 64)
        total += wide(A[:, columns]) @ wide(B[:, columns]).T * kept[:, ko]
    return total


def through_fragment_reference(A, B):
    return np.maximum(wide(A), 0) @ wide(B).T


# ---- inputs ----


def listed_inputs(dims, rng):
    """One row in four is listed nowhere."""
    M, N, K = (dims[name] for name in "MNK")
    rows = dims.get("rows", M)
    places = rng.integers(0, rows, M)
    places[rng.random(M) < 0.25] = -1
    return [rng.standard_normal((rows, K)), places, rng.standard_normal((N, K))]
