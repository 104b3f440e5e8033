"""What people do with the sums of a product before they leave: reductions, narrow types, branches, turns."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from family_math import silu, wide

import tilec
import tilec.language as T

FP8_MAX = 448.0


@T.macro
def multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K):
    """The sums of one tile; B has its rows along K."""
    T.clear(C_local)
    for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
        T.copy(A[by * bM, ko * bK], A_shared)
        T.copy(B[bx * bN, ko * bK], B_shared)
        T.gemm(A_shared, B_shared, C_local, transpose_B=True)


@tilec.jit(out_idx=[-2, -1])
def narrowed(M, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """float8 with a scale for each row of each 128 columns, from the largest magnitude there."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), "float8_e4m3fn"),
        scales: T.Tensor((M, T.ceildiv(N, bN)), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            C_narrow = T.alloc_fragment((bM, bN), "float8_e4m3fn")
            largest, scale = T.alloc_fragment((bM,), "float32"), T.alloc_fragment((bM,), "float32")
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            T.reduce_absmax(C_local, largest, dim=1)
            for i in T.Parallel(bM):
                scale[i] = T.max(largest[i], 1e-4) / FP8_MAX
            for i, j in T.Parallel(bM, bN):
                C_narrow[i, j] = T.clamp(C_local[i, j] / scale[i], -FP8_MAX, FP8_MAX)
            T.copy(C_narrow, C[by * bM, bx * bN])
            for i in T.Parallel(bM):
                scales[by * bM + i, bx] = scale[i]

    return main


@tilec.jit(out_idx=[-1])
def row_softmax(M, N, K, bM=128, bK=64, dtype="float16"):
    """Rows of weights: all columns of a row are in one block."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, bM), threads=256) as by:
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((N, bK), dtype)
            C_local = T.alloc_fragment((bM, N), "float32")
            C_shared = T.alloc_shared((bM, N), dtype)
            top, total = T.alloc_fragment((bM,), "float32"), T.alloc_fragment((bM,), "float32")
            multiplied(A, B, A_shared, B_shared, C_local, by, 0, bM, N, bK, K)
            T.reduce_max(C_local, top, dim=1)
            for i, j in T.Parallel(bM, N):
                C_local[i, j] = T.exp(C_local[i, j] - top[i])
            T.reduce_sum(C_local, total, dim=1)
            for i, j in T.Parallel(bM, N):
                C_local[i, j] /= total[i]
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * bM, 0])

    return main


@tilec.jit
def row_sums(M, N, K, bM=128, bN=128, bK=64, dtype="float16"):
    """The product, and the sum of each row, to which every block of its columns adds."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
        sums: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local, total = T.alloc_fragment((bM, bN), "float32"), T.alloc_fragment((bM,), "float32")
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            T.copy(C_local, C[by * bM, bx * bN])
            T.reduce_sum(C_local, total, dim=1)
            for i in T.Parallel(bM):
                T.atomic_add(sums[by * bM + i], total[i])

    return main


@tilec.jit(out_idx=[-1])
def rotary(M, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """Neighbouring columns are turned by the angle of their row; heads are as wide as a tile."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        Cos: T.Tensor((M, bN // 2), "float32"),
        Sin: T.Tensor((M, bN // 2), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local, turned = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            for i, j in T.Parallel(bM, bN):
                turned[i, j] = (
                    C_local[i, j] * Cos[by * bM + i, j // 2]
                    + T.if_then_else(j % 2 == 0, -C_local[i, j + 1], C_local[i, j - 1])
                    * Sin[by * bM + i, j // 2]
                )
            T.copy(turned, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def rotary_staged(M, N, K, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """The same by pairs, out of a tile in shared memory."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        Cos: T.Tensor((M, bN // 2), "float32"),
        Sin: T.Tensor((M, bN // 2), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local, C_shared = T.alloc_fragment((bM, bN), "float32"), T.alloc_shared((bM, bN), "float32")
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            T.copy(C_local, C_shared)
            for i, j in T.Parallel(bM, bN // 2):
                x, y = C_shared[i, 2 * j], C_shared[i, 2 * j + 1]
                c, s = Cos[by * bM + i, j], Sin[by * bM + i, j]
                C[by * bM + i, bx * bN + 2 * j] = x * c - y * s
                C[by * bM + i, bx * bN + 2 * j + 1] = y * c + x * s

    return main


@tilec.jit(out_idx=[-1])
def elementwise(M, N, K, function="cos", bM=128, bN=128, bK=64, dtype="float16"):
    """Any function of the sums, one for each number."""
    functions = {
        "cos": T.cos,
        "floor": lambda x: T.floor(x * 0.25),
        "gelu": lambda x: 0.5 * x * (1.0 + T.erf(x * 0.70710678)),
        "bits": lambda x: T.reinterpret(T.reinterpret(x, "uint32") & T.uint32(0xFFFF0000), "float32"),
    }

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            for i, j in T.Parallel(bM, bN):
                C_local[i, j] = functions[function](C_local[i, j])
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def branched(M, N, K, gates, bM=128, bN=128, bK=64, dtype="float16"):
    """The first ``gates`` columns get silu, the others a bias: a branch around the ends of blocks."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            if bx * bN < gates:
                for i, j in T.Parallel(bM, bN):
                    C_local[i, j] = C_local[i, j] * T.sigmoid(C_local[i, j])
            else:
                for i, j in T.Parallel(bM, bN):
                    C_local[i, j] += bias[bx * bN + j]
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-2, -1])
def stored_twice(M, N, K, bM=128, bN=128, bK=64, dtype="float16"):
    """What went into the activation is kept for the way back, beside what came out with a residual."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        R: T.Tensor((M, N), dtype),
        Before: T.Tensor((M, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            R_shared = T.alloc_shared((bM, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.copy(R[by * bM, bx * bN], R_shared)
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            T.copy(C_local, Before[by * bM, bx * bN])
            for i, j in T.Parallel(bM, bN):
                C_local[i, j] = T.max(C_local[i, j], 0.0) + R_shared[i, j]
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def rescaled_int8(M, N, K, bM=128, bN=128, bK=128):
    """int8 by int8 with a scale for each row and for each column."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K), "int8"),
        of_rows: T.Tensor((M,), "float32"),
        of_columns: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), "int8"), T.alloc_shared((bN, bK), "int8")
            rows, columns = T.alloc_fragment((bM,), "float32"), T.alloc_fragment((bN,), "float32")
            C_local, scaled = T.alloc_fragment((bM, bN), "int32"), T.alloc_fragment((bM, bN), "float32")
            C_shared = T.alloc_shared((bM, bN), "bfloat16")
            multiplied(A, B, A_shared, B_shared, C_local, by, bx, bM, bN, bK, K)
            T.copy(of_rows[by * bM], rows)
            T.copy(of_columns[bx * bN], columns)
            for i, j in T.Parallel(bM, bN):
                scaled[i, j] = C_local[i, j] * rows[i] * columns[j]
            T.copy(scaled, C_shared)
            T.copy(C_shared, C[by * bM, bx * bN])

    return main


# ---- references ----


def _product(A, B):
    return wide(A) @ wide(B).T


def narrowed_reference(A, B):
    C = _product(A, B)
    parts = [C[:, start : start + 128] for start in range(0, C.shape[1], 128)]
    scales = [np.maximum(np.abs(part).max(1), 1e-4) / FP8_MAX for part in parts]
    narrow = [part / scale[:, None] for part, scale in zip(parts, scales, strict=True)]
    return np.concatenate(narrow, 1).astype(ml_dtypes.float8_e4m3fn), np.stack(scales, 1)


def row_softmax_reference(A, B):
    C = np.exp(_product(A, B) - _product(A, B).max(1, keepdims=True))
    return C / C.sum(1, keepdims=True)


def row_sums_reference(A, B, sums):
    return _product(A, B), sums + _product(A, B).sum(1)


def rotary_reference(A, B, Cos, Sin):
    pairs = _product(A, B).reshape(len(A), -1, 2)
    x, y = pairs[..., 0], pairs[..., 1]
    heads = -(-x.shape[1] // Cos.shape[1])
    c, s = (np.tile(angle, heads)[:, : x.shape[1]] for angle in (Cos, Sin))
    return np.stack([x * c - y * s, y * c + x * s], -1).reshape(len(A), -1)


def cos_reference(A, B):
    return np.cos(_product(A, B))


def floor_reference(A, B):
    return np.floor(_product(A, B) * 0.25)


def gelu_reference(A, B):
    from math import erf

    C = _product(A, B)
    return 0.5 * C * (1 + np.vectorize(erf)(C * 0.70710678))


def bits_reference(A, B):
    return (_product(A, B).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def branched_reference(A, B, bias, gates=128):
    C = _product(A, B)
    return np.concatenate([silu(C[:, :gates]), (C + wide(bias))[:, gates:]], 1)


def stored_twice_reference(A, B, R):
    return _product(A, B), np.maximum(_product(A, B), 0) + wide(R)


def rescaled_int8_reference(A, B, of_rows, of_columns):
    return _product(A, B) * of_rows[:, None] * of_columns


# ---- inputs ----


def small_inputs(dims, rng):
    """Products of few units."""
    M, N, K = (dims[name] for name in "MNK")
    return [rng.standard_normal((M, K)), rng.standard_normal((N, K)) * K**-0.5]


def whole_inputs(dims, rng):
    """Whole numbers, whose sums are exact."""
    M, N, K = (dims[name] for name in "MNK")
    return [rng.integers(-2, 3, (M, K)), rng.integers(-2, 3, (N, K))]
