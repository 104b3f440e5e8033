"""Products with weights of 4 or 8 bits and activations of 16, in the factory form.

``weight`` is stored (N, K) with a scale per row and group of 128 along K. Eight-bit weights are int8. Two
4-bit weights share a byte, the one with the lower k in the low half; they stand for 0 to 15 minus 8.
"""

from __future__ import annotations

import numpy as np
from tile_math import f32

import tilec
import tilec.language as T

#: Weights along K that share a scale.
GROUP = 128


def per_byte(bits):
    """How many weights a stored byte holds; ValueError for widths without a kernel."""
    if bits not in (4, 8):
        raise ValueError(f"weights of {bits} bits: use 4 or 8")
    return 8 // bits


def stored_type(bits):
    """The element type of the stored weights."""
    return "int8" if bits == 8 else "uint8"


def number(byte, k, bits):
    """The weight at ``k`` of the byte that holds it, without its scale."""
    if bits == 8:
        return T.cast(byte, "float32")
    half = (T.cast(byte, "int32") >> (k % 2 * 4)) & 15
    return T.cast(half - 8, "float32")


def product_of_tiles(M, N, K, bits, dtype, bM, bN, bK, num_stages, threads):
    """The kernel of products of bM rows: a tile of W becomes 16-bit numbers on its way to them."""
    each = per_byte(bits)
    assert GROUP % bK == 0, f"bK = {bK} does not divide {GROUP}"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // each), stored_type(bits)),
        scales: T.Tensor((N, T.ceildiv(K, GROUP)), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T, W of few bits with a scale per 128 along K."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As, Ws = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            packed = T.alloc_fragment((bN, bK // each), stored_type(bits))
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(W[bx * bN, ko * (bK // each)], packed)
                for j, k in T.Parallel(bN, bK):
                    scale = T.cast(scales[bx * bN + j, ko * bK // GROUP], "float32")
                    Ws[j, k] = number(packed[j, k // each], k, bits) * scale
                T.gemm(As, Ws, acc, transpose_B=True)
            T.copy(acc, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def linear_quantised(M, N, K, bits=4, dtype="float16", bM=64, bN=64, bK=128, num_stages=2, threads=128):
    """C = A @ W.T; a tile of W becomes 16-bit numbers on its way to the product."""
    return product_of_tiles(M, N, K, bits, dtype, bM, bN, bK, num_stages, threads)


@tilec.jit(out_idx=[-1])
def gemv_quantised(M, N, K, bits=4, dtype="float16", bM=None, bN=16, bK=512, threads=128):
    """C = A @ W.T for few rows of A, one block row each: bytes of W meet the activations of their weights.

    bK is a multiple of 128, the extent of a group. With ``bM`` products of so many rows, which CPUs take
    without a tile of W and faster.
    """
    if bM is not None:
        return product_of_tiles(M, N, K, bits, dtype, bM, bN, bK, 2, threads)
    each = per_byte(bits)
    groups, run = bK // GROUP, GROUP // each

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // each), stored_type(bits)),
        scales: T.Tensor((N, T.ceildiv(K, GROUP)), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        """C = A @ W.T for a few rows of A, W of few bits with a scale per 128 along K."""
        with T.Kernel(T.ceildiv(N, bN), M, threads=threads) as (bx, m):
            packed = T.alloc_fragment((bN, bK // each), stored_type(bits))
            steps = T.alloc_fragment((bN, groups), dtype)
            halves = [T.alloc_fragment((bK // each,), "float32") for _ in range(each)]
            terms = T.alloc_fragment((bN, run), "float32")
            total = T.alloc_fragment((bN,), "float32")
            T.clear(terms)
            for ko in T.serial(T.ceildiv(K, bK)):
                T.copy(W[bx * bN, ko * (bK // each)], packed)
                T.copy(scales[bx * bN, ko * groups], steps)
                for p in T.Parallel(bK // each):
                    for k, half in enumerate(halves):
                        half[p] = A[m, ko * bK + p * each + k]
                for g in T.serial(groups):
                    for j, p in T.Parallel(bN, run):
                        value = number(packed[j, g * run + p], 0, bits) * halves[0][g * run + p]
                        if each == 2:
                            value += number(packed[j, g * run + p], 1, bits) * halves[1][g * run + p]
                        terms[j, p] += value * steps[j, g]
            T.reduce_sum(terms, total, dim=1)
            for j in T.Parallel(bN):
                C[m, bx * bN + j] = total[j]

    return main


def weights_reference(W, scales, columns):
    """The float32 weights that ``W`` and ``scales`` stand for."""
    if W.dtype == np.uint8:
        halves = np.stack([W & 15, W >> 4], axis=-1).reshape(W.shape[0], -1)
        numbers = halves.astype(np.float32) - 8
    else:
        numbers = f32(W)
    return numbers[:, :columns] * np.repeat(f32(scales), GROUP, axis=1)[:, :columns]


def linear_quantised_reference(A, W, scales):
    """NumPy twin of :func:`linear_quantised`."""
    return f32(A) @ weights_reference(W, scales, A.shape[1]).T


def gemv_quantised_reference(A, W, scales):
    """NumPy twin of :func:`gemv_quantised`."""
    return linear_quantised_reference(A, W, scales)


def linear_quantised_inputs(dims, rng, bits=4):
    """Normal activations, weights of all values, scales that keep the result near 1."""
    M, N, K = (dims[name] for name in ("M", "N", "K"))
    low, high, size = (0, 256, 4.0) if bits == 4 else (-128, 128, 64.0)
    scales = rng.uniform(0.5, 1.5, (N, -(-K // GROUP))) / (size * K**0.5)
    return [rng.standard_normal((M, K)), rng.integers(low, high, (N, K // per_byte(bits))), scales]


def linear_quantised8_inputs(dims, rng):
    """:func:`linear_quantised_inputs` with weights of 8 bits."""
    return linear_quantised_inputs(dims, rng, bits=8)
