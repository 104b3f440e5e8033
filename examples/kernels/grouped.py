"""Products of tokens with the weights of their experts, in the factory form.

Tokens are sorted by expert: those of expert g are rows offsets[g] to offsets[g + 1] - 1. ``weight`` is stored
(G, N, K). The grid has a block row for every tile of tokens and one more per expert, which is enough for any
split of the tokens; a block finds its expert by walking over the offsets.

Weights of 4 bits and 8-bit floats are those of ``quantised_packed.py``, ``gguf_blocks.py`` and ``fp8.py``,
the features of experts one behind the other.
"""

from __future__ import annotations

import numpy as np
from gguf_blocks import SIZES, linear_q4_0_inputs, unpack_blocks, weights_q4_0
from quantised_packed import GROUP, pack, unpack, unpack_words
from tile_math import f32

import tilec
import tilec.language as T


@T.macro
def tile_of_expert(offsets, by, G, bM):
    """The expert of a block row, its first row and how many it has from there on, 0 or less if none."""
    expert, row, end, before = (T.alloc_var("int32") for _ in range(4))
    for g in T.serial(G):
        tiles = T.ceildiv(offsets[g + 1] - offsets[g], bM)
        if (by >= before) & (by < before + tiles):
            expert = g
            row = offsets[g] + (by - before) * bM
            end = offsets[g + 1]
        before += tiles
    return expert + 0, row + 0, end - row


@T.macro
def expert_product(A, W, offsets, C, bx, by, bM, bN, bK, num_stages, scaled):
    """A block's tile of C: ``scaled(x, m, e, n)`` of each sum x, of row m, expert e and column n."""
    G, K = W.shape[0], W.shape[2]
    As, Ws = T.alloc_shared((bM, bK), A.dtype), T.alloc_shared((bN, bK), W.dtype)
    acc = T.alloc_fragment((bM, bN), "float32")
    e, first, rows = tile_of_expert(offsets, by, G, bM)
    if (rows > 0) & (e >= 0) & (e < G):
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
            T.copy(A[first, ko * bK], As)
            T.copy(W[e, bx * bN : (bx + 1) * bN, ko * bK : (ko + 1) * bK], Ws)
            T.gemm(As, Ws, acc, transpose_B=True)
        for i, j in T.Parallel(bM, bN):
            if i < rows:
                C[first + i, bx * bN + j] = scaled(acc[i, j], first + i, e, bx * bN + j)


@tilec.jit(out_idx=[-1])
def linear_grouped(tokens, N, K, G, dtype="bfloat16", bM=64, bN=128, bK=64, num_stages=2, threads=128):
    """C[m] = A[m] @ W[g].T for the expert g of row m; rows of no expert are left as they are."""

    @T.prim_func
    def main(
        A: T.Tensor((tokens, K), dtype),
        W: T.Tensor((G, N, K), dtype),
        offsets: T.Tensor((G + 1,), "int32"),
        C: T.Tensor((tokens, N), dtype),
    ):
        """C = A @ W[g].T, row by row with the weights of the row's expert."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(tokens, bM) + G, threads=threads) as (bx, by):
            expert_product(A, W, offsets, C, bx, by, bM, bN, bK, num_stages, lambda x, m, e, n: x)

    return main


@tilec.jit(out_idx=[-1])
def linear_grouped_fp8(
    tokens,
    N,
    K,
    G,
    dtype="float8_e4m3fn",
    out_dtype="bfloat16",
    bM=64,
    bN=128,
    bK=64,
    num_stages=2,
    threads=128,
):
    """:func:`linear_grouped` of 8-bit floats, with a scale per row of A and of W."""

    @T.prim_func
    def main(
        A: T.Tensor((tokens, K), dtype),
        W: T.Tensor((G, N, K), dtype),
        a_scale: T.Tensor((tokens,), "float32"),
        w_scale: T.Tensor((G, N), "float32"),
        offsets: T.Tensor((G + 1,), "int32"),
        C: T.Tensor((tokens, N), out_dtype),
    ):
        """C = A @ W[g].T, 8-bit floats in, scaled by rows."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(tokens, bM) + G, threads=threads) as (bx, by):
            expert_product(
                *(A, W, offsets, C, bx, by, bM, bN, bK, num_stages),
                lambda x, m, e, n: x * (a_scale[m] * w_scale[e, n]),
            )

    return main


