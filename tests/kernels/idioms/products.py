"""Products as people write them: where the result goes, what the loops look like, who walks the tiles."""

from __future__ import annotations

import numpy as np
from family_math import wide

import tilec
import tilec.language as T
from tilec.carver.arch import driver


@tilec.jit(out_idx=[-1])
def plain(M, N, K, block_M=128, block_N=256, block_K=64, num_stages=4, threads=256, dtype="float16"):
    """The form beside which the others are measured."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilec.jit(out_idx=[-1])
def staged_result(M, N, K, block_M=128, block_N=128, block_K=64, num_stages=3, threads=256, dtype="float16"):
    """The result leaves through a tile in shared memory, swizzled, blocks in panels."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(panel_size=10)
            T.annotate_layout({C_shared: tilec.layout.make_swizzled_layout(C_shared)})
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


@tilec.jit(out_idx=[-1])
def persistent(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """A block for each multiprocessor walks the tiles that T.Persistent deals to it."""
    sms = driver.get_num_sms()

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(sms, threads=threads) as block:
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_shared = T.alloc_shared((bM, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            for bx, by in T.Persistent([T.ceildiv(M, bM), T.ceildiv(N, bN)], sms, block):
                T.clear(C_local)
                for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                    T.copy(A[bx * bM, ko * bK], A_shared)
                    T.copy(B[ko * bK, by * bN], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C_shared)
                T.copy(C_shared, C[bx * bM, by * bN])

    return main


@tilec.jit(out_idx=[-1])
def persistent_by_hand(M, N, K, bM=128, bN=128, bK=64, num_stages=3, threads=256, dtype="float16"):
    """The same walk as a loop of the author's, with a branch around the tile."""
    sms = driver.get_num_sms()

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(sms, threads=threads) as block:
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            rows, columns = T.ceildiv(M, bM), T.ceildiv(N, bN)
            for wave in T.serial(T.ceildiv(rows * columns, sms)):
                tile = wave * sms + block
                if tile < rows * columns:
                    bx, by = tile % rows, tile // rows
                    T.clear(C_local)
                    for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                        T.copy(A[bx * bM, ko * bK], A_shared)
                        T.copy(B[ko * bK, by * bN], B_shared)
                        T.gemm(A_shared, B_shared, C_local)
                    T.copy(C_local, C[bx * bM, by * bN])

    return main


@tilec.jit
def columns_in_block(A, B, bM: int = 128, bN: int = 128, bK: int = 64, wide_by: int = 4):
    """A block has ``wide_by`` tiles along N, one after the other."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.bfloat16]
    B: T.Tensor[[K, N], T.bfloat16]
    C = T.empty([M, N], T.bfloat16)
    with T.Kernel(T.ceildiv(N, bN * wide_by), T.ceildiv(M, bM), threads=256) as (bx, by):
        As, Bs = T.alloc_shared((bM, bK), T.bfloat16), T.alloc_shared((bK, bN), T.bfloat16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        for n in T.serial(wide_by):
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, k * bK], As)
                T.copy(B[k * bK, (bx * wide_by + n) * bN], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * bM, (bx * wide_by + n) * bN])
    return C


@tilec.jit
def serial_loop(A, B, bM: int = 128, bN: int = 128, bK: int = 64):
    """No pipeline asked for: copies at the head of a plain loop."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty([M, N], T.float16)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
        As, Bs = T.alloc_shared((bM, bK), T.float16), T.alloc_shared((bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        T.clear(acc)
        for k in range(T.ceildiv(K, bK)):
            T.copy(A[by * bM : (by + 1) * bM, k * bK : (k + 1) * bK], As)
            T.copy(B[k * bK : (k + 1) * bK, bx * bN : (bx + 1) * bN], Bs)
            T.gemm(As, Bs, acc)
        T.copy(acc, C[by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])
    return C


@tilec.jit(out_idx=[-1])
def clears_at_first(M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """The first trip overwrites the sums."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[bx * bN, ko * bK], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True, clear_accum=(ko == 0))
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def two_loops(M, N, K, K2, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """C = A B + X Y: two loops over K bring into the same tiles and add to the same sums."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        X: T.Tensor((M, K2), dtype),
        Y: T.Tensor((K2, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            left, right = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], left)
                T.copy(B[ko * bK, bx * bN], right)
                T.gemm(left, right, C_local)
            for ko in T.Pipelined(T.ceildiv(K2, bK), num_stages=num_stages):
                T.copy(X[by * bM, ko * bK], left)
                T.copy(Y[ko * bK, bx * bN], right)
                T.gemm(left, right, C_local)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit
def onto_c(M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """C += A B: the sums start from what C holds."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            T.copy(C[by * bM, bx * bN], C_local)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[ko * bK, bx * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def from_bias(M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """The sums start from a row of biases."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        bias: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            for i, j in T.Parallel(bM, bN):
                C_local[i, j] = bias[bx * bN + j]
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], A_shared)
                T.copy(B[ko * bK, bx * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * bM, bx * bN])

    return main


@tilec.jit
def split_k_elements(M, N, K, splits=4, bM=128, bN=128, bK=64, dtype="float16"):
    """Parts of K by blocks of their own; each adds its elements to C."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), splits, threads=256) as (bx, by, bz):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            part = T.ceildiv(T.ceildiv(K, splits), bK)
            T.clear(C_local)
            for ko in T.Pipelined(part, num_stages=3):
                T.copy(A[by * bM, (bz * part + ko) * bK], A_shared)
                T.copy(B[(bz * part + ko) * bK, bx * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(bM, bN):
                T.atomic_add(C[by * bM + i, bx * bN + j], C_local[i, j])

    return main


@tilec.jit
def split_k_tiles(M, N, K, splits=4, bM=128, bN=128, bK=64, dtype="bfloat16"):
    """The same, with whole tiles added from shared memory."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), splits, threads=256) as (bx, by, bz):
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_shared = T.alloc_shared((bM, bN), "float32")
            C_local = T.alloc_fragment((bM, bN), "float32")
            part = T.ceildiv(T.ceildiv(K, splits), bK)
            T.clear(C_local)
            for ko in T.Pipelined(part, num_stages=3):
                T.copy(A[by * bM, (bz * part + ko) * bK], A_shared)
                T.copy(B[(bz * part + ko) * bK, bx * bN], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C_shared)
            T.atomic_add(C[by * bM, bx * bN], C_shared)

    return main


@tilec.jit
def stream_k(M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """Whole waves of tiles first; the rest of the steps along K in equal shares, added to a zeroed C."""
    sms = driver.get_num_sms()

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(sms, threads=256) as block:
            A_shared, B_shared = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local = T.alloc_fragment((bM, bN), "float32")
            at, last, steps = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            columns, trips = T.ceildiv(N, bN), T.ceildiv(K, bK)
            tiles = T.ceildiv(M, bM) * columns
            whole = tiles // sms * sms
            for wave in T.serial(whole // sms):
                tile = wave * sms + block
                T.clear(C_local)
                for ko in T.Pipelined(trips, num_stages=num_stages):
                    T.copy(A[tile // columns * bM, ko * bK], A_shared)
                    T.copy(B[tile % columns * bN, ko * bK], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                T.copy(C_local, C[tile // columns * bM, tile % columns * bN])
            at = block * ((tiles - whole) * trips) // sms
            last = (block + 1) * ((tiles - whole) * trips) // sms
            while at < last:
                tile = whole + at // trips
                first = at % trips
                steps = T.min(trips - first, last - at)
                T.clear(C_local)
                for ko in T.Pipelined(steps, num_stages=num_stages):
                    T.copy(A[tile // columns * bM, (first + ko) * bK], A_shared)
                    T.copy(B[tile % columns * bN, (first + ko) * bK], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                for i, j in T.Parallel(bM, bN):
                    T.atomic_add(C[tile // columns * bM + i, tile % columns * bN + j], C_local[i, j])
                at += steps

    return main


# ---- references ----


def product_reference(A, B):
    return wide(A) @ wide(B)


def product_nt_reference(A, B):
    return wide(A) @ wide(B).T


def two_loops_reference(A, B, X, Y):
    return wide(A) @ wide(B) + wide(X) @ wide(Y)


def onto_c_reference(A, B, C):
    return wide(C) + wide(A) @ wide(B)


def onto_c_nt_reference(A, B, C):
    return wide(C) + wide(A) @ wide(B).T


def from_bias_reference(A, B, bias):
    return wide(A) @ wide(B) + bias


# ---- inputs ----


def zeroed_inputs(dims, rng):
    """A, B with rows along K, and a C of zeros."""
    M, N, K = (dims[name] for name in "MNK")
    return [rng.standard_normal((M, K)), rng.standard_normal((N, K)), np.zeros((M, N), np.float32)]
