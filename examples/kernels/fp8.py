"""Matrix products of 8-bit floats, in the factory form: one scale per tensor, per row, or per block of 128.

Operands are float8_e4m3fn, products add up in float32, and the result is scaled where its scale is known: at
the end for scales of whole tensors and of rows, after every 128 of K for scales of blocks. ``weight`` is
stored (N, K). :func:`round_rows` makes rows of 8-bit floats with a scale each; a norm and a gated activation
do so with what they compute.
"""

from __future__ import annotations

import numpy as np
from gemm import product, two_products
from norm import element, rmsnorm_residual_reference
from tile_math import f32, silu, silu_reference

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


@tilec.jit(out_idx=[-1])
def linear_fp8_silu_mul(
    M, N, K, dtype="float8_e4m3fn", out_dtype="bfloat16", bM=128, bN=128, bK=128, num_stages=2, threads=256
):
    """C = silu(A @ G.T) * (A @ U.T) with a scale per row of A, of G and of U."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        G: T.Tensor((N, K), dtype),
        U: T.Tensor((N, K), dtype),
        a_scale: T.Tensor((M,), "float32"),
        g_scale: T.Tensor((N,), "float32"),
        u_scale: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        """C = silu(A @ G.T) * (A @ U.T), 8-bit floats in, scaled by rows."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            gate = T.alloc_fragment((bM, bN), "float32")
            up = T.alloc_fragment((bM, bN), "float32")
            steps = T.ceildiv(K, bK)
            two_products(A, G, U, gate, up, by * bM, bx * bN, steps, bM, bN, bK, dtype, num_stages)
            for i, j in T.Parallel(bM, bN):
                opened = silu(gate[i, j] * (a_scale[by * bM + i] * g_scale[bx * bN + j]))
                passed = up[i, j] * (a_scale[by * bM + i] * u_scale[bx * bN + j])
                C[by * bM + i, bx * bN + j] = opened * passed

    return main


@T.macro
def round_row(held, top, value, Y, m, N, bN, stored):
    """Row m of Y = N numbers, scaled so that ``top``, the largest of them, becomes the largest of ``stored``.

    ``held`` are the first bN of them, zeros behind their end; ``value(j)`` makes those behind it, twice.
    """
    sizes = T.alloc_fragment((bN,), "float32")
    for j in T.Parallel(bN):
        sizes[j] = T.abs(held[j])
    for c in T.serial(1, T.ceildiv(N, bN)):
        for j in T.Parallel(bN):
            sizes[j] = T.max(sizes[j], T.abs(value(c * bN + j)))
    T.reduce_max(sizes, top, dim=0)
    for i in T.Parallel(1):
        top[i] = T.max(top[i], LEAST)
    for j in T.Parallel(bN):
        Y[m, j] = scaled(held[j], top[0], stored)
    for c in T.serial(1, T.ceildiv(N, bN)):
        for j in T.Parallel(bN):
            Y[m, c * bN + j] = scaled(value(c * bN + j), top[0], stored)


def scaled(x, top, stored):
    """x in ``stored``, where ``top`` is its largest."""
    return T.cast(T.min(T.max(x * (LARGEST / top), -LARGEST), LARGEST), stored)


@tilec.jit(out_idx=[-2, -1])
def round_rows(M, K, dtype="bfloat16", stored="float8_e4m3fn", bK=4096, threads=128):
    """Y * scale = X, rounded: the largest of each row becomes the largest that ``stored`` has."""

    @T.prim_func
    def main(X: T.Tensor((M, K), dtype), Y: T.Tensor((M, K), stored), scale: T.Tensor((M,), "float32")):
        """Rows of 8-bit floats with a scale each."""
        with T.Kernel(M, threads=threads) as m:
            held, top = T.alloc_fragment((bK,), "float32"), T.alloc_fragment((1,), "float32")
            for j in T.Parallel(bK):
                held[j] = T.cast(X[m, j], "float32")
            round_row(held, top, lambda j: T.cast(X[m, j], "float32"), Y, m, K, bK, stored)
            for i in T.Parallel(1):
                scale[m] = top[i] * (1 / LARGEST)

    return main