@tilec.jit(out_idx=[-1])
def linear_grouped_packed(
    tokens, N, K, G, part=GROUP, dtype="bfloat16", bM=16, bN=64, bK=128, num_stages=4, threads=128
):
    """:func:`linear_grouped` with weights of 4 bits in packed order, for tensor cores: ``part`` of them along
    K share a scale, those of all experts lie side by side. K is a multiple of 128."""
    groups = bK // part

    @T.prim_func
    def main(
        A: T.Tensor((tokens, K), dtype),
        W: T.Tensor((G, N, K // 2), "uint8"),
        scales: T.Tensor((T.ceildiv(K, part), G, N), dtype),
        offsets: T.Tensor((G + 1,), "int32"),
        C: T.Tensor((tokens, N), dtype),
    ):
        """C = A @ W[g].T, W of 4 bits in packed order with a scale per part along K."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(tokens, bM) + G, threads=threads) as (bx, by):
            As, packed = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK // 2), "uint8")
            steps = T.alloc_shared((groups, bN), dtype)
            Ws = T.alloc_fragment((bN, bK), dtype)
            acc = T.alloc_fragment((bN, bM), "float32")
            e, first, rows = tile_of_expert(offsets, by, G, bM)
            if (rows > 0) & (e >= 0) & (e < G):
                T.clear(acc)
                for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                    T.copy(A[first, ko * bK], As)
                    T.copy(W[e, bx * bN : (bx + 1) * bN, ko * (bK // 2) : (ko + 1) * (bK // 2)], packed)
                    T.copy(scales[ko * groups : (ko + 1) * groups, e, bx * bN : (bx + 1) * bN], steps)
                    unpack_words(packed, steps, Ws, 4, part)
                    T.gemm(Ws, As, acc, transpose_B=True)
                for j, i in T.Parallel(bN, bM):
                    if i < rows:
                        C[first + i, bx * bN + j] = acc[j, i]

    return main


@tilec.jit(out_idx=[-1])
def linear_grouped_q4_0(tokens, N, K, G, dtype="bfloat16", bM=4, bN=32, bK=512, threads=128):
    """:func:`linear_grouped` with weights in GGUF's ``q4_0`` blocks, for CPUs: a tile of them becomes numbers
    of ``dtype`` for up to ``bM`` rows. K is a multiple of 128."""
    size, stored = SIZES["q4_0"]

    @T.prim_func
    def main(
        A: T.Tensor((tokens, K), dtype),
        W: T.Tensor((G, N, K // size, stored), "uint8"),
        offsets: T.Tensor((G + 1,), "int32"),
        C: T.Tensor((tokens, N), dtype),
    ):
        """C = A @ W[g].T, W in blocks of 4-bit weights as GGUF files have them."""
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(tokens, bM) + G, threads=threads) as (bx, by):
            As, blocks = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK // size, stored), "uint8")
            tile = T.alloc_fragment((bN, bK), dtype)
            acc = T.alloc_fragment((bN, bM), "float32")
            e, first, rows = tile_of_expert(offsets, by, G, bM)
            if (rows > 0) & (e >= 0) & (e < G):
                T.clear(acc)
                for ko in T.serial(T.ceildiv(K, bK)):
                    at = ko * (bK // size)
                    T.copy(A[first, ko * bK], As)
                    T.copy(W[e, bx * bN : (bx + 1) * bN, at : at + bK // size, 0:stored], blocks)
                    unpack_blocks("q4_0", blocks, tile)
                    T.gemm(tile, As, acc, transpose_B=True)
                for j, i in T.Parallel(bN, bM):
                    if i < rows:
                        C[first + i, bx * bN + j] = acc[j, i]

    return main


def linear_grouped_reference(A, W, offsets):
    """NumPy twin of :func:`linear_grouped`; rows of no expert are NaN."""
    out = np.full((A.shape[0], W.shape[1]), np.nan, np.float32)
    for g, weight in enumerate(f32(W)):
        first, end = offsets[g], offsets[g + 1]
        out[first:end] = f32(A[first:end]) @ weight.T
    return out


def linear_grouped_inputs(dims, rng):
    """Every token has an expert; some experts may have none."""
    tokens, N, K, G = (dims[name] for name in ("tokens", "N", "K", "G"))
    a = rng.standard_normal((tokens, K))
    w = rng.standard_normal((G, N, K)) * K**-0.5
    cuts = np.sort(rng.integers(0, tokens + 1, G - 1))
    return [a, w, np.concatenate([[0], cuts, [tokens]]).astype(np.int32)]


def linear_grouped_fp8_reference(A, W, a_scale, w_scale, offsets):
    """NumPy twin of :func:`linear_grouped_fp8`."""
    return linear_grouped_reference(f32(A) * a_scale[:, None], f32(W) * w_scale[..., None], offsets)


def linear_grouped_fp8_inputs(dims, rng):
    """:func:`linear_grouped_inputs` with scales between 0.5 and 1.5, divided so that results stay near 1."""
    a, w, offsets = linear_grouped_inputs(dims, rng)
    size = dims["K"] ** 0.5
    a_scale, w_scale = rng.uniform(0.5, 1.5, len(a)), rng.uniform(0.5, 1.5, w.shape[:2])
    return [a, w * size, a_scale / size, w_scale, offsets]


def linear_grouped_packed_reference(A, W, scales, offsets):
    """NumPy twin of :func:`linear_grouped_packed`."""
    weights = np.stack([f32(unpack(of_expert)) for of_expert in W])
    steps = np.repeat(np.moveaxis(f32(scales), 0, -1), weights.shape[2] // len(scales), axis=2)
    return linear_grouped_reference(A, weights * steps, offsets)


def linear_grouped_packed_inputs(dims, rng, part=32):
    """:func:`linear_grouped_inputs` with weights of all values, a scale for each 32 of them."""
    N, K, G = (dims[name] for name in ("N", "K", "G"))
    a, _, offsets = linear_grouped_inputs(dims, rng)
    packed = pack(rng.integers(-8, 8, (G * N, K)).astype(np.int8)).reshape(G, N, K // 2)
    return [a, packed, rng.uniform(0.5, 1.5, (K // part, G, N)) / (4 * K**0.5), offsets]


def linear_grouped_q4_0_reference(A, W, offsets):
    """NumPy twin of :func:`linear_grouped_q4_0`."""
    weights = np.stack([weights_q4_0(of_expert) for of_expert in W])
    return linear_grouped_reference(A, weights, offsets)


def linear_grouped_q4_0_inputs(dims, rng):
    """:func:`linear_grouped_inputs` with blocks of all bytes."""
    N, G = dims["N"], dims["G"]
    a, _, offsets = linear_grouped_inputs(dims, rng)
    _, blocks = linear_q4_0_inputs({**dims, "M": 1, "N": G * N}, rng)
    return [a, blocks.reshape(G, N, *blocks.shape[1:]), offsets]
