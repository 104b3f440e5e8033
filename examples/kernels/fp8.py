"""Matrix products of 8-bit floats, in the factory form: one scale per tensor, per row, or per block of 128.

Operands are float8_e4m3fn, products add up in float32, and the result is scaled where its scale is known: at
the end for scales of whole tensors and of rows, after every 128 of K for scales of blocks. ``weight`` is
stored (N, K). :func:`round_rows` makes rows of 8-bit floats with a scale each.
"""

from __future__ import annotations

import numpy as np
from gemm import product
from tile_math import f32

import tilec
import tilec.language as T

#: Extent of a block that has a scale of its own.
BLOCK = 128
#: The largest float8_e4m3fn (OCP 8-bit Floating Point Specification 1.0, table 1); what rows of zeros have.
LARGEST, LEAST = 448.0, 1e-30


@tilec.jit(out_idx=[-1])
def linear_fp8(
    M, N, K, dtype="float8_e4m3fn", out_dtype="bfloat16", bM=128, bN=128, bK=64, num_stages=2, threads=128
):
    """C = scale * (A @ W.T): ``scale`` is the product of the scales of A and W."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        scale: T.float32,
        C: T.Tensor((M, N), out_dtype),
    ):
        """C = scale * (A @ W.T), 8-bit floats in."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            acc = T.alloc_fragment((bM, bN), "float32")
            product(A, W, acc, by * bM, bx * bN, T.ceildiv(K, bK), bM, bN, bK, dtype, num_stages)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = acc[i, j] * scale

    return main


@tilec.jit(out_idx=[-1])
def linear_fp8_rows(
    M, N, K, dtype="float8_e4m3fn", out_dtype="bfloat16", bM=128, bN=128, bK=64, num_stages=2, threads=128
):
    """C = A @ W.T with a scale per row of A and of W."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        a_scale: T.Tensor((M,), "float32"),
        w_scale: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        """C = A @ W.T, 8-bit floats in, scaled by rows."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            acc = T.alloc_fragment((bM, bN), "float32")
            product(A, W, acc, by * bM, bx * bN, T.ceildiv(K, bK), bM, bN, bK, dtype, num_stages)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = acc[i, j] * (a_scale[by * bM + i] * w_scale[bx * bN + j])

    return main


@tilec.jit(out_idx=[-2, -1])
def round_rows(M, K, dtype="bfloat16", stored="float8_e4m3fn", bK=4096, threads=128):
    """Y * scale = X, rounded: the largest of each row becomes the largest that ``stored`` has."""

    @T.prim_func
    def main(X: T.Tensor((M, K), dtype), Y: T.Tensor((M, K), stored), scale: T.Tensor((M,), "float32")):
        """Rows of 8-bit floats with a scale each."""
        with T.Kernel(M, threads=threads) as m:
            sizes, top = T.alloc_fragment((bK,), "float32"), T.alloc_fragment((1,), "float32")
            T.clear(sizes)
            for c in T.serial(T.ceildiv(K, bK)):
                for j in T.Parallel(bK):
                    sizes[j] = T.max(sizes[j], T.abs(T.cast(X[m, c * bK + j], "float32")))
            T.reduce_max(sizes, top, dim=0)
            for i in T.Parallel(1):
                top[i] = T.max(top[i], LEAST)
                scale[m] = top[i] * (1 / LARGEST)
            for c in T.serial(T.ceildiv(K, bK)):
                for j in T.Parallel(bK):
                    x = T.cast(X[m, c * bK + j], "float32") * (LARGEST / top[0])
                    Y[m, c * bK + j] = T.cast(T.min(T.max(x, -LARGEST), LARGEST), stored)

    return main


@tilec.jit(out_idx=[-1])
def linear_fp8_blocks(
    M, N, K, dtype="float8_e4m3fn", out_dtype="bfloat16", bM=128, bN=128, num_stages=2, threads=128
):
    """C = A @ W.T with a scale per row and 128 of K for A, and per 128 x 128 block for W.

    Where bN divides 128, a block of C sees one row of W's scales.
    """
    one_row = BLOCK % bN == 0

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        a_scale: T.Tensor((M, T.ceildiv(K, BLOCK)), "float32"),
        w_scale: T.Tensor((T.ceildiv(N, BLOCK), T.ceildiv(K, BLOCK)), "float32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        """C = A @ W.T, 8-bit floats in, scaled by blocks of 128."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As, Ws = T.alloc_shared((bM, BLOCK), dtype), T.alloc_shared((bN, BLOCK), dtype)
            acc, part = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, BLOCK), num_stages=num_stages):
                T.copy(A[by * bM, ko * BLOCK], As)
                T.copy(W[bx * bN, ko * BLOCK], Ws)
                T.gemm(As, Ws, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(bM, bN):
                    block = bx * bN // BLOCK if one_row else (bx * bN + j) // BLOCK
                    both = a_scale[by * bM + i, ko] * w_scale[block, ko]
                    acc[i, j] = acc[i, j] + part[i, j] * both
            T.copy(acc, C[by * bM, bx * bN])

    return main


def linear_fp8_reference(A, W, scale):
    """NumPy twin of :func:`linear_fp8`."""
    return f32(A) @ f32(W).T * np.float32(scale)


def linear_fp8_rows_reference(A, W, a_scale, w_scale):
    """NumPy twin of :func:`linear_fp8_rows`."""
    return f32(A) @ f32(W).T * np.outer(a_scale, w_scale)


def round_rows_reference(X):
    """NumPy twin of :func:`round_rows`: (Y, scale)."""
    top = np.maximum(np.abs(f32(X)).max(axis=1), np.float32(LEAST))
    return np.clip(f32(X) * (np.float32(LARGEST) / top)[:, None], -LARGEST, LARGEST), top / np.float32(
        LARGEST
    )


def linear_fp8_blocks_reference(A, W, a_scale, w_scale):
    """NumPy twin of :func:`linear_fp8_blocks`."""
    rows, columns = A.shape[1], W.shape[0]
    a = f32(A) * np.repeat(a_scale, BLOCK, axis=1)[:, :rows]
    w = f32(W) * np.repeat(np.repeat(w_scale, BLOCK, axis=0), BLOCK, axis=1)[:columns, :rows]
    return a @ w.T


def linear_fp8_inputs(dims, rng):
    """Normal operands and a scale that keeps the result near 1."""
    return [*_operands(dims, rng), float(dims["K"]) ** -0.5]


def linear_fp8_rows_inputs(dims, rng):
    """Normal operands; scales between 0.5 and 1.5, divided so that results stay near 1."""
    a_scale, w_scale = (rng.uniform(0.5, 1.5, dims[rows]) for rows in ("M", "N"))
    return [*_operands(dims, rng), a_scale * dims["K"] ** -0.5, w_scale]


def linear_fp8_blocks_inputs(dims, rng):
    """Normal operands; scales between 0.5 and 1.5, divided so that results stay near 1."""
    steps, blocks = -(-dims["K"] // BLOCK), -(-dims["N"] // BLOCK)
    a_scale, w_scale = (rng.uniform(0.5, 1.5, shape) for shape in ((dims["M"], steps), (blocks, steps)))
    return [*_operands(dims, rng), a_scale * dims["K"] ** -0.5, w_scale]


def _operands(dims, rng):
    return [rng.standard_normal((dims[rows], dims["K"])) for rows in ("M", "N")]