@tilec.jit
def rmsnorm_residual_rounded(
    X,
    R,
    G,
    eps: float = 1e-6,
    dtype: str = "bfloat16",
    stored: str = "float8_e4m3fn",
    bN: int = 4096,
    threads: int = 128,
):
    """H = X + R, Y * scale = H / rms(H) * G per row, Y rounded as :func:`round_rows` does.

    The root divides a row's largest as it does all of the row: Y needs H * G alone.
    """
    M, N, ldx = T.const("M N ldx")
    X: T.StridedTensor[[M, N], [ldx, 1], dtype]
    R: T.Tensor[[M, N], dtype]
    G: T.Tensor[[N], dtype]
    Y = T.empty((M, N), stored)
    scale = T.empty((M,), "float32")
    H = T.empty((M, N), dtype)
    with T.Kernel(M, threads=threads) as m:
        held, squares = [T.alloc_fragment((bN,), "float32") for _ in range(2)]
        top, total = [T.alloc_fragment((1,), "float32") for _ in range(2)]
        for j in T.Parallel(bN):
            h = element(X, R, m, j)
            H[m, j] = h
            squares[j] = h * h
            held[j] = h * G[j]
        for c in T.serial(1, T.ceildiv(N, bN)):
            for j in T.Parallel(bN):
                h = element(X, R, m, c * bN + j)
                H[m, c * bN + j] = h
                squares[j] = squares[j] + h * h
        T.reduce_sum(squares, total, dim=0)
        round_row(held, top, lambda j: element(X, R, m, j) * G[j], Y, m, N, bN, stored)
        for i in T.Parallel(1):
            scale[m] = top[i] * T.rsqrt(total[i] / N + eps) * (1 / LARGEST)
    return Y, scale, H


@tilec.jit
def silu_mul_rounded(
    gate, up, dtype: str = "bfloat16", stored: str = "float8_e4m3fn", bN: int = 4096, threads: int = 128
):
    """Y * scale = silu(gate) * up, rounded as :func:`round_rows` does; rows are ldg and ldu apart."""
    M, N, ldg, ldu = T.const("M N ldg ldu")
    gate: T.StridedTensor[[M, N], [ldg, 1], dtype]
    up: T.StridedTensor[[M, N], [ldu, 1], dtype]
    Y = T.empty((M, N), stored)
    scale = T.empty((M,), "float32")
    with T.Kernel(M, threads=threads) as m:
        held, top = T.alloc_fragment((bN,), "float32"), T.alloc_fragment((1,), "float32")
        for j in T.Parallel(bN):
            held[j] = gated(gate, up, m, j)
        round_row(held, top, lambda j: gated(gate, up, m, j), Y, m, N, bN, stored)
        for i in T.Parallel(1):
            scale[m] = top[i] * (1 / LARGEST)
    return Y, scale


def gated(gate, up, m, j):
    """silu(gate[m, j]) * up[m, j] in float32."""
    return silu(T.cast(gate[m, j], "float32")) * T.cast(up[m, j], "float32")


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


def linear_fp8_silu_mul_reference(A, G, U, a_scale, g_scale, u_scale):
    """NumPy twin of :func:`linear_fp8_silu_mul`."""
    opened = silu_reference(linear_fp8_rows_reference(A, G, a_scale, g_scale))
    return opened * linear_fp8_rows_reference(A, U, a_scale, u_scale)


def round_rows_reference(X):
    """NumPy twin of :func:`round_rows`: (Y, scale)."""
    top = np.maximum(np.abs(f32(X)).max(axis=1), np.float32(LEAST))
    return np.clip(f32(X) * (np.float32(LARGEST) / top)[:, None], -LARGEST, LARGEST), top / np.float32(
        LARGEST
    )


def rmsnorm_residual_rounded_reference(X, R, G, eps=1e-6):
    """NumPy twin of :func:`rmsnorm_residual_rounded`: (Y, scale, H)."""
    Y, H = rmsnorm_residual_reference(X, R, G, eps)
    return *round_rows_reference(Y), H


def silu_mul_rounded_reference(gate, up):
    """NumPy twin of :func:`silu_mul_rounded`: (Y, scale)."""
    return round_rows_reference(silu_reference(f32(gate)) * f32(up))


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


def linear_fp8_silu_mul_inputs(dims, rng):
    """As of :func:`linear_fp8_rows`, of two weights."""
    A, G, a_scale, g_scale = linear_fp8_rows_inputs(dims, rng)
    _, U, _, u_scale = linear_fp8_rows_inputs(dims, rng)
    return [A, G, U, a_scale, g_scale, u_scale]


def linear_fp8_blocks_inputs(dims, rng):
    """Normal operands; scales between 0.5 and 1.5, divided so that results stay near 1."""
    steps, blocks = -(-dims["K"] // BLOCK), -(-dims["N"] // BLOCK)
    a_scale, w_scale = (rng.uniform(0.5, 1.5, shape) for shape in ((dims["M"], steps), (blocks, steps)))
    return [*_operands(dims, rng), a_scale * dims["K"] ** -0.5, w_scale]


def _operands(dims, rng):
    return [rng.standard_normal((dims[rows], dims["K"])) for rows in ("M", "N")]
