"""Products whose operands are not of one type in memory: scaled, unpacked or converted on their way."""

from __future__ import annotations

import numpy as np
from family_math import wide

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def scaled_in_registers(M, N, K, bM=128, bN=128, bK=64, dtype="float16"):
    """Each row of each tile of A is scaled between shared memory and the product."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        scales: T.Tensor((M, T.ceildiv(K, bK)), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            A_local = T.alloc_fragment((bM, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[ko * bK, bx * bN], B_shared)
                T.copy(A_shared, A_local)
                for i, j in T.Parallel(bM, bK):
                    A_local[i, j] = A_local[i, j] * scales[by * bM + i, ko]
                T.gemm(A_local, B_shared, C_local)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def scaled_in_shared(M, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """A is normalised where it lies: columns by a weight, rows by their root mean square."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        rms: T.Tensor((M,), "float32"),
        weight: T.Tensor((K,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                for i, j in T.Parallel(bM, bK):
                    A_shared[i, j] = A_shared[i, j] * rms[by * bM + i] * weight[ko * bK + j]
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def int8_weights(M, N, K, bM=128, bN=128, bK=64, dtype="float16"):
    """B is int8 with a scale for each of its rows, applied to the sums."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), "int8"),
        scales: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), "int8")
            B_local, B_half = T.alloc_fragment((bN, bK), "int8"), T.alloc_fragment((bN, bK), dtype)
            B_wide = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.copy(B_shared, B_local)
                T.copy(B_local, B_half)
                T.copy(B_half, B_wide)
                T.gemm(A_shared, B_wide, C_local, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                C_local[i, j] *= scales[bx * bN + j]
            T.copy(C_local, C[by * bM, bx * bN])

    return main


def place_of(packing, j, bK):
    """Of number ``j`` of a row of a tile: its byte, and its nibble there."""
    if packing == "pairs":
        return j // 2, j % 2
    return j % (bK // 2), j // (bK // 2)  # halves: low nibbles have the first half of the tile


@tilec.jit(out_idx=[-1])
def int4_weights(M, N, K, packing="pairs", group=128, bM=128, bN=128, bK=64, dtype="float16"):
    """B has two numbers of 4 bits in a byte, -8 to 7, and a scale for each ``group`` of them."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, T.ceildiv(K, group)), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK // 2), "uint8")
            B_wide = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK // 2], B_shared)
                for i, j in T.Parallel(bN, bK):
                    byte, nibble = place_of(packing, j, bK)
                    number = (B_shared[i, byte] >> (nibble * 4).astype("uint8")) & T.uint8(15)
                    scale = scales[bx * bN + i, ko * bK // group]
                    B_wide[i, j] = (number.astype("int8") - T.int8(8)).astype(dtype) * scale
                T.gemm(A_shared, B_wide, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def word_weights(M, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Eight numbers in a word of 32 bits, even ones in the low half; a zero point for each row."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // 8), "int32"),
        zeros: T.Tensor((N,), dtype),
        scales: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK // 8), "int32")
            B_local = T.alloc_fragment((bN, bK), dtype)
            B_wide = T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK // 8], B_shared)
                for i, j in T.Parallel(bN, bK):
                    at = (j % 8) // 2 + (j % 2) * 4
                    number = (B_shared[i, j // 8] >> (at * 4)) & 15
                    B_local[i, j] = (number.astype(dtype) - zeros[bx * bN + i]) * scales[bx * bN + i]
                T.copy(B_local, B_wide)
                T.gemm(A_shared, B_wide, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def looked_up_weights(M, N, K, group=64, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Numbers of 4 bits name one of sixteen values of a table."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // 2), "uint8"),
        table: T.Tensor((16,), dtype),
        scales: T.Tensor((N, T.ceildiv(K, group)), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK // 2), "uint8")
            B_wide, values = T.alloc_shared((bN, bK), dtype), T.alloc_shared((16,), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.copy(table, values)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK // 2], B_shared)
                for i, j in T.Parallel(bN, bK):
                    number = (B_shared[i, j // 2] >> (j % 2 * 4).astype("uint8")) & T.uint8(15)
                    B_wide[i, j] = values[number.astype("int32")] * scales[bx * bN + i, ko * bK // group]
                T.gemm(A_shared, B_wide, C_local, transpose_B=True)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def converted_left(M, N, K, source="float32", bM=128, bN=128, bK=64, dtype="float16"):
    """A has another type in memory: its copy to shared memory converts it."""

    @T.prim_func
    def main(A: T.Tensor((M, K), source), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[ko * bK, bx * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def fp8_block_scales(M, N, K, bM=128, bN=128, bK=128):
    """float8, a scale for each 128 numbers of a row of A and each 128 x 128 of B, for sums of a trip."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float8_e4m3fn"),
        B: T.Tensor((N, K), "float8_e4m3fn"),
        of_A: T.Tensor((M, T.ceildiv(K, bK)), "float32"),
        of_B: T.Tensor((T.ceildiv(N, bN), T.ceildiv(K, bK)), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), "float8_e4m3fn")
            B_shared = T.alloc_shared((bN, bK), "float8_e4m3fn")
            scale = T.alloc_shared((bM,), "float32")
            C_shared = T.alloc_shared((bM, bN), "bfloat16")
            part, C_local = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            T.clear(C_local)
            T.clear(part)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                for i in T.Parallel(bM):
                    scale[i] = of_A[by * bM + i, ko] * of_B[bx, ko]
                T.gemm(A_shared, B_shared, part, transpose_B=True)
                for i, j in T.Parallel(bM, bN):
                    C_local[i, j] += part[i, j] * scale[i]
                T.clear(part)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def fp8_scaled_at_times(M, N, K, bM=128, bN=128, bK=64, group=128):
    """float8, a scale for each ``group`` numbers of a row of A: sums of several trips are scaled at once."""
    times = group // bK

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float8_e4m3fn"),
        B: T.Tensor((N, K), "float8_e4m3fn"),
        of_A: T.Tensor((M, K // group), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared = T.alloc_shared((bM, bK), "float8_e4m3fn")
            B_shared = T.alloc_shared((bN, bK), "float8_e4m3fn")
            part, C_local = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            T.clear(C_local)
            T.clear(part)
            for ko in T.Pipelined(K // bK, num_stages=4):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, part, transpose_B=True)
                if (ko + 1) % times == 0:
                    for i, j in T.Parallel(bM, bN):
                        C_local[i, j] += part[i, j] * of_A[by * bM + i, ko // times]
                    T.clear(part)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


# ---- references ----


def _spread(scales, group, length):
    return wide(scales).repeat(group, -1)[..., :length]


def scaled_in_registers_reference(A, B, scales):
    return wide((wide(A) * _spread(scales, 64, A.shape[1])).astype(A.dtype)) @ wide(B)


def scaled_in_shared_reference(A, B, rms, weight):
    return wide((wide(A) * rms[:, None] * wide(weight)).astype(A.dtype)) @ wide(B).T


def int8_weights_reference(A, B, scales):
    return wide(A) @ wide(B).T * scales


def _nibbles(B, packing, tile=64):
    low, high = B & 15, B >> 4
    if packing == "pairs":
        return np.stack([low, high], -1).reshape(len(B), -1)
    halves = [part.reshape(len(B), -1, tile // 2) for part in (low, high)]
    return np.concatenate(halves, -1).reshape(len(B), -1)


def _int4_reference(A, B, scales, packing):
    numbers = wide(_nibbles(B, packing)) - 8
    return wide(A) @ wide((numbers * _spread(scales, 128, A.shape[1])).astype(A.dtype)).T


def int4_pairs_reference(A, B, scales):
    return _int4_reference(A, B, scales, "pairs")


def int4_halves_reference(A, B, scales):
    return _int4_reference(A, B, scales, "halves")


def word_weights_reference(A, B, zeros, scales):
    at = [j // 2 + j % 2 * 4 for j in range(8)]
    numbers = np.stack([(B.view(np.uint32) >> np.uint32(4 * place)) & 15 for place in at], -1)
    weights = (numbers.reshape(len(B), -1) - wide(zeros)[:, None]) * wide(scales)[:, None]
    return wide(A) @ wide(weights.astype(A.dtype)).T


def looked_up_weights_reference(A, B, table, scales):
    weights = wide(table)[_nibbles(B, "pairs")] * _spread(scales, 64, A.shape[1])
    return wide(A) @ wide(weights.astype(A.dtype)).T


def converted_left_reference(A, B):
    return wide(A.astype(B.dtype)) @ wide(B)


def fp8_block_scales_reference(A, B, of_A, of_B):
    left = wide(A) * _spread(of_A, 128, A.shape[1])
    right = wide(B) * _spread(of_B.repeat(128, 0)[: len(B)], 128, B.shape[1])
    return left @ right.T


def fp8_scaled_at_times_reference(A, B, of_A):
    return (wide(A) * _spread(of_A, A.shape[1] // of_A.shape[1], A.shape[1])) @ wide(B).T


# ---- inputs ----


def word_weights_inputs(dims, rng):
    """Zero points are numbers that weights may be."""
    M, N, K = (dims[name] for name in "MNK")
    words = rng.integers(-(2**31), 2**31, (N, K // 8)).astype(np.int32)
    return [rng.standard_normal((M, K)), words, rng.integers(0, 16, N), rng.standard_normal(N)]
